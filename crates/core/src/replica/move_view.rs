//! Whether the leadership has moved, by what the members of a group show to a caller that has
//! ordered it: the answer to the order shows only that the former leader took it.

use sanderling_protocol::MemberId;
use sanderling_protocol::message::{Member, Members};

/// What the members show of the leadership after its move was ordered.
#[derive(Debug)]
pub struct MoveView {
    /// The address at which the leader took the order.
    former: String,
    /// That leader's number, once it has shown it: its own address may be another one.
    former_id: Option<MemberId>,
    /// The member that is to lead, if one is named.
    named: Option<MemberId>,
    /// The newest list of the members.
    newest: Option<Members>,
}

/// The leader by the newest list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenLeader {
    /// The one that took the order.
    Former(MemberId),
    /// Another member.
    Other(MemberId),
    /// No member leads.
    Missing,
}

impl MoveView {
    /// Returns the view after a leader took the order at the address `former`, to make `named` the
    /// leader, or any other voter.
    #[must_use]
    pub fn new(former: &str, named: Option<MemberId>) -> Self {
        Self { former: former.to_owned(), former_id: None, named, newest: None }
    }

    /// Returns the address at which the leader took the order.
    #[must_use]
    pub fn former(&self) -> &str {
        &self.former
    }

    /// Takes a list that the member at an address shows, unless it is older than another one: of an
    /// earlier term, or of the same and without its leader.
    pub fn take(&mut self, address: &str, seen: Members) {
        if address == self.former {
            self.former_id = Some(seen.here);
        }
        let age = |members: &Members| (members.term, members.leader().is_some());
        if self.newest.as_ref().is_none_or(|newest| age(&seen) >= age(newest)) {
            self.newest = Some(seen);
        }
    }

    /// Returns whether the named member leads, or any other than the former one if none is named.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        match (self.named, self.leader()) {
            (_, None | Some(SeenLeader::Missing)) => false,
            (Some(named), Some(SeenLeader::Former(id) | SeenLeader::Other(id))) => id == named,
            (None, Some(leader)) => matches!(leader, SeenLeader::Other(_)),
        }
    }

    /// Returns the leader by the newest list; `None` if no member has shown one.
    #[must_use]
    pub fn leader(&self) -> Option<SeenLeader> {
        let members = self.newest.as_ref()?;
        Some(match members.leader() {
            None => SeenLeader::Missing,
            Some(leader) if self.is_former(leader) => SeenLeader::Former(leader.id),
            Some(leader) => SeenLeader::Other(leader.id),
        })
    }

    /// Returns the newest list of the members, if any has shown one.
    #[must_use]
    pub const fn members(&self) -> Option<&Members> {
        self.newest.as_ref()
    }

    fn is_former(&self, member: &Member) -> bool {
        self.former_id.map_or(member.address == self.former, |id| member.id == id)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::MemberRole;

    use super::*;

    const FORMER: &str = "host-1:1";

    fn address(id: u64) -> String {
        format!("host-{id}:1")
    }

    /// Returns the list of three members that `here` shows in a term.
    fn list(here: u64, term: u64, leader: Option<u64>) -> Members {
        let member = |id: u64| Member {
            id: MemberId(id),
            address: address(id),
            http_address: String::new(),
            role: if leader == Some(id) { MemberRole::Leader } else { MemberRole::Voter },
        };
        Members { term, here: MemberId(here), members: (1..=3).map(member).collect() }
    }

    #[test]
    fn leadership_has_moved_when_a_newer_list_has_another_leader() {
        let mut view = MoveView::new(FORMER, None);
        assert_eq!((view.leader(), view.is_moved()), (None, false));
        view.take(FORMER, list(1, 4, Some(1)));
        assert_eq!(view.leader(), Some(SeenLeader::Former(MemberId(1))));
        assert!(!view.is_moved());
        view.take(&address(2), list(2, 5, None));
        assert_eq!((view.leader(), view.is_moved()), (Some(SeenLeader::Missing), false));
        view.take(&address(3), list(3, 5, Some(3)));
        assert_eq!(view.leader(), Some(SeenLeader::Other(MemberId(3))));
        assert!(view.is_moved());
        assert_eq!(view.members(), Some(&list(3, 5, Some(3))));
    }

    #[test]
    fn older_list_changes_nothing() {
        let mut view = MoveView::new(FORMER, None);
        view.take(FORMER, list(1, 5, Some(1)));
        view.take(&address(2), list(2, 4, Some(2)));
        assert!(!view.is_moved(), "member 2 led before");
        view.take(&address(2), list(2, 5, None));
        let leader = view.leader();
        assert_eq!(leader, Some(SeenLeader::Former(MemberId(1))), "it has not met its leader");
    }

    #[test]
    fn move_to_a_named_member_is_done_when_that_one_leads() {
        let mut view = MoveView::new(FORMER, Some(MemberId(3)));
        view.take(FORMER, list(1, 5, Some(2)));
        assert_eq!(view.leader(), Some(SeenLeader::Other(MemberId(2))));
        assert!(!view.is_moved());
        view.take(FORMER, list(1, 6, Some(3)));
        assert!(view.is_moved());
    }

    #[test]
    fn former_leader_is_recognized_by_its_number_at_any_address() {
        let mut view = MoveView::new("proxy:1", None);
        view.take("proxy:1", list(1, 5, Some(1)));
        assert_eq!(view.leader(), Some(SeenLeader::Former(MemberId(1))));
        view.take(&address(2), list(2, 5, Some(1)));
        assert_eq!(view.leader(), Some(SeenLeader::Former(MemberId(1))));
        assert!(!view.is_moved());
        view.take(&address(2), list(2, 6, Some(2)));
        assert!(view.is_moved());
    }
}
