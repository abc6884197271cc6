//! Targets of a drain that fail: silent ones, and such whose disks are full.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::cluster::tasks::{SmallDisk, is_root};
use crate::cluster::{Cluster, Shape, block_on, bytes_of, path, until_drained};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::{NodeSelector, StorageClass, Tier};

/// Milliseconds to the deadline: a drain takes a few seconds of it here.
const NOTICE: i64 = 30_000;

/// Takes connections and never answers.
struct Silent {
    address: String,
    is_over: Arc<AtomicBool>,
    _connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Silent {
    fn at(address: String) -> Self {
        let listener = TcpListener::bind(&address).expect("the port is free at that address");
        let (is_over, connections) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let silent =
            Self { address, is_over: Arc::clone(&is_over), _connections: Arc::clone(&connections) };
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                connections.lock().expect("no thread panics").push(connection);
            }
        });
        silent
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

async fn assert_nothing_lost(client: &Client) {
    let report = client.report().await.expect("the namenode answers");
    assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
}

fn first() -> NodeSelector {
    NodeSelector("n0".to_owned())
}

#[test]
fn silent_target_does_not_keep_a_drain_from_the_others() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        for seed in 0..1500 {
            let to = path(&format!("/{seed}"));
            client.put(&to, bytes_of(seed, 8192), &PutOptions::default()).await.expect("stored");
        }
        cluster.add("n1", &["--dram", "64MiB"]);
        // Its heartbeats arrive, and what is sent to it does not.
        let hung = cluster.add("hung", &["--dram", "64MiB", "--advertise", "127.0.0.2"]);
        let port = hung.address.rsplit_once(':').expect("a port").1;
        let _silent = Silent::at(format!("127.0.0.2:{port}"));
        client.notice(&first(), NOTICE, "test").await.expect("taken");
        let drained = until_drained(&client, "n0").await;
        assert_eq!(drained.drain.map(|drain| drain.lost_blocks), Some(0), "{drained:?}");
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn full_disk_of_a_target_is_left_for_its_memory() {
    if !is_root("full_disk_of_a_target_is_left_for_its_memory") {
        return;
    }
    let disk = SmallDisk::of(6);
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let own = cluster.path("disk").display().to_string();
    cluster.add("n0", &["--dram", "4MiB", "--disk", "64MiB", "--disk-dir", &own]);
    block_on(async {
        let client = cluster.client().await;
        let class = StorageClass { tier: Tier::Disk, ..StorageClass::default() };
        let options = PutOptions { class, ..PutOptions::default() };
        for seed in 0..15 {
            let to = path(&format!("/{seed}"));
            client.put(&to, bytes_of(seed, 2 << 20), &options).await.expect("stored");
        }
        // The disk has 6 of the 64 MiB that its node reports.
        let place = disk.path().display().to_string();
        cluster.add("n1", &["--dram", "128MiB", "--disk", "64MiB", "--disk-dir", &place]);
        client.notice(&first(), NOTICE, "test").await.expect("taken");
        let drained = until_drained(&client, "n0").await;
        assert_eq!(drained.drain.map(|drain| drain.lost_blocks), Some(0), "{drained:?}");
        assert_nothing_lost(&client).await;
        for seed in 0..15 {
            let read = client.get(&path(&format!("/{seed}"))).await.expect("readable");
            assert!(read == bytes_of(seed, 2 << 20), "/{seed} has other bytes");
        }
    });
}
