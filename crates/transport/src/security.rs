//! The credentials of a process, and what it requires of its peers.

use std::sync::Arc;

use sanderling_core::access::HttpResource;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, Millis, Refusal, Token};

use crate::error::{CallError, CredentialsFault};
use crate::revoked::Revocations;
use crate::secret::{Pass, Secret, TokenSource};
use crate::tls::{ClientTls, Expiries, ServerTls};

/// How long a caller waits before it greets a datanode again that has not joined. Joining takes a
/// registration and a page of blocks, milliseconds; a busy namenode takes longer. Chosen, not
/// measured.
const JOINING_PAUSE: Millis = Millis(100);

/// The credentials that a process sends to servers: its token, and how it checks their
/// certificates.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The token of its greetings; none where servers require none.
    pub token: Option<TokenSource>,
    /// How the certificates of servers are checked; without it they are called without TLS.
    pub tls: Option<ClientTls>,
}

impl Credentials {
    /// Puts the process's token into the greeting to the server at `address`.
    ///
    /// # Errors
    /// [`CallError::Credentials`] when it cannot be read: correct the file that the error names.
    pub fn sign(&self, address: &str, hello: &mut Hello) -> Result<(), CallError> {
        self.sign_for(address, hello, hello.cluster)
    }

    /// Puts the process's token into the greeting to a server of the release before, which reads no
    /// token that names its cluster.
    pub(crate) fn sign_for_earlier(
        &self,
        address: &str,
        hello: &mut Hello,
    ) -> Result<(), CallError> {
        self.sign_for(address, hello, None)
    }

    fn sign_for(
        &self,
        address: &str,
        hello: &mut Hello,
        cluster: Option<ClusterId>,
    ) -> Result<(), CallError> {
        let Some(source) = &self.token else { return Ok(()) };
        let token = source.token(cluster).map_err(|error| CallError::Credentials {
            address: address.to_owned(),
            cause: CredentialsFault::Token(Arc::new(error)),
        })?;
        hello.token = Some(token);
        Ok(())
    }

    /// Returns whether a server that cannot read the token is shown one without what is new:
    /// servers are upgraded one by one and make their tokens themselves.
    pub(crate) fn has_earlier(&self, refusal: &Refusal) -> bool {
        let Refusal::Unauthenticated { why } = refusal else { return false };
        self.makes_tokens() && why == Refusal::TOKEN_CLAIMS
    }

    /// Returns whether the process has the secret and makes its tokens itself.
    #[must_use]
    pub const fn makes_tokens(&self) -> bool {
        matches!(self.token, Some(TokenSource::Own(..)))
    }

    /// Returns a proof that a process with the secret has stated this; `None` without the secret.
    #[must_use]
    pub fn prove(&self, statement: &[u8]) -> Option<Vec<u8>> {
        match &self.token {
            Some(TokenSource::Own(secret, _)) => Some(secret.prove(statement)),
            _ => None,
        }
    }

    /// Returns whether a process with the secret has stated this. Without a secret nothing is
    /// authenticated, and everything passes.
    #[must_use]
    pub fn is_proven(&self, statement: &[u8], proof: Option<&[u8]>) -> bool {
        match &self.token {
            Some(TokenSource::Own(secret, _)) => {
                proof.is_some_and(|proof| secret.is_proven(statement, proof))
            }
            _ => true,
        }
    }

    /// Returns how often the process has read other secrets than before, 0 without a secret. A
    /// connection from before the last change shows a token of a secret that may be withdrawn.
    #[must_use]
    pub fn secret_version(&self) -> u64 {
        match &self.token {
            Some(TokenSource::Own(secret, _)) => secret.version(),
            _ => 0,
        }
    }

    /// Returns whether a token that ended may be followed by another.
    #[must_use]
    pub const fn may_renew(&self) -> bool {
        matches!(self.token, Some(TokenSource::File(_) | TokenSource::Own(..)))
    }
}

