//! Turning requests into commands: time, placement and names of nodes are decided here.

use sanderling_protocol::limits::{
    BLOCK_BYTES_MAX, BLOCKS_PER_GRANT_MAX, BLOCKS_PER_PAGE_MAX, DAMAGED_PER_REPORT_MAX,
    TEXT_BYTES_MAX,
};
use sanderling_protocol::message::{
    Affinity, BlockLength, Create, DurableProgress, DurableRequest, Heartbeat, HeartbeatReply,
    Join, Register, Repeat, Room, SourceNotice,
};
use sanderling_protocol::order::DamagedBlock;
use sanderling_protocol::{
    Instant, Millis, NodeId, NodeSelector, Nonce, ObjectId, Path, Policy, Refusal, Reply, Request,
    StorageClass, Tier, WhenFull, amount,
};

use super::list_limits::check_lists;
use super::{KnownCandidates, Namenode, Prepared};
use crate::catalog::{
    Action, Catalog, Command, DurableAction, InTheWay, Placement, allocated_bytes, of_adopted,
};
use crate::notices::check_left;
use crate::placement::{
    BlockRun, Candidate, Candidates, PlacementRequest, RoomView, WAIT_FOR_ROOM, place, weights,
};

/// Pause after which a caller tries again while the catalog takes as much memory as it may. Only
/// deletions make room, mostly an operator's or a job's end; earlier attempts only take the
/// namenode's time. Chosen, not measured.
const CATALOG_FULL_PAUSE: Millis = Millis(1000);

/// How long the weights of nodes of an age hold: a small part of any ramp and of a life in a model
/// that runs a thousand times faster.
const AGES_HOLD: Millis = Millis(100);

/// Pause of a manager before it plans moves again while the nodes report after a start. They take 3
/// to 10 s, so it is a small part of that. Chosen, not measured.
const REPORTS_PAUSE: Millis = Millis(200);

impl Namenode {
    /// Answers a request, or makes the command that will answer it.
    pub fn prepare(&mut self, now: Instant, request: Request) -> Prepared {
        let objects = self.catalog.unwanted_of(&request);
        if !objects.is_empty() {
            let action = Action::Durable(Box::new(DurableAction::Want { objects }));
            return Prepared::Log(Command { at: now, action });
        }
        if let Some(answer) = self.read(now, &request) {
            return Prepared::Answer(answer);
        }
        match request {
            Request::Heartbeat(heartbeat) => {
                Prepared::Answer(self.heartbeat(now, &heartbeat).map(Reply::Heartbeat))
            }
            Request::Beat(heartbeat) => Prepared::Answer(
                self.heartbeat(now, &heartbeat)
                    .map(|heartbeat| Reply::Beat { heartbeat, position: self.catalog.position() }),
            ),
            Request::Once(once) => self.prepare_once(now, once),
            Request::Suspect { node } => {
                self.membership.suspected(now, node);
                Prepared::Answer(Ok(Reply::Done))
            }
            Request::ExpectedBlocks { node, nonce, after, limit } => {
                let expected = self.catalog.expected(node, nonce, after, limit);
                if expected.is_ok() {
                    // It has sent all that it holds before.
                    self.membership.reported(now, node);
                }
                Prepared::Answer(expected)
            }
            request => match self.action(now, request) {
                Ok(action) => Prepared::Log(Command { at: now, action }),
                Err(Answered::First(action)) => Prepared::Log(Command { at: now, action: *action }),
                Err(Answered::Refused(refusal)) => Prepared::Answer(Err(refusal)),
                Err(Answered::Reply(reply)) => Prepared::Answer(Ok(*reply)),
            },
        }
    }

