//! Damaged and missing blocks: found without a reader, reported until the namenode has answered.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{Caller, Served, bytes, until, write_header};
use sanderling_datanode::{DatanodeOptions, DatanodeServer, DiskOptions};
use sanderling_protocol::frame::{
    HEADER_BYTES, RangeReply, RangeRequest, decode_body, encode_body,
};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock, PushMove};
use sanderling_protocol::{
    BlockId, Epoch, Header, NodeId, Op, Order, OrderReply, Policy, Refusal, Tier,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Starts a datanode whose scrub rests unless `change` lets it run: it finds damage by itself, at
/// any time from the first second on.
async fn datanode(
    served: &Served,
    directory: &Path,
    change: impl FnOnce(&mut DatanodeOptions),
) -> DatanodeServer {
    let mut options = served.options();
    options.disk = Some(DiskOptions { directory: directory.to_owned(), bytes: 8 << 20 });
    options.scrub_bytes_per_second = None;
    change(&mut options);
    DatanodeServer::start(options).await.unwrap()
}

async fn put(caller: &Caller, block: u64, tier: Tier, all: &[u8]) {
    let mut header = write_header(Op::Write, block, 1, 0, all);
    header.flags = tier as u16;
    caller.write_with(header, all).await.unwrap();
}

fn file(directory: &Path, block: u64) -> PathBuf {
    let begins = format!("{block:016x}-");
    let mut files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&begins);
    files.find(is_it).unwrap()
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

fn reported(served: &Served) -> Vec<DamagedBlock> {
    let seen = served.namenode.state.lock().damaged.clone();
    let mut blocks: Vec<DamagedBlock> = seen.into_iter().map(|(_, block)| block).collect();
    blocks.sort_by_key(|damaged| damaged.block);
    blocks
}

const fn damaged(block: u64, damage: Damage) -> DamagedBlock {
    DamagedBlock { block: BlockId(block), epoch: Epoch(1), damage }
}

#[tokio::test]
async fn scrub_finds_damage_without_a_read_and_rests_while_the_node_drains() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let change = |options: &mut DatanodeOptions| options.scrub_bytes_per_second = Some(64 << 20);
    let server = datanode(&served, directory.path(), change).await;
    let caller = Caller::new(&server);
    let all = bytes(300_000, 1);
    for block in 1..=4 {
        put(&caller, block, Tier::Disk, &all).await;
    }
    put(&caller, 5, Tier::Dram, &all).await;
    flip(&file(directory.path(), 2), 200_000);
    std::fs::remove_file(file(directory.path(), 3)).unwrap();
    until("both are reported", || reported(&served).len() == 2).await;
    let found = [damaged(2, Damage::Checksum), damaged(3, Damage::Missing)];
    assert_eq!(reported(&served), found);
    served.namenode.set_policy(server.node(), Policy::Draining);
    served.namenode.next_beat(server.node()).await;
    served.namenode.next_beat(server.node()).await;
    flip(&file(directory.path(), 4), 10);
    // Longer than a pass and its pause take.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(reported(&served), found, "scrubbed although it drains");
    served.namenode.set_policy(server.node(), Policy::Active);
    until("the third is reported", || reported(&served).len() == 3).await;
    assert_eq!(caller.read(1, 1, 0, 300_000).await.unwrap(), all);
    assert_eq!(caller.read(5, 1, 0, 300_000).await.unwrap(), all);
    server.stop().await;
}

#[tokio::test]
async fn report_is_repeated_until_it_is_answered_and_with_every_block_report() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let often = Duration::from_millis(700);
    let change = |options: &mut DatanodeOptions| options.report_every = often;
    let server = datanode(&served, directory.path(), change).await;
    let caller = Caller::new(&server);
    put(&caller, 1, Tier::Disk, &bytes(9000, 1)).await;
    served.namenode.state.lock().is_deaf = true;
    flip(&file(directory.path(), 1), 5);
    let refused = caller.read(1, 1, 3, 10).await;
    assert_eq!(refused, Err(Refusal::BlockDamaged { block: BlockId(1) }));
    until("three reports are sent", || served.namenode.state.lock().unacknowledged >= 3).await;
    assert_eq!(reported(&served), []);
    served.namenode.state.lock().is_deaf = false;
    until("it is reported again and again", || reported(&served).len() >= 3).await;
    caller.order(Order::Drop { blocks: vec![(BlockId(1), Epoch(1))] }).await;
    assert!(caller.held().await.is_empty());
    server.stop().await;
}