/// The credentials of a server, and the callers that it admits.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// The cluster's secret; without it callers are not authenticated.
    pub secret: Option<Secret>,
    /// The certificate of its endpoints; without it they use no TLS.
    pub tls: Option<ServerTls>,
    /// How the certificates of the servers that it calls are checked.
    pub peers: Option<ClientTls>,
    /// Listen beyond loopback although callers are not authenticated, or traffic is not encrypted.
    pub allow_unauthenticated: bool,
    /// Which tokens were taken back. Each server has a list of its own.
    pub revocations: Arc<Revocations>,
}

impl Security {
    /// Returns the server's credentials for its own calls.
    #[must_use]
    pub fn credentials(&self, role: Role) -> Credentials {
        let token = self.secret.clone().map(|secret| TokenSource::Own(secret, role));
        Credentials { token, tls: self.peers.clone() }
    }

    /// Returns the certificates that the server shows and trusts, to report when they end, and its
    /// secret, whose file is looked at with theirs.
    #[must_use]
    pub fn expiries(&self) -> Expiries {
        Expiries::new(self.tls.clone(), self.peers.clone()).with_secret(self.secret.clone())
    }

    /// Returns what is missing for an address that other machines reach.
    #[must_use]
    pub const fn missing(&self) -> Option<&'static str> {
        match (&self.secret, &self.tls) {
            _ if self.allow_unauthenticated => None,
            (None, _) => Some("callers would not be authenticated"),
            (Some(_), None) => Some("traffic would not be encrypted"),
            (Some(_), Some(_)) => None,
        }
    }

    /// Admits a caller to a server of the cluster `here`: `None` where no token is required.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: another token is needed; [`Refusal::RetryAfter`]: try again
    /// later.
    pub fn admit(&self, hello: &Hello, here: Option<ClusterId>) -> Result<Option<Pass>, Refusal> {
        let Some(secret) = &self.secret else { return Ok(None) };
        let admitted = self.pass(secret, hello.token.as_ref(), here);
        match admitted {
            Ok(pass) => Ok(Some(pass)),
            Err(refusal) => {
                tracing::info!(role = ?hello.role, %refusal, "a connection was rejected");
                Err(refusal)
            }
        }
    }
}

impl Security {
    /// Checks whether a request over HTTP to a server of the cluster `here` is allowed, by its
    /// header `authorization`. Returns the pass, for answers that take long; `None` where no token
    /// is required.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`], [`Refusal::Forbidden`]: another token is needed;
    /// [`Refusal::RetryAfter`]: try again later.
    pub fn check_page(
        &self,
        page: HttpResource,
        authorization: Option<&str>,
        here: Option<ClusterId>,
    ) -> Result<Option<Pass>, Refusal> {
        let Some(secret) = self.secret.as_ref().filter(|_| page != HttpResource::Health) else {
            return Ok(None);
        };
        let bearer = |text: &str| {
            let (scheme, token) = text.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| Token::new(token))
        };
        let pass = self.pass(secret, authorization.and_then(bearer).as_ref(), here)?;
        pass.claims()?.check_page(page)?;
        Ok(Some(pass))
    }

    fn pass(
        &self,
        secret: &Secret,
        token: Option<&Token>,
        here: Option<ClusterId>,
    ) -> Result<Pass, Refusal> {
        let pass = secret.admit(token, &self.revocations)?;
        match (pass.claims()?.lineage.cluster, here) {
            // The session would go on when the server has become one of another cluster.
            (Some(_), None) => {
                let why = "this server has no cluster yet".to_owned();
                return Err(Refusal::RetryAfter { after: JOINING_PAUSE, why });
            }
            (_, Some(here)) => pass.claims()?.check_cluster(here)?,
            (None, None) => {}
        }
        Ok(pass)
    }
}

/// The reply to an admitted caller, and the service of its connection.
pub type Admitted<S> = (sanderling_protocol::message::HelloReply, Arc<S>);
