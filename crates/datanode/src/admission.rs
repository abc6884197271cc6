//! Admission of TCP connections, and what their tokens allow.

use std::sync::Arc;

use bytes::Bytes;
use sanderling_core::access::{Claims, FrameAccess, TokenRole};
use sanderling_core::datanode::BlockAccess;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::frame::{RangeReply, decode_body, encode_body};
use sanderling_protocol::message::{BlockCount, Hello, HelloReply, Role};
use sanderling_protocol::{
    BlockId, Header, Millis, Op, OrderReply, Path, Refusal, Reply, Request, version,
};
use sanderling_transport::trace::carried;
use sanderling_transport::{Admitted, BodySink, CallError, Handled, Pass, Response, Service};

use crate::caller_blocks::CallerBlocks;
use crate::connection_share::ConnectionShare;
use crate::membership::Membership;
use crate::service::BlockService;

/// When a caller may come again whose blocks were not looked up. The namenode is away or slow, and
/// its retry costs one look-up. Chosen, not measured.
const LOOK_UP_RETRY_INTERVAL: Millis = Millis(100);

/// The service as one connection may use it.
#[derive(Debug)]
pub(crate) struct Admission {
    service: Arc<BlockService>,
    share: Arc<ConnectionShare>,
    /// `None` where callers are not authenticated.
    caller: Option<AdmittedCaller>,
    /// The version of its messages.
    version: u8,
}

/// A caller that showed a token.
#[derive(Debug)]
struct AdmittedCaller {
    pass: Pass,
    /// Blocks that were found to be in its subtree, where that is not everything. What is renamed
    /// out of it stays accessible until the connection ends.
    own: CallerBlocks,
}

impl Service for Admission {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        self.membership().greet(hello)
    }

    fn admit(self: &Arc<Self>, hello: &Hello) -> Result<Admitted<Self>, Refusal> {
        let pass = self.membership().admit(hello)?;
        let reply = self.membership().greet(hello)?;
        let own = || CallerBlocks::new(self.service.remembered_blocks());
        let caller = pass.map(|pass| AdmittedCaller { pass, own: own() });
        let tenant = caller.as_ref().and_then(AdmittedCaller::tenant);
        let may_be_server = caller.as_ref().is_none_or(AdmittedCaller::is_server);
        let is_of_datanode = hello.role == Role::Datanode && may_be_server;
        let share = self.service.shares().connection_of(tenant.as_deref(), is_of_datanode);
        let (service, version) = (Arc::clone(&self.service), self.version);
        Ok((reply, Arc::new(Self { service, share, caller, version })))
    }

    fn generation(&self, hello: &Hello, named: u64) -> Result<u64, Refusal> {
        if hello.role == Role::Namenode {
            self.membership().namenode().generation().meets(GroupGeneration(named))?;
        }
        Ok(0)
    }

    fn speaking(self: &Arc<Self>, version: u8) -> Arc<Self> {
        if version == self.version {
            return Arc::clone(self);
        }
        let caller = self.caller.as_ref();
        let own = || CallerBlocks::new(self.service.remembered_blocks());
        let caller = caller.map(|it| AdmittedCaller { pass: it.pass.clone(), own: own() });
        let (service, share) = (Arc::clone(&self.service), Arc::clone(&self.share));
        Arc::new(Self { service, share, caller, version })
    }

    fn tenant(&self) -> Option<String> {
        self.caller.as_ref()?.tenant()
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let handled = self.handle_frame(header, body);
        if self.version >= version::MESSAGES {
            return handled;
        }
        let version = self.version;
        match handled {
            Handled::Now(response) => Handled::Now(for_version(version, response)),
            Handled::Later(response) => {
                Handled::Later(Box::pin(async move { for_version(version, response.await) }))
            }
        }
    }

    fn holds(&self, header: &Header) -> bool {
        matches!(header.op, Op::Read | Op::ReadMany)
    }

    fn reports_held(&self) -> bool {
        // While this node leaves, a caller should look up where the blocks went.
        !self.service.store().is_fenced()
    }

    fn awaited_bytes(&self) -> usize {
        self.service.disk_room().awaited_bytes(&self.share)
    }

    fn body_sink(self: &Arc<Self>, header: &Header) -> Option<Box<dyn BodySink>> {
        // Answers to an older caller are made in `handle`.
        if self.version < version::MESSAGES {
            return None;
        }
        match &self.caller {
            None => self.service.body_sink(header, &self.share),
            // Without an offer the frame comes to `handle`, which refuses it.
            Some(caller) => match caller.check(header, &[]) {
                Ok(Allowed::All) => self.service.body_sink(header, &self.share),
                Ok(Allowed::If(..)) | Err(_) => None,
            },
        }
    }

    fn opened(&self) {
        self.service.activity().opened();
    }

    fn closed(&self) {
        self.service.activity().closed();
    }
}