    pub(super) fn action(&mut self, now: Instant, request: Request) -> Result<Action, Answered> {
        check_lists(&request)?;
        self.check_memory(&request)?;
        Ok(match request {
            Request::Create(request) => self.create(now, request)?,
            Request::Append { path, writer } => self.append(now, path, writer)?,
            Request::AddBlocks { object, lease, ended, count, avoid } => {
                let placed = match self.more_blocks(now, object, &ended, count, &avoid) {
                    Err(Answered::Refused(refusal))
                        if is_no_room(&refusal)
                            && self.catalog.gives_back(object, lease, &ended) =>
                    {
                        // The writer is refused and sends the lengths again: those in the refused
                        // request alone could be lost with the end of the log unnoticed.
                        let action = Action::EndBlocks { object, lease, ended };
                        return Err(Answered::First(Box::new(action)));
                    }
                    placed => placed?,
                };
                Action::AddBlocks { object, lease, ended, placed }
            }
            Request::MakeDirectory { path, kind, parents, is_listed } => {
                self.catalog.check_backlog(&path)?;
                self.catalog.check_new_name(&path)?;
                Action::MakeDirectory { path, kind, parents, is_listed }
            }
            Request::Publish { object, lease, lengths } => {
                Action::Publish { object, lease, lengths }
            }
            Request::Seal { object, lease, lengths, attributes } => {
                Action::Seal { object, lease, lengths, attributes }
            }
            Request::Abort { object, lease } => Action::Abort { object, lease },
            Request::RenewLeases { leases } => Action::RenewLeases { leases },
            Request::Rename { from, to, replace } => {
                self.catalog.check_backlog(&from)?;
                self.catalog.check_backlog(&to)?;
                self.catalog.check_renamed_names(&from, &to)?;
                Action::Rename { from, to, replace }
            }
            Request::Delete { path, recursive } => Action::Delete { path, recursive },
            Request::DeleteObject { path, object, recursive } => {
                Action::DeleteObject { path, object, recursive }
            }
            Request::SetTtl { path, ttl } => Action::SetTtl { path, ttl },
            Request::SetAttributes { path, expected, attributes } => {
                Action::SetAttributes { path, expected, attributes }
            }
            Request::Concat(request) => {
                self.catalog.check_backlog(&request.to)?;
                self.catalog.check_new_name(&request.to)?;
                Action::Concat(request)
            }
            Request::RegisterJob(request) => Action::RegisterJob(request),
            Request::RegisterLimitedJob(request) => Action::RegisterLimitedJob(request),
            Request::RenewJob { job } => Action::RenewJob { job },
            Request::EndJob { job } => Action::EndJob { job },
            request => self.cluster_action(now, request)?,
        })
    }

    /// Refuses what would make the catalog larger while it takes as much memory as it may. Such a
    /// caller tries again: others delete, and jobs end.
    fn check_memory(&self, request: &Request) -> Result<(), Refusal> {
        let (used, limit) = (self.catalog.memory_bytes(), self.config.memory_max);
        if used < limit || !makes_larger(request) {
            return Ok(());
        }
        let why = format!(
            "the namenode's memory is full: the catalog takes {} of {}; delete files, end \
             jobs, or give the namenode more by --memory-max",
            amount::bytes(used),
            amount::bytes(limit)
        );
        Err(Refusal::RetryAfter { after: CATALOG_FULL_PAUSE, why })
    }

