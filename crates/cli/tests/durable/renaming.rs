//! Renamed objects that their stores lack by the names at which datanodes looked for them, and
//! reports about it that come late, twice, or to a namenode that does not read them.

use std::fs;
use std::time::{Duration, Instant};

use sanderling_client::ClientError;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::DurableRequest;
use sanderling_protocol::{Header, Op, Refusal, Request};

use super::reading_back::{
    ONE_BLOCK, is_read, manager, put_on, renamed_without_report, still, waiting,
};
use crate::cluster::relay::Relay;
use crate::cluster::stores::{add, make, put};
use crate::cluster::{SOON, block_on, path, until_gone};

/// Chooses reports that a store lacks objects: returns the name of the first.
fn report_of_missing(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Meta {
        return None;
    }
    let requests: Vec<Request> = decode_body(body).ok()?;
    requests.iter().find_map(|request| {
        let Request::Durable(request) = request else { return None };
        let missing = match &**request {
            DurableRequest::Report { report, .. } => &report.missing,
            DurableRequest::Record { record, .. } => &record.report.missing,
            _ => return None,
        };
        missing.first().map(|missing| missing.key.clone())
    })
}

/// Waits until a relay has held back or refused so many reports.
async fn until_held(relay: &Relay, count: usize) {
    let limit = Instant::now() + SOON;
    while relay.all_held().len() < count {
        assert!(Instant::now() < limit, "{count} reports come in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The first manager ends before it reports that the store has the new name alone. The second one
/// gets no answer to its first report that the old name is missing, and sends another. Both take
/// effect then, one after the other: at the first, the namenode passes to the new name.
#[test]
fn object_is_not_lost_by_a_late_report_that_its_store_lacks_it_by_its_old_name() {
    let (mut cluster, store) = still(&["--no-manager"]);
    block_on(async {
        let (client, old) = renamed_without_report(&mut cluster, &store).await;
        cluster.datanode("dies").kill();
        until_gone(&client, "dies").await;
        let late = Relay::before(&cluster.namenode.address, report_of_missing).await;
        late.close();
        let _second = manager(&cluster, "second", &late.address);
        until_held(&late, 2).await;
        assert!(late.all_held().iter().all(|name| *name == old), "{:?}", late.all_held());
        assert_eq!(waiting(&client).await, 2, "the namenode has only the old name");
        late.open();
        is_read(&cluster, "/out/new", 1, ONE_BLOCK);
        let fsck = client.fsck().await.expect("answered");
        assert!(fsck.problems.is_empty() && fsck.lost_blocks == 0, "{fsck:?}");
    });
}

/// A namenode of before refuses such a report whole. It declares nothing lost, and all else goes
/// on.
#[test]
fn report_that_an_older_namenode_does_not_read_holds_up_nothing() {
    let (mut cluster, store) = still(&["--no-manager"]);
    block_on(async {
        let refusal = Refusal::BadFrame { why: "the body cannot be read".to_owned() };
        let older = Relay::refusing(&cluster.namenode.address, report_of_missing, refusal).await;
        older.close();
        let _manager = manager(&cluster, "manager", &older.address);
        add(&mut cluster, "stays", &store);
        cluster.add("dies", &[]);
        make(&cluster, "/out");
        let client = cluster.client().await;
        let lost = put_on(&cluster, &client, "dies").await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        fs::remove_file(store.join(&lost)).expect("it was there");
        cluster.datanode("dies").kill();
        until_held(&older, 2).await;
        put(&client, "/out/other", 2, 100).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        let fsck = client.fsck().await.expect("answered");
        assert_eq!(fsck.lost_blocks, 0, "{fsck:?}");
        older.open();
        let read = client.get(&path(&format!("/out/{lost}"))).await;
        let is_lost = matches!(read, Err(ClientError::DataUnavailable { .. }));
        assert!(is_lost, "{:?}", read.map(|bytes| bytes.len()));
    });
}
