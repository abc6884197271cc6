//! Renewals of leases that get lost, or whose answers are late.

use std::time::{Duration, Instant};

use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::{JobHints, RegisterJob};
use sanderling_protocol::{Header, Millis, Op, Request};

use crate::cluster::relay::{Choice, Relay};
use crate::cluster::{Cluster, SOON, block_on, path};

/// Returns the kind of the first request of a frame that is chosen.
fn first_of(header: &Header, body: &[u8], is_chosen: fn(&Request) -> bool) -> Option<String> {
    if header.op != Op::Meta {
        return None;
    }
    let requests: Vec<Request> = decode_body(body).unwrap_or_default();
    let first = requests.iter().find(|request| is_chosen(request));
    first.map(|request| request.kind().to_owned())
}

fn renewal_of_a_job(header: &Header, body: &[u8]) -> Option<String> {
    first_of(header, body, |request| matches!(request, Request::RenewJob { .. }))
}

fn renewal_of_writers(header: &Header, body: &[u8]) -> Option<String> {
    first_of(header, body, |request| matches!(request, Request::RenewLeases { .. }))
}

/// Returns a client whose requests pass a relay.
async fn relayed(cluster: &Cluster, choice: Choice) -> (Relay, Client) {
    let relay = Relay::before(&cluster.namenode.address, choice).await;
    let client = Client::connect(&relay.address, ClientConfig::default()).await;
    (relay, client.expect("the namenode serves"))
}

/// Waits until so many renewals were held back.
async fn until_held(relay: &Relay, count: usize) {
    let limit = Instant::now() + SOON;
    while relay.all_held().len() < count {
        assert!(Instant::now() < limit, "{count} renewals are sent in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn job_outlives_two_renewals_in_a_row_that_get_lost() {
    let cluster = Cluster::of(1);
    block_on(async {
        let (relay, client) = relayed(&cluster, renewal_of_a_job).await;
        let (lease, hints) = (Millis(6000), JobHints::default());
        relay.close();
        let request = RegisterJob { path: path("/job"), lease, quota_bytes: None, hints };
        let job = client.run_job(request).await.expect("a job");
        until_held(&relay, 2).await;
        relay.let_overtake();
        // This is the fault: without a renewal in time, the lease ends meanwhile.
        tokio::time::sleep(2 * Duration::from(lease)).await;
        let left = client.jobs().await.expect("the namenode answers");
        assert!(left.len() == 1 && !job.has_ended(), "a job that is renewed has ended: {left:?}");
    });
}

/// The first renewal arrives when the file is sealed, and its answer when it is appended to.
#[test]
fn writer_goes_on_when_the_end_of_an_earlier_lease_on_its_file_is_reported_late() {
    let cluster = Cluster::of(1);
    block_on(async {
        let (relay, client) = relayed(&cluster, renewal_of_writers).await;
        let name = path("/file");
        relay.close();
        let mut first = client.create(&name, &PutOptions::default()).await.expect("created");
        first.write(b"first, ").await.expect("written");
        until_held(&relay, 1).await;
        first.close().await.expect("sealed");
        let mut second = client.append(&name).await.expect("opened");
        relay.open();
        relay.answered(1).await;
        relay.close();
        // The next renewal is sent when the client has that answer.
        until_held(&relay, 2).await;
        relay.open();
        second.write(b"second").await.expect("its lease has not ended");
        second.close().await.expect("sealed");
        assert_eq!(client.get(&name).await.expect("read"), "first, second");
    });
}
