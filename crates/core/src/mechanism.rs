//! Which mechanism meets notices: Sanderling's, or the one that it is measured against.

use sanderling_protocol::Millis;

use crate::namenode::NamenodeConfig;

/// The time between two heartbeats of a datanode under [`Mechanism::Baseline`]. A fence waits for
/// one. That of Apache Crail by default (`crail.storage.keepalive`, 2 s), on which the prototype of
/// Brodmann et al. is built.
const BASELINE_HEARTBEAT: Millis = Millis(2000);

/// The mechanism by which a cluster meets notices. All of its servers must be configured alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mechanism {
    /// The dying node is fenced at once and pushes many blocks straight to planned targets; writers
    /// go on elsewhere; exposure is bounded; loads are evened out.
    #[default]
    Sanderling,
    /// The baseline of experiments: Brodmann et al., "An Elastic Ephemeral Datastore using Cheap,
    /// Transient Cloud Resources", sections 3.1, 3.2 and 3.4. A relocator reads one block of the
    /// node after the other and writes it elsewhere; the node learns of its fence with its next
    /// heartbeat and then takes no write until its relocation has ended; nothing is planned, copied
    /// ahead or evened out.
    Baseline,
}

impl Mechanism {
    /// Returns whether fences are pushed to datanodes, besides being sent with heartbeat replies.
    #[must_use]
    pub const fn pushes_fences(self) -> bool {
        matches!(self, Self::Sanderling)
    }

    /// Sets what of the namenode's configuration belongs to the mechanism, over what was there.
    pub fn configure(self, config: &mut NamenodeConfig) {
        if self == Self::Baseline {
            config.heartbeat = BASELINE_HEARTBEAT;
            // Three and four heartbeats. Clients that cannot reach a node report it earlier.
            config.membership.suspect_after = Millis(3 * BASELINE_HEARTBEAT.0);
            config.membership.dead_after = Millis(4 * BASELINE_HEARTBEAT.0);
            // A new node gets its whole share of blocks, and lifetimes are not considered.
            config.ramp_up = Millis(0);
            config.preemption = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_learns_its_fence_with_a_heartbeat_and_stays_alive_between_two() {
        let mut config = NamenodeConfig::default();
        Mechanism::Sanderling.configure(&mut config);
        assert_eq!(config.heartbeat, NamenodeConfig::default().heartbeat);
        assert!(Mechanism::default().pushes_fences());
        Mechanism::Baseline.configure(&mut config);
        assert!(!Mechanism::Baseline.pushes_fences());
        assert_eq!(config.ramp_up, Millis(0));
        assert!(config.membership.suspect_after.0 >= 3 * config.heartbeat.0);
        assert!(config.membership.dead_after > config.membership.suspect_after);
    }
}
