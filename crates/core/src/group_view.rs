//! Which namenode of a group a caller turns to: the known members, the one that leads, which one
//! is tried next after a failure, when a slow one is given up, and when the list is requested
//! again.
//!
//! Clients, datanodes and managers run the same machine. Connections, clocks and random numbers are
//! outside. A caller may know one address or several; what members report is added to it, so that
//! the death of the only configured member ends nothing.

mod attempts;
#[cfg(test)]
mod tests;

pub use attempts::{
    CONNECT_TIMEOUT, FailedAttempt, MEMBERS_TIMEOUT, MemberAttempts, MemberFault, NextMember,
    PROBE_INTERVAL, Repeats, SLOW_AFTER, SlowAttempt, probe_pause, refused_elsewhere,
};
use sanderling_protocol::limits::{MEMBERS_PER_LIST_MAX, TEXT_BYTES_MAX};
use sanderling_protocol::message::Members;
use sanderling_protocol::{Instant, MemberId, Millis};

use crate::group_generation::GroupGeneration;

/// Most addresses that are known: the configured ones, and as many that were reported.
const KNOWN_MAX: usize = 2 * MEMBERS_PER_LIST_MAX;

/// How long a member that failed is tried after the others. Longer than an election takes, 0.4 to
/// 0.8 s and as long again if no candidate gets a majority, so that a dead leader is left alone
/// until another one leads. Short enough that one which was only restarted soon has its turn.
const FAILED_FOR: Millis = Millis(2000);

/// How long an address of another cluster is left out: the operator may put a member there. As long
/// as until the next list of the members ([`REFRESH_INTERVAL`]).
const FOREIGN_FOR: Millis = Millis(30_000);

/// How long after the start the members are requested for the first time: a process that ends at
/// once, as a command does, needs no list.
const FIRST_AFTER: Millis = Millis(200);

/// Time between two requests for the members while all is well. Members are replaced after 30 s of
/// silence, so a process that has a list of that age has most of them. A thousand processes send 33
/// requests a second. Chosen, not measured.
const REFRESH_INTERVAL: Millis = Millis(30_000);

/// Shortest time between two such requests, whatever fails meanwhile. About the time of an election
/// (0.4 to 0.8 s): a list from before it has no new leader.
const REFRESH_SOON: Millis = Millis(500);

/// How an attempt at a member failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberFailure {
    /// It does not lead.
    NotLeader {
        /// The address of the one that leads, as it reports.
        leader: Option<String>,
    },
    /// It cannot be reached, or does not answer.
    Unreachable,
    /// What answers there is of another cluster, or no namenode.
    Foreign,
}

/// One address.
#[derive(Debug, Clone)]
struct Known {
    address: String,
    /// The member that answered there last.
    id: Option<MemberId>,
    /// It was given by the operator, and is never forgotten.
    is_configured: bool,
    failed_at: Option<Instant>,
    /// When something answered there that is no namenode of the cluster.
    foreign_at: Option<Instant>,
}

/// The group in the view of a caller.
#[derive(Debug, Clone)]
pub struct GroupView {
    /// Configured addresses first, in their order.
    known: Vec<Known>,
    leader: Option<String>,
    /// The term of the last list.
    term: u64,
    /// The latest generation of the group of which a leader has answered.
    generation: u64,
    /// A later one that a list has, and its leader: what a list claims counts once that answers.
    claimed: Option<(String, u64)>,
    refresh_at: Instant,
    /// A request for the members is under way.
    is_refreshing: bool,
    /// Counts such requests: each goes to another member.
    refreshes: usize,
    /// When the last one was sent because a call waits for its answer.
    probed_at: Option<Instant>,
}

impl Known {
    fn new(address: String, is_configured: bool) -> Self {
        Self { address, id: None, is_configured, failed_at: None, foreign_at: None }
    }

    fn is_foreign(&self, now: Instant) -> bool {
        self.foreign_at.is_some_and(|at| now < at + FOREIGN_FOR)
    }

    fn has_failed(&self, now: Instant) -> bool {
        self.failed_at.is_some_and(|at| now < at + FAILED_FOR)
    }
}

impl GroupView {
    /// Returns a view of these addresses at `now`, the first of which is tried first.
    #[must_use]
    pub fn new(addresses: impl IntoIterator<Item = String>, now: Instant) -> Self {
        let mut known: Vec<Known> = Vec::new();
        for address in addresses.into_iter().take(MEMBERS_PER_LIST_MAX) {
            if known.iter().all(|it| it.address != address) {
                known.push(Known::new(address, true));
            }
        }
        let refresh_at = now + FIRST_AFTER;
        Self {
            known,
            leader: None,
            term: 0,
            generation: 0,
            claimed: None,
            refresh_at,
            is_refreshing: false,
            refreshes: 0,
            probed_at: None,
        }
    }

