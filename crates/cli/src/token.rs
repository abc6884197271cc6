//! `sanderling token`: secrets and tokens.

use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use sanderling_core::access::{Claims, Part, Rights, right_words};
use sanderling_protocol::token::MintToken;
use sanderling_protocol::{Millis, Refusal};
use sanderling_transport::unix_seconds;
use serde_json::json;

use crate::args::Global;
use crate::args::security::{Mint, New, NewSecret, Token};
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::refused;
use crate::security::{replace_private, secret, write_private};
use crate::session::{self, Session};

/// Bytes of a new secret, before they are written as text.
const SECRET_BYTES: usize = 32;

/// Runs `sanderling token ...`.
///
/// # Errors
/// A file cannot be read or written, or what is asked for is no token.
pub(crate) fn run(global: &Global, command: Token) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet };
    match command {
        Token::Secret(args) => new_secret(output, &args),
        Token::New(args) => new(output, &args),
        Token::Mint(args) => session::run(global, |session| mint(session, args)),
    }
}

fn new_secret(output: Output, args: &NewSecret) -> Result<(), Failure> {
    write_private(&args.out, random_text()?.as_bytes())?;
    output.note(format_args!("wrote a new secret to {}", args.out.display()));
    output.note(format_args!("export SANDERLING_SECRET_FILE={}", args.out.display()));
    output.result(&json!({ "secret_file": args.out }), |_| Ok(()))
}

/// Returns a line of random letters for a secret.
///
/// # Errors
/// The system gives no random numbers.
pub(crate) fn random_text() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Failure::new(Exit::Failure, "Random", "the system gives no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n")
}

fn new(output: Output, args: &New) -> Result<(), Failure> {
    let claims = claims(args)?;
    let token = secret(&args.secret_file)?.sign(&claims);
    let document = json!({
        "subject": claims.subject,
        "role": claims.part.word(),
        "subtree": claims.subtree,
        "rights": claims.rights.words().collect::<Vec<_>>(),
        "expires_at_unix_seconds": claims.expires_at,
    });
    given(output, document, &token, args.out.as_deref())
}

async fn mint(session: Session, args: Mint) -> Result<(), Failure> {
    let subtree = args.subtree.parse().map_err(|refusal: Refusal| Failure::usage(&refusal))?;
    let Mint { subject, rights, .. } = args;
    let lifetime = Millis::from(args.expires.0);
    let client = session.client().await?;
    let asked = MintToken { subject, subtree, rights, lifetime };
    let document = json!({ "subtree": asked.subtree, "rights": asked.rights });
    let token = client.mint_token(asked).await;
    let token = token.map_err(|error| refused::client(&error, &session.namenode))?;
    given(session.output, document, &token, args.out.as_deref())
}

/// Writes a token where it was asked for.
fn given(
    output: Output,
    mut document: serde_json::Value,
    token: &sanderling_protocol::Token,
    out: Option<&Path>,
) -> Result<(), Failure> {
    match out {
        Some(path) => {
            replace_private(path, format!("{}\n", token.reveal()).as_bytes())?;
            output.note(format_args!("wrote a token to {}", path.display()));
            output.note(format_args!("export SANDERLING_TOKEN_FILE={}", path.display()));
            output.result(&document, |_| Ok(()))
        }
        None => {
            document["token"] = token.reveal().into();
            output.result(&document, |writer| writeln!(writer, "{}", token.reveal()))
        }
    }
}

fn claims(args: &New) -> Result<Claims, Failure> {
    let part = Part::from_word(&args.role).expect("the command line knows the roles");
    let rights = Rights::of_words(args.rights.iter().map(String::as_str)).map_err(|word| {
        Failure::usage(format_args!("{word:?} is no right: give some of {}", right_words()))
    })?;
    let subtree: sanderling_protocol::Path =
        args.subtree.parse().map_err(|refusal| Failure::usage(&refusal))?;
    if part != Part::Client && !subtree.is_root() {
        let cause = format!("a token of role {part} holds everywhere: leave --subtree out");
        return Err(Failure::usage(cause));
    }
    let rights = if part == Part::Client { rights } else { Rights::ALL };
    let expires_at = unix_seconds().saturating_add(args.expires.0.as_secs().max(1));
    Ok(Claims { subject: args.subject.clone(), part, subtree, rights, expires_at })
}
