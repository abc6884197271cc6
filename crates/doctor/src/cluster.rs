//! What is around the machine: ports, the namenode, the cloud, Python.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sanderling_client::diagnosed;
use sanderling_command::cluster::first_address;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_protocol::Policy;
use sanderling_protocol::message::{Hello, Role};
use sanderling_transport::{CallError, CredentialsFault, not_namenode};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::check::{Check, CheckLevel};
use super::observations::{ClusterLook, Unseen};
use super::unanswered::FailedCall;

/// How long the namenode may take to answer a greeting. One lost packet is sent again within it
/// (after 1 s, RFC 6298). Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The metadata services at which clouds report a machine's identity and its preemption.
const METADATA_SERVICE: &str = "169.254.169.254:80";

/// Checks for each port of a namenode on this machine whether it is free.
pub(super) async fn ports(namenode: &str) -> Vec<Check> {
    let Some((host, port)) = namenode.rsplit_once(':') else { return Vec::new() };
    let Ok(port) = port.parse::<u16>() else { return Vec::new() };
    if !matches!(host, "127.0.0.1" | "localhost" | "[::1]") {
        return Vec::new();
    }
    let mut checks = Vec::new();
    for port in [port, port.saturating_add(1)] {
        let address = format!("{host}:{port}");
        checks.push(match TcpListener::bind(&address).await {
            Ok(_) => Check::ok("port", format!("{port} is free")),
            Err(_) if TcpStream::connect(&address).await.is_ok() => {
                let found = format!("{port} is in use: a process listens there");
                checks.push(Check::ok("port", found));
                // A cluster runs: what it listens on is looked at below.
                return checks;
            }
            Err(error) => Check::warn(
                "port",
                format!("{port} cannot be listened on: {error}"),
                "sanderling local start --port 0",
            ),
        });
    }
    checks
}

/// Checks each of the addresses of namenodes, the first one first.
pub(super) async fn namenodes(session: &Session) -> Vec<Check> {
    let mut checks = Vec::new();
    for address in session.namenode.split(',') {
        checks.push(namenode(&session.at(address)).await);
    }
    checks
}

async fn namenode(session: &Session) -> Check {
    let name = "namenode";
    let address = &session.namenode;
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let began = Instant::now();
    let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
    match session.knock(hello, deadline).await {
        Err(error) => unanswered(session, diagnosed(address, error, deadline).await).await,
        Ok((_, reply)) if reply.role != Role::Namenode => {
            unanswered(session, not_namenode(address, reply.role)).await
        }
        Ok((_, reply)) => {
            let answered = units::duration(began.elapsed());
            let cluster = reply.cluster.map_or(0, |cluster| cluster.0);
            let found = format!("{address} answers in {answered}, cluster {cluster:016x}");
            Check::ok(name, found)
        }
    }
}

/// Judges a call to the namenode that failed, with what else can be seen of it.
async fn unanswered(session: &Session, error: CallError) -> Check {
    let address = &session.namenode;
    let certificates = match (&error, &session.credentials.tls) {
        (CallError::Credentials { cause: CredentialsFault::Peer(_), .. }, Some(tls)) => {
            let shown = timeout(ANSWER_TIMEOUT, tls.shown_by(address)).await;
            shown.ok().and_then(Result::ok).map(Into::into)
        }
        _ => None,
    };
    let call = FailedCall {
        error: &error,
        is_configured: session.is_configured,
        advice: sanderling_local::advice(address),
        keys: sanderling_local::keys(address),
        certificates,
    };
    call.check()
}

/// Adds the number of datanodes to what was found of the namenode.
pub(super) fn with_datanodes(check: Check, look: &ClusterLook) -> Check {
    let active = match &look.nodes {
        _ if check.verdict != CheckLevel::Ok => return check,
        Ok(nodes) => nodes.iter().filter(|node| node.policy == Policy::Active).count() as u64,
        Err(Unseen::Right(_)) => return check,
        Err(unseen) => {
            return Check::fail(check.id, format!("{}, then: {unseen}", check.found), "its log");
        }
    };
    let datanodes = units::count(active, "datanode", "datanodes");
    let found = format!("{}, {datanodes}", check.found);
    match active {
        0 => Check::warn(check.id, found, "sanderling datanode"),
        _ => Check::ok(check.id, found),
    }
}

/// Returns where a namenode serves HTTP, unless it was started otherwise.
pub(super) fn http_address(namenode: &str) -> Option<String> {
    let namenode = first_address(namenode);
    let (host, port) = namenode.rsplit_once(':')?;
    let next = || Some(format!("{host}:{}", port.parse::<u16>().ok()?.checked_add(1)?));
    sanderling_local::http_of(namenode).or_else(next)
}

pub(super) async fn metadata_service() -> Check {
    let name = "cloud";
    match timeout(Duration::from_millis(300), TcpStream::connect(METADATA_SERVICE)).await {
        Ok(Ok(_)) => Check::ok(name, "the metadata service answers"),
        _ => Check::ok(name, "no metadata service here: notices come by command or HTTP"),
    }
}

pub(super) fn python() -> Check {
    let name = "python";
    let python = std::env::var_os("SANDERLING_PYTHON").unwrap_or_else(|| "python3".into());
    let shown = python.to_string_lossy().into_owned();
    let program = "import sanderling, sys; print(getattr(sanderling, '__version__', 'no version'))";
    let output = Command::new(&python).args(["-c", program]).stdin(Stdio::null()).output();
    let mend = format!(
        "{shown} -m pip install sanderling-{}-*.whl, or set SANDERLING_PYTHON",
        env!("CARGO_PKG_VERSION")
    );
    match output {
        Err(error) => Check::warn(name, format!("{shown} cannot be run: {error}"), mend),
        Ok(output) if !output.status.success() => {
            Check::warn(name, format!("{shown} has no package sanderling"), mend)
        }
        Ok(output) => {
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if version == env!("CARGO_PKG_VERSION") {
                return Check::ok(name, format!("package sanderling {version} in {shown}"));
            }
            let found =
                format!("package sanderling {version}, this is {}", env!("CARGO_PKG_VERSION"));
            Check::warn(name, found, mend)
        }
    }
}
