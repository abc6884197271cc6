//! `sanderling datanode drain`: gives the datanode of this machine its notice, as a preStop hook
//! does.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::notice_deadline::NoticeDeadline;
use sanderling_command::ready::Ready;
use sanderling_command::session::Session;
use sanderling_command::units::{self, Span};
use sanderling_transport::{ClientTls, PageCall, PageCallError};
use serde_json::{Value, json};

use super::datanode::HTTP_DEFAULT;
use super::page_token::{PageEndpoint, page_token};
use crate::security::CallerCredentials;

/// `sanderling datanode drain`.
#[derive(Debug, Clone, Args)]
pub struct LocalDrain {
    /// Where the datanode serves HTTP
    #[arg(long, value_name = "ADDRESS", default_value = HTTP_DEFAULT)]
    http: String,
    /// The datanode's ready file, which has that address
    #[arg(long, value_name = "FILE", conflicts_with = "http")]
    ready_file: Option<PathBuf>,
    /// Time until the machine is taken, from the start of the command
    #[arg(long, value_name = "DURATION", default_value = "25s")]
    deadline: Span,
    /// Reason, for the events
    #[arg(long, value_name = "TEXT", default_value = "drain")]
    reason: String,
    /// Wait until the node is empty, or until the deadline; exit code 5 when blocks are left
    #[arg(long)]
    wait: bool,
    /// What makes a token, where no token is given.
    #[command(flatten)]
    held: CallerCredentials,
}

/// How long the datanode may take to answer, beside the time that is waited for: the default
/// deadline of a call, because it calls its namenode meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives the notice, and waits if that is requested.
///
/// # Errors
/// Unavailable (4): no datanode answers there, or no namenode takes the notice now. Partial (5):
/// blocks were left at the deadline, or the notice was taken back.
pub(crate) async fn run(session: Session, args: LocalDrain) -> Result<(), Failure> {
    let given = i64::try_from(args.deadline.0.as_millis()).unwrap_or(i64::MAX);
    let deadline = NoticeDeadline::from_now(given);
    let address = address(&args)?;
    let endpoint = PageEndpoint { address: &address, server: "datanode" };
    let token = page_token(&session, &args.held, "drain", &endpoint)?;
    let tls = session.credentials.tls.as_ref();
    let tried =
        |failure: Failure| failure.tried(format_args!("a notice to the datanode at {address}"));
    check_role(&address, tls).await.map_err(tried)?;
    // That may have taken long.
    let millis = deadline.left_millis();
    let left = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    let body = json!({ "deadline_millis": millis, "reason": args.reason }).to_string();
    let call = PageCall {
        address: &address,
        tls,
        token,
        method: "POST",
        target: if args.wait { "/v1/notice?wait=true" } else { "/v1/notice" },
        body,
        within: if args.wait { left.saturating_add(ANSWER_TIMEOUT) } else { ANSWER_TIMEOUT },
    };
    let (status, body) = tokio::select! {
        answer = call.send() => answer.map_err(unanswered).map_err(tried)?,
        () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
    };
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status != 200 {
        return Err(tried(refused(status, &answer)));
    }
    let is_drained = answer["policy"] == "drained";
    if !answer["id"].is_u64() || args.wait && !is_drained {
        return Err(tried(refused(status, &Value::Null)));
    }
    print(&session, &args, &answer)
}

fn address(args: &LocalDrain) -> Result<String, Failure> {
    let Some(file) = &args.ready_file else { return Ok(args.http.clone()) };
    Ready::read(file).and_then(|ready| ready.http_address).ok_or_else(|| {
        let cause = format!("{} names no datanode that serves HTTP", file.display());
        Failure::new(Exit::NotFound, RefusalKind::NotFound, cause)
            .next("sanderling datanode --ready-file FILE")
    })
}

/// Refuses a server that is no datanode: a namenode takes notices of its own machine in the same
/// form, and would leave its group.
async fn check_role(address: &str, tls: Option<&ClientTls>) -> Result<(), Failure> {
    let (method, target, body, token) = ("GET", "/healthz", String::new(), None);
    let within = ANSWER_TIMEOUT;
    let call = PageCall { address, tls, token, method, target, body, within };
    let (_, body) = call.send().await.map_err(unanswered)?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let cause = match answer["role"].as_str() {
        Some("datanode") => return Ok(()),
        Some(role) => format!("a {role} serves at {address}, no datanode: it got no notice"),
        None => format!("no datanode serves at {address}"),
    };
    Err(Failure::new(Exit::Failure, FailureKind::BadAddress, cause)
        .next("sanderling datanode drain --http ADDRESS, or --ready-file FILE of the datanode"))
}

fn unanswered(error: PageCallError) -> Failure {
    let next = "sanderling datanode drain --http ADDRESS, or --ready-file FILE of the datanode";
    Failure::caused(Exit::Unavailable, FailureKind::Unavailable, error).next(next)
}

fn refused(status: u16, answer: &Value) -> Failure {
    let text = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
    let (name, message) = (text("name"), text("message"));
    let (exit, next) = match status {
        401 | 403 => (Exit::Failure, "the same with --token-file or --secret-file"),
        // The datanode has the notice, and repeats it to its namenodes.
        502 | 503 => (Exit::Unavailable, "sanderling doctor"),
        504 => (Exit::Partial, "sanderling fsck lists what is lost once the machine is gone"),
        _ => (Exit::Failure, "sanderling node ls --all"),
    };
    let cause = match message.is_empty() {
        true => format!("the answer has status {status}: no datanode serves there"),
        false => message,
    };
    Failure::new(exit, FailureKind::of_page(&name), cause).next(next)
}

fn print(session: &Session, args: &LocalDrain, node: &Value) -> Result<(), Failure> {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let name = node["name"].as_str().unwrap_or_default();
    let title = format!("node {} ({name})", number(&node["id"]));
    let drain = &node["drain"];
    session.output.result(node, |writer| {
        if args.wait {
            let moved = number(&drain["moved_blocks"]) + number(&drain["promoted_blocks"]);
            let bytes = number(&drain["moved_bytes"]) + number(&drain["promoted_bytes"]);
            let bytes = units::bytes(bytes);
            return writeln!(writer, "{title} is empty: {moved} blocks, {bytes} have left");
        }
        let blocks = number(&node["blocks"]);
        let bytes = units::bytes(number(&node["exposure_bytes"]));
        let deadline = units::duration(args.deadline.0);
        writeln!(writer, "{title}: {blocks} blocks, {bytes} leave within {deadline}")
    })?;
    let lost = number(&drain["lost_blocks"]);
    if !args.wait || lost == 0 {
        return Ok(());
    }
    let bytes = units::bytes(number(&drain["lost_bytes"]));
    let cause = format!("{bytes} in {lost} blocks were lost with {title}");
    Err(Failure::new(Exit::Partial, RefusalKind::DataUnavailable, cause).next("sanderling fsck"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_group_that_cannot_decide_now_may_be_tried_again() {
        for (status, name) in [(503, "NotLeader"), (502, "Undecided"), (503, "RetryAfter")] {
            let failure = refused(status, &json!({ "error": { "name": name, "message": "why" } }));
            assert_eq!((failure.exit, failure.kind.name()), (Exit::Unavailable, name));
        }
        let failure = refused(400, &json!({ "error": { "name": "BadRequest", "message": "why" } }));
        assert_eq!(failure.exit, Exit::Failure);
    }
}
