//! Applying commands.

use sanderling_protocol::{EventKind, Millis, NodeId, Order, Refusal, Reply};

use super::Catalog;
use super::claims::{NoticeClaim, NoticeOrigin};
use super::drain::SourceStatement;
use super::log::{Action, Command};
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
        let refused = self.foreseen(&command.action);
        let result = self.act(&command.action, heartbeat, &mut orders);
        if let Some(refusal) = refused {
            assert_eq!(result.as_ref().err(), Some(&refusal), "{:?}", command.action);
        }
        for node in orders.dropping_nodes() {
            self.check_drained(node);
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

    /// Returns the refusal that [`Self::refuses`] predicts for an action, in debug builds.
    fn foreseen(&self, action: &Action) -> Option<Refusal> {
        // Of a change that is made once the answer may be the one that it had before.
        let is_compared = cfg!(debug_assertions) && !matches!(action, Action::Once(_));
        is_compared.then(|| self.refuses(action)).flatten()
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
    pub(super) fn act(
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
            Action::Reserve { holder, moves } => self.reserve_all(*holder, moves, orders),
            Action::Commit { holder, moves } => self.commit_all(*holder, moves, orders),
            Action::Abandon { holder, blocks } => self.abandon(*holder, blocks, orders),
            Action::DropCopies { holder, blocks } => self.drop_copies(*holder, blocks, orders),
            Action::MakeRoom { copies, moves } => Err(self.make_room(copies, moves, orders)),
            Action::Forecast { holder, node, forecast } => self.forecast(*holder, *node, *forecast),
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
        let (node, done) = match action.clone() {
            Action::Notice { node, deadline, reason } => {
                let claim = NoticeClaim { deadline, reason };
                (node, self.notice(node, NoticeOrigin::Operator, claim, orders))
            }
            Action::SourceNotice { node, number, deadline, reason, is_withdrawn } => {
                let notice = deadline.map(|deadline| NoticeClaim { deadline, reason });
                let stated = match notice {
                    Some(notice) if !is_withdrawn => SourceStatement::Shown(notice),
                    left => SourceStatement::Withdrawn { left },
                };
                (node, self.source_notice(node, number, stated, orders))
            }
            Action::Decommission { node, reason } => {
                (node, self.decommission(node, reason, orders))
            }
            Action::Recommend { node, reason, is_withdrawn: true } => {
                (node, self.withdraw(node, &reason))
            }
            Action::Recommend { node, reason, .. } => (node, self.recommend(node, reason)),
            Action::Cancel { node } => (node, self.cancel(node, orders)),
            Action::Repeat { node, deadline, reason, known_at } => {
                (node, self.repeat(node, deadline, reason, known_at, orders))
            }
            Action::Fenced { node } => {
                self.fenced(node);
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
