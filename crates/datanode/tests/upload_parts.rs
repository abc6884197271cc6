//! How many requests an upload to the bucket of a durable directory takes.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use sanderling_datanode::{DatanodeServer, DatanodeStartError, DurableOptions};
use sanderling_protocol::order::{StoreChange, UploadBlock, UploadOrder, UploadPart};
use sanderling_protocol::{BlockId, Epoch, ObjectId, Order, OrderReply, Refusal};
use sanderling_transport::CallError;
use tokio::net::TcpListener;

use crate::harness::{Caller, Served, bytes};

const MIB: u64 = 1 << 20;

/// Bytes of the last block: a pack is a little longer than 32 MiB.
const LAST: u64 = 64 << 10;

/// A bucket, and what it was sent about the object.
#[derive(Debug, Default)]
struct Bucket {
    objects: BTreeMap<String, Bytes>,
    parts: BTreeMap<u32, Bytes>,
    requests: Vec<Method>,
    /// Refuses the next part.
    refuses: bool,
}

type Parameters = BTreeMap<String, String>;

async fn answer(
    State(bucket): State<Arc<Mutex<Bucket>>>,
    method: Method,
    uri: Uri,
    Query(parameters): Query<Parameters>,
    body: Body,
) -> Response {
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let key = uri.path().trim_start_matches("/bucket").trim_start_matches('/').to_owned();
    bucket.lock().answer(method, key, &parameters, body)
}

impl Bucket {
    fn answer(&mut self, method: Method, key: String, of: &Parameters, body: Bytes) -> Response {
        if key.is_empty() {
            return xml("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
        }
        if !key.contains(".sanderling") {
            self.requests.push(method.clone());
        }
        let number = of.get("partNumber").map(|number| number.parse().unwrap());
        let tag = [(header::ETAG, "\"1\"")];
        match (method, number) {
            (Method::PUT, Some(_)) if std::mem::take(&mut self.refuses) => {
                StatusCode::FORBIDDEN.into_response()
            }
            (Method::PUT, Some(number)) => {
                self.parts.insert(number, body);
                tag.into_response()
            }
            (Method::PUT, None) => {
                self.objects.insert(key, body);
                tag.into_response()
            }
            (Method::POST, _) if of.contains_key("uploads") => {
                let begun = "<UploadId>1</UploadId>";
                xml(&format!(
                    "<InitiateMultipartUploadResult>{begun}</InitiateMultipartUploadResult>"
                ))
            }
            (Method::POST, _) => {
                let parts: Vec<Bytes> = std::mem::take(&mut self.parts).into_values().collect();
                self.objects.insert(key, parts.concat().into());
                let tag = "<ETag>\"1\"</ETag>";
                xml(&format!(
                    "<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>"
                ))
            }
            (Method::DELETE, _) => {
                self.parts.clear();
                StatusCode::NO_CONTENT.into_response()
            }
            _ => self.found(&key),
        }
    }

    fn found(&self, key: &str) -> Response {
        let Some(bytes) = self.objects.get(key) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let response = Response::builder()
            .header(header::ETAG, "\"1\"")
            .header(header::LAST_MODIFIED, "Thu, 01 Jan 2026 00:00:00 GMT")
            .header(header::CONTENT_LENGTH, bytes.len());
        response.body(Body::from(bytes.clone())).unwrap()
    }
}

fn xml(body: &str) -> Response {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}");
    ([(header::CONTENT_TYPE, "application/xml")], text).into_response()
}

/// A datanode with a pack in its blocks, and the bucket that it reaches.
struct Packed {
    bucket: Arc<Mutex<Bucket>>,
    server: DatanodeServer,
    caller: Caller,
    content: Vec<u8>,
    _namenode: Served,
}

