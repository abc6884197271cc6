//! The protocol's service: greetings and metadata frames.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use sanderling_core::access::{Claims, TokenRole};
use sanderling_core::group_generation::GroupGeneration;
use sanderling_core::namenode::{Answers, LONG_PAUSE, LONG_PLACES, LongRefusal, long_places};
use sanderling_protocol::frame::{DECODED_PER_BYTE, decode_body, encode_onto};
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Op, Refusal, Reply, Request, version};
use sanderling_transport::{
    Admitted, Handled, MEMORY_PAUSE, Memory, Pass, Reserved, Response, Security, Service,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::authorize::{Authorized, is_all_allowed};
use crate::caller::{RequestOrigin, Tenant};
use crate::group::service::GroupService;
use crate::requests::{Requests, Submitted, check_count, check_lengths, stopping};

/// Answers up to this length are not counted: a connection has few of them under way. As long as
/// the larger read buffer, whose count of twice as many bytes includes the answers to what is in it
/// (`GROWN_BYTES` of the transport's `reader`).
const SHORT_BYTES_MAX: usize = 64 << 10;

/// What a frame that waits for a long answer is counted with: its requests take more memory than
/// they have bytes. This many beside [`WAITING_PER_BYTE`]: 16 short frames of a connection, as many
/// as may wait, keep 256 KiB. Chosen, not measured.
const WAITING_BYTES: usize = 16 << 10;

/// Memory that is counted for each byte of such a frame: as much as decoding allows.
const WAITING_PER_BYTE: usize = DECODED_PER_BYTE;

// A frame that takes long is refused for as long, whether it lacks places or memory.
const _: () = assert!(LONG_PAUSE.0 == MEMORY_PAUSE.0);

/// Serves the frames of all connections; a clone with `pass` and `caller` serves one of them.
#[derive(Debug)]
pub(crate) struct MetaService {
    pub(crate) requests: Requests,
    pub(crate) group: Arc<GroupService>,
    pub(crate) security: Arc<Security>,
    /// Where long answers are counted.
    pub(crate) memory: Memory,
    /// What the caller of this connection may do; `None` without tokens.
    pub(crate) pass: Option<Pass>,
    pub(crate) caller: RequestOrigin,
    /// The version of the messages that the caller speaks.
    pub(crate) version: u8,
}

impl Service for MetaService {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let here = self.requests.state.cluster;
        if let Some(asked) = hello.cluster.filter(|asked| *asked != here) {
            return Err(Refusal::WrongCluster { here, asked });
        }
        Ok(HelloReply { role: Role::Namenode, cluster: Some(here), node: None })
    }

    fn admit(self: &Arc<Self>, hello: &Hello) -> Result<Admitted<Self>, Refusal> {
        let pass = self.security.admit(hello, Some(self.requests.state.cluster))?;
        let reply = self.hello(hello)?;
        let claims = pass.as_ref().map(Pass::claims).transpose()?;
        let caller = RequestOrigin::new(claims.map(|claims| &**claims));
        Ok((reply, Arc::new(Self { pass, caller, ..self.shared() })))
    }

    fn generation(&self, _hello: &Hello, known: u64) -> Result<u64, Refusal> {
        let own = self.requests.state.group.generation();
        // A caller's word ends nothing here: it gets no answers of a group that it has left.
        let met = GroupGeneration(known).meets(own);
        met.map_err(|_| Refusal::OtherGeneration { here: own.0, asked: known })?;
        Ok(own.0)
    }

    fn speaking(self: &Arc<Self>, version: u8) -> Arc<Self> {
        if version == self.version {
            return Arc::clone(self);
        }
        Arc::new(Self { version, ..self.shared() })
    }

    fn tenant(&self) -> Option<String> {
        match &self.caller.tenant {
            Tenant::Token(name) => Some(name.to_string()),
            Tenant::Connection(_) => None,
        }
    }

    fn counting_in(self: &Arc<Self>, memory: &Memory) -> Arc<Self> {
        Arc::new(Self { memory: memory.clone(), ..self.shared() })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let began = Instant::now();
        if header.op == Op::Group {
            return match self.is_of_group() {
                Ok(claims) => self.group.handle(header, &body, claims),
                Err(refusal) => Handled::Now(Response::refused(&header, &refusal)),
            };
        }
        if header.op != Op::Meta {
            return Handled::Now(Response::refused(
                &header,
                &Refusal::UnknownOp { op: header.op as u8 },
            ));
        }
        self.meta(header, body, began, true)
    }
}