    fn cluster_action(&mut self, now: Instant, request: Request) -> Result<Action, Answered> {
        Ok(match request {
            Request::Register(request) => {
                self.registered(now, &request)?;
                Action::Register(request)
            }
            Request::Join(join) => self.join(now, join)?,
            Request::BlockReport { node, mut blocks } => {
                if blocks.len() > BLOCKS_PER_PAGE_MAX {
                    let (value, limit) = (blocks.len() as u64, BLOCKS_PER_PAGE_MAX as u64);
                    let what = "number of blocks".to_owned();
                    return Err(Refusal::TooLarge { what, value, limit }.into());
                }
                blocks.retain(|held| !self.catalog.keeps_orphan(now, held));
                Action::Orphans { node, held: blocks }
            }
            Request::Notice { node, deadline_millis, reason } => {
                let node = self.select(&node, &reason)?;
                Action::Notice { node, deadline: deadline(now, deadline_millis)?, reason }
            }
            Request::Decommission { node, reason } => {
                Action::Decommission { node: self.select(&node, &reason)?, reason }
            }
            Request::Recommend { node, reason, is_withdrawn } => {
                Action::Recommend { node: self.select(&node, &reason)?, reason, is_withdrawn }
            }
            Request::Cancel { node } => Action::Cancel { node: self.select(&node, "")? },
            Request::Repeat(request) => self.repeat(now, request)?,
            Request::SourceNotice(stated) => self.source_notice(now, stated)?,
            Request::Fenced { node } => Action::Fenced { node },
            Request::OpenClient { key } => Action::OpenClient { key },
            Request::Manage { holder, name, lease } => Action::Manage { holder, name, lease },
            Request::Reserve { .. } | Request::Abandon { .. } | Request::DropCopies { .. }
                if self.membership.awaits_reports(now) =>
            {
                // A lost end may have given the next epoch of a block to another node, and what is
                // given up may be all that is left: the report shows it.
                let why = "the nodes still report what they hold".to_owned();
                return Err(Refusal::RetryAfter { after: REPORTS_PAUSE, why }.into());
            }
            Request::Reserve { holder, moves } => Action::Reserve { holder, moves },
            Request::Commit { holder, moves } => Action::Commit { holder, moves },
            Request::Abandon { holder, blocks } => Action::Abandon { holder, blocks },
            Request::DropCopies { holder, blocks } => Action::DropCopies { holder, blocks },
            Request::Forecast { holder, node, forecast } => {
                Action::Forecast { holder, node, forecast }
            }
            Request::ReportDamage { node, nonce, blocks } => {
                self.damage(now, node, nonce, blocks)?
            }
            Request::Durable(request) => self.durable(*request)?,
            Request::RevokeTokens { tokens, until } => {
                self.catalog.revocations().check(now, &tokens, until)?;
                Action::RevokeTokens { tokens, until }
            }
            other => {
                let why = format!("{other:?} was to be answered without the log");
                return Err(Refusal::BadRequest { why }.into());
            }
        })
    }

    fn durable(&self, request: DurableRequest) -> Result<Action, Answered> {
        Ok(match request {
            DurableRequest::Make(request) => {
                Action::Durable(Box::new(DurableAction::Make(request)))
            }
            DurableRequest::ServeStores { node, nonce, stores } => {
                self.catalog.check_process(node, nonce)?;
                Catalog::check_stores(&stores)?;
                if self.catalog.has_stores(node, &stores) {
                    return Err(Answered::Reply(Box::new(Reply::Done)));
                }
                Action::Durable(Box::new(DurableAction::ServeStores { node, stores }))
            }
            DurableRequest::Progress { holder, mut progress } => {
                self.bound_adoption(&mut progress);
                Action::Durable(Box::new(DurableAction::Progress { holder, progress }))
            }
            DurableRequest::Report { holder, mut report } => {
                self.bound_adoption(&mut report.progress);
                Action::Durable(Box::new(DurableAction::Report { holder, report }))
            }
            DurableRequest::Record { holder, mut record } => {
                self.bound_adoption(&mut record.report.progress);
                Action::Durable(Box::new(DurableAction::Record { holder, record }))
            }
            other @ (DurableRequest::Look { .. }
            | DurableRequest::Overview
            | DurableRequest::States { .. }
            | DurableRequest::Waits { .. }
            | DurableRequest::WaitsToTake { .. }
            | DurableRequest::Work { .. }) => {
                let why = format!("{other:?} changes nothing");
                return Err(Refusal::BadRequest { why }.into());
            }
        })
    }

    /// Leaves out what the namenode's memory has no room for of stores that are adopted. The
    /// directory stalls, and the manager lists the same slice again.
    fn bound_adoption(&self, progress: &mut DurableProgress) {
        let (mut used, limit) = (self.catalog.memory_bytes(), self.config.memory_max);
        let mut refused = Vec::new();
        progress.adopted.retain(|adopted| {
            let objects = adopted.slice.objects.iter();
            let needed = objects.map(|(name, bytes)| of_adopted(name.len() as u64, *bytes));
            let needed = needed.fold(0, u64::saturating_add);
            let has_room = needed == 0 || used.saturating_add(needed) < limit;
            if has_room {
                used = used.saturating_add(needed);
            } else {
                refused.push((adopted.directory, needed));
            }
            has_room
        });
        progress.stalled.extend(refused.into_iter().map(|(directory, needed)| {
            let why = format!(
                "the namenode's memory is full: the next objects take {} beside {} of {}; give \
                 the namenode more by --memory-max",
                amount::bytes(needed),
                amount::bytes(used),
                amount::bytes(limit)
            );
            (directory, why)
        }));
    }

