//! Applying commands.

use sanderling_protocol::message::ClientId;
use sanderling_protocol::{EventKind, Instant, Millis, NodeId, Nonce, Order, Refusal, Reply};

use super::Catalog;
use super::claims::{NoticeClaim, NoticeOrigin};
use super::clients::{ChangeKey, ChangeOutcome};
use super::drain::SourceStatement;
use super::log::{Action, Command, LoggedOnce};
use super::members::NodeRecord;
use super::orders::{Applied, DatanodeOrder, Orders};

impl Catalog {
    /// Applies the next command of the log.
    ///
    /// `heartbeat` is the interval returned to nodes that register; it is configuration, not state.
    pub fn apply(&mut self, command: &Command, heartbeat: Millis) -> Applied {
        self.index += 1;
        self.now = self.now.max(command.at);
        let mut orders = Orders::default();
        let result = self.act_as_foreseen(&command.action, heartbeat, &mut orders);
        for node in orders.dropping_nodes() {
            self.fleet().check_drained(node);
        }
        let gone = orders.take_gone();
        let is_stale = self.nodes.totals().is_fleet_stale;
        let is_changed = is_stale || !gone.is_empty() || command.action.changes_nodes();
        if is_changed {
            self.nodes.look_at_fleet(self.reserve.departures());
        }
        if let Some(event) = self.reserve.event(&self.nodes, is_changed) {
            self.emit(event);
        }
        self.assert_accounts();
        Applied { result, orders: self.address(orders), gone }
    }

    /// Applies an action. In debug builds, asserts that what [`Self::refuses`] predicts comes true.
    fn act_as_foreseen(
        &mut self,
        action: &Action,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        // Of a change that is made once the answer may be the one that it had before.
        let is_compared = cfg!(debug_assertions) && !matches!(action, Action::Once(_));
        let refused = is_compared.then(|| self.refuses(action)).flatten();
        let result = self.act(action, heartbeat, orders);
        if let Some(refusal) = refused {
            assert_eq!(result.as_ref().err(), Some(&refusal), "{action:?}");
        }
        result
    }

    /// Asserts what must hold after every command and costs next to nothing to look at; in debug
    /// builds and the simulator's also what costs a look at every node. [`Catalog::fsck`] looks at
    /// everything.
    fn assert_accounts(&self) {
        assert!(self.names.len() < self.objects.len(), "more names than objects");
        self.service.assert(self.now);
        self.ids.assert(self.objects.len(), self.blocks.len());
        if cfg!(debug_assertions) {
            self.nodes.assert(self.may_wait_empty());
        }
    }

    /// Applies an action. It lists all variants, so that a new one does not compile without an arm.
    fn act(
        &mut self,
        action: &Action,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        match action {
            Action::Register(request) => self.register(request.clone(), false, heartbeat, orders),
            Action::Notice { .. }
            | Action::Decommission { .. }
            | Action::Recommend { .. }
            | Action::Cancel { .. }
            | Action::Repeat { .. }
            | Action::SourceNotice { .. }
            | Action::Fenced { .. }
            | Action::NodeDead { .. } => self.act_on_node(action, orders),
            Action::RegisterJob(request) => self.register_job(request.clone()),
            Action::RegisterLimitedJob(request) => self.register_limited_job(request),
            Action::RenewJob { job } => self.renew_job(*job),
            Action::EndJob { job } => self.close_job(*job, orders),
            Action::Manage { holder, name, lease } => self.manage(*holder, name.clone(), *lease),
            Action::Reserve { holder, .. }
            | Action::Commit { holder, .. }
            | Action::Abandon { holder, .. }
            | Action::DropCopies { holder, .. }
            | Action::Forecast { holder, .. } => self.act_for_manager(*holder, action, orders),
            Action::MakeRoom { copies, moves } => {
                Err(self.fleet().make_room(copies, moves, orders))
            }
            Action::Recovered { .. }
            | Action::Started { .. }
            | Action::Tick
            | Action::BeginTerm { .. }
            | Action::Absent { .. }
            | Action::Departures { .. }
            | Action::JournalCut { .. }
            | Action::SnapshotSkipped { .. }
            | Action::Rules { .. }
            | Action::GroupEvent(_)
            | Action::Reap => {
                self.act_for_namenode(action, orders);
                Ok(Reply::Done)
            }
            Action::Join(join) => self.join(join, heartbeat, orders),
            Action::Orphans { node, held } => self.orphans(*node, held, orders),
            Action::Once(once) => self.act_once(once, heartbeat, orders),
            Action::OpenClient { key } => Ok(self.open_client(*key)),
            Action::Refuse(refusal) => Err((**refusal).clone()),
            Action::Damaged { node, blocks } => self.damaged(*node, blocks, orders),
            Action::RevokeTokens { tokens, until } => {
                self.revocations.revoke(self.now, self.index, tokens, *until)
            }
            Action::Create { .. }
            | Action::MakeDirectory { .. }
            | Action::Append { .. }
            | Action::AddBlocks { .. }
            | Action::EndBlocks { .. }
            | Action::Publish { .. }
            | Action::Seal { .. }
            | Action::Abort { .. }
            | Action::RenewLeases { .. }
            | Action::Rename { .. }
            | Action::Delete { .. }
            | Action::DeleteObject { .. }
            | Action::SetTtl { .. }
            | Action::SetAttributes { .. }
            | Action::Durable(_)
            | Action::Concat(_) => self.act_on_object(action, orders),
        }
    }

