//! Writers that put more into blocks than they were granted, or publish less than they wrote: a
//! datanode holds for a block what the namenode counts for it.

use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, Line, kept, text};
use crate::cluster::{SOON, block_on, bytes_of, path};
use crate::memory::Peer;
use crate::tokens::call;
use rustix::net::sockopt;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::message::{
    Attributes, BlockLength, Create, Grant, GrantedBlock, JobHints, RegisterJob,
};
use sanderling_protocol::{
    BlockId, Epoch, Header, Millis, NodeId, Nonce, Op, Refusal, Reply, Request, StorageClass, Tier,
    Token,
};

/// The longest block.
const WHOLE: usize = 1 << 20;

/// The shortest grant, and what each block takes at least.
const UNIT: u64 = 4096;

/// What one tenant may hold.
const QUOTA: u64 = 64 << 10;

/// A tenant's connections to the namenode and to each datanode.
struct Tenant {
    meta: Line,
    nodes: Vec<(u32, Line)>,
}

impl Tenant {
    async fn with(guarded: &Guarded, token: &Token) -> Self {
        let line = async |address: &str| {
            let line = Line::to(guarded, address, token).await;
            line.unwrap_or_else(|error| panic!("{address}: {error}"))
        };
        let mut nodes = Vec::new();
        for server in &guarded.cluster.datanodes {
            nodes.push((server.node, line(&server.address).await));
        }
        Self { meta: line(&guarded.cluster.namenode.address).await, nodes }
    }

