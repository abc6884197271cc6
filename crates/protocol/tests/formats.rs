//! The bytes of every message: what older releases wrote is read, and written, for ever.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod sampler;

use sampler::{compare, lines};
use sanderling_protocol::message::{
    Affinity, BlockCount, Condition, CreateKind, CreateMode, DurableRequest, MemberRole,
    MovePurpose, ObjectKind, Role,
};
use sanderling_protocol::{
    EventKind, Order, OrderReply, Policy, Refusal, Reply, Request, Tier, WhenFull,
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/messages.txt");

#[test]
fn every_message_has_the_bytes_that_it_always_had() {
    let all = [
        lines::<Request>("Request"),
        lines::<Reply>("Reply"),
        lines::<Refusal>("Refusal"),
        lines::<Order>("Order"),
        lines::<OrderReply>("OrderReply"),
        lines::<EventKind>("EventKind"),
        lines::<Role>("Role"),
        lines::<MemberRole>("MemberRole"),
        lines::<ObjectKind>("ObjectKind"),
        lines::<CreateKind>("CreateKind"),
        lines::<CreateMode>("CreateMode"),
        lines::<Condition>("Condition"),
        lines::<Affinity>("Affinity"),
        lines::<MovePurpose>("MovePurpose"),
        lines::<Policy>("Policy"),
        lines::<Tier>("Tier"),
        lines::<WhenFull>("WhenFull"),
        lines::<BlockCount>("BlockCount"),
        lines::<DurableRequest>("DurableRequest"),
    ];
    compare(GOLDEN, &all.concat());
}
