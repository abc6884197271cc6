//! A whole cluster inside the test's process, over real sockets.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "shared by several tests, which may panic"
)]

use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{Client, ClientConfig};
use sanderling_datanode::{DatanodeOptions, DatanodeServer, LocalOptions};
use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_namenode::{NamenodeOptions, NamenodeServer};
use sanderling_protocol::{NodeId, NodeInfo, Path};
use tempfile::TempDir;

pub const MIB: usize = 1 << 20;

pub struct Cluster {
    pub namenode: NamenodeServer,
    pub manager: ManagerServer,
    pub datanodes: Vec<Option<DatanodeServer>>,
    pub directory: TempDir,
}

impl Cluster {
    pub async fn start(datanodes: usize) -> Self {
        Self::start_with(datanodes, 64 << 20).await
    }

    pub async fn start_with(datanodes: usize, dram_bytes: u64) -> Self {
        Self::start_on(NamenodeOptions::default(), datanodes, dram_bytes).await
    }

    pub async fn start_on(options: NamenodeOptions, datanodes: usize, dram_bytes: u64) -> Self {
        let directory = TempDir::new().unwrap();
        let namenode = NamenodeServer::start(NamenodeOptions {
            listen: "127.0.0.1:0".to_owned(),
            http_listen: None,
            directory: directory.path().to_owned(),
            ..options
        })
        .await
        .unwrap();
        let manager = ManagerServer::start(ManagerOptions {
            namenode: namenode.address().to_string(),
            ..ManagerOptions::default()
        });
        let mut cluster = Self { namenode, manager, datanodes: Vec::new(), directory };
        for _ in 0..datanodes {
            cluster.add(dram_bytes).await;
        }
        cluster
    }

    pub async fn add(&mut self, dram_bytes: u64) -> NodeId {
        self.add_with(DatanodeOptions { dram_bytes, ..DatanodeOptions::default() }).await
    }

    /// Adds a datanode to whose memory other users have access too.
    pub async fn add_for(&mut self, dram_bytes: u64, uids: Vec<u32>) -> NodeId {
        let local = Some(LocalOptions { uids, ..LocalOptions::default() });
        self.add_with(DatanodeOptions { dram_bytes, local, ..DatanodeOptions::default() }).await
    }

    pub async fn add_with(&mut self, options: DatanodeOptions) -> NodeId {
        let namenode = self.namenode.address().to_string();
        let options = DatanodeOptions { namenode, http_listen: None, ..options };
        let datanode = DatanodeServer::start(options).await.unwrap();
        let node = datanode.node();
        self.datanodes.push(Some(datanode));
        node
    }

    /// Stops the namenode and starts another one with its address and its directory.
    pub async fn restart_namenode(&mut self) {
        let listen = self.namenode.address().to_string();
        self.namenode.stop().await;
        let directory = self.directory.path().to_owned();
        let options =
            NamenodeOptions { listen, http_listen: None, directory, ..Default::default() };
        self.namenode = NamenodeServer::start(options).await.unwrap();
    }

    pub async fn client(&self) -> Client {
        self.client_with(ClientConfig::default()).await
    }

    pub async fn client_with(&self, config: ClientConfig) -> Client {
        Client::connect(&self.namenode.address().to_string(), config).await.unwrap()
    }

    /// Ends a datanode without a word, as far as that is possible inside one process.
    pub async fn kill(&mut self, node: NodeId) {
        let found = self
            .datanodes
            .iter_mut()
            .find(|kept| kept.as_ref().is_some_and(|datanode| datanode.node() == node));
        found.unwrap().take().unwrap().stop().await;
    }

    pub async fn wait_for(
        &self,
        client: &Client,
        what: &str,
        is_so: impl Fn(&[NodeInfo]) -> bool,
    ) -> Vec<NodeInfo> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let nodes = client.nodes(true).await.unwrap();
            if is_so(&nodes) {
                return nodes;
            }
            assert!(tokio::time::Instant::now() < deadline, "{what}: not within 60 s: {nodes:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// Bytes that differ at every offset and for every seed.
pub fn pattern(bytes: usize, seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut data = Vec::with_capacity(bytes + 8);
    while data.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(bytes);
    data.into()
}
