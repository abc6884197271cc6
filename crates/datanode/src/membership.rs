//! The process as a member of its cluster: which incarnation it is, what its peers may know of it,
//! and whether it takes writes. `core` decides; this holds what was decided, and has the block
//! store's fence follow it.

use std::sync::Arc;

use parking_lot::RwLock;
use sanderling_core::Mechanism;
use sanderling_core::datanode::{BlockTotals, MemberOptions, NodeMembership, StartLimit};
use sanderling_core::notices::{NoticeReply, NoticeReport, Notices};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{ClusterId, Instant, Millis, NodeId, Nonce, Op, Policy, Refusal};
use sanderling_transport::{Pass, Security};
use tokio::sync::watch;

use crate::clock::ProcessClock;
use crate::contact::ContactLog;
use crate::link::Link;
use crate::namenode::NamenodeLink;
use crate::options::DatanodeOptions;
use crate::store::BlockStore;

/// Time between two attempts to reach the namenode. Half of the default heartbeat: a namenode that
/// was started again has all of its nodes back within about a second (docs/SCALE.md), and an absent
/// one gets four calls a second of each.
pub(crate) const ATTEMPT_INTERVAL: Millis = Millis(250);

/// The process as a member of its cluster.
#[derive(Debug)]
pub(crate) struct Membership {
    namenode: NamenodeLink,
    security: Security,
    mechanism: Mechanism,
    clock: ProcessClock,
    store: Arc<BlockStore>,
    link: Arc<Link>,
    /// By `clock`. The locks of the block table and of the link may be taken while it is held, and
    /// no others.
    member: RwLock<NodeMembership>,
    contact: ContactLog,
    registration: watch::Sender<RegistrationStatus>,
}

/// Which incarnation of which cluster the process is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeIdentity {
    pub(crate) cluster: Option<ClusterId>,
    /// `None` until it has registered.
    pub(crate) node: Option<NodeId>,
    pub(crate) nonce: Nonce,
}

/// What the namenode replied last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegistrationStatus {
    pub(crate) policy: Policy,
    pub(crate) home_blocks: Option<u64>,
}

impl Membership {
    /// Returns a process that is no member yet.
    pub(crate) fn new(
        options: &DatanodeOptions,
        namenode: NamenodeLink,
        clock: ProcessClock,
        store: Arc<BlockStore>,
        link: Arc<Link>,
    ) -> Self {
        let registration = RegistrationStatus { policy: Policy::Active, home_blocks: None };
        let limit = StartLimit::Until(clock.now() + options.start_time_max.into());
        Self {
            namenode,
            security: options.security.clone(),
            mechanism: options.mechanism,
            clock,
            store,
            link,
            member: RwLock::new(NodeMembership::new(member_options(options), nonce(), limit)),
            contact: ContactLog::new(&options.namenode, clock.now()),
            registration: watch::Sender::new(registration),
        }
    }

    pub(crate) const fn namenode(&self) -> &NamenodeLink {
        &self.namenode
    }

    /// Returns whether the namenode answers and keeps the node, for operators.
    pub(crate) const fn contact(&self) -> &ContactLog {
        &self.contact
    }

    pub(crate) const fn security(&self) -> &Security {
        &self.security
    }

    pub(crate) const fn clock(&self) -> ProcessClock {
        self.clock
    }

    /// Returns the incarnation's id.
    pub(crate) fn id(&self) -> NodeId {
        self.member.read().node().unwrap_or_default()
    }

    pub(crate) fn identity(&self) -> NodeIdentity {
        let member = self.member.read();
        NodeIdentity { cluster: member.cluster(), node: member.node(), nonce: member.nonce() }
    }

    pub(crate) fn registration(&self) -> watch::Receiver<RegistrationStatus> {
        self.registration.subscribe()
    }

    /// Takes the cluster that the node joins, before its peers may call it by its id.
    pub(crate) fn enter_cluster(&self, cluster: ClusterId) {
        if self.member.read().cluster() == Some(cluster) {
            return;
        }
        self.namenode.set_cluster(Some(cluster));
        if let Some(objects) = self.store.tiers().objects() {
            objects.join(cluster);
        }
    }

