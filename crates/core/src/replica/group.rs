//! The members of a group, and how they change.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{Member, MemberRole, Members};
use sanderling_protocol::{MemberId, Nonce};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most members of a group, spares among them. More voters make every round slower and no group
/// safer: seven survive three failures at once.
pub(super) const MEMBERS_MAX: usize = 15;

/// Longest address: a host's name has at most 253 bytes.
const ADDRESS_BYTES_MAX: usize = 300;

/// The addresses at which a member serves, and the nonce of its process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAddress {
    /// `host:port` for frames: of clients, datanodes and other members.
    pub address: String,
    /// `host:port` for HTTP.
    pub http_address: String,
    /// Drawn by the process that joins: a join that is repeated is the same member.
    pub nonce: Nonce,
}

/// The role of a member: whether its vote and its copy of the log count for the group's majorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupRole {
    /// Its vote and its copy of the log count.
    Voter,
    /// It has the log and counts for nothing: ready to become a voter.
    Spare,
    /// It counts until the change that removes it is done.
    Leaving,
}

/// One member of a group of namenodes: its addresses and its role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// Where it is.
    pub at: MemberAddress,
    /// What it counts for.
    pub role: GroupRole,
}

/// The members of a group as of one entry of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    members: BTreeMap<MemberId, GroupMember>,
    /// The voters before a change that is under way; empty when none is.
    outgoing: BTreeSet<MemberId>,
    /// The number of the next member. No number is given out twice.
    next: u64,
}

/// A change of the members in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupChange {
    /// A new spare, with its number.
    pub add: Option<(MemberId, MemberAddress)>,
    /// Spares that become voters.
    pub promote: BTreeSet<MemberId>,
    /// Members that leave.
    pub remove: BTreeSet<MemberId>,
}

/// A reason why a change of the members is refused. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GroupChangeError {
    /// A change is under way. Try again when it is done.
    #[error("another change of the members is under way")]
    UnderWay,
    /// The change changes nothing.
    #[error("the change is empty")]
    Empty,
    /// Look at the members again.
    #[error("member {0} is not a spare")]
    NotSpare(MemberId),
    /// Look at the members again.
    #[error("member {0} is not in the group")]
    NotMember(MemberId),
    /// Add a voter first.
    #[error("no voter would be left: another namenode must join with --join and vote first")]
    NoVoter,
    /// Transfer the leadership first.
    #[error("member {0} leads: it cannot remove itself")]
    Leads(MemberId),
    /// End that process first, or give the new one an address of its own.
    #[error(
        "member {0} answers at this address: end it first, or give this namenode another \
         --advertise or --listen"
    )]
    InUse(MemberId),
    /// Start the silent members, or remove one of them instead.
    #[error("the voters that are left could not decide: {}", silent(.0))]
    NoMajority(BTreeSet<MemberId>),
    /// Remove a member first.
    #[error("a group has at most {MEMBERS_MAX} members")]
    Full,
    /// Take the number that the group gives out next.
    #[error("the next member has the number {0}")]
    Number(MemberId),
    /// Correct the address.
    #[error("an address has 1 to {ADDRESS_BYTES_MAX} bytes")]
    Address,
}

/// Names the members that do not answer.
fn silent(members: &BTreeSet<MemberId>) -> String {
    let numbers: Vec<String> = members.iter().map(ToString::to_string).collect();
    match numbers.as_slice() {
        [one] => format!("member {one} does not answer"),
        all => format!("members {} do not answer", all.join(", ")),
    }
}

impl Group {
    /// Returns the group of a single namenode: member 1, a voter.
    #[must_use]
    pub fn of_one(at: MemberAddress) -> Self {
        let member = GroupMember { at, role: GroupRole::Voter };
        Self { members: [(MemberId(1), member)].into(), outgoing: BTreeSet::new(), next: 2 }
    }