impl MetaService {
    /// Answers a frame of requests. If it `may_wait` and this member was elected and does not serve
    /// yet, the frame waits for that. It counts among those of its connection that are answered
    /// later, which are bounded in number and bytes.
    fn meta(
        self: &Arc<Self>,
        header: Header,
        body: Bytes,
        began: Instant,
        may_wait: bool,
    ) -> Handled {
        let requests = decode_body::<Vec<Request>>(&body)
            .and_then(|requests| check_count(&requests).map(|()| requests))
            .and_then(|requests| check_lengths(&requests, body.len()).map(|()| requests));
        let requests = match requests {
            Ok(requests) => requests,
            Err(refusal) => return Handled::Now(Response::refused(&header, &refusal)),
        };
        if may_wait && self.requests.are_early(&requests) {
            let service = Arc::clone(self);
            return Handled::Later(Box::pin(async move {
                service.requests.state.group.taken_over().await;
                match service.meta(header, body, began, false) {
                    Handled::Now(response) => response,
                    Handled::Later(response) => response.await,
                }
            }));
        }
        let claims = match self.pass.as_ref().map(Pass::claims).transpose() {
            Ok(claims) => claims,
            Err(refusal) => return Handled::Now(Response::refused(&header, &refusal)),
        };
        let state = &self.requests.state;
        match claims {
            Some(claims) if !is_all_allowed(state, claims, &requests) => {
                let secret = self.security.secret.as_ref();
                let (screened, going) = Authorized::of(state, secret, claims, requests);
                let asked = match going.is_empty() {
                    true => Submitted::Now(Vec::new()),
                    false => self.requests.submit(going, body.len(), &self.caller, Some(claims)),
                };
                self.reply(header, began, asked, |answers| screened.merged(answers))
            }
            claims => {
                let asked = self.requests.submit(requests, body.len(), &self.caller, claims);
                self.reply(header, began, asked, |it| it)
            }
        }
    }

