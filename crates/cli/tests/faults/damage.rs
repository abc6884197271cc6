//! Bytes that rot and files that vanish under live datanodes: no reader gets wrong bytes, and what
//! has no good copy is declared lost.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::model::{Losses, Model};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, until, until_node};
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::message::{BlockLocation, ObjectKind};
use sanderling_protocol::{BlockId, EventKind, Millis, NodeSelector, Policy, StorageClass};

const MIB: usize = 1 << 20;

/// A reader of damaged bytes gets the loss in this time at most, on a busy machine: less than the
/// deadline of a call, 30 s here, which would end it otherwise.
const QUICKLY: Duration = Duration::from_secs(20);

/// Leased bytes were compared with their checksum at most so long before.
const COMPARED_WITHIN: Duration = Duration::from_secs(10);

/// Time between two block reports: longer than any test.
const NEVER: &str = "1h";

/// A fleet with disks, which finds damage only by reading.
fn fleet(datanodes: usize, flags: &[&str]) -> Cluster {
    let namenode = ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    for number in 0..datanodes {
        add(&mut cluster, number, flags);
    }
    cluster
}

fn add(cluster: &mut Cluster, number: usize, flags: &[&str]) {
    let name = format!("n{number}");
    let directory = disk(cluster, &name);
    let directory = directory.to_str().expect("a name in UTF-8");
    let all = [&["--disk", "64MiB", "--disk-dir", directory, "--local-socket", "none"][..], flags];
    cluster.add(&name, &all.concat());
}

fn quiet() -> [&'static str; 4] {
    ["--scrub-rate", "none", "--report-every", NEVER]
}

fn disk(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.path(&format!("disk-{name}"))
}

/// Stores objects of one and a half MiB on disk and returns what is known of them.
async fn fill(client: &Client, objects: u64) -> Model {
    let class: StorageClass = "disk".parse().expect("a class");
    let directory = path("/full");
    client.make_directory(&directory, ObjectKind::Directory, true, true).await.expect("made");
    let mut model = Model::default();
    for seed in 0..objects {
        let to = path(&format!("/full/{seed}"));
        let options = PutOptions { class, ..PutOptions::default() };
        client.put(&to, bytes_of(seed, 3 * MIB / 2), &options).await.expect("stored");
        model.objects.insert(to, (seed, 3 * MIB / 2));
    }
    model
}

/// Returns the file of a block on a node's disk.
fn file(cluster: &Cluster, block: &BlockLocation) -> PathBuf {
    let name = cluster.name_of(block.home.expect("it has a home"));
    let begins = format!("{:016x}-", block.block.0);
    let entries = std::fs::read_dir(disk(cluster, &name)).expect("the disk's directory");
    let mut paths = entries.map(|entry| entry.expect("readable").path());
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins))
    };
    paths.find(is_it).expect("the block's file")
}

/// Flips one bit of a file.
fn flip(file: &PathBuf, at: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 4], at).expect("written");
}

/// What is lost when one block of an object is.
fn lost(object: &str, block: &BlockLocation) -> Losses {
    let mut losses = Losses::default();
    losses.blocks.insert(block.block);
    let range = sanderling_protocol::refusal::ByteRange {
        offset: block.offset,
        bytes: u64::from(block.length),
    };
    losses.ranges.insert(path(object), vec![range]);
    losses
}

/// Reads bytes of the damaged block and expects its loss quickly.
async fn assert_lost(client: &Client, object: &str, offset: u64, bytes: u64, lost: &Losses) {
    let began = Instant::now();
    let read = async {
        let reader = client.open(&path(object)).await?;
        reader.read_range(offset, bytes).await
    };
    let read: Result<_, ClientError> = read.await;
    let Err(ClientError::DataUnavailable { path, ranges, .. }) = read else {
        panic!("{object} at {offset}+{bytes}: {:?}", read.map(|bytes| bytes.len()));
    };
    assert!(began.elapsed() < QUICKLY, "reported after {:?}", began.elapsed());
    let whole = lost.of(&path)[0];
    let start = offset.max(whole.offset);
    let end = (offset + bytes).min(whole.offset + whole.bytes);
    assert_eq!((ranges.len(), ranges[0].offset, ranges[0].bytes), (1, start, end - start));
}

