//! What a caller's token allows, request by request.

use std::sync::Arc;

use sanderling_core::access::{Claims, Names};
use sanderling_protocol::{JobId, ObjectId, Path, Refusal, Reply, Request};
use sanderling_transport::{Secret, unix_seconds};

use crate::state::State;
use crate::writer::Answers;

/// Where objects are, looked up only for callers who may not go everywhere.
struct Catalogued<'a>(&'a State);

impl Names for Catalogued<'_> {
    fn path_of_object(&self, object: ObjectId) -> Option<Path> {
        self.0.namenode.read().catalog().path_of_object(object)
    }

    fn path_of_job(&self, job: JobId) -> Option<Path> {
        self.0.namenode.read().catalog().path_of_job(job)
    }
}

/// The answers of a frame that are known without the catalog, and whose the others are.
pub(crate) struct Screened {
    /// In the order of the requests; `None` for those that go on.
    early: Vec<Option<Result<Reply, Refusal>>>,
    claims: Arc<Claims>,
}

/// Tells whether all requests go on and their answers are the caller's as they are.
pub(crate) fn is_all_allowed(state: &State, claims: &Claims, requests: &[Request]) -> bool {
    let names = Catalogued(state);
    requests.iter().all(|request| {
        !matches!(request, Request::MintToken(_) | Request::Jobs)
            && check(&names, claims, request).is_ok()
    })
}

/// Says whether a request is allowed. The repeat of a change that was made is, although its object
/// may have gone since.
fn check(names: &Catalogued<'_>, claims: &Claims, request: &Request) -> Result<(), Refusal> {
    match claims.check(request, names) {
        Err(Refusal::ObjectGone { .. }) if names.0.namenode.read().is_repeated(request) => Ok(()),
        checked => checked,
    }
}

impl Screened {
    /// Takes the requests apart; returns those that go on.
    pub(crate) fn of(
        state: &State,
        secret: Option<&Secret>,
        claims: &Arc<Claims>,
        requests: Vec<Request>,
    ) -> (Self, Vec<Request>) {
        let names = Catalogued(state);
        let mut going = Vec::with_capacity(requests.len());
        let mut early = Vec::with_capacity(requests.len());
        for request in requests {
            early.push(match (check(&names, claims, &request), &request, secret) {
                (Err(refusal), ..) => {
                    tracing::info!(kind = request.kind(), %refusal, "a request was not allowed");
                    Some(Err(refusal))
                }
                (Ok(()), Request::MintToken(asked), Some(secret)) => {
                    let narrower = claims.narrower(asked, unix_seconds());
                    Some(narrower.map(|claims| Reply::Token(secret.sign(&claims))))
                }
                (Ok(()), ..) => {
                    going.push(request);
                    None
                }
            });
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
