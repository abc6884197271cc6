//! The cluster's secret: tokens are signed and checked with it.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sanderling_core::access::{Claims, Lineage, Rights, TokenRole, join, parts, signed_text};
use sanderling_protocol::message::Role;
use sanderling_protocol::{ClusterId, Refusal, Token};
use thiserror::Error;

use crate::file_watch::open_regular;
use crate::keyring::{KeyNumber, Keyring};
use crate::revoked::Revocations;

/// Fewest bytes of a secret: as many as the hash has (RFC 7518, section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// Most secrets in one file: the one that signs, and those that it takes the place of. Each token
/// of an unknown key is compared with all of them. A change of the secret needs two; chosen, not
/// measured.
pub(crate) const SECRETS_MAX: usize = 8;

/// Most bytes that are read of a file with a secret or a token. Four of the longest tokens
/// (`TOKEN_BYTES_MAX`); a path that leads to something larger is a mistake.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// How long a server's own tokens hold. They are made anew with every connection. Chosen, not
/// measured: a session ends with its token, so a day between servers costs nothing; clocks differ
/// by less, and a stolen token is of no use after it.
pub const OWN_TOKEN: Duration = Duration::from_secs(24 * 3600);

/// How long a server's own token holds that names no cluster, with which the server requests its
/// cluster. It is used at once; the time is for clocks that differ. Any cluster with the same
/// secret accepts it, so it ends 24 times as early as others. Chosen, not measured.
const OWN_TOKEN_ANYWHERE: Duration = Duration::from_secs(3600);

/// A reason why a secret or a token cannot be read. Never contains what is in the file.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
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
    /// There are more secrets in it than may be.
    #[error("{}: {secrets} secrets, and at most {SECRETS_MAX} may be, one a line", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
        /// How many are in it.
        secrets: usize,
    },
}

/// The cluster's secret, or several of them while one replaces another: the first signs, all are
/// accepted. Clones share it.
#[derive(Clone)]
pub struct Secret(Arc<Keyring>);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

/// Returns what is signed of a statement. No token begins so: it has no space.
fn stated(statement: &[u8]) -> Vec<u8> {
    [b"sanderling states: ", statement].concat()
}

impl Secret {
    /// Reads the secret from a file that only its owner may read. It is read again when the file
    /// changes.
    ///
    /// # Errors
    /// [`SecretError`]: correct the file.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        Ok(Self(Arc::new(Keyring::read(path)?)))
    }

    /// Returns a secret that consists of these bytes and is read from no file.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Arc::new(Keyring::of(bytes)))
    }

    /// Returns how many secrets are accepted: two or more while one replaces another.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.0.keys().len()
    }

    /// Returns how often other secrets than before were read from the file.
    pub(crate) fn version(&self) -> u64 {
        self.0.version()
    }

    /// Reads the file again if it has changed, also when no caller needs the secret.
    pub(crate) fn look(&self) {
        self.0.look_now();
    }

    /// Returns a token with these claims, signed with the secret.
    #[must_use]
    pub fn sign(&self, claims: &Claims) -> Token {
        let signed = signed_text(claims);
        join(&signed, self.0.keys().sign(signed.as_bytes()).as_ref())
    }

    /// Returns a proof that a holder of the secret has stated this.
    pub(crate) fn prove(&self, statement: &[u8]) -> Vec<u8> {
        self.0.keys().sign(&stated(statement)).as_ref().to_vec()
    }

    /// Returns whether a holder of the secret has stated this.
    pub(crate) fn is_proven(&self, statement: &[u8], proof: &[u8]) -> bool {
        self.0.keys().signer(&stated(statement), proof).is_some()
    }

    /// Returns a token's claims, if it was signed with this secret and has not ended.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: another token is needed.
    pub fn check(&self, token: &Token) -> Result<Claims, Refusal> {
        self.check_signed(token).map(|(claims, _)| claims)
    }

    /// Returns a token's claims, if it was signed with this secret and has not ended, and the
    /// number of the key that signed it.
    fn check_signed(&self, token: &Token) -> Result<(Claims, KeyNumber), Refusal> {
        let parts = parts(token).map_err(unauthenticated)?;
        let signer = self.0.keys().signer(parts.signed.as_bytes(), &parts.signature);
        let signer =
            signer.ok_or_else(|| unauthenticated("the token was signed with another secret"))?;
        let claims = parts.claims().map_err(unauthenticated)?;
        if claims.expires_at <= unix_seconds() {
            return Err(unauthenticated("the token has expired"));
        }
        Ok((claims, signer))
    }

    /// Lets the bearer of a token in, as far as signature and time go.
    ///
    /// # Errors
    /// As [`Secret::check`], and when there is none or it was taken back.
    pub(crate) fn admit(
        &self,
        token: Option<&Token>,
        revocations: &Arc<Revocations>,
    ) -> Result<Pass, Refusal> {
        let token = token.ok_or_else(|| unauthenticated("a token is needed here"))?;
        let keyring = self.0.version();
        let (claims, signer) = self.check_signed(token)?;
        let left = claims.expires_at.saturating_sub(unix_seconds());
        let now = Instant::now();
        let until = now.checked_add(Duration::from_secs(left));
        let revoked = revocations.version();
        revocations.check(&claims, now)?;
        let seen = Arc::new(VerifiedVersions { keyring: keyring.into(), revoked: revoked.into() });
        let (secret, revocations) = (self.clone(), Arc::clone(revocations));
        Ok(Pass { claims: Arc::new(claims), until, secret, signer, revocations, seen })
    }

    /// Returns the token that a server shows in a cluster; in any if it does not have its own id
    /// yet.
    #[must_use]
    pub fn own(&self, role: Role, cluster: Option<ClusterId>) -> Token {
        let part = TokenRole::from(role);
        let lifetime = if cluster.is_some() { OWN_TOKEN } else { OWN_TOKEN_ANYWHERE };
        self.sign(&Claims {
            subject: part.word().to_owned(),
            role: part,
            subtree: sanderling_protocol::Path::root(),
            rights: Rights::ALL,
            expires_at: unix_seconds() + lifetime.as_secs(),
            lineage: Lineage { cluster, ..Lineage::default() },
        })
    }
}

