//! The namenodes of a group.

use serde::{Deserialize, Serialize};

use crate::ids::MemberId;
use crate::limits::{MEMBERS_PER_LIST_MAX, TEXT_BYTES_MAX};

/// The role of a member in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberRole {
    /// It answers requests, and votes.
    Leader,
    /// It follows the leader's log, and votes.
    Voter,
    /// It follows the leader's log and does not vote: a spare.
    Learner,
}

impl MemberRole {
    /// Returns the word that commands and pages show.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Voter => "voter",
            Self::Learner => "spare",
        }
    }
}

/// One namenode of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Its number.
    pub id: MemberId,
    /// Where it serves the protocol: `host:port`. Empty if it does not know where others reach it.
    pub address: String,
    /// Where it serves HTTP: `host:port`, or empty.
    pub http_address: String,
    /// What it does.
    pub role: MemberRole,
}

/// The group in the view of one of its members. At most one of them leads in a term.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Members {
    /// The term that the member is in. It never goes back, and of two lists the one of the later
    /// term is newer.
    pub term: u64,
    /// The one that answers: its caller may have reached it by another address than its own.
    pub here: MemberId,
    /// All of them, in the order of their numbers.
    pub members: Vec<Member>,
}

impl Members {
    /// Returns the member that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.role == MemberRole::Leader)
    }

    /// Returns whether a group may be so: a caller ignores any other list.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let is_short = |text: &str| text.len() <= TEXT_BYTES_MAX;
        let leaders = self.members.iter().filter(|member| member.role == MemberRole::Leader);
        self.members.len() <= MEMBERS_PER_LIST_MAX
            && leaders.count() <= 1
            && self.members.iter().all(|it| is_short(&it.address) && is_short(&it.http_address))
            && self.members.windows(2).all(|pair| pair[0].id < pair[1].id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, role: MemberRole) -> Member {
        let (address, http_address) = (format!("n{id}:7600"), format!("n{id}:7601"));
        Member { id: MemberId(id), address, http_address, role }
    }

    #[test]
    fn lists_that_no_group_has_are_found() {
        let of = |members: Vec<Member>| Members { term: 3, here: MemberId(1), members };
        let three = of(vec![
            member(1, MemberRole::Voter),
            member(2, MemberRole::Leader),
            member(5, MemberRole::Learner),
        ]);
        assert!(three.is_plausible() && Members::default().is_plausible());
        assert_eq!(three.leader().map(|member| member.id), Some(MemberId(2)));
        let two_lead = of(vec![member(1, MemberRole::Leader), member(2, MemberRole::Leader)]);
        assert!(!two_lead.is_plausible());
        let twice = of(vec![member(1, MemberRole::Voter), member(1, MemberRole::Voter)]);
        assert!(!twice.is_plausible());
        let many = (0..=MEMBERS_PER_LIST_MAX as u64).map(|id| member(id, MemberRole::Voter));
        assert!(!of(many.collect()).is_plausible());
        let mut long = three;
        long.members[0].address = "x".repeat(TEXT_BYTES_MAX + 1);
        assert!(!long.is_plausible());
    }
}