    /// Makes a change, unless it has been made, and keeps its answer.
    fn act_once(
        &mut self,
        once: &LoggedOnce,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let sent = once.sent();
        if let Some(answer) = self.answered(&sent) {
            return answer;
        }
        let result = self.act_as_foreseen(&once.action, heartbeat, orders);
        let served = self.served();
        self.clients.keep(served, &sent, ChangeOutcome::of(&result));
        result
    }

    /// Makes a client known.
    fn open_client(&mut self, key: Nonce) -> Reply {
        Reply::Client { number: self.clients.open(self.served(), key) }
    }

    /// Gives or renews the leadership lease.
    fn manage(&mut self, holder: Nonce, name: String, lease: Millis) -> Result<Reply, Refusal> {
        let served = self.served();
        if self.leader.acquire(served, holder, &name, served + lease)? {
            self.emit(EventKind::ManagerChanged { name });
        }
        Ok(Reply::ManagerGrant { lease })
    }

    /// Applies what the manager that leads has decided.
    fn act_for_manager(
        &mut self,
        holder: Nonce,
        action: &Action,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        self.check_manager(holder, self.now)?;
        let mut fleet = self.fleet();
        Ok(match action {
            Action::Reserve { moves, .. } => fleet.reserve_all(moves, orders),
            Action::Commit { moves, .. } => Reply::Epochs(fleet.commit_each(moves, orders)),
            Action::Abandon { blocks, .. } => {
                fleet.abandon(blocks, orders);
                Reply::Done
            }
            Action::DropCopies { blocks, .. } => {
                fleet.drop_spare(blocks, orders);
                Reply::Done
            }
            Action::Forecast { node, forecast, .. } => {
                fleet.forecast(*node, *forecast)?;
                Reply::Done
            }
            other => unreachable!("{other:?} is not the manager's"),
        })
    }

    /// Applies the namenode's own actions, which concern its log and time.
    fn act_for_namenode(&mut self, action: &Action, orders: &mut Orders) {
        match action {
            Action::Started { commands, cut_bytes } => {
                let (commands, cut_bytes) = (*commands, *cut_bytes);
                self.emit(EventKind::NamenodeStarted { commands, cut_bytes });
            }
            Action::Recovered { lengths } => self.recovered(lengths, orders),
            Action::Tick => self.tick(orders),
            Action::GroupEvent(kind) => self.emit((**kind).clone()),
            Action::Rules { rules, slice } => self.set_rules(*rules, *slice),
            Action::Reap => self.reap(orders),
            Action::Departures { departures } => self.reserve.set_departures(*departures),
            Action::JournalCut { .. } | Action::SnapshotSkipped { .. } => {
                self.journal_found(action);
            }
            Action::BeginTerm { term, absence, skip } => {
                self.begin_term(*term, *skip);
                self.absent(*absence);
                self.begin_to_show();
                self.service.renew_all(self.now);
            }
            Action::Absent { absence } => {
                self.absent(*absence);
                self.emit(EventKind::NamenodeAbsent { millis: absence.0 });
            }
            other => unreachable!("{other:?} is not the namenode's own"),
        }
    }

