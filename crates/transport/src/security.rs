//! What a process proves itself with, and what it asks of others.

use std::sync::Arc;

use sanderling_core::access::Page;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Refusal, Token};

use crate::error::CallError;
use crate::secret::{Pass, Secret, TokenSource};
use crate::tls::{ClientTls, ServerTls};

/// What a process shows to those it calls.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The token of its greetings; none where nobody asks for one.
    pub token: Option<TokenSource>,
    /// How the certificates of those who are called are checked; without it they are called
    /// plainly.
    pub tls: Option<ClientTls>,
}

impl Credentials {
    /// Puts the token into a greeting.
    ///
    /// # Errors
    /// [`CallError::Credentials`] when it cannot be had.
    pub fn sign(&self, address: &str, hello: &mut Hello) -> Result<(), CallError> {
        let Some(source) = &self.token else { return Ok(()) };
        let token = source.token().map_err(|error| CallError::Credentials {
            address: address.to_owned(),
            why: error.to_string(),
        })?;
        hello.token = Some(token);
        Ok(())
    }

    /// Tells whether a token that ended may be followed by another.
    #[must_use]
    pub const fn may_renew(&self) -> bool {
        matches!(self.token, Some(TokenSource::File(_) | TokenSource::Own(..)))
    }
}

/// How a server proves who it is, and whom it lets in.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// The cluster's secret; without it nobody is asked who he is.
    pub secret: Option<Secret>,
    /// What its doors show; without it they speak plainly.
    pub tls: Option<ServerTls>,
    /// How the certificates of those whom it calls are checked.
    pub peers: Option<ClientTls>,
    /// Listen beyond loopback although nobody is asked who he is, or everybody can listen in.
    pub allow_unauthenticated: bool,
}

impl Security {
    /// Returns what the server shows to those it calls.
    #[must_use]
    pub fn credentials(&self, role: Role) -> Credentials {
        let token = self.secret.clone().map(|secret| TokenSource::Own(secret, role));
        Credentials { token, tls: self.peers.clone() }
    }

    /// Returns what is missing for an address that other machines reach.
    #[must_use]
    pub const fn missing(&self) -> Option<&'static str> {
        match (&self.secret, &self.tls) {
            _ if self.allow_unauthenticated => None,
            (None, _) => Some("nobody would be asked who they are"),
            (Some(_), None) => Some("everybody on the way could listen in"),
            (Some(_), Some(_)) => None,
        }
    }

    /// Lets a caller in: `None` where nobody is asked.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`].
    pub fn admit(&self, hello: &Hello) -> Result<Option<Pass>, Refusal> {
        let Some(secret) = &self.secret else { return Ok(None) };
        let admitted = secret.admit(hello.token.as_ref());
        match admitted {
            Ok(pass) => Ok(Some(pass)),
            Err(refusal) => {
                tracing::info!(role = ?hello.role, %refusal, "a connection was not let in");
                Err(refusal)
            }
        }
    }
}

impl Security {
    /// Says whether a request over HTTP is allowed, by its header `authorization`.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`], [`Refusal::Forbidden`].
    pub fn check_page(&self, page: Page, authorization: Option<&str>) -> Result<(), Refusal> {
        let Some(secret) = self.secret.as_ref().filter(|_| page != Page::Health) else {
            return Ok(());
        };
        let bearer = |text: &str| {
            let (scheme, token) = text.trim().split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| Token::new(token))
        };
        secret.admit(authorization.and_then(bearer).as_ref())?.claims()?.check_page(page)
    }
}

/// What a service that lets a caller in answers and goes on with.
pub type Admitted<S> = (sanderling_protocol::message::HelloReply, Arc<S>);
