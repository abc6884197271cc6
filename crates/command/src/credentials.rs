//! What a command shows to the cluster, from flags, files and the environment.

use std::io::ErrorKind;
use std::path::Path;

use sanderling_context::TOKEN_VARIABLE;
use sanderling_protocol::Token;
use sanderling_transport::{
    ClientTls, Credentials, Secret, SecretError, TlsError, TlsFileFault, TokenSource,
};

use crate::failure::{Exit, Failure, FailureKind, look_at, look_near, whole, without_number};
use crate::global::Global;
use crate::refused::shell_word;

/// How a file with a token is made.
const TOKEN: &str = "sanderling token new --secret-file FILE --out FILE";

/// Returns the credentials of a command.
///
/// # Errors
/// A file cannot be read: correct the path or the permissions of the one that the failure names.
pub fn shown(global: &Global) -> Result<Credentials, Failure> {
    let given = std::env::var(TOKEN_VARIABLE).ok().filter(|text| !text.is_empty());
    let token = match (&global.shown.token_file, given) {
        (Some(file), _) => Some(TokenSource::File(file.clone())),
        (None, Some(text)) => Some(TokenSource::Given(Token::new(&text))),
        (None, None) => None,
    };
    if let Some(token) = &token {
        token.token(None).map_err(|error| failed(error, TOKEN))?;
    }
    Ok(Credentials { token, tls: peers(global)? })
}

/// Returns the same credentials with the token of another file.
///
/// # Errors
/// The file cannot be read: correct its path or its permissions.
pub fn with_token_file(shown: &Credentials, file: &Path) -> Result<Credentials, Failure> {
    let token = TokenSource::File(file.to_owned());
    token.token(None).map_err(|error| failed(error, TOKEN))?;
    Ok(Credentials { token: Some(token), tls: shown.tls.clone() })
}

/// Returns how the certificates of servers are checked.
///
/// # Errors
/// The authorities' file has no certificates: correct it.
pub fn peers(global: &Global) -> Result<Option<ClientTls>, Failure> {
    let read = |path: &std::path::PathBuf| ClientTls::read(path, &global.shown.tls_name);
    global.shown.tls_ca.as_ref().map(read).transpose().map_err(tls_failed)
}

/// Describes why certificates cannot be used.
pub fn tls_failed(error: TlsError) -> Failure {
    let file = match &error {
        TlsError::Key(error) => Some(file_of(error)),
        TlsError::File { path, .. } => Some(path.as_path()),
        TlsError::Name { .. } => None,
    };
    let (exit, next) = match (&error, file) {
        (TlsError::Key(SecretError::Open { path }), _) => {
            (Exit::Failure, format!("chmod 600 {}", shell_word(&path.to_string_lossy())))
        }
        (TlsError::Key(SecretError::File { cause, .. }), Some(path))
            if cause.kind() == ErrorKind::NotFound =>
        {
            (Exit::NotFound, look_near(path))
        }
        (TlsError::File { fault: TlsFileFault::Io(cause), .. }, Some(path))
            if cause.kind() == ErrorKind::NotFound =>
        {
            (Exit::NotFound, look_near(path))
        }
        (
            TlsError::Key(SecretError::File { .. })
            | TlsError::File { fault: TlsFileFault::Io(_), .. },
            Some(path),
        ) => (Exit::Failure, look_at(path)),
        (_, Some(path)) if !path.exists() => {
            (Exit::Failure, "sanderling tls new --out DIR".to_owned())
        }
        (TlsError::File { .. }, Some(path)) => {
            (Exit::Failure, format!("head -n 1 {}", shell_word(&path.to_string_lossy())))
        }
        _ => (Exit::Failure, "sanderling tls new --out DIR".to_owned()),
    };
    let file = file.map(whole);
    let failure = Failure::caused(exit, FailureKind::BadCertificate, error).next(next);
    match file {
        Some(file) => of_file(failure, &file),
        None => failure,
    }
}

/// Reads the cluster's secret.
///
/// # Errors
/// The file cannot be read, other users can read it, or it is too short: correct it.
pub fn secret(path: &Path) -> Result<Secret, Failure> {
    Secret::read(path).map_err(|error| failed(error, "sanderling token secret --out FILE"))
}

/// Returns the failure of a file with a token or a secret, and how such a file is made.
fn failed(error: SecretError, make: &str) -> Failure {
    let (exit, next) = match &error {
        SecretError::File { path, cause } if cause.kind() == ErrorKind::NotFound => {
            (Exit::NotFound, format!("{}, or {make}", look_near(path)))
        }
        SecretError::File { path, .. } => (Exit::Failure, format!("{}, or {make}", look_at(path))),
        SecretError::Open { path } => {
            (Exit::Failure, format!("chmod 600 {}", shell_word(&path.to_string_lossy())))
        }
        SecretError::TooShort { .. } | SecretError::TooMany { .. } => {
            (Exit::Failure, make.to_owned())
        }
    };
    let file = whole(file_of(&error));
    of_file(Failure::caused(exit, FailureKind::BadSecret, error).next(next), &file)
}

/// Adds the file that was tried, and leaves the number of the system's error out.
fn of_file(mut failure: Failure, file: &str) -> Failure {
    failure.cause = without_number(&failure.cause);
    failure.tried(file)
}

/// Returns the file that cannot be used.
fn file_of(error: &SecretError) -> &Path {
    match error {
        SecretError::File { path, .. }
        | SecretError::Open { path }
        | SecretError::TooShort { path, .. }
        | SecretError::TooMany { path, .. } => path,
    }
}