    fn act_on_object(&mut self, action: &Action, orders: &mut Orders) -> Result<Reply, Refusal> {
        match action {
            Action::Create { request, placed } => self.create(request, placed, orders),
            Action::MakeDirectory { path, kind, parents, is_listed } => {
                self.make_directory(path, *kind, *parents, *is_listed)
            }
            Action::Append { path, writer, placed } => self.append(path, *writer, placed),
            Action::AddBlocks { object, lease, ended, placed } => {
                self.add_blocks(*object, *lease, ended, placed, orders)
            }
            Action::EndBlocks { object, lease, ended } => {
                Err(self.end_for_room(*object, *lease, ended, orders))
            }
            Action::Publish { object, lease, lengths } => self.publish(*object, *lease, lengths),
            Action::Seal { object, lease, lengths, attributes } => {
                self.seal(*object, *lease, lengths, attributes, orders)
            }
            Action::Abort { object, lease } => self.abort(*object, *lease, orders),
            Action::RenewLeases { leases } => Ok(self.renew_leases(leases)),
            Action::Rename { from, to, replace } => self.rename(from, to, *replace, orders),
            Action::Delete { path, recursive } => self.delete(path, *recursive, orders),
            Action::DeleteObject { path, object, recursive } => {
                self.delete_object(path, *object, *recursive, orders)
            }
            Action::SetTtl { path, ttl } => self.set_ttl(path, *ttl),
            Action::SetAttributes { path, expected, attributes } => {
                self.set_attributes(path, *expected, attributes)
            }
            Action::Concat(request) => self.concat(request, orders),
            Action::Durable(action) => self.act_on_stores(action),
            other => unreachable!("{other:?} is not about an object"),
        }
    }

    fn act_on_node(&mut self, action: &Action, orders: &mut Orders) -> Result<Reply, Refusal> {
        let mut fleet = self.fleet();
        let (node, done) = match action.clone() {
            Action::Notice { node, deadline, reason } => {
                let claim = NoticeClaim { deadline, reason };
                (node, fleet.notice(node, NoticeOrigin::Operator, claim, orders))
            }
            Action::SourceNotice { node, number, deadline, reason, is_withdrawn } => {
                let notice = deadline.map(|deadline| NoticeClaim { deadline, reason });
                let stated = match notice {
                    Some(notice) if !is_withdrawn => SourceStatement::Shown(notice),
                    left => SourceStatement::Withdrawn { left },
                };
                (node, fleet.source_notice(node, number, stated, orders))
            }
            Action::Decommission { node, reason } => {
                (node, fleet.decommission(node, reason, orders))
            }
            Action::Recommend { node, reason, is_withdrawn: true } => {
                (node, fleet.withdraw(node, &reason))
            }
            Action::Recommend { node, reason, .. } => (node, fleet.recommend(node, reason)),
            Action::Cancel { node } => (node, fleet.cancel(node, orders)),
            Action::Repeat { node, deadline, reason, known_at } => {
                (node, fleet.repeat(node, deadline, reason, known_at, orders))
            }
            Action::Fenced { node } => {
                fleet.fenced(node);
                return Ok(Reply::Done);
            }
            Action::NodeDead { node, why } => {
                self.remove_node(node, &why, orders);
                return Ok(Reply::Done);
            }
            other => unreachable!("{other:?} is not about a node"),
        };
        done?;
        let info = self.node_info(node, self.now);
        info.map(|info| Reply::Node(Box::new(info)))
            .ok_or(Refusal::UnknownNode { node: node.to_string() })
    }