    fn create(&mut self, now: Instant, request: Create) -> Result<Action, Answered> {
        self.catalog.check_backlog(&request.path)?;
        self.catalog.check_new_name(&request.path)?;
        let sizes = if request.inline.is_some() {
            Vec::new()
        } else {
            match request.expected_bytes {
                None => vec![BLOCK_BYTES_MAX],
                Some(bytes) => block_sizes(bytes),
            }
        };
        let host = match &request.affinity {
            None => None,
            Some(Affinity::Host(host)) => Some(host.clone()),
            Some(Affinity::Object(path)) => self.host_of(path),
        };
        let is_durable = self.catalog.is_path_in_durable(&request.path);
        let run = is_durable.then_some(BlockRun { blocks_before: 0, last_home: None });
        let near_host = host.as_deref();
        let wanted = PlacementRequest { near_host, run, ..wanted(request.class) };
        let placed = self.place(now, &sizes, sizes.len(), &wanted)?;
        Ok(Action::Create { request, placed })
    }

    fn append(&mut self, now: Instant, path: Path, writer: Nonce) -> Result<Action, Answered> {
        self.catalog.check_backlog(&path)?;
        let class = self.catalog.class_at(&path).unwrap_or_default();
        let object = self.catalog.resolve(&path).ok();
        let run = object.and_then(|object| self.next_run(object, &[]));
        let wanted = PlacementRequest { run, ..wanted(class) };
        let placed = self.place(now, &[BLOCK_BYTES_MAX], 1, &wanted)?;
        Ok(Action::Append { path, writer, placed })
    }

    /// Returns where more blocks of an object begin among its runs, once these have ended; `None`
    /// if it is in no durable directory, where blocks are placed one by one.
    pub(super) fn next_run(&self, object: ObjectId, ended: &[BlockLength]) -> Option<BlockRun> {
        if !self.catalog.is_in_durable(object) {
            return None;
        }
        let (blocks_before, last_home) = self.catalog.blocks_after(object, ended);
        Some(BlockRun { blocks_before, last_home })
    }

    fn host_of(&self, path: &Path) -> Option<String> {
        let node = self.catalog.first_home(path)?;
        self.catalog.node_host(node).map(str::to_owned)
    }

    /// Places up to `count` more blocks of an object: as many as find room and the quota allows,
    /// one at least.
    fn more_blocks(
        &mut self,
        now: Instant,
        object: ObjectId,
        ended: &[BlockLength],
        count: u32,
        avoid: &[NodeId],
    ) -> Result<Vec<Placement>, Answered> {
        let limit = BLOCKS_PER_GRANT_MAX as u64;
        if u64::from(count) > limit {
            let (what, value) = ("blocks in one request".to_owned(), u64::from(count));
            return Err(Refusal::TooLarge { what, value, limit }.into());
        }
        let class = self.catalog.class_of(object).ok_or(Refusal::ObjectGone { object })?;
        let within_quota = self.catalog.blocks_within_quota(object, ended).max(1);
        let count = usize::try_from(within_quota.min(count.into())).expect("a grant is small");
        let sizes = vec![BLOCK_BYTES_MAX; count];
        let run = self.next_run(object, ended);
        self.place(now, &sizes, 1, &PlacementRequest { avoid, run, ..wanted(class) })
    }

