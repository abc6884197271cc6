//! Groups of namenodes without injected bugs: nothing is found, and the same seed is the same run.

use sanderling_sim::run_group;

#[test]
fn groups_keep_their_promises_and_are_reproducible() {
    for seed in 0..15 {
        let outcome = run_group(seed, None, false);
        let found = outcome.violation.map(|found| found.to_string());
        assert_eq!(found, None, "seed {seed}");
        assert!(outcome.statistics.group_calls > 0, "seed {seed}: no caller was served");
        if seed < 3 {
            assert_eq!(outcome.digest, run_group(seed, None, false).digest, "seed {seed}");
        }
    }
}

/// The last address that a call tried was that of a machine that is gone, and the call waited for
/// it until its deadline, long after another member had begun to lead.
const GONE_MACHINE_IS_TRIED_LAST: u64 = 9_100_395;

/// A spare that was cut off was removed, and the leader that reported this was killed. The spare
/// took its dead leader for the one that leads, and did not request whether it was still a member.
const SPARE_IS_REMOVED_WHILE_CUT_OFF: u64 = 9_100_625;

/// A leader got a late vote from a member whose time had jumped. It took that time after it had
/// begun to serve, so that nothing excused the jump.
const VOTE_IS_LATE: u64 = 9_700_134;

#[test]
fn seeds_that_once_broke_a_promise_keep_it() {
    for seed in [GONE_MACHINE_IS_TRIED_LAST, SPARE_IS_REMOVED_WHILE_CUT_OFF, VOTE_IS_LATE] {
        let outcome = run_group(seed, None, false);
        assert_eq!(outcome.violation.map(|found| found.to_string()), None, "{seed}");
    }
}
