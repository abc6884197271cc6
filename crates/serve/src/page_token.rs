//! The token that a command shows to the HTTP endpoint of a server.

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::session::Session;
use sanderling_core::access::{Claims, Lineage, Rights, TokenRole};
use sanderling_protocol::{Path, Token};
use sanderling_transport::{is_loopback, unix_seconds};

use crate::security::CallerCredentials;

/// How long the token lasts, in seconds, that is made for the one call: it is sent at once, and the
/// rest is for clocks that differ. Chosen, not measured.
const TOKEN_SECONDS: u64 = 15;

/// The endpoint that is called.
pub(super) struct PageEndpoint<'a> {
    /// Where it is.
    pub(super) address: &'a str,
    /// Which server has it, for messages.
    pub(super) server: &'static str,
}

/// Returns the token to show: the given one, else one that is made with the cluster's secret for
/// `subject`. `None` without both.
///
/// # Errors
/// Failure (1): the token or the secret cannot be read, or the token would go to another machine
/// without encryption.
pub(super) fn page_token(
    session: &Session,
    held: &CallerCredentials,
    subject: &str,
    endpoint: &PageEndpoint<'_>,
) -> Result<Option<Token>, Failure> {
    let bad = |error| Failure::caused(Exit::Failure, FailureKind::BadToken, error);
    let token = match &session.credentials.token {
        Some(source) => Some(source.token(None).map_err(bad)?),
        None => held.secret()?.map(|secret| {
            secret.sign(&Claims {
                subject: subject.to_owned(),
                // What the call needs, and no more: whatever listens at the address receives it.
                role: TokenRole::Client,
                subtree: Path::root(),
                rights: Rights::ADMIN,
                expires_at: unix_seconds() + TOKEN_SECONDS,
                lineage: Lineage::default(),
            })
        }),
    };
    let PageEndpoint { address, server } = endpoint;
    if token.is_some() && session.credentials.tls.is_none() && !is_loopback(address) {
        let cause = format!("a token would go to {address} without encryption");
        return Err(Failure::new(Exit::Failure, FailureKind::Credentials, cause)
            .next(format_args!("the same with --tls-ca PEM, or on the {server}'s machine")));
    }
    Ok(token)
}