    /// Places blocks of these sizes, `least` of them at least.
    fn place(
        &mut self,
        now: Instant,
        sizes: &[u32],
        least: usize,
        wanted: &PlacementRequest<'_>,
    ) -> Result<Vec<Placement>, Answered> {
        if sizes.is_empty() {
            return Ok(Vec::new());
        }
        self.look_at_candidates(now);
        let class = wanted.class;
        let has_nodes = !self.candidates.nodes.is_empty();
        let keeps_reserve = |count: &usize| !self.catalog.uses_reserve(allocated(&sizes[..*count]));
        let Some(most) = (least..=sizes.len()).rev().find(|it| !has_nodes || keeps_reserve(it))
        else {
            let asked = allocated(&sizes[..least]);
            let refusal = reserve_kept(class, asked, &self.catalog.room());
            return Err(self.unless_freed(now, refusal).into());
        };
        let (candidates, catalog) = (&self.candidates.nodes, &self.catalog);
        let membership = &self.membership;
        let room = |node: NodeId, tier: Tier, view: RoomView| {
            let (room, size) = match tier {
                // Writers do not append in the object tier.
                Tier::Object => (0, 0),
                Tier::Dram | Tier::Disk => catalog.node_room(node, tier),
            };
            if view == RoomView::Account {
                return (room, size);
            }
            let (_, load, _) = membership.view(now, node);
            (room.min(size.saturating_sub(load.used_bytes(tier))), size)
        };
        let placed = place(&mut self.draw, candidates, room, wanted, &sizes[..most], least);
        placed.map_err(|refusal| {
            let way = if has_nodes {
                self.in_the_way(class, &sizes[..least])
            } else {
                InTheWay::default()
            };
            if way.is_empty() {
                self.unless_freed(now, refusal).into()
            } else {
                let InTheWay { copies, moves } = way;
                Answered::First(Box::new(Action::MakeRoom { copies, moves }))
            }
        })
    }

    /// Turns a refusal for want of room into one that is tried again, while something is being
    /// freed that was deleted before the change came.
    fn unless_freed(&mut self, now: Instant, refusal: Refusal) -> Refusal {
        if !matches!(refusal, Refusal::Full { .. } | Refusal::ReserveKept { .. }) {
            return refusal;
        }
        let deletions = self.room_waits.deletions(now, &self.catalog);
        self.catalog.unless_reaping(refusal, deletions)
    }

    /// Returns the copies and reservations that are to go so that blocks of a class find room.
    fn in_the_way(&self, class: StorageClass, sizes: &[u32]) -> InTheWay {
        let bytes = allocated(sizes);
        let falls_through = class.when_full == WhenFull::FallThrough;
        let slower = class.tier.slower().filter(|_| falls_through);
        let mut tiers = std::iter::once(class.tier).chain(slower);
        let found = |tier| Some(self.catalog.in_the_way(tier, bytes));
        tiers.find_map(|tier| found(tier).filter(|way| !way.is_empty())).unwrap_or_default()
    }

    /// Sees to it that the nodes that may get blocks are those: wanted, present and not suspected.
    /// Cost: linear in the nodes, but only after one of them changed or some time has passed.
    fn look_at_candidates(&mut self, now: Instant) {
        let version = self.membership.version();
        let known = &self.candidates;
        if known.version == Some(version) && now < known.until {
            return;
        }
        let may = |node: &NodeId| {
            let policy = self.catalog.node_policy(*node).map(|(policy, _)| policy);
            policy.is_some_and(Policy::takes_blocks) && self.membership.is_up(*node)
        };
        let nodes: Vec<NodeId> = self.catalog.node_ids(false).into_iter().filter(may).collect();
        let ages: Vec<Millis> =
            nodes.iter().map(|node| self.catalog.node_age(*node, now)).collect();
        let weights = weights(&ages, self.config.ramp_up, self.config.preemption.as_ref());
        let candidate = |(node, weight): (NodeId, u32)| Candidate {
            node,
            host: self.catalog.node_host(node).unwrap_or_default().to_owned(),
            weight,
            is_at_risk: self.catalog.node_is_at_risk(node),
        };
        let nodes = Candidates::new(nodes.into_iter().zip(weights).map(candidate).collect());
        self.candidates = KnownCandidates { nodes, version: Some(version), until: now + AGES_HOLD };
    }