/// What may be done with a frame.
enum Allowed {
    All,
    /// It depends on what the namenode counts for its blocks.
    If(OwnerLookUp),
}

/// Blocks of a frame that are to be looked up before it is served.
struct OwnerLookUp {
    /// The caller's.
    subtree: Path,
    blocks: Vec<BlockId>,
    access: BlockAccess,
}

impl Admission {
    /// Returns what a connection may use before its greeting.
    pub(crate) fn open(service: Arc<BlockService>) -> Self {
        let share = service.shares().connection(None);
        Self { service, share, caller: None, version: version::MESSAGES }
    }

    fn membership(&self) -> &Membership {
        self.service.membership()
    }

    fn handle_frame(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let Some(caller) = &self.caller else {
            return self.service.serve(header, body, &self.share);
        };
        match caller.check(&header, &body) {
            Ok(Allowed::All) => self.service.serve(header, body, &self.share),
            Ok(Allowed::If(lookup)) => self.check_and_serve(header, body, lookup),
            Err(refusal) => Handled::Now(self.service.refused(&header, &refusal)),
        }
    }

    /// Serves a frame once the namenode has confirmed that its blocks are the caller's.
    fn check_and_serve(
        self: &Arc<Self>,
        header: Header,
        body: Bytes,
        lookup: OwnerLookUp,
    ) -> Handled {
        let admission = Arc::clone(self);
        Handled::Later(Box::pin(async move {
            if let Err(refusal) = admission.check_blocks(lookup).await {
                return admission.service.refused(&header, &refusal);
            }
            match admission.service.serve(header, body, &admission.share) {
                Handled::Now(response) => response,
                Handled::Later(response) => response.await,
            }
        }))
    }

    /// Looks up which blocks are in the caller's subtree, and what counts for them. The look-ups of
    /// one tenant leave room to those of others, and each has its place for no longer than the
    /// namenode works on it.
    async fn check_blocks(self: &Arc<Self>, lookup: OwnerLookUp) -> Result<(), Refusal> {
        let admission = Arc::clone(self);
        let looking = self.service.owner_lookups().begin(&self.share.owners, 1, move |place| {
            tokio::spawn(carried(async move {
                let looked = admission.look_up_blocks(lookup).await;
                drop(place);
                looked
            }))
        });
        looking.await?.await.unwrap_or_else(|error| {
            let why = format!("the owner of the block was not looked up: {error}");
            Err(Refusal::RetryAfter { after: LOOK_UP_RETRY_INTERVAL, why })
        })
    }

    /// Requests from the namenode which blocks are in the caller's subtree, and remembers these.
    async fn look_up_blocks(&self, lookup: OwnerLookUp) -> Result<(), Refusal> {
        let caller = self.caller.as_ref().expect("only a caller's blocks are checked");
        let OwnerLookUp { subtree, mut blocks, access } = lookup;
        // Those that another frame has found meanwhile are not looked up again.
        caller.own.retain_unknown(access, &mut blocks);
        if blocks.is_empty() {
            return Ok(());
        }
        let counts = self.counts(subtree, &blocks, access).await?;
        let pairs = || blocks.iter().copied().zip(counts.iter().copied());
        caller.own.found(pairs());
        for (block, count) in pairs() {
            if !count.is_own() {
                let claims = caller.pass.claims()?;
                return Err(claims.forbidden(&format!("may not touch block {block}")));
            }
            access.check(block, count, self.service.store().table().length(block))?;
        }
        Ok(())
    }

    /// Requests from the namenode what counts for blocks here, as far as they are in a subtree.
    async fn counts(
        &self,
        subtree: Path,
        blocks: &[BlockId],
        access: BlockAccess,
    ) -> Result<Vec<BlockCount>, Refusal> {
        let membership = self.membership();
        let (node, namenode) = (membership.id(), membership.namenode());
        let request = Request::CountedBlocks { node, subtree, blocks: blocks.to_vec() };
        match namenode.look_up(request).await {
            Ok(Reply::CountedBlocks(counts)) if counts.len() == blocks.len() => Ok(counts),
            Ok(Reply::Within(answers)) if answers.len() == blocks.len() => {
                Ok(answers.into_iter().map(|is_own| access.uncounted(is_own)).collect())
            }
            Ok(reply) => Err(unknown(&namenode.bad_reply(reply))),
            Err(error) => Err(unknown(&error)),
        }
    }
}