    /// Returns another handle of the same.
    fn shared(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            group: Arc::clone(&self.group),
            security: Arc::clone(&self.security),
            memory: self.memory.clone(),
            pass: self.pass.clone(),
            caller: self.caller.clone(),
            version: self.version,
        }
    }

    /// Refuses callers that are neither namenodes nor operators. Returns what the caller may do;
    /// `None` without tokens.
    fn is_of_group(&self) -> Result<Option<&Claims>, Refusal> {
        let Some(claims) = self.pass.as_ref().map(Pass::claims).transpose()? else {
            return Ok(None);
        };
        match claims.role {
            TokenRole::Namenode | TokenRole::Admin => Ok(Some(claims)),
            role => {
                let why = format!("a {} takes no part in the group of namenodes", role.word());
                Err(Refusal::Forbidden { why })
            }
        }
    }

    /// Counts a frame that waits for a long answer, until both are dropped.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: too many of this connection wait, or too much memory is used.
    fn wait_long(&self, header: &Header) -> Result<(OwnedSemaphorePermit, Reserved), Refusal> {
        let places = long_places(u64::from(header.body_bytes), LONG_PLACES);
        let place = Arc::clone(&self.caller.long_waiting).try_acquire_many_owned(places);
        let place = place.map_err(|_| LongRefusal::Places.refusal())?;
        let bytes = WAITING_BYTES + WAITING_PER_BYTE * header.body_bytes as usize;
        let memory = self.memory.reserve(bytes);
        let memory = memory.ok_or_else(|| LongRefusal::Memory.refusal())?;
        Ok((place, memory))
    }

    /// Answers requests, now or later.
    fn reply(
        self: &Arc<Self>,
        header: Header,
        began: Instant,
        asked: Submitted,
        merged: impl FnOnce(Answers) -> Answers + Send + 'static,
    ) -> Handled {
        let (version, memory) = (self.version, self.memory.clone());
        let merged = move |answers| converted(version, merged(answers));
        match asked {
            Submitted::Now(answers) => {
                self.requests.state.metrics.took(true, began.elapsed());
                Handled::Now(response(Some(&memory), header, &merged(answers)))
            }
            Submitted::Made(answers) => {
                self.requests.state.metrics.took(false, began.elapsed());
                Handled::Now(response(None, header, &merged(answers)))
            }
            asked => {
                let (is_read, is_long) = (asked.is_read(), asked.is_long());
                // Of parts, each read was checked when it was made, and changes have been made.
                let is_wait = is_read && (is_long || matches!(asked, Submitted::Events { .. }));
                let service = Arc::clone(self);
                let place = match is_long.then(|| self.wait_long(&header)).transpose() {
                    Ok(place) => place,
                    Err(refusal) => return Handled::Now(Response::refused(&header, &refusal)),
                };
                Handled::Later(Box::pin(async move {
                    let _place = place;
                    let _turn = match is_long {
                        true => service.caller.long_answers.acquire().await.ok(),
                        false => None,
                    };
                    let answers = service.requests.answer(asked, &service.caller).await;
                    // The token may have ended while it waited for what it is to see now.
                    let pass = service.pass.as_ref().filter(|_| is_wait);
                    if let Some(Err(refusal)) = pass.map(Pass::claims) {
                        return Response::refused(&header, &refusal);
                    }
                    if !is_read {
                        service.requests.state.metrics.took(false, began.elapsed());
                    }
                    let memory = Some(memory).filter(|_| is_read);
                    if !is_long {
                        return response(memory.as_ref(), header, &merged(answers));
                    }
                    let encode = move || response(memory.as_ref(), header, &merged(answers));
                    let encoded = tokio::task::spawn_blocking(encode).await;
                    encoded.unwrap_or_else(|_| Response::refused(&header, &stopping()))
                }))
            }
        }
    }
}

/// Converts the answers to the caller's version.
fn converted(version: u8, answers: Answers) -> Answers {
    if version >= version::MESSAGES {
        return answers;
    }
    answers.into_iter().map(|answer| version::answer_for(version, answer)).collect()
}

/// Returns the answer to a frame. A long one is counted in `memory` until the caller has taken it;
/// one to changes is sent whether there is room or not, since they have been made.
fn response(memory: Option<&Memory>, header: Header, answers: &Answers) -> Response {
    let body = encode_onto(answers, Vec::with_capacity(likely_bytes(answers)));
    if body.len() > FRAME_BODY_BYTES_MAX as usize {
        let (value, limit) = (body.len() as u64, u64::from(FRAME_BODY_BYTES_MAX));
        let what = "the answer: request less at once".to_owned();
        return Response::refused(&header, &Refusal::TooLarge { what, value, limit });
    }
    let Some(memory) = memory.filter(|_| body.len() > SHORT_BYTES_MAX) else {
        return Response { header: header.reply(), body: vec![body.into()] };
    };
    let Some(reserved) = memory.reserve(body.capacity()) else {
        let why = "the namenode's memory for long answers is used up".to_owned();
        let refusal = Refusal::RetryAfter { after: MEMORY_PAUSE, why };
        return Response::refused(&header, &refusal);
    };
    let body = Bytes::from_owner(ReservedReply { body, _reserved: reserved });
    Response { header: header.reply(), body: vec![body] }
}

/// An answer on its way, whose memory is counted.
struct ReservedReply {
    body: Vec<u8>,
    _reserved: Reserved,
}

impl AsRef<[u8]> for ReservedReply {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

/// Returns about how long answers are that are long: those that look many names up.
fn likely_bytes(answers: &Answers) -> usize {
    let bytes = |answer: &Result<Reply, Refusal>| match answer {
        Ok(Reply::Found(lookups)) => {
            16 * lookups.found.len() + lookups.inline.len() + 24 * lookups.blocks.len()
        }
        _ => 64,
    };
    answers.iter().map(bytes).sum()
}