/// Everything agrees: report, events, fsck, and every other object can be read.
async fn assert_reported(cluster: &Cluster, client: &Client, model: &Model, losses: &Losses) {
    assert_eq!(&Losses::reported(client).await, losses);
    let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
    let is_loss = |kind: &EventKind| matches!(kind, EventKind::BlocksLost { .. });
    assert!(events.iter().any(|event| is_loss(&event.kind)), "{events:?}");
    let fsck = cluster.cli(&["fsck", "--json"]);
    assert_eq!(fsck.code, 5, "{fsck}");
    let object = losses.ranges.keys().next().expect("one object").to_string();
    assert!(fsck.stdout.contains(&object), "{fsck}");
    model.check(client, losses).await;
}

async fn new_client(cluster: &Cluster) -> Client {
    cluster.client_of(ClientConfig { same_host: false, ..ClientConfig::default() }).await
}

/// Damages the first block of an object and reads `bytes` of it from `offset`.
fn damage_and_read(damage: impl FnOnce(&PathBuf), offset: u64, bytes: u64) {
    let cluster = fleet(2, &quiet());
    block_on(async {
        let client = new_client(&cluster).await;
        let model = fill(&client, 6).await;
        let block = Model::blocks(&client, &path("/full/3")).await[0];
        damage(&file(&cluster, &block));
        let losses = lost("/full/3", &block);
        assert_lost(&client, "/full/3", offset, bytes, &losses).await;
        assert_reported(&cluster, &client, &model, &losses).await;
    });
}

#[test]
fn partial_read_inside_one_run_never_delivers_flipped_bits() {
    damage_and_read(|file| flip(file, 500_003), 500_001, 100);
}

#[test]
fn partial_read_beside_the_flipped_bit_in_the_same_run_finds_it() {
    damage_and_read(|file| flip(file, 500_003), 500_010, 100);
}

#[test]
fn whole_read_of_flipped_bits_is_a_loss_at_once() {
    damage_and_read(|file| flip(file, 500_003), 0, 3 * MIB as u64 / 2);
}

#[test]
fn read_of_whole_runs_with_flipped_bits_is_a_loss_at_once() {
    damage_and_read(|file| flip(file, 500_003), 495_616, 8192);
}

#[test]
fn deleted_block_file_is_a_loss_at_once() {
    damage_and_read(|file| std::fs::remove_file(file).expect("removed"), 10, 1000);
}

#[test]
fn block_file_that_was_cut_is_a_loss_at_once() {
    let cut = |file: &PathBuf| {
        let file = std::fs::OpenOptions::new().write(true).open(file).expect("the file");
        file.set_len(600_000).expect("cut");
    };
    damage_and_read(cut, 700_000, 1000);
}

#[test]
fn decommission_of_a_node_with_a_damaged_block_ends_with_its_loss() {
    let cluster = fleet(3, &quiet());
    block_on(async {
        let client = new_client(&cluster).await;
        let model = fill(&client, 6).await;
        let block = Model::blocks(&client, &path("/full/3")).await[0];
        flip(&file(&cluster, &block), 77);
        let name = cluster.name_of(block.home.expect("it has a home"));
        let node = NodeSelector(name.clone());
        client.decommission(&node, "a test").await.expect("taken");
        let is_over = |node: &sanderling_protocol::NodeInfo| {
            matches!(node.policy, Policy::Drained | Policy::Gone)
        };
        until_node(&client, &name, "drained", is_over).await;
        assert_reported(&cluster, &client, &model, &lost("/full/3", &block)).await;
    });
}

