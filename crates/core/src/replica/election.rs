//! When a member that receives nothing from a leader stands for election.
//!
//! Raft draws that time anew in each term so that two voters seldom stand at once: each then votes
//! for itself, and the group is without a leader for as long again (Ongaro, *Consensus: Bridging
//! Theory and Practice*, section 3.4). Two voters that draw from 20 ticks often have the same or
//! neighbouring ones, and a vote takes longer than a tick on a busy machine. So the voters share
//! out the time instead: each has a slot of its own, in another order in each term. A voter that
//! cannot win, because its log lacks entries, is refused, and the one with the next slot stands
//! then: what a voter refuses does not change its own time.

use std::collections::BTreeSet;

use sanderling_protocol::MemberId;

use super::group::Group;
use super::options::ReplicaOptions;
use crate::placement::Draw;

/// Ticks after the shortest time of an election before the first slot begins. A voter helps no
/// other before it has missed the leader for the shortest time itself, and may have received the
/// leader's last message later, or counts its ticks more slowly.
const MARGIN_TICKS: usize = 2;

/// Mixes the term into the seed: the golden ratio's fraction times 2^64, as in Knuth, *The Art of
/// Computer Programming*, volume 3, section 6.4.
const TERM_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the ticks without a leader after which a member stands for election: at least
/// `election_ticks`, less than twice as many. Voters with the same configuration have different
/// times, if there are at most as many as `election_ticks` is above the margin. The ticks of two
/// members are not in phase, so the times of neighbours are apart by a tick less than that.
pub(super) fn ticks(options: &ReplicaOptions, group: &Group, term: u64) -> usize {
    let shortest = options.election_ticks;
    let margin = MARGIN_TICKS.min(shortest / 2);
    // While a change of the members is under way, those that leave still vote and may stand.
    let voters: BTreeSet<MemberId> = group.voters().chain(group.outgoing()).collect();
    // One that is no voter does not stand.
    let rank = voters.iter().position(|id| *id == options.id).unwrap_or(0);
    let count = voters.len().max(1);
    let slots = shortest.saturating_sub(margin).max(1);
    let width = (slots / count).max(1);
    let turn = usize::try_from(term % count as u64).unwrap_or(0);
    let slot = ((rank + turn) % count * width).min(slots - 1);
    // Two members whose configurations differ may have the same slot: they draw within its first
    // half, so that neighbours stay apart.
    let seed = options.seed ^ term.wrapping_mul(TERM_FACTOR);
    let drawn = Draw::new(seed).below((width / 2).max(1));
    (shortest + margin + slot + drawn).min(2 * shortest - 1).max(shortest)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{ClusterId, Nonce};

    use super::*;
    use crate::replica::{GroupChange, MemberAddress};

    fn group(voters: u64) -> Group {
        let address = |id| {
            let address = format!("host-{id}:1");
            MemberAddress { http_address: address.clone(), address, nonce: Nonce(id) }
        };
        Group::of_voters(1, (1..=voters).map(address).collect())
    }

    fn drawn(voters: u64, term: u64) -> Vec<usize> {
        let group = group(voters);
        let options = |id| ReplicaOptions::new(ClusterId(7), MemberId(id), id * 77);
        (1..=voters).map(|id| ticks(&options(id), &group, term)).collect()
    }

    #[test]
    fn three_voters_stand_at_least_four_ticks_apart() {
        for term in 0..1000 {
            let mut times = drawn(3, term);
            times.sort_unstable();
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 4), "{term}: {times:?}");
            assert!(times.iter().all(|time| (22..40).contains(time)), "{term}: {times:?}");
        }
    }

    #[test]
    fn no_two_of_up_to_fifteen_voters_stand_at_once() {
        for voters in 1..=15 {
            for term in 0..200 {
                let mut times = drawn(voters, term);
                times.sort_unstable();
                let are_apart = times.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(are_apart, "{voters} voters, {term}: {times:?}");
                assert!(times.iter().all(|time| (20..40).contains(time)), "{times:?}");
            }
        }
    }

    #[test]
    fn voters_that_leave_have_times_of_their_own() {
        let three = group(3);
        let address = MemberAddress {
            address: "host-4:1".to_owned(),
            http_address: "host-4:2".to_owned(),
            nonce: Nonce(4),
        };
        let joined = three.changed(&three.add(address).unwrap()).unwrap();
        let spare = joined.spares().next().unwrap();
        let (promote, remove) = ([spare].into(), [MemberId(1)].into());
        let change = GroupChange { add: None, promote, remove };
        let changing = joined.changed(&change).unwrap();
        assert!(changing.is_changing());
        let ids: Vec<MemberId> = changing.voters().chain(changing.outgoing()).collect();
        for term in 0..100 {
            let of = |id: &MemberId| {
                ticks(&ReplicaOptions::new(ClusterId(7), *id, id.0), &changing, term)
            };
            let times: BTreeSet<usize> = ids.iter().map(of).collect();
            let voters: BTreeSet<&MemberId> = ids.iter().collect();
            assert_eq!((times.len(), voters.len()), (4, 4), "{term}: {times:?}");
        }
    }

    #[test]
    fn another_voter_goes_first_in_each_term() {
        let first = |term| {
            let times = drawn(3, term);
            (0..3).min_by_key(|at| times[*at])
        };
        assert_eq!([0, 1, 2, 3].map(first), [0, 2, 1, 0].map(Some));
    }

    #[test]
    fn member_that_is_no_voter_has_a_time_too() {
        let options = ReplicaOptions::new(ClusterId(7), MemberId(9), 5);
        for (group, term) in [(group(3), 4), (Group::default(), 0)] {
            assert!((20..40).contains(&ticks(&options, &group, term)));
        }
    }

    #[test]
    fn few_ticks_are_within_their_bounds() {
        for election_ticks in 2..20 {
            let new = ReplicaOptions::new(ClusterId(7), MemberId(3), 5);
            let options = ReplicaOptions { election_ticks, ..new };
            for term in 0..50 {
                let ticks = ticks(&options, &group(5), term);
                assert!((election_ticks..2 * election_ticks).contains(&ticks), "{ticks}");
            }
        }
    }
}