    /// Answers a node that joins again; one that has seen more of the log than there is is logged.
    fn join(&mut self, now: Instant, join: Box<Join>) -> Result<Action, Answered> {
        let here = self.catalog.cluster();
        if let Some(asked) = join.register.cluster.filter(|asked| *asked != here) {
            return Err(Refusal::WrongCluster { here, asked }.into());
        }
        let is_missing =
            |seen| !self.catalog.continues(seen) && !self.catalog.is_known_missing(seen);
        if join.seen.is_some_and(is_missing) {
            return Ok(Action::Join(join));
        }
        match self.registered(now, &join.register) {
            Err(Answered::Reply(welcome)) => {
                Err(Answered::Reply(Box::new(self.catalog.joined(*welcome, join.seen))))
            }
            Err(other) => Err(other),
            Ok(()) => Ok(Action::Join(join)),
        }
    }

    /// Answers a node that registers again; a new one, or one that must receive its drain, is
    /// logged.
    fn registered(&mut self, now: Instant, request: &Register) -> Result<(), Answered> {
        let here = self.catalog.cluster();
        if let Some(asked) = request.cluster.filter(|asked| *asked != here) {
            return Err(Refusal::WrongCluster { here, asked }.into());
        }
        match self.catalog.node_of(request.nonce) {
            Some((node, Policy::Gone)) => Err(Refusal::NodeGone { node }.into()),
            Some((node, policy)) if !policy.is_draining() => {
                self.membership.joined(now, node);
                Err(Answered::Reply(Box::new(self.catalog.welcome(
                    node,
                    policy,
                    self.config.heartbeat,
                ))))
            }
            _ => Ok(()),
        }
    }

    /// Takes a repetition of what the log has lost; what it contains, or what was taken back since,
    /// is answered at once, so that a datanode may repeat as often as it likes.
    fn repeat(&self, now: Instant, request: Repeat) -> Result<Action, Answered> {
        let Repeat { node, nonce, deadline_millis, reason, known_ago } = request;
        if self.catalog.node_nonce(node) != Some(nonce) {
            return Err(Refusal::NodeGone { node }.into());
        }
        let node = self.select(&node.into(), &reason)?;
        let deadline = deadline_millis.map(|millis| deadline(now, millis)).transpose()?;
        // It counts back from when it was sent. What it speaks of was not given in an absence.
        let known_at = now - known_ago - self.may_have_waited(now);
        if self.catalog.is_forgotten(node, deadline, known_at) {
            return Ok(Action::Repeat { node, deadline, reason, known_at });
        }
        let info = self.node_info(node, now).ok_or(Refusal::NodeGone { node })?;
        Err(Answered::Reply(Box::new(Reply::Node(Box::new(info)))))
    }

    fn source_notice(&self, now: Instant, stated: SourceNotice) -> Result<Action, Refusal> {
        let SourceNotice { node, nonce, number, deadline_millis, reason, is_withdrawn } = stated;
        if self.catalog.node_nonce(node) != Some(nonce) {
            return Err(Refusal::NodeGone { node });
        }
        if deadline_millis.is_none() && !is_withdrawn {
            let why = "a notice that is given has a deadline".to_owned();
            return Err(Refusal::BadRequest { why });
        }
        let node = self.select(&node.into(), &reason)?;
        let deadline = deadline_millis.map(|millis| deadline(now, millis)).transpose()?;
        Ok(Action::SourceNotice { node, number, deadline, reason, is_withdrawn })
    }

    fn heartbeat(
        &mut self,
        now: Instant,
        heartbeat: &Heartbeat,
    ) -> Result<HeartbeatReply, Refusal> {
        let node = heartbeat.node;
        let policy = self.catalog.node_policy(node).map(|(policy, _)| policy);
        let is_same = self.catalog.node_nonce(node) == Some(heartbeat.nonce);
        let policy = policy
            .filter(|policy| is_same && *policy != Policy::Gone)
            .ok_or(Refusal::NodeGone { node })?;
        self.membership.heartbeat(now, node, heartbeat.load);
        let (deadline, home_blocks) = self.catalog.node_deadline(node);
        let deadline_in = deadline.map(|at| now.until(at));
        Ok(HeartbeatReply { policy, deadline_in, home_blocks })
    }

