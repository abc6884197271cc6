//! Reports of managers that are held up on their way, and take effect after later ones, or that a
//! namenode of an earlier program does not read.

use std::fs;
use std::time::{Duration, Instant};

use sanderling_client::Client;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::DurableRequest;
use sanderling_protocol::order::StoreChange;
use sanderling_protocol::{Header, Op, Order, Refusal, Request};

use super::reading_back::{ONE_BLOCK, manager, still};
use crate::cluster::relay::{RELAY_HOST, Relay};
use crate::cluster::stores::{add, add_with, files, make, put};
use crate::cluster::{SOON, block_on, bytes_of, path};

/// Returns the requests about durable directories of a frame.
fn durable_requests(header: &Header, body: &[u8]) -> Vec<DurableRequest> {
    if header.op != Op::Meta {
        return Vec::new();
    }
    let requests: Vec<Request> = decode_body(body).unwrap_or_default();
    let durable = requests.into_iter().filter_map(|request| match request {
        Request::Durable(request) => Some(*request),
        _ => None,
    });
    durable.collect()
}

/// Chooses reports of uploads: returns the first upload.
fn report_of_an_upload(header: &Header, body: &[u8]) -> Option<String> {
    let requests = durable_requests(header, body);
    requests.into_iter().find_map(|request| match request {
        DurableRequest::Record { record, .. } => {
            record.uploads.into_iter().next().map(|it| it.upload)
        }
        DurableRequest::Progress { progress, .. } => {
            progress.uploads.into_iter().next().map(|(_, _, upload)| upload)
        }
        _ => None,
    })
}

/// Chooses reports that programs of before do not read.
fn report_of_this_program(header: &Header, body: &[u8]) -> Option<String> {
    let requests = durable_requests(header, body);
    let is_new = |request: &DurableRequest| matches!(request, DurableRequest::Record { .. });
    requests.iter().find(|request| is_new(request)).map(|request| request.name().to_owned())
}

/// Chooses orders to complete an upload: returns the first upload.
fn order_to_complete(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Order {
        return None;
    }
    let Ok(Order::ChangeStore { changes, .. }) = decode_body(body) else { return None };
    changes.into_iter().find_map(|change| match change {
        StoreChange::Complete { upload, .. } => Some(upload),
        _ => None,
    })
}

/// Waits until the first change of `/out` could not be made.
async fn until_stalled(client: &Client) {
    let limit = Instant::now() + SOON;
    loop {
        let found = client.durability(&path("/out")).await.expect("answered");
        if !found.expect("it is durable").stalled.is_empty() {
            return;
        }
        assert!(Instant::now() < limit, "the directory is not stalled in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn until_durable(client: &Client) {
    assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
}

/// The first report of the first upload arrives when a later upload is recorded. The manager ends
/// then, and its order to complete the later upload arrives when the next manager has sent the
/// object once more, and another object of its name.
#[test]
fn late_report_of_an_upload_lets_no_late_order_cover_a_newer_object() {
    let (mut cluster, store) = still(&["--no-manager"]);
    block_on(async {
        let reports = Relay::before(&cluster.namenode.address, report_of_an_upload).await;
        let orders = Relay::before_advertised(order_to_complete).await;
        let flags = ["--listen", &orders.server, "--advertise", RELAY_HOST];
        let mut first = manager(&cluster, "first", &reports.address);
        add_with(&mut cluster, "stays", &store, &flags);
        make(&cluster, "/out");
        let client = cluster.client().await;
        put(&client, "/out/before", 1, 100).await;
        until_durable(&client).await;
        // Its place is taken, so no upload of it can be completed.
        let taken = store.join("object");
        fs::create_dir_all(taken.join("below")).expect("made");
        reports.close();
        put(&client, "/out/object", 2, ONE_BLOCK).await;
        let upload = reports.held().await;
        reports.let_overtake();
        until_stalled(&client).await;
        orders.close();
        assert_ne!(orders.held().await, upload, "it was ended when it could not be completed");
        fs::rename(&taken, cluster.path("elsewhere")).expect("moved");
        reports.open();
        reports.answered(1).await;
        first.kill();
        orders.let_overtake();
        let _second = manager(&cluster, "second", &cluster.namenode.address);
        until_durable(&client).await;
        assert!(files(&store)["object"] == bytes_of(2, ONE_BLOCK), "the store has other bytes");
        put(&client, "/out/object", 3, ONE_BLOCK).await;
        until_durable(&client).await;
        orders.open();
        orders.answered(1).await;
        let stored = files(&store);
        assert!(stored["object"] == bytes_of(3, ONE_BLOCK), "an older upload covers the object");
        let fsck = client.fsck().await.expect("answered");
        assert!(fsck.problems.is_empty() && fsck.lost_blocks == 0, "{fsck:?}");
    });
}

/// Everything is copied all the same.
#[test]
fn report_that_an_older_namenode_does_not_read_comes_without_what_it_compares() {
    let (mut cluster, store) = still(&["--no-manager"]);
    block_on(async {
        let refusal = Refusal::BadFrame { why: "the body cannot be read".to_owned() };
        let namenode = &cluster.namenode.address;
        let older = Relay::refusing(namenode, report_of_this_program, refusal).await;
        older.close();
        let _manager = manager(&cluster, "manager", &older.address);
        add(&mut cluster, "d0", &store);
        make(&cluster, "/out");
        let client = cluster.client().await;
        for seed in [1, 2] {
            put(&client, "/out/object", seed, ONE_BLOCK).await;
            until_durable(&client).await;
            assert!(files(&store)["object"] == bytes_of(seed, ONE_BLOCK), "it has other bytes");
        }
        assert!(!older.all_held().is_empty(), "the manager reports what is compared");
    });
}
