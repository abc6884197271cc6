//! Fixtures, and tests of the whole relocator by what they look at.

mod forecasts;
mod link;
mod moves;
mod reserve;
mod world;

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::node::TierUsage;
use sanderling_protocol::{BlockId, Epoch, Millis, NodeId, NodeInfo, ObjectId, Tier};

pub(crate) fn tier(tier: Tier, bytes: u64) -> TierUsage {
    TierUsage { tier, capacity_bytes: bytes, used_bytes: 0, copy_bytes: 0 }
}

pub(crate) fn node(id: u32, dram_bytes: u64) -> NodeInfo {
    let address = format!("host-{id}:1");
    let (name, host) = (format!("node-{id}"), format!("host-{id}"));
    let tiers = vec![tier(Tier::Dram, dram_bytes)];
    NodeInfo { name, address, host, tiers, ..NodeInfo::joined(NodeId(id)) }
}

pub(crate) fn candidate(block: u64, bytes: u32) -> MoveCandidate {
    MoveCandidate {
        block: BlockId(block),
        epoch: Epoch(1),
        length: bytes,
        reserve_bytes: bytes,
        tier: Tier::Dram,
        object: ObjectId(block),
        job: None,
        expires_in: None,
        recompute_millis_per_mib: 0,
        is_open: false,
        reserved_to: None,
        copy: None,
        expected_reads: 1,
        idle: Millis(60_000),
    }
}

pub(super) fn blocks(count: u64, bytes: u32) -> impl Iterator<Item = MoveCandidate> {
    (1..=count).map(move |block| candidate(block, bytes))
}