/// Calls as a peer of the release before: its greeting has no flags.
struct OlderPeer(tokio::net::TcpStream);

impl OlderPeer {
    async fn greet(caller: &Caller) -> Self {
        let mut peer = Self(tokio::net::TcpStream::connect(&caller.address).await.unwrap());
        let node = Some(caller.node);
        let hello = Hello { role: Role::Client, cluster: None, node, token: None };
        let (header, _) = peer.call(Header::new(Op::Hello, 1), encode_body(&hello)).await;
        assert_eq!(header.status, 0);
        peer
    }

    async fn call(&mut self, mut header: Header, body: Vec<u8>) -> (Header, Vec<u8>) {
        header.body_bytes = body.len() as u32;
        self.0.write_all(&[&header.encode()[..], &body[..]].concat()).await.unwrap();
        let mut bytes = [0; HEADER_BYTES];
        self.0.read_exact(&mut bytes).await.unwrap();
        let header = Header::decode(&bytes).unwrap();
        let mut body = vec![0; header.body_bytes as usize];
        self.0.read_exact(&mut body).await.unwrap();
        (header, body)
    }
}

#[tokio::test]
async fn peers_of_the_release_before_get_damage_as_a_refusal_that_they_support() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), |_| ()).await;
    let caller = Caller::new(&server);
    let all = bytes(9000, 1);
    for block in 1..=2 {
        put(&caller, block, Tier::Disk, &all).await;
    }
    flip(&file(directory.path(), 1), 5);
    let unknown = Refusal::UnknownBlock { block: BlockId(1) };
    let mut peer = OlderPeer::greet(&caller).await;
    let read =
        Header { block: BlockId(1), epoch: Epoch(1), length: 10, ..Header::new(Op::Read, 2) };
    let (header, body) = peer.call(read, Vec::new()).await;
    assert_eq!(header.status, unknown.code());
    assert_eq!(decode_body::<Refusal>(&body).unwrap(), unknown);
    let mut ranges = Vec::new();
    for block in [2, 1, 2] {
        let (block, epoch) = (BlockId(block), Epoch(1));
        RangeRequest { block, epoch, offset: 0, length: 100 }.encode(&mut ranges);
    }
    let (header, body) = peer.call(Header::new(Op::ReadMany, 3), ranges).await;
    assert_eq!(header.status, 0);
    let heads = RangeReply::decode_all(&body, 3).unwrap();
    let statuses: Vec<u16> = heads.iter().map(|head| head.status).collect();
    assert_eq!(statuses, [0, unknown.code(), 0]);
    let (first, rest) = body[3 * RangeReply::BYTES..].split_at(100);
    let (refusal, last) = rest.split_at(heads[1].length as usize);
    assert_eq!(decode_body::<Refusal>(refusal).unwrap(), unknown);
    assert!(first == &all[..100] && last == &all[..100]);
    let push = |block| PushMove {
        block: BlockId(block),
        from_epoch: Epoch(1),
        to_epoch: Epoch(2),
        to: NodeId(99),
        address: "127.0.0.1:1".to_owned(),
        tier: Tier::Dram,
        bytes_max: 9000,
    };
    let order = Order::Push { moves: vec![push(1), push(2)] };
    let (header, body) = peer.call(Header::new(Op::Order, 4), encode_body(&order)).await;
    assert_eq!(header.status, 0);
    let OrderReply::Pushed(pushed) = decode_body(&body).unwrap() else { panic!() };
    assert_eq!(pushed[0], Err(unknown));
    assert!(pushed[1].is_err(), "no server is at that address");
    // A peer of this release is sent what it is.
    let refused = caller.read(1, 1, 3, 10).await;
    assert_eq!(refused, Err(Refusal::BlockDamaged { block: BlockId(1) }));
    server.stop().await;
}