/// The rights of one session and their end. Clones share them.
#[derive(Debug, Clone)]
pub struct Pass {
    claims: Arc<Claims>,
    /// `None` when that is further off than the clock goes.
    until: Option<Instant>,
    secret: Secret,
    signer: KeyNumber,
    revocations: Arc<Revocations>,
    seen: Arc<VerifiedVersions>,
}

/// The versions with which the token was found to hold.
#[derive(Debug)]
struct VerifiedVersions {
    keyring: AtomicU64,
    revoked: AtomicU64,
}

impl Pass {
    /// Returns the claims while the token is valid. Cost: a look at the clock and at two counters;
    /// every two seconds also at the secret's file.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`] once the token has ended, was revoked, or was signed with a
    /// secret that is not accepted any more: another token is needed. [`Refusal::RetryAfter`]
    /// without a recent list of revocations: try again later.
    pub fn claims(&self) -> Result<&Arc<Claims>, Refusal> {
        let now = Instant::now();
        if self.until.is_some_and(|until| until <= now) {
            return Err(unauthenticated("the token has expired"));
        }
        let keyring = self.secret.0.version();
        if keyring != self.seen.keyring.load(Ordering::Relaxed) {
            if !self.secret.0.keys().has(self.signer) {
                return Err(unauthenticated(
                    "the secret that signed the token is not accepted any more: request another \
                     token",
                ));
            }
            self.seen.keyring.store(keyring, Ordering::Relaxed);
        }
        let revoked = self.revocations.version();
        if revoked == self.seen.revoked.load(Ordering::Relaxed) {
            self.revocations.check_age(&self.claims, now)?;
        } else {
            self.revocations.check(&self.claims, now)?;
            self.seen.revoked.store(revoked, Ordering::Relaxed);
        }
        Ok(&self.claims)
    }
}

/// The source of the token that a process sends to servers.
#[derive(Debug, Clone)]
pub enum TokenSource {
    /// It is given.
    Given(Token),
    /// It is in a file, read again for every connection: so it can be renewed.
    File(PathBuf),
    /// The process has the secret and names itself.
    Own(Secret, Role),
}

impl TokenSource {
    /// Returns the token for a new connection to a server of that cluster; `None` while the cluster
    /// is not known.
    ///
    /// # Errors
    /// [`SecretError`] when the file cannot be read: correct the file.
    pub fn token(&self, cluster: Option<ClusterId>) -> Result<Token, SecretError> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => {
                let bytes = read(path)?;
                Ok(Token::new(&String::from_utf8_lossy(&bytes)))
            }
            Self::Own(secret, role) => Ok(secret.own(*role, cluster)),
        }
    }
}

/// Returns the wall clock's time in seconds since 1970: what tokens are dated with.
#[must_use]
pub fn unix_seconds() -> u64 {
    unix_millis() / 1000
}

/// Returns the milliseconds since 1970 by this machine's clock.
#[must_use]
pub fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn unauthenticated(why: impl fmt::Display) -> Refusal {
    Refusal::Unauthenticated { why: why.to_string() }
}

/// Reads a file that only its owner may read, such as one with a key.
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
    let file = open_regular(path).map_err(io)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(io)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn claims(expires_at: u64) -> Claims {
        let (subject, subtree) = ("job".to_owned(), "/jobs/x".parse().unwrap());
        let (rights, lineage) = (Rights::READ, Lineage::default());
        Claims { subject, role: TokenRole::Client, subtree, rights, expires_at, lineage }
    }

    #[test]
    fn token_holds_with_its_secret_until_its_end() {
        let (secret, other) = (Secret::of(&[7; 32]), Secret::of(&[8; 32]));
        let later = unix_seconds() + 1000;
        let token = secret.sign(&claims(later));
        assert_eq!(secret.check(&token).unwrap(), claims(later));
        let revocations = Arc::new(Revocations::default());
        let admit = |token| secret.admit(token, &revocations);
        assert!(admit(Some(&token)).unwrap().claims().is_ok());
        let why =
            |refused: Result<_, Refusal>| refused.map(|_: Claims| ()).unwrap_err().to_string();
        assert!(why(other.check(&token)).contains("another secret"));
        assert!(why(secret.check(&secret.sign(&claims(unix_seconds())))).contains("expired"));
        assert!(matches!(admit(None), Err(Refusal::Unauthenticated { .. })));
        let ended = Pass { until: Some(Instant::now()), ..admit(Some(&token)).unwrap() };
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
