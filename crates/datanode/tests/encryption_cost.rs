//! What encryption costs: processor time for a GiB through a datanode, with and without it.
//!
//! `cargo test --release -p sanderling-datanode --test encryption_cost -- --ignored --nocapture`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "it measures and prints")]

mod harness;

use std::path::Path;
use std::time::Duration;

use harness::{Caller, Served, bytes, write_header};
use rustix::time::{ClockId, clock_gettime};
use sanderling_datanode::{DiskOptions, EncryptionKey, ObjectOptions};
use sanderling_protocol::{BlockId, Epoch, Op, Order, Tier};

const BLOCK_BYTES: u32 = 1 << 20;

/// Blocks of one round in one tier.
const BLOCKS: u64 = 256;

const ROUNDS: usize = 5;

const GIB: f64 = (1_u64 << 30) as f64;

/// Processor seconds for a GiB: written to the disk, read whole, read by 4 KiB, put to the store,
/// fetched from it.
type Seconds = [f64; 5];

/// What the process has used, the caller's part with it.
fn used() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_secs_f64()
}

async fn write(caller: &Caller, op: Op, tier: Tier, first: u64, all: &[u8]) -> f64 {
    let began = used();
    for block in first..first + BLOCKS {
        let mut header = write_header(op, block, 1, 0, all);
        header.flags = tier as u16;
        caller.write_with(header, all).await.unwrap();
    }
    (used() - began) * GIB / (BLOCKS as f64 * f64::from(BLOCK_BYTES))
}

async fn read(caller: &Caller, first: u64, length: u32) -> f64 {
    let began = used();
    let reads = u64::from(BLOCK_BYTES / length).min(16);
    for block in first..first + BLOCKS {
        for offset in 0..reads {
            let offset = offset * u64::from(length);
            caller.read(block, 1, offset, length).await.unwrap();
        }
    }
    (used() - began) * GIB / ((BLOCKS * reads) as f64 * f64::from(length))
}

async fn round(served: &Served, directory: &Path, encryption: Option<EncryptionKey>) -> Seconds {
    let tiers = ["disk", "objects"].map(|name| directory.join(name));
    tiers.iter().for_each(|it| std::fs::create_dir_all(it).unwrap());
    let [disk, objects] = tiers;
    let mut options = served.options();
    options.disk = Some(DiskOptions { directory: disk, bytes: 1 << 30 });
    let url = format!("file://{}", objects.display());
    options.object = Some(ObjectOptions { url, bytes: 1 << 30, ..ObjectOptions::default() });
    options.encryption = encryption;
    let server = sanderling_datanode::DatanodeServer::start(options).await.unwrap();
    let caller = Caller::new(&server);
    let all = bytes(BLOCK_BYTES as usize, 9);
    let seconds = [
        write(&caller, Op::Write, Tier::Disk, 1, &all).await,
        read(&caller, 1, BLOCK_BYTES).await,
        read(&caller, 1, 4096).await,
        write(&caller, Op::Store, Tier::Object, 1001, &all).await,
        read(&caller, 1001, BLOCK_BYTES).await,
    ];
    let blocks = (1..=BLOCKS).map(|block| (BlockId(block), Epoch(9))).collect();
    caller.order(Order::Drop { blocks }).await;
    server.stop().await;
    seconds
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::test]
#[ignore = "it measures"]
async fn processor_time_with_and_without_encryption() {
    let served = Served::start().await;
    let mut rounds: [Vec<Seconds>; 2] = Default::default();
    for number in 0..=ROUNDS {
        for (index, encryption) in [None, Some(EncryptionKey::of([7; 32]))].into_iter().enumerate()
        {
            let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let seconds = round(&served, directory.path(), encryption).await;
            // The first round warms up.
            if number > 0 {
                rounds[index].push(seconds);
            }
        }
    }
    println!("processor seconds per GiB, caller and datanode, median of {ROUNDS} (least to most)");
    let names = [
        "disk, write 1 MiB",
        "disk, read 1 MiB",
        "disk, read 4 KiB",
        "object, put 1 MiB",
        "object, fetch 1 MiB",
    ];
    for (at, name) in names.into_iter().enumerate() {
        let of = |index: usize| rounds[index].iter().map(|it| it[at]).collect::<Vec<_>>();
        let shown = |index: usize| {
            let all = of(index);
            let (least, most) = all
                .iter()
                .fold((f64::MAX, 0_f64), |(least, most), it| (least.min(*it), most.max(*it)));
            format!("{:.2} ({least:.2} to {most:.2})", median(all))
        };
        let ratio = median(of(1).iter().zip(of(0)).map(|(with, without)| with / without).collect());
        println!("{name:20} plain {}  encrypted {}  ratio {ratio:.2}", shown(0), shown(1));
    }
}