#[tokio::test]
async fn what_the_namenode_expects_and_is_not_there_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let often = Duration::from_millis(100);
    let change = |options: &mut DatanodeOptions| options.report_every = often;
    let server = datanode(&served, directory.path(), change).await;
    let caller = Caller::new(&server);
    let all = bytes(9000, 1);
    for (block, tier) in [(1, Tier::Dram), (2, Tier::Disk), (3, Tier::Disk), (4, Tier::Dram)] {
        put(&caller, block, tier, &all).await;
    }
    std::fs::remove_file(file(directory.path(), 3)).unwrap();
    let held = |block, length| HeldBlock {
        block: BlockId(block),
        epoch: Epoch(1),
        length,
        tier: Tier::Dram,
    };
    let expected = [held(1, 9000), held(2, 9000), held(4, 9001), held(9, 10)];
    served.namenode.state.lock().expected = expected.to_vec();
    let wanted =
        [damaged(3, Damage::Missing), damaged(4, Damage::Short), damaged(9, Damage::Missing)];
    let are_reported = || wanted.iter().all(|it| reported(&served).contains(it));
    until("all three are reported", are_reported).await;
    assert!(reported(&served).iter().all(|it| wanted.contains(it)), "{:?}", reported(&served));
    server.stop().await;
}

#[tokio::test]
async fn order_to_verify_names_what_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), |_| ()).await;
    let caller = Caller::new(&server);
    let all = bytes(9000, 1);
    for block in 1..=5 {
        put(&caller, block, Tier::Disk, &all).await;
    }
    flip(&file(directory.path(), 2), 8999);
    std::fs::remove_file(file(directory.path(), 4)).unwrap();
    let verify = |after, limit, with_checksums| {
        let order = Order::Verify { after: BlockId(after), limit, with_checksums };
        let caller = caller.clone();
        async move {
            match caller.order(order).await {
                OrderReply::Verified(blocks) => blocks
                    .into_iter()
                    .map(|(held, damage)| (held.block.0, damage))
                    .collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        }
    };
    let missing = Some(Damage::Missing);
    let seen = verify(0, 64, false).await;
    assert_eq!(seen, [(1, None), (2, None), (3, None), (4, missing), (5, None)]);
    assert_eq!(verify(1, 1, true).await, [(2, Some(Damage::Checksum))]);
    assert_eq!(verify(2, 64, true).await, [(3, None), (5, None)], "known ones are passed over");
    assert_eq!(verify(5, 64, true).await, []);
    // A report whose answer is late comes again.
    let numbers = || reported(&served).iter().map(|it| it.block.0).collect::<BTreeSet<u64>>();
    until("both are reported", || numbers() == [2, 4].into()).await;
    server.stop().await;
}

#[tokio::test]
async fn writer_of_a_damaged_block_goes_on_in_another() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), |_| ()).await;
    let caller = Caller::new(&server);
    let all = bytes(9000, 1);
    put(&caller, 1, Tier::Disk, &all).await;
    flip(&file(directory.path(), 1), 100);
    // Its bytes are compared with what is there, which has changed.
    let mut again = write_header(Op::Write, 1, 1, 0, &all);
    again.flags = Tier::Disk as u16;
    let moved = Err(Refusal::Moved { block: BlockId(1), length: 9000 });
    assert_eq!(caller.write_with(again, &all).await, moved);
    let mut more = write_header(Op::Write, 1, 1, 9000, b"more");
    more.flags = Tier::Disk as u16;
    assert_eq!(caller.write_with(more, b"more").await, moved);
    put(&caller, 2, Tier::Disk, &all).await;
    std::fs::remove_file(file(directory.path(), 2)).unwrap();
    more.block = BlockId(2);
    let moved = Err(Refusal::Moved { block: BlockId(2), length: 9000 });
    assert_eq!(caller.write_with(more, b"more").await, moved);
    // A report whose answer is late comes again.
    let numbers = || reported(&served).iter().map(|it| it.block.0).collect::<BTreeSet<u64>>();
    until("both are reported", || numbers() == [1, 2].into()).await;
    server.stop().await;
}
