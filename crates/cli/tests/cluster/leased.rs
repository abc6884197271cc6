//! What lives on leases and by its time to live, and must outlive an absence of the namenode.

use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{Client, PutOptions, Writer};
use sanderling_protocol::Millis;
use sanderling_protocol::message::{JobHints, JobInfo, RegisterJob};

use super::{bytes_of, path};

/// Longer than a lease, which is 10 s, and than the time to live of one of the objects.
pub(crate) const ABSENCE: Duration = Duration::from_secs(12);

/// As a writer's.
pub(crate) const JOB_LEASE: Millis = Millis(10_000);

/// A job and a writer that live on leases, with what the writer was promised.
pub(crate) struct Leased {
    job: JobInfo,
    writer: Writer,
    flushed: Bytes,
}

impl Leased {
    /// Only the test renews the job: a client decides itself when it sends a renewal.
    pub(crate) async fn begin(client: &Client) -> Self {
        let (lease, hints) = (JOB_LEASE, JobHints::default());
        let request = RegisterJob { path: path("/job"), lease, quota_bytes: None, hints };
        let job = client.register_job(request).await.expect("a job");
        put(client, "/job/shuffle", 1).await;
        let options = PutOptions { ttl: Some(Millis(11_000)), ..PutOptions::default() };
        client.put(&path("/short"), bytes_of(2, 100), &options).await.expect("a file");
        let mut writer =
            client.create(&path("/written"), &PutOptions::default()).await.expect("a writer");
        let flushed = bytes_of(3, 3 << 20);
        writer.write(&flushed).await.expect("room");
        writer.flush().await.expect("flushed");
        client.renew_job(job.job).await.expect("the job lives");
        Self { job, writer, flushed }
    }

    /// Everything that the leases hold is there, and goes on.
    pub(crate) async fn must_be_whole(mut self, client: &Client) {
        client.renew_job(self.job.job).await.expect("the job lives");
        get(client, "/job/shuffle", 1).await;
        let short = client.get(&path("/short")).await.expect("its time to live has not passed");
        assert!(short == bytes_of(2, 100));
        self.writer.write(b"more").await.expect("the writer still has its lease");
        self.writer.close().await.expect("and closes its file");
        let whole = client.get(&path("/written")).await.expect("what was written");
        assert!(whole == [&self.flushed[..], b"more"].concat());
    }
}

/// Puts 1 MiB.
pub(crate) async fn put(client: &Client, name: &str, seed: u64) {
    let bytes = bytes_of(seed, 1 << 20);
    client.put(&path(name), bytes, &PutOptions::default()).await.expect("put");
}

/// Checks what [`put`] has put.
pub(crate) async fn get(client: &Client, name: &str, seed: u64) {
    let read = client.get(&path(name)).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(read == bytes_of(seed, 1 << 20), "{name} has other bytes");
}
