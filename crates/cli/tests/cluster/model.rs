//! The test's own model of the data: which objects it stored, of which bytes, and what must be lost
//! with a node.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::{BlockLocation, ObjectKind};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{BlockId, NodeId, Path, Refusal, Reply, Request};

use super::{Cluster, bytes_of, path};

/// The objects that a test stored and got acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// Seed and length by object.
    pub(crate) objects: BTreeMap<Path, (u64, usize)>,
}

/// What is lost, or is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) blocks: BTreeSet<BlockId>,
    /// Adjacent ranges joined.
    pub(crate) ranges: BTreeMap<Path, Vec<ByteRange>>,
}

impl Losses {
    pub(crate) fn bytes(&self) -> u64 {
        self.ranges.values().flatten().map(|range| range.bytes).sum()
    }

    pub(crate) fn of(&self, object: &Path) -> &[ByteRange] {
        self.ranges.get(object).map_or(&[], Vec::as_slice)
    }

    /// Returns what the cluster reports as lost.
    pub(crate) async fn reported(client: &Client) -> Self {
        let report = client.report().await.expect("the namenode answers");
        assert!(!report.is_truncated, "the report is not whole");
        let mut losses = Self::default();
        let mut ranges: BTreeMap<Path, Vec<ByteRange>> = BTreeMap::new();
        for loss in report.losses {
            for block in loss.blocks {
                assert!(losses.blocks.insert(block), "block {block} is reported twice");
            }
            ranges.entry(loss.path).or_default().extend(loss.ranges);
        }
        for (object, mut ranges) in ranges {
            ranges.sort();
            ranges.into_iter().for_each(|range| losses.add(&object, range));
        }
        assert_eq!((report.blocks, report.bytes), (losses.blocks.len() as u64, losses.bytes()));
        losses
    }

    fn add(&mut self, object: &Path, range: ByteRange) {
        let ranges = self.ranges.entry(object.clone()).or_default();
        match ranges.last_mut() {
            Some(last) if last.offset + last.bytes == range.offset => last.bytes += range.bytes,
            _ => ranges.push(range),
        }
    }
}

impl Model {
    /// Stores an object. Returns whether there was room.
    pub(crate) async fn put(&mut self, client: &Client, to: &str, bytes: usize) -> bool {
        let (seed, to) = (self.objects.len() as u64, path(to));
        let options = PutOptions { parents: true, ..PutOptions::default() };
        match client.put(&to, bytes_of(seed, bytes), &options).await {
            Ok(_) => {
                self.objects.insert(to, (seed, bytes));
                true
            }
            Err(ClientError::Refused(Refusal::Full { .. } | Refusal::ReserveKept { .. })) => false,
            Err(error) => panic!("{to}: {error}"),
        }
    }

    /// Stores an object under a name of its own. Returns whether there was room.
    pub(crate) async fn put_some(&mut self, client: &Client, bytes: usize) -> bool {
        let to = format!("/some/{:03}", self.objects.len());
        self.put(client, &to, bytes).await
    }

    /// Stores objects of 2 MiB, `mib` MiB in all, under `/full`.
    pub(crate) async fn fill(client: &Client, mib: u64) -> Self {
        let mut model = Self::default();
        client
            .make_directory(&path("/full"), ObjectKind::Directory, true, true)
            .await
            .expect("made");
        for at in 0..mib / 2 {
            assert!(model.put(client, &format!("/full/{at:03}"), 2 << 20).await, "it is full");
        }
        model
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.objects.values().map(|(_, bytes)| *bytes as u64).sum()
    }

    /// Returns where the blocks of an object are.
    pub(crate) async fn blocks(client: &Client, object: &Path) -> Vec<BlockLocation> {
        let request = Request::Lookup { path: object.clone(), offset: 0, bytes: u64::MAX };
        match client.request(request).await.expect("the namenode answers") {
            Reply::Layout(layout) => layout.blocks,
            other => panic!("no layout: {other:?}"),
        }
    }

    /// Returns what would be lost if nothing of a node's blocks were moved any more.
    pub(crate) async fn at_home(&self, client: &Client, node: NodeId) -> Losses {
        let mut losses = Losses::default();
        for object in self.objects.keys() {
            for block in Self::blocks(client, object).await {
                if block.home == Some(node) {
                    losses.blocks.insert(block.block);
                    let range = ByteRange { offset: block.offset, bytes: block.length.into() };
                    losses.add(object, range);
                }
            }
        }
        losses
    }

    /// Reads everything: what is not lost has the bytes that were stored, the rest is refused with
    /// exactly the ranges that are lost.
    pub(crate) async fn check(&self, client: &Client, losses: &Losses) {
        for (object, (seed, bytes)) in &self.objects {
            let (whole, lost) = (bytes_of(*seed, *bytes), losses.of(object));
            match client.get(object).await {
                Ok(read) => {
                    assert!(lost.is_empty(), "{object} is lost and can be read");
                    assert!(read == whole, "{object} has other bytes");
                }
                Err(ClientError::DataUnavailable { ranges, .. }) => {
                    assert_eq!(ranges, lost, "{object}");
                }
                Err(error) => panic!("{object}: {error}"),
            }
        }
    }

    /// Reads everything, and compares the catalog with what the datanodes hold: nothing is lost,
    /// and nothing is held twice.
    pub(crate) async fn check_whole(&self, cluster: &Cluster, client: &Client) {
        self.check(client, &Losses::default()).await;
        assert_eq!(Losses::reported(client).await, Losses::default());
        let fsck = cluster.json(&["fsck", "--deep"]);
        assert_eq!((&fsck["lost_blocks"], &fsck["bytes"]), (&0.into(), &self.bytes().into()));
        assert_eq!(fsck["deep"]["problems"], serde_json::json!([]), "{fsck}");
    }

    /// Waits until the datanodes that are there hold every block once.
    pub(crate) fn check_once(&self, cluster: &Cluster) {
        super::until("every block is held once", super::SOON, || {
            let fsck = cluster.json(&["fsck", "--deep"]);
            let copies = fsck["copied_blocks"].as_u64()?;
            let homes = fsck["blocks"].as_u64()?;
            (fsck["deep"]["held_blocks"].as_u64()? == homes + copies).then_some(())
        });
    }
}
