//! All nodes of one measurement.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hdrhistogram::Histogram;
use sanderling_protocol::NodeId;
use sanderling_protocol::message::Role;
use sanderling_transport::{ServeOptions, serve};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

use super::datanode_stub::DatanodeStub;
use super::requests::{Meta, failed};

/// Nodes that report their blocks at once: they register at different times, so that reports are
/// spread as well. Chosen, not measured.
const REPORTS_AT_ONCE: usize = 4;

/// What all nodes share.
#[derive(Debug)]
pub(super) struct FleetShared {
    pub(super) namenode: String,
    by_id: Mutex<BTreeMap<NodeId, Arc<DatanodeStub>>>,
    came_back: AtomicU64,
    beats: Mutex<Histogram<u64>>,
}

/// Stubs of datanodes, which send heartbeats until this is dropped.
pub(super) struct StubFleet {
    pub(super) shared: Arc<FleetShared>,
    pub(super) stubs: Vec<Arc<DatanodeStub>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl FleetShared {
    pub(super) fn stub(&self, node: NodeId) -> Option<Arc<DatanodeStub>> {
        self.by_id.lock().expect("no holder of the lock panics").get(&node).cloned()
    }

    /// Counts a heartbeat that was answered.
    pub(super) fn beaten(&self, after: Duration) {
        take(&mut self.beats.lock().expect("no holder of the lock panics"), after);
    }

    /// Takes the microseconds of the heartbeats that were answered since this was last called.
    pub(super) fn take_beats(&self) -> Histogram<u64> {
        let mut beats = self.beats.lock().expect("no holder of the lock panics");
        std::mem::replace(&mut *beats, micros())
    }

    pub(super) fn came_back(&self) {
        self.came_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a node has registered again.
    pub(super) fn comebacks(&self) -> u64 {
        self.came_back.load(Ordering::Relaxed)
    }
}

impl StubFleet {
    /// Lets nodes register, one after the other, and begin to live.
    pub(super) async fn register(namenode: &str, count: u32) -> Result<Self, Failure> {
        let shared = Arc::new(FleetShared {
            namenode: namenode.to_owned(),
            by_id: Mutex::default(),
            came_back: AtomicU64::new(0),
            beats: Mutex::new(micros()),
        });
        let (stop, tasks) = (CancellationToken::new(), JoinSet::new());
        let mut fleet = Self { shared, stubs: Vec::new(), stop, tasks };
        for at in 0..count {
            // Heartbeats are spread as those of nodes that started at any time are.
            let offset = Duration::from_millis(500) * at / count;
            fleet.add(u64::from(at) + 1, offset).await?;
        }
        Ok(fleet)
    }

    async fn add(&mut self, nonce: u64, offset: Duration) -> Result<(), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let stub = Arc::new(DatanodeStub::new(nonce, address, Arc::clone(&self.shared)));
        let options = ServeOptions::default();
        self.tasks.spawn(serve(listener, Arc::clone(&stub), options, self.stop.clone()));
        let meta = Meta::connect(&self.shared.namenode, Role::Datanode).await.map_err(failed)?;
        stub.register(&meta).await.map_err(failed)?;
        let mut by_id = self.shared.by_id.lock().expect("no holder of the lock panics");
        by_id.insert(stub.id(), Arc::clone(&stub));
        drop(by_id);
        self.stubs.push(Arc::clone(&stub));
        self.tasks.spawn(async move { stub.live(meta, offset).await });
        Ok(())
    }

    /// Lets every node report all of its blocks. Returns how many blocks were reported, and how
    /// many of them the namenode did not want.
    pub(super) async fn report(&self) -> Result<(u64, u64), Failure> {
        let (mut reported, mut unwanted) = (0, 0);
        let mut waiting = self.stubs.iter();
        let mut reports = JoinSet::new();
        loop {
            while reports.len() < REPORTS_AT_ONCE
                && let Some(stub) = waiting.next()
            {
                let (stub, shared) = (Arc::clone(stub), Arc::clone(&self.shared));
                reports.spawn(async move {
                    let meta = Meta::connect(&shared.namenode, Role::Datanode).await?;
                    stub.report(&meta).await
                });
            }
            let Some(ended) = reports.join_next().await else { return Ok((reported, unwanted)) };
            let (one, dropped) = ended.expect("a report does not panic").map_err(failed)?;
            reported += one;
            unwanted += dropped;
        }
    }

    /// Returns the blocks that all nodes hold.
    pub(super) fn held(&self) -> u64 {
        self.stubs.iter().map(|stub| stub.held().len() as u64).sum()
    }

    /// Returns the node that holds most blocks, and how many.
    pub(super) fn fullest(&self) -> Option<(NodeId, u64)> {
        let held = |stub: &Arc<DatanodeStub>| (stub.held().len() as u64, stub.id());
        self.stubs.iter().map(held).max().map(|(blocks, node)| (node, blocks))
    }
}

impl Drop for StubFleet {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
    }
}

/// Returns a histogram of microseconds.
pub(super) fn micros() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are allowed")
}

/// Counts one call that took so long.
pub(super) fn take(taken: &mut Histogram<u64>, after: Duration) {
    let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
    // It grows with what it takes, up to more years than any call lasts.
    let _ = taken.record(micros);
}
