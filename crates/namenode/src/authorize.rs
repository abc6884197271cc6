//! Authorizes requests: what a caller's token allows, one by one.

use std::sync::Arc;
use std::time::Instant;

use sanderling_core::access::{Claims, PathLookup};
use sanderling_core::namenode::Answers;
use sanderling_protocol::{JobId, ObjectId, Path, Refusal, Reply, Request, TokenId};
use sanderling_transport::{LogLimiter, Secret, unix_seconds};

use crate::state::NamenodeState;

/// Lines about frames with requests that are not allowed.
static REFUSED: LogLimiter = LogLimiter::per_second();

/// Where objects are, for callers that may go everywhere: it is not needed.
struct Everywhere;

impl PathLookup for Everywhere {
    fn path_of_object(&self, _: ObjectId) -> Option<Path> {
        None
    }

    fn path_of_job(&self, _: JobId) -> Option<Path> {
        None
    }
}

/// The answers of a frame that are known without the catalog, and whose the others are.
pub(crate) struct Authorized {
    /// In the order of the requests; `None` for those that go on.
    early: Vec<Option<Result<Reply, Refusal>>>,
    claims: Arc<Claims>,
}

/// Draws a number for a new token.
fn token_id() -> TokenId {
    TokenId(rand::random())
}

/// Returns whether all requests are allowed and their answers need no change for the caller.
pub(crate) fn is_all_allowed(state: &NamenodeState, claims: &Claims, requests: &[Request]) -> bool {
    requests.iter().all(|request| {
        !matches!(request, Request::MintToken(_) | Request::Jobs)
            && check(state, claims, request).is_ok()
    })
}

/// Checks whether a request is allowed as names are now. The check is repeated where the
/// request is decided.
fn check(state: &NamenodeState, claims: &Claims, request: &Request) -> Result<(), Refusal> {
    if claims.is_everywhere() {
        return claims.check(request, &Everywhere);
    }
    state.namenode.read().allows(claims, request)
}

impl Authorized {
    /// Answers the requests of a frame that need no catalog: those that the claims do not allow,
    /// and those for a token. Returns the others.
    pub(crate) fn of(
        state: &NamenodeState,
        secret: Option<&Secret>,
        claims: &Arc<Claims>,
        requests: Vec<Request>,
    ) -> (Self, Vec<Request>) {
        let mut going = Vec::with_capacity(requests.len());
        let mut early = Vec::with_capacity(requests.len());
        let mut refused = 0_u64;
        for request in requests {
            early.push(match (check(state, claims, &request), &request, secret) {
                (Err(refusal), ..) => {
                    tracing::debug!(kind = request.kind(), %refusal, "a request was not allowed");
                    refused += 1;
                    Some(Err(refusal))
                }
                (Ok(()), Request::MintToken(asked), Some(secret)) => {
                    let narrower = claims.narrower(asked, unix_seconds(), token_id());
                    Some(narrower.map(|claims| Reply::Token(secret.sign(&claims))))
                }
                (Ok(()), ..) => {
                    going.push(request);
                    None
                }
            });
        }
        if refused > 0
            && let Some(passed_over) = REFUSED.admit(Instant::now())
        {
            let subject = &claims.subject;
            tracing::info!(%subject, refused, passed_over, "requests of a frame were not allowed");
        }
        (Self { early, claims: Arc::clone(claims) }, going)
    }

    /// Puts the answers together.
    pub(crate) fn merged(self, late: Answers) -> Answers {
        let mut late = late.into_iter();
        let Self { early, claims } = self;
        let next = |early: Option<Result<Reply, Refusal>>| match early {
            Some(answer) => Some(answer),
            None => late.next().map(|mut answer| {
                if let Ok(reply) = &mut answer {
                    claims.narrow(reply);
                }
                answer
            }),
        };
        early.into_iter().filter_map(next).collect()
    }
}
