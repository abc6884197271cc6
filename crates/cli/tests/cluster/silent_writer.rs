//! A writer by hand, which puts bytes into its block that it does not publish.

use std::time::{Duration, Instant};

use sanderling_client::Client;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::message::{
    Attributes, BlockLength, Create, CreateMode, Grant, GrantedBlock,
};
use sanderling_protocol::{Header, Nonce, Op, Reply, Request};
use sanderling_transport::{CallError, Pool, PoolOptions};

use super::{SOON, path};

/// A writer of one block that does not renew its lease.
pub(crate) struct SilentWriter {
    pool: Pool,
    datanode: String,
    grant: Grant,
}

impl SilentWriter {
    /// Creates a file for which so many bytes are reserved.
    pub(crate) async fn create(datanode: &str, client: &Client, name: &str, bytes: usize) -> Self {
        Self::create_as(datanode, client, (name, CreateMode::New), bytes).await
    }

    /// The same in a mode: with another one the file gets its name when it is sealed.
    pub(crate) async fn create_as(
        datanode: &str,
        client: &Client,
        (name, mode): (&str, CreateMode),
        bytes: usize,
    ) -> Self {
        let expected_bytes = Some(bytes as u64);
        let create = Create { mode, expected_bytes, ..Create::new(path(name), Nonce(1)) };
        let grant = match client.request(Request::Create(create)).await {
            Ok(Reply::Grant(grant)) => grant,
            other => panic!("{name}: {other:?}"),
        };
        let (pool, datanode) = (Pool::new(PoolOptions::default()), datanode.to_owned());
        Self { pool, datanode, grant }
    }

    pub(crate) async fn call(
        &self,
        op: Op,
        offset: usize,
        length: usize,
        body: &[u8],
    ) -> Option<CallError> {
        let GrantedBlock { block, epoch, tier, .. } = self.grant.blocks[0];
        let mut header = Header::new(op, 0);
        (header.block, header.epoch, header.offset) = (block, epoch, offset as u64);
        (header.length, header.checksum) = (length as u32, crc32c(body));
        header.flags = if op == Op::Write { tier as u16 } else { 0 };
        let (deadline, body) = (tokio::time::Instant::now() + SOON, body.to_vec().into());
        self.pool.call(&self.datanode, None, header, vec![body], deadline).await.err()
    }

    pub(crate) async fn write(&self, offset: usize, bytes: &[u8]) {
        let error = self.call(Op::Write, offset, bytes.len(), bytes).await;
        assert!(error.is_none(), "{error:?}");
    }

    /// Returns whether the datanode has a byte of the block at this offset.
    pub(crate) async fn is_held(&self, offset: usize) -> bool {
        self.call(Op::Read, offset, 1, b"").await.is_none()
    }

    /// Waits until the datanode has given back the byte of the block at this offset.
    pub(crate) async fn until_trimmed(&self, offset: usize) {
        let limit = Instant::now() + SOON;
        while self.is_held(offset).await {
            assert!(Instant::now() < limit, "it is not trimmed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn lengths(&self, bytes: usize) -> Vec<BlockLength> {
        vec![BlockLength { block: self.grant.blocks[0].block, length: bytes as u32 }]
    }

    pub(crate) async fn publish(&self, client: &Client, bytes: usize) {
        let (object, lease) = (self.grant.object, self.grant.lease);
        let publish = Request::Publish { object, lease, lengths: self.lengths(bytes) };
        client.request(publish).await.expect("published");
    }

    pub(crate) async fn seal(&self, client: &Client, bytes: usize) {
        let (object, lease, attributes) = (self.grant.object, self.grant.lease, Attributes::none());
        let seal = Request::Seal { object, lease, lengths: self.lengths(bytes), attributes };
        client.request(seal).await.expect("sealed");
    }
}
