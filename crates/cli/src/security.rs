//! What a process shows and asks for, from flags, files and the environment.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sanderling_datanode::{EncryptionKey, KeyError};
use sanderling_protocol::Token;
use sanderling_protocol::message::Role;
use sanderling_transport::{
    ClientTls, Credentials, Secret, SecretError, Security, ServerTls, TlsError, TokenSource,
};

use crate::args::Global;
use crate::args::security::{Guard, Held};
use crate::failure::{Exit, Failure};

/// How a key is made.
const MAKE_A_KEY: &str = "(umask 077; head -c 32 /dev/urandom | base64 > KEYFILE)";

/// The environment's variable with a token. There is no flag for it: others can read a process's
/// arguments.
const TOKEN_VARIABLE: &str = "SANDERLING_TOKEN";

/// Returns what a command shows to the cluster.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn shown(global: &Global) -> Result<Credentials, Failure> {
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
/// The file cannot be read.
pub(crate) fn with_token_file(shown: &Credentials, file: &Path) -> Result<Credentials, Failure> {
    let token = TokenSource::File(file.to_owned());
    token.token(None).map_err(|error| failed(&error).next("sanderling token new --out FILE"))?;
    Ok(Credentials { token: Some(token), tls: shown.tls.clone() })
}

/// Returns how the certificates of those who are called are checked.
///
/// # Errors
/// The authorities' file is none.
pub(crate) fn peers(global: &Global) -> Result<Option<ClientTls>, Failure> {
    let read = |path: &std::path::PathBuf| ClientTls::read(path, &global.shown.tls_name);
    global.shown.tls_ca.as_ref().map(read).transpose().map_err(|error| tls_failed(&error))
}

/// Says why certificates cannot be used.
pub(crate) fn tls_failed(error: &TlsError) -> Failure {
    Failure::new(Exit::Failure, "BadCertificate", error).next(match error {
        TlsError::Key(SecretError::Open { path }) => format!("chmod 600 {}", path.display()),
        _ => "sanderling tls new --out DIR".to_owned(),
    })
}

/// Returns what a server has that listens.
///
/// # Errors
/// As [`held`].
pub(crate) fn guard(global: &Global, guard: &Guard) -> Result<Security, Failure> {
    let security = held(global, &guard.held)?;
    let tls = server_tls(guard.tls_cert.as_deref(), guard.tls_key.as_deref())?;
    let allow_unauthenticated = guard.allow_unauthenticated;
    Ok(Security { tls, allow_unauthenticated, ..security })
}

/// Returns what a door with TLS shows, from both of its files.
///
/// # Errors
/// A file cannot be read, is none, or others can read the key.
pub(crate) fn server_tls(
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<ServerTls>, Failure> {
    let read = |(certificate, key)| ServerTls::read(certificate, key);
    certificate.zip(key).map(read).transpose().map_err(|error| tls_failed(&error))
}

/// Returns what a server shows that only calls others.
///
/// # Errors
/// As [`held`].
pub(crate) fn caller(global: &Global, held: &Held, role: Role) -> Result<Credentials, Failure> {
    self::held(global, held).map(|security| security.credentials(role))
}

/// Returns what a server has.
///
/// # Errors
/// A file cannot be read, or others can read it.
fn held(global: &Global, held: &Held) -> Result<Security, Failure> {
    let secret = held.secret_file.as_deref().map(secret).transpose()?;
    Ok(Security { secret, peers: peers(global)?, ..Security::default() })
}

/// Reads the cluster's secret.
///
/// # Errors
/// It cannot be read, others can read it, or it is too short.
pub(crate) fn secret(path: &Path) -> Result<Secret, Failure> {
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

/// Reads the key that a datanode encrypts with.
///
/// # Errors
/// The file cannot be read, others can read it, or it has no key.
pub(crate) fn encryption_key(file: &Path) -> Result<EncryptionKey, Failure> {
    EncryptionKey::read(file).map_err(|error| {
        let (exit, next) = match &error {
            KeyError::File(SecretError::Open { path }) => {
                (Exit::Failure, format!("chmod 600 {}", path.display()))
            }
            _ => (Exit::Usage, MAKE_A_KEY.to_owned()),
        };
        Failure::new(exit, "BadKey", error).next(next)
    })
}

/// Writes a new file that nobody but its owner can read.
///
/// # Errors
/// It exists already, or cannot be written.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_new(path, bytes)
        .map_err(|error| Failure::file(path, &error).next("the same with another --out"))
}

/// Writes such a file in place of another, whole or not at all: who reads it meanwhile reads one of
/// the two.
///
/// # Errors
/// It cannot be written.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_new(&partial, bytes).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| Failure::file(path, &error).next("the same with another --out"))
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