    /// Creates a file for which so many bytes are reserved, one block.
    async fn create(&self, name: &str, bytes: u64, class: &str) -> Grant {
        let class: StorageClass = class.parse().expect("a class");
        let expected_bytes = Some(bytes);
        let create = Create { expected_bytes, class, ..Create::new(path(name), Nonce(1)) };
        match call(&self.meta, Request::Create(create)).await {
            Ok(Reply::Grant(grant)) if grant.blocks.len() == 1 => grant,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Sends bytes for a block to its home, or to another node.
    async fn write(
        &self,
        granted: &GrantedBlock,
        is_home: bool,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Refusal> {
        let is_it = |node: u32| (NodeId(node) == granted.node) == is_home;
        let (_, line) = self.nodes.iter().find(|(node, _)| is_it(*node)).expect("there is one");
        let mut header = Header::new(Op::Write, 0);
        (header.block, header.epoch, header.offset) = (granted.block, granted.epoch, offset);
        (header.length, header.checksum) = (bytes.len() as u32, crc32c(bytes));
        header.flags = granted.tier as u16;
        line.call(header, bytes.to_vec()).await.map(drop)
    }

    /// Returns whether the home of a block has its byte at this offset.
    async fn has(&self, granted: &GrantedBlock, offset: u64) -> bool {
        let is_home = |(node, _): &&(u32, Line)| NodeId(*node) == granted.node;
        let (_, line) = self.nodes.iter().find(is_home).expect("there is one");
        let mut header = Header::new(Op::Read, 0);
        (header.block, header.epoch) = (granted.block, granted.epoch);
        (header.offset, header.length) = (offset, 1);
        line.call(header, Vec::new()).await.is_ok()
    }

    /// Waits until the home of a block has given its byte at this offset back.
    async fn until_given_back(&self, granted: &GrantedBlock, offset: u64) {
        let limit = Instant::now() + SOON;
        while self.has(granted, offset).await {
            assert!(Instant::now() < limit, "it is kept");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Begins a block, as soon as its home has room again.
    async fn begin(&self, granted: &GrantedBlock, bytes: &[u8]) {
        let limit = Instant::now() + SOON;
        loop {
            match self.write(granted, true, 0, bytes).await {
                Ok(()) => return,
                Err(refusal @ (Refusal::NodeFull { .. } | Refusal::RetryAfter { .. })) => {
                    assert!(Instant::now() < limit, "there is no room: {refusal}");
                }
                Err(refusal) => panic!("{refusal}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Seals a file of one block with so many bytes.
    async fn seal(&self, grant: &Grant, length: u64) {
        let lengths = vec![BlockLength { block: grant.blocks[0].block, length: length as u32 }];
        let (object, lease, attributes) = (grant.object, grant.lease, Attributes::none());
        let sealed = call(&self.meta, Request::Seal { object, lease, lengths, attributes }).await;
        assert!(matches!(sealed, Ok(Reply::Stat(_))), "{sealed:?}");
    }
}

async fn operator(guarded: &Guarded) -> Client {
    guarded.cluster.client_of(guarded.config(&guarded.token(&["--role", "admin"]))).await
}

/// Makes a job with a quota, and a token for its subtree.
async fn job(guarded: &Guarded, operator: &Client, quota: u64) -> Token {
    let request = RegisterJob {
        path: path("/jobs/x"),
        lease: Millis(600_000),
        quota_bytes: Some(quota),
        hints: JobHints::default(),
    };
    operator.register_job(request).await.expect("registered");
    guarded.token(&["--subtree", "/jobs/x", "--subject", "x"])
}

/// Waits until the only node takes so many bytes of memory and of disk. Renews the lease of a file
/// that is written meanwhile.
async fn until_used(operator: &Client, written: Option<(&Tenant, &Grant)>, used: (u64, u64)) {
    let limit = Instant::now() + SOON;
    loop {
        let load = operator.nodes(false).await.expect("it answers")[0].load;
        if (load.dram_used_bytes, load.disk_used_bytes) == used {
            return;
        }
        assert!(Instant::now() < limit, "{used:?} are not all that is in use: {load:?}");
        if let Some((tenant, grant)) = written {
            let leases = vec![(grant.object, grant.lease)];
            let renewed = call(&tenant.meta, Request::RenewLeases { leases }).await;
            assert!(renewed.is_ok(), "{renewed:?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn tenant_puts_no_more_into_a_block_than_it_was_granted() {
    let guarded = Guarded::start(2);
    let data = bytes_of(1, WHOLE);
    block_on(async {
        let operator = operator(&guarded).await;
        let tenant = Tenant::with(&guarded, &job(&guarded, &operator, QUOTA).await).await;
        let count = QUOTA / UNIT;
        for number in 0..count {
            let grant = tenant.create(&format!("/jobs/x/{number}"), UNIT, "dram").await;
            let granted = grant.blocks[0];
            assert_eq!(u64::from(granted.bytes_max), UNIT);
            let too_large = |answer: &Result<(), Refusal>| {
                matches!(answer, Err(Refusal::TooLarge { limit: UNIT, .. }))
            };
            for bytes in [&data[..], &data[..UNIT as usize + 1]] {
                let refused = tenant.write(&granted, true, 0, bytes).await;
                assert!(too_large(&refused), "{number}: {refused:?}");
            }
            let refused = tenant.write(&granted, false, 0, &data[..9]).await;
            assert!(matches!(refused, Err(Refusal::Moved { .. })), "elsewhere: {refused:?}");
            tenant.begin(&granted, &data[..1000]).await;
            let refused = tenant.write(&granted, true, 1000, &data[1000..]).await;
            assert!(too_large(&refused), "{number}: {refused:?}");
            let rest = &data[1000..UNIT as usize];
            tenant.write(&granted, true, 1000, rest).await.expect("within its grant");
            tenant.seal(&grant, UNIT).await;
        }
        let create = Request::Create(Create::new(path("/jobs/x/more"), Nonce(1)));
        let refused = call(&tenant.meta, create).await;
        assert!(matches!(refused, Err(Refusal::QuotaPassed { .. })), "{refused:?}");
        let limit = Instant::now() + SOON;
        loop {
            let nodes = operator.nodes(false).await.expect("it answers");
            if nodes.iter().map(|node| node.load.blocks).sum::<u64>() == count {
                let used: u64 = nodes.iter().map(|node| node.load.dram_used_bytes).sum();
                break assert_eq!(used, QUOTA, "{nodes:?}");
            }
            assert!(Instant::now() < limit, "some blocks are not there: {nodes:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let own = guarded.client(&["--subtree", "/jobs/x", "--subject", "x"]).await;
        let kept = own.get(&path("/jobs/x/3")).await.expect("its own");
        assert!(kept == data[..UNIT as usize]);
    });
}

#[test]
fn tenant_begins_a_block_only_in_the_tier_in_which_it_was_granted() {
    let disk = tempfile::tempdir().expect("made");
    let directory = kept(&text(disk.path().to_owned()));
    let flags = ["--dram", "64MiB", "--disk", "64MiB", "--disk-dir", directory];
    let guarded = Guarded::start_with(1, false, &flags);
    let data = bytes_of(4, UNIT as usize);
    block_on(async {
        let operator = operator(&guarded).await;
        let tenant = Tenant::with(&guarded, &job(&guarded, &operator, QUOTA).await).await;
        let tiers = [("dram", Tier::Dram, Tier::Disk), ("disk", Tier::Disk, Tier::Dram)];
        for (class, tier, other) in tiers {
            let name = format!("/jobs/x/{class}");
            let grant = tenant.create(&name, UNIT, class).await;
            let granted = grant.blocks[0];
            assert_eq!(granted.tier, tier);
            let elsewhere = GrantedBlock { tier: other, ..granted };
            let refused = tenant.write(&elsewhere, true, 0, &data).await;
            assert!(matches!(refused, Err(Refusal::Moved { .. })), "{class}: {refused:?}");
            tenant.begin(&granted, &data).await;
            tenant.seal(&grant, UNIT).await;
            assert!(operator.get(&path(&name)).await.expect("it is there") == data, "{class}");
            // What was published without a write does not begin after its end either.
            let grant = tenant.create(&format!("{name}-ended"), UNIT, class).await;
            tenant.seal(&grant, UNIT).await;
            let elsewhere = GrantedBlock { tier: other, ..grant.blocks[0] };
            let refused = tenant.write(&elsewhere, true, 0, &data).await;
            assert!(matches!(refused, Err(Refusal::Moved { .. })), "{class}: {refused:?}");
        }
    });
}

/// Blocks that a tenant writes as a whole and ends with a byte: more than each tier of the node
/// has room for.
const SURPLUS_BLOCKS: u64 = 80;

#[test]
fn bytes_that_were_written_and_not_published_are_given_back() {
    let disk = tempfile::tempdir().expect("made");
    let directory = kept(&text(disk.path().to_owned()));
    let flags = ["--dram", "64MiB", "--disk", "64MiB", "--disk-dir", directory];
    let guarded = Guarded::start_with(1, false, &flags);
    let data = bytes_of(2, WHOLE);
    block_on(async {
        let operator = operator(&guarded).await;
        let tenant = Tenant::with(&guarded, &job(&guarded, &operator, 2 << 20).await).await;
        for (number, class) in (0..SURPLUS_BLOCKS).flat_map(|it| [(it, "dram"), (it, "disk")]) {
            let name = format!("/jobs/x/{class}-{number}");
            let grant = tenant.create(&name, WHOLE as u64, class).await;
            tenant.begin(&grant.blocks[0], &data).await;
            tenant.seal(&grant, 1).await;
        }
        let used = SURPLUS_BLOCKS * UNIT;
        until_used(&operator, None, (used, used)).await;
        // A block that has ended takes no more bytes, as soon as the node has looked up its end.
        let grant = tenant.create("/jobs/x/late", WHOLE as u64, "dram").await;
        let granted = &grant.blocks[0];
        tenant.begin(granted, &data[..1]).await;
        tenant.seal(&grant, 1).await;
        let (limit, mut end) = (Instant::now() + SOON, 1);
        let refused = loop {
            match tenant.write(granted, true, end as u64, &data[end..end + 9]).await {
                Ok(()) => end += 9,
                Err(refusal) => break refusal,
            }
            assert!(Instant::now() < limit, "it still takes bytes after {end}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(matches!(refused, Refusal::Moved { .. }), "{refused}");
        until_used(&operator, None, (used + UNIT, used)).await;
        // A token of the whole namespace: its block is cut to its grant while it is written.
        let unbound = Tenant::with(&guarded, &guarded.token(&[])).await;
        let grant = unbound.create("/free", UNIT, "dram").await;
        unbound.begin(&grant.blocks[0], &data).await;
        let written = Some((&unbound, &grant));
        until_used(&operator, written, (used + 2 * UNIT, used)).await;
        unbound.seal(&grant, UNIT).await;
        let kept = operator.get(&path("/free")).await.expect("it is there");
        assert!(kept == data[..UNIT as usize]);
        for name in ["dram-0", "disk-0", "dram-7", "disk-7", "late"] {
            let kept = operator.get(&path(&format!("/jobs/x/{name}"))).await;
            assert!(kept.expect("it is there") == data[..1], "{name}");
        }
        let fsck = operator.fsck().await.expect("it answers");
        assert!(fsck.problems.is_empty() && fsck.lost_blocks == 0, "{fsck:?}");
    });
}

#[test]
fn honest_writer_appends_and_overwrites_while_ends_are_looked_up() {
    let guarded = Guarded::start(1);
    let data = bytes_of(3, 3 * WHOLE);
    block_on(async {
        let operator = operator(&guarded).await;
        let token = job(&guarded, &operator, 32 << 20).await;
        let own = guarded.cluster.client_of(guarded.config(&token)).await;
        let (file, slow) = (path("/jobs/x/file"), path("/jobs/x/slow"));
        own.put(&file, data.clone(), &PutOptions::default()).await.expect("written");
        let mut writer = own.create(&slow, &PutOptions::default()).await.expect("created");
        writer.write(&data[..1000]).await.expect("taken");
        writer.flush().await.expect("written");
        // When this block is trimmed, the node has looked up the others, too.
        let tenant = Tenant::with(&guarded, &token).await;
        let grant = tenant.create("/jobs/x/short", WHOLE as u64, "dram").await;
        tenant.begin(&grant.blocks[0], &data[..WHOLE]).await;
        tenant.seal(&grant, 1).await;
        until_used(&operator, None, (3 * WHOLE as u64 + 2 * UNIT, 0)).await;
        writer.write(&data[1000..2000]).await.expect("taken");
        writer.close().await.expect("sealed");
        assert!(own.get(&slow).await.expect("its own") == data[..2000]);
        let layout = own.layout(&slow, 0..2000).await.expect("it is there");
        assert_eq!(layout.blocks.len(), 1, "its block went on: {layout:?}");
        let mut writer = own.append(&file).await.expect("sealed");
        for piece in data[..WHOLE + 5000].chunks(300_000) {
            writer.write(piece).await.expect("taken");
            writer.flush().await.expect("written");
        }
        writer.close().await.expect("sealed");
        let whole = [&data[..], &data[..WHOLE + 5000]].concat();
        assert!(own.get(&file).await.expect("its own") == whole);
        own.put(&file, data.slice(9..), &PutOptions::replacing()).await.expect("replaced");
        assert!(own.get(&file).await.expect("its own") == data[9..]);
    });
}

/// Reads of a whole block whose answers are more than the kernel takes for a peer that does not
/// read.
const UNREAD: u64 = 12;

/// Sends a datanode reads of a whole block, and reads no answer. Returns once one has begun.
fn begin_reads(address: &str, token: &Token, granted: &GrantedBlock) -> Peer {
    let mut reader = Peer::greet_with(address, Some(token.clone()));
    sockopt::set_socket_recv_buffer_size(&reader.0, 4 << 10).expect("a socket");
    for number in 1..=UNREAD {
        let mut header = Header::new(Op::Read, number);
        (header.block, header.epoch) = (granted.block, granted.epoch);
        header.length = WHOLE as u32;
        reader.send(&header.encode());
    }
    reader.0.peek(&mut [0]).expect("an answer begins");
    reader
}

#[test]
fn block_is_trimmed_when_its_reader_is_done() {
    let guarded = Guarded::start(1);
    let (data, token) = (bytes_of(5, WHOLE), guarded.token(&[]));
    let address = &guarded.cluster.datanodes[0].address;
    block_on(async {
        let operator = operator(&guarded).await;
        let tenant = Tenant::with(&guarded, &token).await;
        let read = tenant.create("/read", WHOLE as u64, "dram").await;
        tenant.begin(&read.blocks[0], &data).await;
        let mut reader =
            tokio::task::block_in_place(|| begin_reads(address, &token, &read.blocks[0]));
        tenant.seal(&read, 1).await;
        // When this one is trimmed, the other one would be.
        let short = tenant.create("/short", WHOLE as u64, "dram").await;
        tenant.begin(&short.blocks[0], &data).await;
        tenant.seal(&short, 1).await;
        tenant.until_given_back(&short.blocks[0], 2).await;
        assert!(tenant.has(&read.blocks[0], 2).await, "it is trimmed under its reader");
        tokio::task::block_in_place(|| {
            // Through a small buffer it would take minutes.
            sockopt::set_socket_recv_buffer_size(&reader.0, WHOLE).expect("a socket");
            assert!(reader.body().expect("what it began to read") == data, "other bytes");
        });
        drop(reader);
        tenant.until_given_back(&read.blocks[0], 2).await;
        until_used(&operator, None, (2 * UNIT, 0)).await;
    });
}

/// Whole blocks that a caller invents: the namenode has granted none of them.
const INVENTED: u64 = 8;

#[test]
fn blocks_that_a_session_invents_go_with_the_next_block_report() {
    let guarded = Guarded::start_with(1, false, &["--report-every", "1s"]);
    let data = bytes_of(6, WHOLE);
    block_on(async {
        let operator = operator(&guarded).await;
        let tenant = Tenant::with(&guarded, &guarded.token(&[])).await;
        let kept = tenant.create("/kept", UNIT, "dram").await;
        tenant.begin(&kept.blocks[0], &data[..UNIT as usize]).await;
        tenant.seal(&kept, UNIT).await;
        let node = kept.blocks[0].node;
        let invented = (0..INVENTED).map(|number| {
            let (block, epoch, tier) = (BlockId((1 << 40) + number), Epoch(1), Tier::Dram);
            GrantedBlock { block, epoch, node, tier, bytes_max: 0 }
        });
        let invented: Vec<GrantedBlock> = invented.collect();
        for block in &invented {
            tenant.write(block, true, 0, &data).await.expect("the datanode has room");
        }
        for block in &invented {
            tenant.until_given_back(block, 0).await;
        }
        until_used(&operator, None, (UNIT, 0)).await;
        let read = operator.get(&path("/kept")).await.expect("it is there");
        assert!(read == data[..UNIT as usize]);
    });
}
