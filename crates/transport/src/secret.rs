//! The cluster's secret: tokens are signed and checked with it.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ring::hmac;
use sanderling_core::access::{Claims, Part, Rights, join, parts, signed_text};
use sanderling_protocol::message::Role;
use sanderling_protocol::{Refusal, Token};
use thiserror::Error;

/// Fewest bytes of a secret: as many as the hash has (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// Most bytes that are read of a file with a secret or a token.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// How long a server's own tokens hold. They are made anew with every connection.
const OWN_TOKEN: Duration = Duration::from_secs(24 * 3600);

/// Why a secret or a token cannot be had. Never says what is in the file.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Others can read the file.
    #[error("{}: others than its owner can read it: chmod 600 {}", path.display(), path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// There is too little in it.
    #[error(
        "{}: {bytes} bytes are too few for a secret, at least {SECRET_BYTES_MIN} are needed: \
         sanderling token secret --out FILE",
        path.display()
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// What is in it.
        bytes: usize,
    },
}

/// The cluster's secret. Clones share it.
#[derive(Clone)]
pub struct Secret(Arc<hmac::Key>);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

impl Secret {
    /// Reads the secret from a file that nobody but its owner may read.
    ///
    /// # Errors
    /// [`SecretError`]: correct the file.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let bytes = read_private(path)?;
        let bytes = bytes.trim_ascii();
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(SecretError::TooShort { path: path.to_owned(), bytes: bytes.len() });
        }
        Ok(Self::of(bytes))
    }

    /// Returns the secret of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Returns the token that says this.
    #[must_use]
    pub fn sign(&self, claims: &Claims) -> Token {
        let signed = signed_text(claims);
        join(&signed, hmac::sign(&self.0, signed.as_bytes()).as_ref())
    }

    /// Returns what a token says, if it was signed with this secret and has not ended.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: another token is needed.
    pub fn check(&self, token: &Token) -> Result<Claims, Refusal> {
        let parts = parts(token).map_err(unauthenticated)?;
        hmac::verify(&self.0, parts.signed.as_bytes(), &parts.signature)
            .map_err(|_| unauthenticated("the token was signed with another secret"))?;
        let claims = parts.claims().map_err(unauthenticated)?;
        if claims.expires_at <= unix_seconds() {
            return Err(unauthenticated("the token has expired"));
        }
        Ok(claims)
    }

    /// Lets the bearer of a token in.
    ///
    /// # Errors
    /// As [`Secret::check`], and when there is none.
    pub fn admit(&self, token: Option<&Token>) -> Result<Pass, Refusal> {
        let token = token.ok_or_else(|| unauthenticated("a token is needed here"))?;
        let claims = self.check(token)?;
        let left = claims.expires_at.saturating_sub(unix_seconds());
        let until = Instant::now().checked_add(Duration::from_secs(left));
        Ok(Pass { claims: Arc::new(claims), until })
    }

    /// Returns the token that a server shows.
    #[must_use]
    pub fn own(&self, role: Role) -> Token {
        let part = Part::from(role);
        self.sign(&Claims {
            subject: part.word().to_owned(),
            part,
            subtree: sanderling_protocol::Path::root(),
            rights: Rights::ALL,
            expires_at: unix_seconds() + OWN_TOKEN.as_secs(),
        })
    }
}

/// What one session may do, and until when. Clones share it.
#[derive(Debug, Clone)]
pub struct Pass {
    claims: Arc<Claims>,
    /// `None` when that is further off than the clock goes.
    until: Option<Instant>,
}

impl Pass {
    /// Returns what it allows, as long as it holds. Cost: a look at the clock.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`] once the token has ended.
    pub fn claims(&self) -> Result<&Arc<Claims>, Refusal> {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            return Err(unauthenticated("the token has expired"));
        }
        Ok(&self.claims)
    }
}

/// Where the token comes from that a process shows to those it calls.
#[derive(Debug, Clone)]
pub enum TokenSource {
    /// It is given.
    Given(Token),
    /// It is in a file, read again for every connection: so it can be renewed.
    File(PathBuf),
    /// The process has the secret and says who it is.
    Own(Secret, Role),
}

impl TokenSource {
    /// Returns the token for a new connection.
    ///
    /// # Errors
    /// [`SecretError`] when the file cannot be read.
    pub fn token(&self) -> Result<Token, SecretError> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => {
                let bytes = read(path)?;
                Ok(Token::new(&String::from_utf8_lossy(&bytes)))
            }
            Self::Own(secret, role) => Ok(secret.own(*role)),
        }
    }
}

/// Returns the wall clock's time in seconds since 1970: what tokens are dated with.
#[must_use]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn unauthenticated(why: &str) -> Refusal {
    Refusal::Unauthenticated { why: why.to_owned() }
}

/// Reads a file that nobody but its owner may read, such as one with a key.
///
/// # Errors
/// [`SecretError`]: correct the file.
pub fn read_private(path: &Path) -> Result<Vec<u8>, SecretError> {
    let io = |cause| SecretError::File { path: path.to_owned(), cause };
    let mode = std::fs::metadata(path).map_err(io)?.mode();
    if mode & 0o077 != 0 {
        return Err(SecretError::Open { path: path.to_owned() });
    }
    read(path)
}

fn read(path: &Path) -> Result<Vec<u8>, SecretError> {
    let io = |cause| SecretError::File { path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(io)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn claims(expires_at: u64) -> Claims {
        let (subject, subtree) = ("job".to_owned(), "/jobs/x".parse().unwrap());
        Claims { subject, part: Part::Client, subtree, rights: Rights::READ, expires_at }
    }

    #[test]
    fn token_holds_with_its_secret_until_its_end() {
        let (secret, other) = (Secret::of(&[7; 32]), Secret::of(&[8; 32]));
        let later = unix_seconds() + 1000;
        let token = secret.sign(&claims(later));
        assert_eq!(secret.check(&token).unwrap(), claims(later));
        assert!(secret.admit(Some(&token)).unwrap().claims().is_ok());
        let why =
            |refused: Result<_, Refusal>| refused.map(|_: Claims| ()).unwrap_err().to_string();
        assert!(why(other.check(&token)).contains("another secret"));
        assert!(why(secret.check(&secret.sign(&claims(unix_seconds())))).contains("expired"));
        assert!(matches!(secret.admit(None), Err(Refusal::Unauthenticated { .. })));
        let ended = Pass { claims: Arc::new(claims(0)), until: Some(Instant::now()) };
        assert!(matches!(ended.claims(), Err(Refusal::Unauthenticated { .. })));
    }

    #[test]
    fn every_changed_character_breaks_the_signature() {
        let secret = Secret::of(&[7; 32]);
        let text = secret.sign(&claims(unix_seconds() + 1000)).reveal().to_owned();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = Token::new(std::str::from_utf8(&changed).unwrap());
            assert!(secret.check(&changed).is_err(), "at {at}");
            assert!(secret.check(&Token::new(&text[..at])).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn secret_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("sanderling-secret-{}", std::process::id()));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::read(&path).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(write("0123456789abcdef0123456789abcdef\n", 0o600), Ok(()));
        for mode in [0o640, 0o604, 0o644] {
            assert!(write("0123456789abcdef0123456789abcdef", mode).unwrap_err().contains("chmod"));
        }
        let short = write("too short", 0o600).unwrap_err();
        assert!(short.contains("9 bytes") && !short.contains("too short"), "{short}");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Secret::read(&path), Err(SecretError::File { .. })));
        assert_eq!(format!("{:?}", Secret::of(b"abc")), "Secret(hidden)");
    }
}
