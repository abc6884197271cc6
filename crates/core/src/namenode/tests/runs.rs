//! Runs of blocks below durable directories.

use std::collections::BTreeSet;

use sanderling_protocol::message::{Create, CreateMode, DurableRequest, Grant, MakeDurable};
use sanderling_protocol::{NodeId, Nonce, Reply, Request};

use super::super::Probe;
use super::{MIB, Rig, length, path};
use crate::placement::RUN_BLOCKS;

/// Blocks of a run.
const RUN: usize = RUN_BLOCKS;

impl Rig {
    /// A rig with that many nodes, all of which reach the store of the durable directory `/out`.
    fn with_durable(count: u32) -> Self {
        let mut rig = Self::with_nodes(count);
        let nonce = Nonce(1_000_000);
        let node = rig.register_as("archiver", "archiver:1", nonce).unwrap();
        let stores = vec!["archive".to_owned()];
        let serve = DurableRequest::ServeStores { node, nonce, stores };
        rig.call(Request::Durable(Box::new(serve))).unwrap();
        let make = MakeDurable {
            path: path("/out"),
            store: "archive".to_owned(),
            parents: false,
            backlog_bytes_max: 1 << 40,
            adopt: false,
        };
        rig.call(Request::Durable(Box::new(DurableRequest::Make(make)))).unwrap();
        rig
    }

    /// Requests so many more blocks of an object, whose earlier ones have these lengths.
    fn more(&mut self, of: &Grant, ended: &[(usize, u32)], count: u32, avoid: &[NodeId]) -> Grant {
        let (object, lease, avoid) = (of.object, of.lease, avoid.to_vec());
        let ended = ended.iter().map(|(at, bytes)| length(of.blocks[*at].block, *bytes)).collect();
        match self.call(Request::AddBlocks { object, lease, ended, count, avoid }).unwrap() {
            Reply::Grant(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    /// Writes an object as a writer without a length does: four blocks at a time.
    fn grow(&mut self, name: &str, blocks: usize) -> Vec<NodeId> {
        let mut grant = self.create(name).unwrap();
        let mut homes = homes(&grant);
        while homes.len() < blocks {
            let count = (blocks - homes.len()).min(4);
            let ended: Vec<(usize, u32)> = (0..grant.blocks.len()).map(|at| (at, MIB)).collect();
            let more = self.more(&grant, &ended, u32::try_from(count).unwrap(), &[]);
            homes.extend(more.blocks.iter().map(|granted| granted.node));
            grant = more;
        }
        homes
    }
}

fn homes(grant: &Grant) -> Vec<NodeId> {
    grant.blocks.iter().map(|granted| granted.node).collect()
}

/// Returns how many nodes each run is on.
fn nodes_of_runs(homes: &[NodeId]) -> Vec<usize> {
    homes.chunks(RUN).map(|run| BTreeSet::from_iter(run).len()).collect()
}

#[test]
fn runs_of_an_object_in_a_durable_directory_are_on_one_node_each() {
    let mut rig = Rig::with_durable(3);
    let homes = rig.grow("/out/grown", 4 * RUN);
    assert_eq!(nodes_of_runs(&homes), [1; 4], "{homes:?}");
    // Another writer comes between.
    let mut grant = rig.create("/out/first").unwrap();
    let other = rig.create("/out/second").unwrap();
    let home = grant.blocks[0].node;
    for _ in 1..RUN {
        grant = rig.more(&grant, &[(0, MIB)], 1, &[]);
        assert_eq!(grant.blocks[0].node, home);
        rig.more(&other, &[], 1, &[]);
    }
    // The length is known.
    for number in 0..4 {
        let file = rig.file(&format!("/out/sub/{number}"));
        let (mode, expected_bytes) = (CreateMode::Replace, Some(RUN as u64 * u64::from(MIB)));
        let grant = rig.create_with(Create { mode, expected_bytes, ..file }).unwrap();
        assert_eq!(nodes_of_runs(&self::homes(&grant)), [1]);
    }
}

#[test]
fn blocks_in_other_directories_are_placed_one_by_one() {
    let mut rig = Rig::with_durable(3);
    // Names that begin alike are no directories above.
    for name in ["/plain", "/outer/plain"] {
        let homes = rig.grow(name, 32);
        assert!(nodes_of_runs(&homes).into_iter().any(|nodes| nodes > 1), "{homes:?}");
    }
}

#[test]
fn object_that_is_appended_to_goes_on_in_its_run() {
    let mut rig = Rig::with_durable(3);
    let grant = rig.create("/out/log").unwrap();
    let more = rig.more(&grant, &[(0, MIB)], 2, &[]);
    rig.seal(&more, &[MIB, 700]).unwrap();
    let run = rig.namenode.next_run(grant.object, &[]).unwrap();
    assert_eq!((run.blocks_before, run.last_home), (3, Some(more.blocks[1].node)));
}

#[test]
fn run_leaves_a_node_with_a_notice_and_one_that_refused_a_write() {
    let mut rig = Rig::with_durable(3);
    let grant = rig.create("/out/noticed").unwrap();
    let home = grant.blocks[0].node;
    let reason = "spot".to_owned();
    rig.call(Request::Notice { node: home.into(), deadline_millis: 60_000, reason }).unwrap();
    // The writer ends what it has there, and the rest of the run is on one other node.
    let next = rig.more(&grant, &[(0, 700)], 4, &[]);
    let homes = homes(&next);
    assert!(!homes.contains(&home), "{homes:?}");
    assert_eq!(nodes_of_runs(&homes), [1]);
    let more = rig.more(&next, &[(0, MIB), (1, MIB), (2, MIB), (3, MIB)], 3, &[]);
    assert_eq!(self::homes(&more), [homes[0]; 3]);
    let grant = rig.create("/out/refused").unwrap();
    let refused = grant.blocks[0].node;
    let next = rig.more(&grant, &[(0, 0)], 4, &[refused]);
    assert!(next.blocks.iter().all(|granted| granted.node != refused));
}

#[test]
fn blocks_that_end_without_bytes_count_for_no_run() {
    let mut rig = Rig::with_durable(3);
    let grant = rig.create("/out/blanks").unwrap();
    let more = rig.more(&grant, &[(0, MIB)], 4, &[]);
    let ended: Vec<_> = more.blocks.iter().map(|granted| length(granted.block, 0)).collect();
    let run = rig.namenode.next_run(grant.object, &ended).unwrap();
    assert_eq!((run.blocks_before, run.last_home), (1, Some(grant.blocks[0].node)));
    let run = rig.namenode.next_run(grant.object, &[]).unwrap();
    assert_eq!(run.blocks_before, 5);
}

#[test]
fn run_goes_on_elsewhere_when_its_node_dies() {
    let mut rig = Rig::with_durable(2);
    let grant = rig.create("/out/dead").unwrap();
    let home = grant.blocks[0].node;
    rig.namenode.prepare(rig.now, Request::Suspect { node: home });
    assert_eq!(rig.namenode.to_probe(rig.now).len(), 1);
    for command in rig.namenode.probed(rig.now, home, Probe::Refused) {
        rig.log_and_apply(command).unwrap();
    }
    let next = rig.more(&grant, &[(0, MIB)], 4, &[]);
    let homes = homes(&next);
    assert!(!homes.contains(&home), "{homes:?}");
    assert_eq!(nodes_of_runs(&homes), [1]);
}