    /// Changes the member, and brings up to date what depends on it: the fence, and tasks that wait
    /// for the policy.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut NodeMembership, Instant) -> T) -> T {
        let mut member = self.member.write();
        let changed = change(&mut member, self.clock.now());
        self.publish(&member);
        let is_fenced = member.registration().is_fenced();
        if is_fenced != self.store.is_fenced() {
            self.store.set_fence(is_fenced);
            let (node, policy) =
                (member.node().unwrap_or_default(), member.registration().policy());
            tracing::info!(%node, ?policy, is_fenced, "fence changed");
        }
        changed
    }

    fn publish(&self, member: &NodeMembership) {
        let (policy, home_blocks) =
            (member.registration().policy(), member.registration().home_blocks());
        let registration = RegistrationStatus { policy, home_blocks };
        self.registration
            .send_if_modified(|before| std::mem::replace(before, registration) != registration);
    }

    /// Forgets everything, but for blocks that the next incarnation keeps. Returns whether the
    /// process is another incarnation already; else it is no member until it has registered.
    pub(crate) fn begin_again(&self) -> bool {
        let load = self.store.load();
        let held =
            BlockTotals { blocks: load.blocks, bytes: load.dram_used_bytes + load.disk_used_bytes };
        let mut member = self.member.write();
        let drops = member.begin_again(self.clock.now(), held, nonce());
        // The fence goes with the blocks. Files are deleted when no task waits for the member.
        let bytes = if drops { self.store.wipe() } else { Vec::new() };
        if !drops {
            self.store.revoke_writes();
        }
        self.link.forget();
        self.publish(&member);
        drop(member);
        drop(bytes);
        self.change(|member, now| member.wiped(now))
    }

    /// Sets or lifts the fence by an order.
    pub(crate) fn order_fence(&self, is_fenced: bool) {
        self.change(|member, now| member.registration_mut().order(now, is_fenced));
    }

    /// Takes note that blocks are about to be fenced by an order, before they are.
    pub(crate) fn fences_blocks(&self) {
        self.change(|member, now| member.registration_mut().fences_blocks(now));
    }

    /// Changes the notices that are remembered, and with them the fence.
    pub(crate) fn remember<T>(&self, change: impl FnOnce(&mut Notices) -> T) -> T {
        self.change(|member, now| member.registration_mut().remember(now, change))
    }

    /// Takes the answer to a notice that was sent at `sent_at`.
    pub(crate) fn notice_answered(
        &self,
        sent_at: Instant,
        report: &NoticeReport,
        reply: NoticeReply,
    ) {
        self.change(|member, now| {
            member.registration_mut().notice_answered(now, sent_at, report, reply);
        });
    }

    /// Returns why no write is taken now, as
    /// [`sanderling_core::datanode::RegistrationState::withheld`].
    pub(crate) fn withheld(&self) -> Option<Refusal> {
        if self.mechanism != Mechanism::Baseline {
            return None;
        }
        let member = self.member.read();
        member.registration().withheld(member.node().unwrap_or_default())
    }

    /// Returns what is sent instead of a refusal.
    pub(crate) fn answered_refusal(&self, op: Op, refusal: Refusal) -> Refusal {
        let is_write = op == Op::Write && matches!(refusal, Refusal::Moved { .. });
        if !is_write || self.mechanism != Mechanism::Baseline {
            return refusal;
        }
        let member = self.member.read();
        let instead = member.registration().instead_of_moved(member.node().unwrap_or_default());
        instead.unwrap_or(refusal)
    }

    /// Returns what the greeting of a connection shows that its caller may do; `None` where callers
    /// are not authenticated.
    ///
    /// # Errors
    /// [`Refusal::Unauthenticated`]: it shows no valid token.
    pub(crate) fn admit(&self, hello: &Hello) -> Result<Option<Pass>, Refusal> {
        self.security.admit(hello, self.identity().cluster)
    }

    /// Answers the greeting of a connection.
    ///
    /// # Errors
    /// [`Refusal::WrongCluster`], [`Refusal::WrongNode`]: it is meant for another process, or for
    /// another incarnation of this one.
    pub(crate) fn greet(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let NodeIdentity { cluster, node, .. } = self.identity();
        if let (Some(here), Some(asked)) = (cluster, hello.cluster)
            && here != asked
        {
            return Err(Refusal::WrongCluster { here, asked });
        }
        if let Some(asked) = hello.node
            && node != Some(asked)
        {
            return Err(Refusal::WrongNode { here: node.unwrap_or_default(), asked });
        }
        Ok(HelloReply { role: Role::Datanode, cluster, node })
    }
}

fn member_options(options: &DatanodeOptions) -> MemberOptions {
    MemberOptions {
        mechanism: options.mechanism,
        attempt_every: ATTEMPT_INTERVAL,
        draining_heartbeat: options.draining_heartbeat.into(),
        report_every: options.report_every.into(),
        rejoin_after_notice: options.rejoin_after_notice.into(),
    }
}

/// Returns the number that stands for a process at its namenode.
fn nonce() -> Nonce {
    Nonce(rand::random())
}