    /// Logs what of a report of damage still holds. A report that changes nothing is acknowledged
    /// without a record, however often it comes.
    fn damage(
        &self,
        now: Instant,
        node: NodeId,
        nonce: Nonce,
        mut blocks: Vec<DamagedBlock>,
    ) -> Result<Action, Answered> {
        if blocks.len() > DAMAGED_PER_REPORT_MAX {
            let (value, limit) = (blocks.len() as u64, DAMAGED_PER_REPORT_MAX as u64);
            let what = "number of damaged blocks".to_owned();
            return Err(Refusal::TooLarge { what, value, limit }.into());
        }
        self.catalog.check_process(node, nonce)?;
        blocks.retain(|reported| self.catalog.concerns(node, reported));
        if blocks.is_empty() {
            return Err(Answered::Reply(Box::new(Reply::Done)));
        }
        self.catalog.believes(now, &blocks)?;
        Ok(Action::Damaged { node, blocks })
    }

    fn select(&self, selector: &NodeSelector, reason: &str) -> Result<NodeId, Refusal> {
        if reason.len() > TEXT_BYTES_MAX {
            let (value, limit) = (reason.len() as u64, TEXT_BYTES_MAX as u64);
            return Err(Refusal::TooLarge { what: "reason".to_owned(), value, limit });
        }
        self.catalog.select_node(selector)
    }
}

/// Returns whether a request makes the catalog larger.
const fn makes_larger(request: &Request) -> bool {
    matches!(
        request,
        Request::Create(_)
            | Request::MakeDirectory { .. }
            | Request::Append { .. }
            | Request::AddBlocks { .. }
            | Request::SetAttributes { .. }
            | Request::RegisterJob(_)
            | Request::RegisterLimitedJob(_)
    )
}

/// Why there is no command of what was requested.
pub(super) enum Answered {
    /// This comes first, and then it is requested again.
    First(Box<Action>),
    Refused(Refusal),
    Reply(Box<Reply>),
}

impl From<Refusal> for Answered {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Returns whether a refusal of blocks may end when room is made.
const fn is_no_room(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Full { .. } | Refusal::ReserveKept { .. } | Refusal::RetryAfter { .. }
    )
}

/// Returns the request for a place anywhere.
const fn wanted(class: StorageClass) -> PlacementRequest<'static> {
    PlacementRequest { class, avoid: &[], near_host: None, run: None }
}

/// Returns the bytes that blocks of these sizes take.
fn allocated(sizes: &[u32]) -> u64 {
    sizes.iter().map(|size| u64::from(allocated_bytes(*size))).sum()
}

/// Returns why blocks find no place although tiers have room.
fn reserve_kept(class: StorageClass, bytes: u64, room: &Room) -> Refusal {
    let refusal = Refusal::ReserveKept {
        bytes,
        class: class.to_string(),
        room: room.room_bytes,
        reserve: room.reserve_bytes,
        departures: room.departures,
    };
    match class.when_full {
        WhenFull::Wait => Refusal::RetryAfter { after: WAIT_FOR_ROOM, why: refusal.to_string() },
        WhenFull::FallThrough | WhenFull::Refuse => refusal,
    }
}

fn deadline(now: Instant, millis: i64) -> Result<Instant, Refusal> {
    if millis <= 0 {
        return Err(Refusal::DeadlinePassed { ago: Millis(millis.unsigned_abs()) });
    }
    check_left(Millis(millis.unsigned_abs()))?;
    Ok(now + Millis(millis.unsigned_abs()))
}

/// Returns the sizes of the first blocks of an object of that many bytes.
fn block_sizes(bytes: u64) -> Vec<u32> {
    let mut left = bytes;
    let mut sizes = Vec::new();
    while left > 0 && sizes.len() < BLOCKS_PER_GRANT_MAX {
        let size = u32::try_from(left.min(u64::from(BLOCK_BYTES_MAX))).expect("a block's length");
        sizes.push(size);
        left -= u64::from(size);
    }
    sizes
}
