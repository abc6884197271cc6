//! `sanderling token revoke` and `sanderling token revoked`.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use sanderling_command::failure::{Exit, Failure, RefusalKind};
use sanderling_command::refused;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_command::units::Span;
use sanderling_core::access::{Claims, parts};
use sanderling_protocol::TokenId;
use sanderling_protocol::token::Revocation;
use sanderling_protocol::{Token, TokenSelector};
use sanderling_transport::{open_regular, unix_seconds};
use serde_json::json;

use super::LONGEST;

/// `token revoke`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("tokens").required(true)))]
pub struct Revoke {
    /// All tokens of this subject, also future ones
    #[arg(long, value_name = "NAME", group = "tokens")]
    pub(crate) subject: Option<String>,
    /// The token with this number, which `token new --json` and `token mint --json` show
    #[arg(long, value_name = "ID", group = "tokens")]
    pub(crate) id: Option<TokenId>,
    /// The token in this file
    #[arg(long, value_name = "FILE", group = "tokens")]
    pub(crate) file: Option<PathBuf>,
    /// Time until the last of these tokens ends: the revocation is kept for one day longer
    /// [default: 365d, the longest life of a token; with --file until the token ends]
    #[arg(long, value_name = "DURATION", conflicts_with = "undo")]
    pub(crate) expires: Option<Span>,
    /// Withdraw the revocation: the tokens are valid again
    #[arg(long)]
    pub(crate) undo: bool,
}

/// Takes tokens back, or lets them hold again.
pub(super) async fn revoke(session: Session, args: Revoke) -> Result<(), Failure> {
    let (tokens, end) = named(&args)?;
    let longest = unix_seconds().saturating_add(LONGEST.as_secs());
    let given = args.expires.map(|span| unix_seconds().saturating_add(span.0.as_secs().max(1)));
    let until = (!args.undo).then(|| given.or(end).unwrap_or(longest));
    let client = session.client().await?;
    let revoked = client.revoke_tokens(&tokens, until).await;
    revoked.map_err(|error| refused::client(&error, &session.namenode))?;
    let done = if args.undo { "holds again" } else { "revoked" };
    session.output.note(format_args!("{tokens}: {done}"));
    if !args.undo {
        session.output.note(
            "the namenode refuses them from now on, datanodes within a second, and those that the \
             namenode cannot reach within their --revocations-age-max",
        );
    }
    let document = json!({ "tokens": document(&tokens), "until_unix_seconds": until });
    session.output.result(&document, |_| Ok(()))
}

/// Lists what was taken back.
pub(super) async fn list(session: Session) -> Result<(), Failure> {
    let client = session.client().await?;
    let list = client.revocations().await;
    let list = list.map_err(|error| refused::client(&error, &session.namenode))?;
    let now = unix_seconds();
    let row =
        |it: &Revocation| json!({ "tokens": document(&it.tokens), "until_unix_seconds": it.until });
    let rows: Vec<_> = list.iter().map(row).collect();
    session.output.result(&json!({ "revoked": rows }), |writer| {
        list.iter().try_for_each(|it| {
            let left = std::time::Duration::from_secs(it.until.saturating_sub(now));
            writeln!(writer, "{}, which end within {}", it.tokens, units::duration(left))
        })
    })
}

fn document(tokens: &TokenSelector) -> serde_json::Value {
    match tokens {
        TokenSelector::Id(id) => json!({ "id": id.to_string() }),
        TokenSelector::Subject(subject) => json!({ "subject": subject }),
    }
}

/// Returns which tokens are meant, and when they end if that is known.
fn named(args: &Revoke) -> Result<(TokenSelector, Option<u64>), Failure> {
    match (&args.subject, args.id, &args.file) {
        (Some(subject), ..) => Ok((TokenSelector::Subject(subject.clone()), None)),
        (_, Some(id), _) => Ok((TokenSelector::Id(id), None)),
        (_, _, Some(file)) => {
            let claims = claims(file)?;
            let id = claims.lineage.id.ok_or_else(|| {
                let cause = "the token is of an earlier release and has no number";
                Failure::new(Exit::Failure, RefusalKind::BadRequest, cause)
                    .next("sanderling token revoke --subject NAME")
            })?;
            Ok((TokenSelector::Id(id), Some(claims.expires_at)))
        }
        (None, None, None) => unreachable!("the command line requires one"),
    }
}

/// Reads a token's claims. A revocation does not require that the token is genuine.
fn claims(file: &Path) -> Result<Claims, Failure> {
    let read = open_regular(file).and_then(std::io::read_to_string);
    let text = read.map_err(|error| Failure::file(file, error))?;
    let token = Token::new(&text);
    let claims = parts(&token).and_then(|parts| parts.claims());
    claims.map_err(|why| Failure::caused(Exit::Failure, RefusalKind::BadRequest, why))
}