    /// Adds the addresses to the orders of an action; drops those for nodes that are gone.
    fn address(&self, orders: Orders) -> Vec<DatanodeOrder> {
        let mut addressed = Vec::new();
        let Some(lists) = orders.into_lists() else { return addressed };
        let mut push = |node: NodeId, order: Order| {
            if let Some(present) = self.nodes.get(node).filter(|node| is_present(node)) {
                addressed.push(DatanodeOrder { node, address: present.address.clone(), order });
            }
        };
        for node in lists.fence_nodes {
            let deadline = self.nodes.get(node).and_then(|node| node.deadline);
            let deadline_in = deadline.map(|at| self.now.until(at));
            push(node, Order::FenceNode { deadline_in });
        }
        for node in lists.unfence_nodes {
            push(node, Order::UnfenceNode);
        }
        for (node, blocks) in lists.fences {
            push(node, Order::FenceBlocks { blocks });
        }
        for (node, blocks) in lists.adopts {
            push(node, Order::Adopt { blocks });
        }
        for (node, blocks) in lists.drops {
            if !blocks.is_empty() {
                push(node, Order::Drop { blocks });
            }
        }
        addressed
    }
}

/// What was answered to changes that may come again.
impl Catalog {
    /// Returns whether the log has a record so recent that a client lives that a change at `now`
    /// needs none. A client that is silent for long is forgotten.
    pub(crate) fn is_noted(&self, now: Instant, client: ClientId) -> bool {
        self.clients.is_noted(self.service.at(now), client)
    }

    /// Returns whether the catalog has a record of a client.
    pub(crate) fn has_client(&self, number: u64) -> bool {
        self.clients.is_known(number)
    }

    /// Returns the answer to a change that has been made, or why it must not be made; `None` if it
    /// is to be made.
    pub(crate) fn answered(&self, sent: &ChangeKey) -> Option<Result<Reply, Refusal>> {
        match self.clients.find(sent) {
            Ok(outcome) => outcome.map(|outcome| self.repeated_answer(outcome)),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    fn repeated_answer(&self, outcome: &ChangeOutcome) -> Result<Reply, Refusal> {
        Ok(match outcome {
            ChangeOutcome::Done => Reply::Done,
            ChangeOutcome::Deleted { objects, freed_bytes } => {
                Reply::Deleted { objects: *objects, freed_bytes: *freed_bytes }
            }
            ChangeOutcome::Stat(stat) => Reply::Stat((**stat).clone()),
            ChangeOutcome::Grant { object, lease, blocks } => {
                if !self.has_lease(*object, *lease) {
                    return Err(Refusal::LeaseEnded { object: *object });
                }
                Reply::Grant(self.grant(*object, blocks))
            }
            ChangeOutcome::Job(job) => Reply::Job((**job).clone()),
            ChangeOutcome::Node(node) => {
                let unknown = || Refusal::UnknownNode { node: node.to_string() };
                let info = self.node_info(*node, self.now).ok_or_else(unknown)?;
                Reply::Node(Box::new(info))
            }
            ChangeOutcome::Reply(reply) => (**reply).clone(),
            ChangeOutcome::Refused(refusal) => return Err((**refusal).clone()),
        })
    }
}

fn is_present(node: &NodeRecord) -> bool {
    node.policy != sanderling_protocol::Policy::Gone
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::Register;
    use sanderling_protocol::node::TierCapacity;
    use sanderling_protocol::{ClusterId, Instant, Nonce, Tier};

    use super::*;

    #[test]
    fn node_that_is_gone_gets_no_order() {
        let second = Millis::from_secs(1);
        let mut catalog = Catalog::new(ClusterId(7), second);
        let register = Register {
            cluster: None,
            nonce: Nonce(1),
            name: "a".to_owned(),
            address: "a:1".to_owned(),
            http_address: String::new(),
            host: "a".to_owned(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 20 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let node = NodeId(1);
        let dead = Action::NodeDead { node, why: "it is silent".to_owned() };
        for (action, is_present) in [(Action::Register(register), true), (dead, false)] {
            let applied = catalog.apply(&Command { at: Instant(1), action }, second);
            assert!(applied.result.is_ok());
            let mut orders = Orders::default();
            orders.lists().unfence_nodes.insert(node);
            assert_eq!(!catalog.address(orders).is_empty(), is_present);
        }
    }
}