/// Translates an answer for an older version: what is refused to it may be in the status, in
/// the place of a range's bytes, or within the answer to an order.
fn for_version(version: u8, response: Response) -> Response {
    let Response { mut header, body } = response;
    if header.status != 0 {
        let Ok(refusal) = decode_body::<Refusal>(&body.concat()) else {
            return Response { header, body };
        };
        let refusal = version::refusal_for(version, refusal);
        header.status = refusal.code();
        return Response { header, body: vec![Bytes::from(encode_body(&refusal))] };
    }
    match header.op {
        Op::Order => {
            let Ok(reply) = decode_body::<OrderReply>(&body.concat()) else {
                return Response { header, body };
            };
            let reply = version::order_reply_for(version, reply);
            Response { header, body: vec![Bytes::from(encode_body(&reply))] }
        }
        Op::ReadMany => Response { header, body: ranges_for_version(version, body) },
        _ => Response { header, body },
    }
}

/// Translates the refusals of a vectored read for an older version.
fn ranges_for_version(version: u8, body: Vec<Bytes>) -> Vec<Bytes> {
    let Some(heads) = body.first() else { return body };
    let count = heads.len() / RangeReply::BYTES;
    // Most answers refuse nothing, and are not copied.
    if heads.chunks_exact(RangeReply::BYTES).all(|head| head[..2] == [0; 2]) {
        return body;
    }
    let whole = body.concat();
    let Ok(heads) = RangeReply::decode_all(&whole, count) else { return body };
    let bytes = Bytes::from(whole).slice(count * RangeReply::BYTES..);
    let (mut out, mut parts, mut at) = (Vec::new(), vec![Bytes::new()], 0);
    for mut head in heads {
        let mut range = bytes.slice(at..at + head.length as usize);
        at += head.length as usize;
        if head.status != 0
            && let Ok(refusal) = decode_body::<Refusal>(&range)
        {
            let refusal = version::refusal_for(version, refusal);
            range = Bytes::from(encode_body(&refusal));
            #[expect(clippy::cast_possible_truncation, reason = "a refusal is short")]
            let length = range.len() as u32;
            (head.status, head.length) = (refusal.code(), length);
        }
        head.encode(&mut out);
        parts.push(range);
    }
    parts[0] = Bytes::from(out);
    parts
}

/// Returns the refusal of a frame while it is unknown whether it is allowed: not now.
fn unknown(error: &CallError) -> Refusal {
    let why = format!("the namenode did not return the owner of the block: {error}");
    Refusal::RetryAfter { after: LOOK_UP_RETRY_INTERVAL, why }
}

impl AdmittedCaller {
    /// Returns the owner of its token. Servers and operators have tokens of one subject for many
    /// connections, each of which has a share of its own.
    fn tenant(&self) -> Option<String> {
        let claims = self.pass.claims().ok()?;
        let root = (claims.role == TokenRole::Client).then(|| claims.root())?;
        root.map(|root| root.to_string())
    }

    /// Returns whether its token is that of a server or of an operator.
    fn is_server(&self) -> bool {
        self.pass.claims().is_ok_and(|claims| claims.role != TokenRole::Client)
    }

    /// Returns whether a frame may be served. Of a body that is still to come only the header
    /// counts.
    fn check(&self, header: &Header, body: &[u8]) -> Result<Allowed, Refusal> {
        let claims = self.pass.claims()?;
        let (mut blocks, access) = match claims.check_frame(header, body)? {
            FrameAccess::Any => return Ok(Allowed::All),
            FrameAccess::Own { blocks, access } => (blocks, access),
        };
        self.own.retain_unknown(access, &mut blocks);
        if blocks.is_empty() {
            return Ok(Allowed::All);
        }
        blocks.sort_unstable();
        blocks.dedup();
        Ok(Allowed::If(OwnerLookUp { subtree: claims.subtree.clone(), blocks, access }))
    }
}

/// Refuses bytes from a caller that has no right to write.
pub(crate) fn may_write(claims: &Claims) -> Result<(), Refusal> {
    claims.check_write()
}

/// Refuses the node's memory to a caller that may not read everything in it.
pub(crate) fn may_map_memory(claims: &Claims) -> Result<(), Refusal> {
    claims.check_memory()
}
