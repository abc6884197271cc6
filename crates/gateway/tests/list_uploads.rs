//! Listings of many unfinished uploads, page by page: whole, in order, and with one look-up of each
//! upload for all pages together.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use futures_util::future::join_all;
use rig::cluster::path;
use rig::{element, gateway, send};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_namenode::{NamenodeOptions, NamenodeServer};

/// Unfinished uploads: two of each key.
const UPLOADS: u64 = 3000;

/// Uploads of a page.
const PAGE: usize = 10;

fn key(number: u64) -> String {
    format!("key-{:04}", number % (UPLOADS / 2))
}

/// Returns an id. Those of one key are not in the order in which they were made.
fn id(number: u64) -> String {
    format!("{:032x}", u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Makes uploads as the gateway does: a directory, and in it an object with the key.
async fn fill(client: &Client) {
    let numbers: Vec<u64> = (0..UPLOADS).collect();
    for numbers in numbers.chunks(64) {
        let puts = numbers.iter().map(|number| async move {
            let mut options = PutOptions::replacing();
            options.attributes.set("s3-key", key(*number));
            let words = path(&format!("/bucket/%!u/{}/upload", id(*number)));
            client.put(&words, "".into(), &options).await.unwrap();
        });
        join_all(puts.collect::<Vec<_>>()).await;
    }
}

/// Returns how many requests of a kind the namenode has answered.
async fn requests(namenode: &NamenodeServer, kind: &str) -> u64 {
    let address = namenode.http_address().unwrap().to_string();
    let (status, text) = send(&address, "GET", ("/metrics", ""), "", "").await;
    assert_eq!(status, 200, "{text}");
    let name = format!("sanderling_namenode_requests_total{{kind=\"{kind}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

/// Lists one page behind a marker. Returns its uploads, and whether there are more.
async fn page(address: &str, after: Option<&(String, String)>) -> (Vec<(String, String)>, bool) {
    let query = match after {
        None => format!("max-uploads={PAGE}&uploads="),
        Some((key, id)) => {
            format!("key-marker={key}&max-uploads={PAGE}&upload-id-marker={id}&uploads=")
        }
    };
    let (status, body) = send(address, "GET", ("/bucket", &query), "", "").await;
    assert_eq!(status, 200, "{body}");
    let field = |text: &str, name: &str| element(text, name).unwrap().to_owned();
    let uploads = body.split("<Upload>").skip(1);
    let uploads: Vec<_> = uploads.map(|it| (field(it, "Key"), field(it, "UploadId"))).collect();
    let is_more = field(&body, "IsTruncated") == "true";
    if is_more {
        let next = (field(&body, "NextKeyMarker"), field(&body, "NextUploadIdMarker"));
        assert_eq!(uploads.last(), Some(&next));
    }
    (uploads, is_more)
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_many_uploads_are_whole_and_look_each_upload_up_once() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::TempDir::new().unwrap();
    let namenode = NamenodeServer::start(NamenodeOptions {
        listen: "127.0.0.1:0".to_owned(),
        http_listen: Some("127.0.0.1:0".to_owned()),
        directory: directory.path().to_owned(),
        ..NamenodeOptions::default()
    });
    let namenode = namenode.await.unwrap();
    let served = namenode.address().to_string();
    let client = Client::connect(&served, ClientConfig::default()).await.unwrap();
    fill(&client).await;
    let gateway = gateway(&served).await;
    let address = gateway.address().to_string();
    let (stats, lists) = (requests(&namenode, "stat").await, requests(&namenode, "list").await);
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let (uploads, is_more) = page(&address, found.last()).await;
        assert!(uploads.len() == PAGE || !is_more);
        found.extend(uploads);
        pages += 1;
        if !is_more {
            break;
        }
    }
    let mut all: Vec<_> = (0..UPLOADS).map(|number| (key(number), id(number))).collect();
    all.sort_unstable();
    assert!(found == all);
    // Each page also looks whether the bucket is there.
    let looked_up = requests(&namenode, "stat").await - stats;
    assert!(looked_up <= UPLOADS + pages, "{looked_up} look-ups for {pages} pages");
    let listed = requests(&namenode, "list").await - lists;
    assert!(listed <= 2 * pages, "{listed} listings for {pages} pages");
    // One that ended is not listed any more, and a new one is.
    client.delete(&path(&format!("/bucket/%!u/{}", found[0].1)), true).await.unwrap();
    let mut options = PutOptions::replacing();
    options.attributes.set("s3-key", "key-");
    let new = "f".repeat(32);
    let words = path(&format!("/bucket/%!u/{new}/upload"));
    client.put(&words, "".into(), &options).await.unwrap();
    let (uploads, _) = page(&address, None).await;
    assert_eq!(uploads[0], ("key-".to_owned(), new));
    assert_eq!(uploads[1], found[1]);
    gateway.stop().await;
}