#[test]
fn scrub_alone_finds_flipped_bits_and_missing_files() {
    let cluster = fleet(2, &["--scrub-rate", "64MiB", "--report-every", NEVER]);
    block_on(async {
        let client = new_client(&cluster).await;
        let model = fill(&client, 6).await;
        let flipped = Model::blocks(&client, &path("/full/3")).await[0];
        let removed = Model::blocks(&client, &path("/full/4")).await[1];
        flip(&file(&cluster, &flipped), 1_000_000);
        std::fs::remove_file(file(&cluster, &removed)).expect("removed");
        let limit = Instant::now() + SOON;
        while client.report().await.expect("the namenode answers").blocks < 2 {
            assert!(Instant::now() < limit, "the scrub finds nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut losses = lost("/full/3", &flipped);
        let other = lost("/full/4", &removed);
        losses.blocks.extend(other.blocks);
        losses.ranges.extend(other.ranges);
        assert_reported(&cluster, &client, &model, &losses).await;
    });
}

#[test]
fn block_report_finds_files_that_were_removed() {
    let cluster = fleet(2, &["--scrub-rate", "none", "--report-every", "200ms"]);
    block_on(async {
        let client = new_client(&cluster).await;
        let model = fill(&client, 6).await;
        let removed = Model::blocks(&client, &path("/full/4")).await[1];
        std::fs::remove_file(file(&cluster, &removed)).expect("removed");
        let limit = Instant::now() + SOON;
        while client.report().await.expect("the namenode answers").blocks < 1 {
            assert!(Instant::now() < limit, "block reports have nothing");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_reported(&cluster, &client, &model, &lost("/full/4", &removed)).await;
    });
}

#[test]
fn deep_check_reports_a_removed_file_and_a_flipped_bit_before_any_read() {
    let cluster = fleet(2, &quiet());
    block_on(async {
        let client = new_client(&cluster).await;
        let model = fill(&client, 6).await;
        let clean = cluster.cli(&["fsck", "--deep", "--verify"]);
        assert_eq!(clean.code, 0, "{clean}");
        let removed = Model::blocks(&client, &path("/full/4")).await[1];
        std::fs::remove_file(file(&cluster, &removed)).expect("removed");
        let deep = cluster.cli(&["fsck", "--deep"]);
        assert_eq!(deep.code, 5, "{deep}");
        assert!(deep.stdout.contains(&format!("block {}", removed.block)), "{deep}");
        until_lost(&client, &removed).await;
        let flipped = Model::blocks(&client, &path("/full/3")).await[0];
        flip(&file(&cluster, &flipped), 1_000_000);
        let deep = cluster.cli(&["fsck", "--deep", "--verify", "--json"]);
        assert_eq!(deep.code, 5, "{deep}");
        let json: serde_json::Value = serde_json::from_str(&deep.stdout).expect("JSON");
        assert_eq!(json["deep"]["damaged"][0]["block"], flipped.block.0, "{json}");
        until_lost(&client, &flipped).await;
        let mut losses = lost("/full/3", &flipped);
        let other = lost("/full/4", &removed);
        losses.blocks.extend(other.blocks);
        losses.ranges.extend(other.ranges);
        assert_reported(&cluster, &client, &model, &losses).await;
    });
}

async fn until_lost(client: &Client, block: &BlockLocation) {
    let limit = Instant::now() + SOON;
    loop {
        let reported: Vec<BlockId> = Losses::reported(client).await.blocks.into_iter().collect();
        if reported.contains(&block.block) {
            return;
        }
        assert!(Instant::now() < limit, "block {} is not declared lost", block.block);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn damaged_block_with_a_copy_is_read_from_the_copy() {
    let share = ["--background-share", "100%", "--no-rebalance"].map(str::to_owned).to_vec();
    let shape = Shape { datanodes: 0, namenode: share, ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    for number in 0..3 {
        // Next to nothing leaves within such a notice, so everything is copied ahead.
        let host = format!("host-{number}");
        let link = ["--notice-min", "2s", "--egress", "192KiB", "--host", &host];
        let flags = [&quiet()[..], &link].concat();
        add(&mut cluster, number, &flags);
    }
    block_on(async {
        let client = new_client(&cluster).await;
        let model = fill(&client, 4).await;
        until("everything is copied", SOON, || {
            let fsck = cluster.json(&["fsck"]);
            (fsck["copied_blocks"] == fsck["blocks"]).then_some(())
        });
        let flipped = Model::blocks(&client, &path("/full/2")).await[0];
        let removed = Model::blocks(&client, &path("/full/1")).await[0];
        flip(&file(&cluster, &flipped), 500_000);
        std::fs::remove_file(file(&cluster, &removed)).expect("removed");
        let began = Instant::now();
        model.check(&client, &Losses::default()).await;
        assert!(began.elapsed() < QUICKLY, "read after {:?}", began.elapsed());
        assert_eq!(Losses::reported(&client).await, Losses::default());
        for (object, was) in [("/full/2", flipped), ("/full/1", removed)] {
            let now = Model::blocks(&client, &path(object)).await[0];
            assert_ne!(now.home, was.home, "{object} is where it was");
        }
    });
}

#[test]
fn damaged_memory_is_a_loss_at_once_and_the_rest_is_read() {
    let mut cluster = fleet(1, &quiet());
    block_on(async {
        let client = new_client(&cluster).await;
        let mut model = Model::default();
        for at in 0..4 {
            assert!(model.put(&client, &format!("/memory/{at}"), 3 * MIB / 2).await);
        }
        let block = Model::blocks(&client, &path("/memory/2")).await[0];
        // Around the number of a page of noise: no other part of the object is like it.
        let found = &bytes_of(2, MIB)[402_150..402_214];
        assert!(flip_in_memory(cluster.datanode("n0").pid(), found));
        let losses = lost("/memory/2", &block);
        assert_lost(&client, "/memory/2", 402_160, 50, &losses).await;
        assert_reported(&cluster, &client, &model, &losses).await;
    });
}

#[test]
fn damaged_memory_is_not_leased_ten_seconds_after_it_was_compared() {
    let shape = Shape { datanodes: 1, datanode: quiet().to_vec(), ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    block_on(async {
        // Over TCP, so that the bytes are in no memory besides that for blocks.
        let writer = new_client(&cluster).await;
        let mut model = Model::default();
        for at in 0..4 {
            assert!(model.put(&writer, &format!("/memory/{at}"), 3 * MIB / 2).await);
        }
        let client = cluster.client().await;
        let block = Model::blocks(&client, &path("/memory/2")).await[0];
        let limit = Instant::now() + SOON;
        while client.metrics().same_host_read_bytes == 0 {
            assert!(Instant::now() < limit, "the node is not found on this machine");
            client.get(&path("/memory/2")).await.expect("read, whichever way");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let found = &bytes_of(2, MIB)[402_150..402_214];
        assert!(flip_in_memory(cluster.datanode("n0").pid(), found));
        // So long a lease may show the flipped bit.
        tokio::time::sleep(COMPARED_WITHIN).await;
        let before = client.metrics().same_host_read_bytes;
        let losses = lost("/memory/2", &block);
        assert_lost(&client, "/memory/2", 400_000, 8192, &losses).await;
        assert_eq!(client.metrics().same_host_read_bytes, before, "wrong bytes were leased");
        assert_reported(&cluster, &client, &model, &losses).await;
    });
}

/// Finds bytes in the memory that a process has for its blocks and flips a bit of them. Returns
/// whether it found them.
fn flip_in_memory(pid: u32, bytes: &[u8]) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("our own child");
    let mut options = std::fs::OpenOptions::new();
    let memory = options.read(true).write(true).open(format!("/proc/{pid}/mem"));
    let memory = memory.expect("our own child's memory");
    for line in maps.lines().filter(|line| line.contains("/memfd:")) {
        let (start, end) =
            line.split(' ').next().and_then(|it| it.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (start, end) = (number(start), number(end));
        let mut all = vec![0; usize::try_from(end - start).expect("it is mapped")];
        if memory.read_exact_at(&mut all, start).is_err() {
            continue;
        }
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            let address = start + at as u64 + 20;
            memory.write_all_at(&[bytes[20] ^ 1], address).expect("written");
            return true;
        }
    }
    false
}
