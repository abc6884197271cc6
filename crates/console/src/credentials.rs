//! What a command shows to the cluster, from flags, files and the environment.

use std::path::Path;

use sanderling_protocol::Token;
use sanderling_transport::{ClientTls, Credentials, Secret, SecretError, TlsError, TokenSource};

use crate::failure::{Exit, Failure};
use crate::global::Global;

/// The environment's variable with a token. There is no flag for it: others can read a process's
/// arguments.
const TOKEN_VARIABLE: &str = "SANDERLING_TOKEN";

/// Returns the credentials of a command.
///
/// # Errors
/// A file cannot be read: the failure names it.
pub fn shown(global: &Global) -> Result<Credentials, Failure> {
    let given = std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.is_empty());
    let token = match (&global.shown.token_file, given) {
        (Some(file), _) => Some(TokenSource::File(file.clone())),
        (None, Some(text)) => Some(TokenSource::Given(Token::new(&text))),
        (None, None) => None,
    };
    if let Some(token) = &token {
        token
            .token(None)
            .map_err(|error| failed(&error).next("sanderling token new --out FILE"))?;
    }
    Ok(Credentials { token, tls: peers(global)? })
}

/// Returns the same credentials with the token of another file.
///
/// # Errors
/// The file cannot be read: the failure names it.
pub fn with_token_file(shown: &Credentials, file: &Path) -> Result<Credentials, Failure> {
    let token = TokenSource::File(file.to_owned());
    token.token(None).map_err(|error| failed(&error).next("sanderling token new --out FILE"))?;
    Ok(Credentials { token: Some(token), tls: shown.tls.clone() })
}

/// Returns how the certificates of servers are checked.
///
/// # Errors
/// The authorities' file has no certificates: correct it.
pub fn peers(global: &Global) -> Result<Option<ClientTls>, Failure> {
    let read = |path: &std::path::PathBuf| ClientTls::read(path, &global.shown.tls_name);
    global.shown.tls_ca.as_ref().map(read).transpose().map_err(|error| tls_failed(&error))
}

/// Describes why certificates cannot be used.
pub fn tls_failed(error: &TlsError) -> Failure {
    Failure::new(Exit::Failure, "BadCertificate", error).next(match error {
        TlsError::Key(SecretError::Open { path }) => format!("chmod 600 {}", path.display()),
        _ => "sanderling tls new --out DIR".to_owned(),
    })
}

/// Reads the cluster's secret.
///
/// # Errors
/// The file cannot be read, other users can read it, or it is too short: correct it.
pub fn secret(path: &Path) -> Result<Secret, Failure> {
    Secret::read(path).map_err(|error| failed(&error))
}

fn failed(error: &SecretError) -> Failure {
    let exit = match error {
        SecretError::File { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            Exit::NotFound
        }
        _ => Exit::Failure,
    };
    Failure::new(exit, "BadSecret", error).next(match error {
        SecretError::Open { path } => format!("chmod 600 {}", path.display()),
        _ => "sanderling token secret --out FILE".to_owned(),
    })
}
