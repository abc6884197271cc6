//! The bytes of every record of the log: what older releases wrote is read for ever.

#[path = "../../protocol/tests/sampler/mod.rs"]
mod sampler;

use sampler::{compare, lines};
use sanderling_core::catalog::{Action, DurableAction};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/log.txt");

#[test]
fn every_record_has_the_bytes_that_it_always_had() {
    let all = [lines::<Action>("Action"), lines::<DurableAction>("DurableAction")];
    compare(GOLDEN, &all.concat());
}