impl Packed {
    /// Starts it with all the memory that it likes to have, or with as little as it needs.
    async fn start(is_small: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let bucket = Arc::<Mutex<Bucket>>::default();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&bucket));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let namenode = Served::start().await;
        let settings = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (name, url) = ("s".to_owned(), "s3://bucket/place".to_owned());
        let mut options = namenode.options();
        options.dram_bytes = 64 << 20;
        options.durable = vec![DurableOptions { name, url, settings }];
        if is_small {
            options.memory_max = Some(1);
            let refused = DatanodeServer::start(options.clone()).await.err().unwrap();
            let DatanodeStartError::MemoryMax { min, .. } = refused else { panic!("{refused}") };
            options.memory_max = Some(min);
        }
        let server = DatanodeServer::start(options).await.unwrap();
        let caller = Caller::new(&server);
        let mut content = Vec::new();
        for (block, length) in lengths() {
            let piece = bytes(length as usize, block as u8);
            for (index, run) in piece.chunks(256 << 10).enumerate() {
                caller.write(block, index as u64 * (256 << 10), run).await.unwrap();
            }
            content.extend(piece);
        }
        Self { bucket, server, caller, content, _namenode: namenode }
    }

    /// Returns the parts as the manager orders them: of 8 MiB, and the rest.
    fn parts(&self) -> Vec<UploadPart> {
        let block = |(block, length): (u64, u64)| UploadBlock {
            block: BlockId(block),
            epoch: Epoch(1),
            length: length as u32,
            node: self.server.node(),
            address: self.server.address().to_string(),
        };
        let blocks: Vec<UploadBlock> = lengths().map(block).collect();
        let part = |(number, blocks): (usize, &[UploadBlock])| UploadPart {
            number: number as u32,
            offset: number as u64 * 8 * MIB,
            inline: Vec::new(),
            blocks: blocks.to_vec(),
        };
        blocks.chunks(8).enumerate().map(part).collect()
    }

    /// Sends the pack; returns the upload, and its parts in the bucket.
    async fn send(&self) -> Result<(String, Vec<String>), Refusal> {
        let (store, key, upload) = ("s".to_owned(), "x".to_owned(), None);
        let (directory, may_claim, parts) = (ObjectId(7), true, self.parts());
        let order = UploadOrder { directory, may_claim, store, key, upload, parts };
        match self.caller.order_in(0, Order::Upload(Box::new(order))).await {
            Ok(OrderReply::Uploaded { upload, parts }) => Ok((upload, parts)),
            Err(CallError::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Sends the pack and completes it; returns how many requests that took.
    async fn put(&self) -> usize {
        self.bucket.lock().requests.clear();
        let (upload, parts) = self.send().await.unwrap();
        let (key, bytes) = ("x".to_owned(), self.content.len() as u64);
        let changes = vec![StoreChange::Complete { key, upload, parts, bytes }];
        let (directory, store) = (ObjectId(7), "s".to_owned());
        let made = self.caller.order(Order::ChangeStore { directory, store, changes }).await;
        assert!(matches!(made, OrderReply::StoreChanged { done: 1, failure: None }), "{made:?}");
        let bucket = self.bucket.lock();
        assert!(bucket.objects["place/x"] == self.content, "the object has other bytes");
        bucket.requests.len()
    }
}

/// Returns the numbers and lengths of the pack's blocks.
fn lengths() -> impl Iterator<Item = (u64, u64)> {
    (1..=32).map(|block| (block, MIB)).chain([(33, LAST)])
}

#[tokio::test(flavor = "multi_thread")]
async fn pack_takes_four_requests_once_the_bucket_has_shown_how_fast_it_is() {
    let packed = Packed::start(false).await;
    // The first part shows it, and the rest goes as one.
    assert_eq!(packed.put().await, 5);
    // To begin, all of it, to complete, and to verify the length.
    assert_eq!(packed.put().await, 4);
    packed.bucket.lock().refuses = true;
    let refused = packed.send().await.unwrap_err();
    assert!(matches!(refused, Refusal::TierFailed { .. }), "{refused}");
    assert_eq!(packed.put().await, 5, "a bucket that has failed shows it again");
    packed.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_stay_short_where_there_is_no_memory_for_longer_ones() {
    let packed = Packed::start(true).await;
    for _ in 0..2 {
        assert_eq!(packed.put().await, 3 + 5);
    }
    packed.server.stop().await;
}