    /// Returns the address for the next request: the leader's, else the first that has not failed
    /// lately.
    #[must_use]
    pub fn target(&self, now: Instant) -> &str {
        self.leader.as_deref().unwrap_or_else(|| self.order(now).next().unwrap_or_default())
    }

    /// Returns whether it has the address of the group's leader, which may be out of date.
    #[must_use]
    pub const fn has_leader(&self) -> bool {
        self.leader.is_some()
    }

    /// Returns whether there is another address to turn to.
    #[must_use]
    pub fn has_several(&self, now: Instant) -> bool {
        self.known.iter().filter(|it| !it.is_foreign(now)).nth(1).is_some()
    }

    /// Returns all addresses that are known, the configured ones first.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|it| it.address.as_str())
    }

    /// Returns the addresses in the order in which they are tried. Those of another cluster are
    /// left out unless there are no others: the operator may put a new server there.
    fn order(&self, now: Instant) -> impl Iterator<Item = &str> {
        let is_any_ours = self.known.iter().any(|it| !it.is_foreign(now));
        let usable = move |it: &&Known| !(is_any_ours && it.is_foreign(now));
        let well = self.known.iter().filter(usable).filter(move |it| !it.has_failed(now));
        let failed = self.known.iter().filter(usable).filter(move |it| it.has_failed(now));
        well.chain(failed).map(|it| it.address.as_str())
    }

    /// Notes that a member answered as only the leader does.
    pub fn answered(&mut self, address: &str) {
        if let Some(known) = self.find(address) {
            (known.failed_at, known.foreign_at) = (None, None);
            self.leader = Some(address.to_owned());
        }
        if let Some((_, generation)) = self.claimed.take_if(|(leader, _)| leader == address) {
            self.generation = self.generation.max(generation);
        }
    }

    /// Notes how an attempt at the member at `address` failed. It no longer counts as the leader,
    /// and the members are requested again soon.
    pub fn failed(&mut self, now: Instant, address: &str, failure: MemberFailure) {
        if self.leader.as_deref() == Some(address) {
            // A term that a leader claimed and cannot hold must not outlast it.
            (self.leader, self.term) = (None, 0);
        }
        self.refresh_soon(now);
        match failure {
            MemberFailure::NotLeader { leader } => {
                if let Some(known) = self.find(address) {
                    (known.failed_at, known.foreign_at) = (None, None);
                }
                let leader = leader.filter(|it| it != address && is_address(it));
                let Some(leader) = leader else { return };
                self.add(&leader, None);
                // A member may not know yet what this caller has found out.
                let is_well = |it: &mut Known| !it.has_failed(now) && !it.is_foreign(now);
                if self.find(&leader).is_some_and(is_well) {
                    self.leader = Some(leader);
                }
            }
            MemberFailure::Unreachable => {
                if let Some(known) = self.find(address) {
                    (known.failed_at, known.id) = (Some(now), None);
                }
            }
            MemberFailure::Foreign => {
                self.known.retain(|it| it.is_configured || it.address != address);
                if let Some(known) = self.find(address) {
                    (known.foreign_at, known.id) = (Some(now), None);
                }
            }
        }
    }

    /// Takes the list that a member of the cluster sent. One of an earlier term changes nothing,
    /// and neither does one that no group has. A member of an older generation counts as one of
    /// another cluster: the group was begun anew without it.
    pub fn learned(&mut self, now: Instant, from: &str, members: &Members) {
        if !members.is_plausible() {
            return;
        }
        // A namenode that was never in a group has term 0.
        let generation = GroupGeneration::number_of_term(members.term);
        if members.term != 0 && generation < self.generation {
            self.failed(now, from, MemberFailure::Foreign);
            return;
        }
        if members.term < self.term {
            return;
        }
        let is_in_group = members.members.len() > 1;
        self.term = if is_in_group { members.term } else { 0 };
        if let Some(known) = self.find(from) {
            known.id = Some(members.here);
            (known.failed_at, known.foreign_at) = (None, None);
        }
        // One that is alone was reached by a better address than it has itself.
        if !is_in_group {
            self.claimed = Some((from.to_owned(), generation));
            return;
        }
        let is_listed = |it: &Known| {
            members
                .members
                .iter()
                .any(|member| it.id.map_or(member.address == it.address, |id| id == member.id))
        };
        self.known.retain(|it| it.is_configured || is_listed(it));
        for member in &members.members {
            let is_reached = |it: &Known| it.id == Some(member.id) && !it.has_failed(now);
            if is_address(&member.address) && !self.known.iter().any(is_reached) {
                self.add(&member.address, Some(member.id));
            }
        }
        let is_usable = |it: &&Known| !it.has_failed(now) && !it.is_foreign(now);
        let leads = |it: &&Known| {
            members.leader().is_some_and(|leader| {
                it.id.map_or(it.address == leader.address, |id| id == leader.id)
            })
        };
        let mut leaders = self.known.iter().filter(is_usable).filter(leads);
        let is_kept = |it: &Known| self.leader.as_deref() == Some(it.address.as_str());
        // One member may be known by two addresses: calls at the present one go on.
        if !leaders.clone().any(is_kept)
            && let Some(leader) = leaders.next()
        {
            self.leader = Some(leader.address.clone());
        }
        let is_known = |leader: &String| self.known.iter().any(|it| it.address == *leader);
        self.leader = self.leader.take().filter(is_known);
        self.claimed = self.leader.clone().map(|leader| (leader, generation));
    }

    /// Returns the member from which the list is requested now, if that is due. `avoid` is one that
    /// does not answer. Until [`Self::refreshed`] no other request begins.
    pub fn refresh(&mut self, now: Instant, avoid: Option<&str>) -> Option<String> {
        if self.is_refreshing || now < self.refresh_at {
            return None;
        }
        let target = self.target(now).to_owned();
        // Without a leader each member gets the request in turn.
        let has_none = self.leader.is_none();
        let others: Vec<&str> =
            self.order(now).filter(|it| avoid.map_or(has_none, |avoid| avoid != *it)).collect();
        let asked = match others.len() {
            0 if avoid.is_some() => return None,
            0 => target,
            count => others[self.refreshes % count].to_owned(),
        };
        self.is_refreshing = true;
        self.refreshes = self.refreshes.wrapping_add(1);
        Some(asked)
    }

    /// Notes that the request for the members has ended, however it did.
    pub fn refreshed(&mut self, now: Instant, draw: u64) {
        self.is_refreshing = false;
        let spread = REFRESH_INTERVAL.0 / 4;
        self.refresh_at = now + Millis(REFRESH_INTERVAL.0 - spread + draw % (2 * spread));
    }

    /// Returns what becomes of an attempt at `address` that has no answer after [`SLOW_AFTER`], or
    /// after [`probe_pause`] more. A leader is not given up because it is slow: another member
    /// reports the list, and the attempt ends once that shows another leader. All calls together
    /// request it once in [`PROBE_INTERVAL`].
    pub fn slow(&mut self, now: Instant, address: &str) -> SlowAttempt {
        if self.target(now) != address {
            return SlowAttempt::GiveUp;
        }
        if self.probed_at.is_some_and(|at| now < at + PROBE_INTERVAL) {
            return SlowAttempt::Wait { members_from: None };
        }
        self.refresh_at = self.refresh_at.min(now);
        let members_from = self.refresh(now, Some(address));
        if members_from.is_some() {
            self.probed_at = Some(now);
        }
        SlowAttempt::Wait { members_from }
    }

    /// Makes the next request for the members due soon: something is not as it was.
    pub fn refresh_soon(&mut self, now: Instant) {
        self.refresh_at = self.refresh_at.min(now + REFRESH_SOON);
    }

    /// Returns when the caller is to request the list of members again; the end of time while such
    /// a request is under way.
    #[must_use]
    pub const fn refresh_at(&self) -> Instant {
        if self.is_refreshing { Instant(u64::MAX) } else { self.refresh_at }
    }

    fn find(&mut self, address: &str) -> Option<&mut Known> {
        self.known.iter_mut().find(|it| it.address == address)
    }

    /// Adds a reported address. If there are too many, the oldest reported one goes.
    fn add(&mut self, address: &str, id: Option<MemberId>) {
        if let Some(known) = self.find(address) {
            known.id = id.or(known.id);
            return;
        }
        if self.known.len() >= KNOWN_MAX {
            let Some(oldest) = self.known.iter().position(|it| !it.is_configured) else { return };
            self.known.remove(oldest);
        }
        self.known.push(Known { id, ..Known::new(address.to_owned(), false) });
    }
}

/// Returns whether a reported text may be an address. The text comes from another process.
fn is_address(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    text.len() <= TEXT_BYTES_MAX
        && !text.contains(|char: char| char.is_whitespace() || char == ',' || char == '/')
        && text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port))
}