    /// Returns a group of these voters, from number `first` on: a new generation that goes on
    /// where an older one ended, or a test's.
    #[must_use]
    pub fn of_voters(first: u64, voters: Vec<MemberAddress>) -> Self {
        let member = |at| GroupMember { at, role: GroupRole::Voter };
        let members: BTreeMap<_, _> =
            (first..).map(MemberId).zip(voters.into_iter().map(member)).collect();
        let next = first + members.len() as u64;
        Self { members, outgoing: BTreeSet::new(), next }
    }

    /// Returns all members with their ids, ascending by id.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &GroupMember)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// Returns the member with this id; `None` if the group has no such member.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&GroupMember> {
        self.members.get(&id)
    }

    /// Returns the id that the next member to join gets.
    #[must_use]
    pub const fn next(&self) -> MemberId {
        MemberId(self.next)
    }

    /// Returns the members as `here`, one of them, reports them to callers: in `term`, with the one
    /// that leads as far as it is known.
    #[must_use]
    pub fn list(&self, here: MemberId, term: u64, leader: Option<MemberId>) -> Members {
        let member = |(id, it): (MemberId, &GroupMember)| Member {
            id,
            address: it.at.address.clone(),
            http_address: it.at.http_address.clone(),
            role: match it.role {
                _ if leader == Some(id) => MemberRole::Leader,
                GroupRole::Voter | GroupRole::Leaving => MemberRole::Voter,
                GroupRole::Spare => MemberRole::Learner,
            },
        };
        Members { term, here, members: self.members().map(member).collect() }
    }

    /// Returns the voters of the newest configuration, ascending.
    pub fn voters(&self) -> impl Iterator<Item = MemberId> {
        self.with_role(GroupRole::Voter)
    }

    /// Returns the ids of the spares in the newest configuration, ascending.
    pub fn spares(&self) -> impl Iterator<Item = MemberId> {
        self.with_role(GroupRole::Spare)
    }

    fn with_role(&self, role: GroupRole) -> impl Iterator<Item = MemberId> {
        self.members.iter().filter(move |(_, member)| member.role == role).map(|(id, _)| *id)
    }

    /// Returns the voters before the change that is under way, ascending.
    pub fn outgoing(&self) -> impl Iterator<Item = MemberId> {
        self.outgoing.iter().copied()
    }

    /// Returns whether a change of several voters is under way.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether a member's vote counts: it is a voter, or was one before the change that is
    /// under way.
    #[must_use]
    pub fn counts(&self, id: MemberId) -> bool {
        self.outgoing.contains(&id)
            || self.members.get(&id).is_some_and(|member| member.role == GroupRole::Voter)
    }

    /// Returns whether these members decide: a majority of the voters, and while a change is under
    /// way also a majority of those before it.
    #[must_use]
    pub fn is_quorum(&self, has: impl Fn(MemberId) -> bool) -> bool {
        let majority = |voters: &mut dyn Iterator<Item = MemberId>| {
            let (mut all, mut with) = (0, 0);
            for voter in voters {
                all += 1;
                with += usize::from(has(voter));
            }
            with * 2 > all
        };
        majority(&mut self.voters()) && (!self.is_changing() || majority(&mut self.outgoing()))
    }

    /// Returns whether it can be the result of changes: bytes of a peer may not be.
    pub(super) fn is_consistent(&self) -> bool {
        let is_sane = |id: &MemberId, member: &GroupMember| {
            let is_counted = match member.role {
                GroupRole::Voter => true,
                GroupRole::Spare => !self.outgoing.contains(id),
                GroupRole::Leaving => self.outgoing.contains(id),
            };
            is_counted && id.0 != 0 && id.0 < self.next
        };
        self.members.iter().all(|(id, member)| is_sane(id, member))
            && self.outgoing.iter().all(|id| self.members.contains_key(id))
            && self.voters().next().is_some()
    }

    /// Returns the change that adds this process as a spare; `None` if it is a member already. It
    /// takes the place of a member at its address: that one has lost its directory, since two
    /// processes cannot serve at one address.
    #[must_use]
    pub fn add(&self, at: MemberAddress) -> Option<GroupChange> {
        if self.joined(at.nonce).is_some() {
            return None;
        }
        let is_there = |(_, member): &(MemberId, &GroupMember)| member.at.address == at.address;
        let remove = self.members().filter(is_there).map(|(id, _)| id).collect();
        Some(GroupChange { add: Some((self.next(), at)), remove, ..GroupChange::default() })
    }

    /// Returns the member that joined with this nonce; `None` if there is none.
    #[must_use]
    pub fn joined(&self, nonce: Nonce) -> Option<MemberId> {
        self.members.iter().find(|(_, member)| member.at.nonce == nonce).map(|(id, _)| *id)
    }

    /// Checks a change that `leader` is to propose.
    ///
    /// # Errors
    /// [`GroupChangeError`] names what to do first.
    pub fn check(&self, change: &GroupChange, leader: MemberId) -> Result<(), GroupChangeError> {
        if change.remove.contains(&leader) {
            let is_last = self.voters().all(|id| change.remove.contains(&id));
            let leads = GroupChangeError::Leads(leader);
            return Err(if is_last { GroupChangeError::NoVoter } else { leads });
        }
        self.changed(change).map(drop)
    }

    /// Returns the members once a change is applied.
    pub(super) fn changed(&self, change: &GroupChange) -> Result<Self, GroupChangeError> {
        if self.is_changing() {
            return Err(GroupChangeError::UnderWay);
        }
        let mut group = self.clone();
        let before: BTreeSet<MemberId> = self.voters().collect();
        if let Some((id, at)) = &change.add {
            if id.0 != self.next {
                return Err(GroupChangeError::Number(self.next()));
            }
            let is_address = |text: &str| (1..=ADDRESS_BYTES_MAX).contains(&text.len());
            if !is_address(&at.address) || at.http_address.len() > ADDRESS_BYTES_MAX {
                return Err(GroupChangeError::Address);
            }
            let spare = GroupMember { at: at.clone(), role: GroupRole::Spare };
            group.members.insert(*id, spare);
            group.next += 1;
        }
        for id in &change.promote {
            match group.members.get_mut(id) {
                Some(member) if member.role == GroupRole::Spare && !change.remove.contains(id) => {
                    member.role = GroupRole::Voter;
                }
                _ => return Err(GroupChangeError::NotSpare(*id)),
            }
        }
        for id in &change.remove {
            group.remove(*id, change.steps() > 1)?;
        }
        if change.steps() == 0 {
            return Err(GroupChangeError::Empty);
        }
        if group.voters().next().is_none() {
            return Err(GroupChangeError::NoVoter);
        }
        if group.members.len() > MEMBERS_MAX {
            return Err(GroupChangeError::Full);
        }
        if change.steps() > 1 {
            group.outgoing = before;
        }
        Ok(group)
    }

    fn remove(&mut self, id: MemberId, is_joint: bool) -> Result<(), GroupChangeError> {
        let member = self.members.get_mut(&id).ok_or(GroupChangeError::NotMember(id))?;
        if is_joint && member.role == GroupRole::Voter {
            member.role = GroupRole::Leaving;
        } else {
            self.members.remove(&id);
        }
        Ok(())
    }

    /// Returns the members once the change that is under way is done.
    pub(super) fn done(&self) -> Self {
        let mut group = self.clone();
        group.outgoing.clear();
        group.members.retain(|_, member| member.role != GroupRole::Leaving);
        group
    }
}

impl GroupChange {
    /// Returns how many members it changes: a change of more than one has two entries in the log.
    #[must_use]
    pub fn steps(&self) -> usize {
        usize::from(self.add.is_some()) + self.promote.len() + self.remove.len()
    }
}
