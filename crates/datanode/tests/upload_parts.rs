//! How many requests an upload to the bucket of a durable directory takes, and when its parts give
//! way to clients that read. What a bucket answers that did not do what it was to do.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use sanderling_datanode::{DatanodeServer, DatanodeStartError, DurableOptions};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::order::{StoreChange, UploadBlock, UploadOrder, UploadPart};
use sanderling_protocol::{BlockId, Epoch, ObjectId, Order, OrderReply, Refusal};
use sanderling_transport::CallError;
use tokio::net::TcpListener;

use crate::harness::{Caller, Served, bytes, until};

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
    /// Refuses longer parts, as a proxy before it with such a limit does.
    part_bytes_max: Option<u64>,
    /// How many it has refused for that.
    too_long: usize,
    /// The checksum of each part, where the parts themselves are too many to keep.
    sums: Option<BTreeMap<u32, u32>>,
    /// How long it takes for a part.
    takes: Duration,
    /// The parts that it is taking, and how many it has taken.
    taking: usize,
    taken: usize,
    /// Answers that uploads are completed, and keeps what it has.
    completes_nothing: bool,
    /// Has nothing at all any more.
    is_gone: bool,
}

type Parameters = BTreeMap<String, String>;

async fn answer(
    State(bucket): State<Arc<Mutex<Bucket>>>,
    method: Method,
    uri: Uri,
    Query(parameters): Query<Parameters>,
    body: Body,
) -> Response {
    let is_part = parameters.contains_key("partNumber");
    bucket.lock().taking += usize::from(is_part);
    let body = to_bytes(body, usize::MAX).await.unwrap();
    if is_part {
        let takes = bucket.lock().takes;
        tokio::time::sleep(takes).await;
        let mut bucket = bucket.lock();
        (bucket.taking, bucket.taken) = (bucket.taking - 1, bucket.taken + 1);
    }
    let key = uri.path().trim_start_matches("/bucket").trim_start_matches('/').to_owned();
    bucket.lock().answer(method, key, &parameters, body)
}

impl Bucket {
    fn answer(&mut self, method: Method, key: String, of: &Parameters, body: Bytes) -> Response {
        if self.is_gone {
            return StatusCode::NOT_FOUND.into_response();
        }
        if key.is_empty() {
            return xml("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
        }
        if !key.contains(".sanderling") {
            self.requests.push(method.clone());
        }
        let number = of.get("partNumber").map(|number| number.parse().unwrap());
        let tag = [(header::ETAG, "\"1\"")];
        let is_long = self.part_bytes_max.is_some_and(|it| body.len() as u64 > it);
        match (method, number) {
            (Method::PUT, Some(_)) if std::mem::take(&mut self.refuses) => {
                StatusCode::FORBIDDEN.into_response()
            }
            (Method::PUT, Some(_)) if is_long => {
                self.too_long += 1;
                StatusCode::PAYLOAD_TOO_LARGE.into_response()
            }
            (Method::PUT, Some(number)) => {
                if let Some(sums) = &mut self.sums {
                    sums.insert(number, crc32c(&body));
                } else {
                    self.parts.insert(number, body);
                }
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
                let tag = if self.completes_nothing {
                    "<ETag>\"2\"</ETag>"
                } else {
                    self.objects.insert(key, parts.concat().into());
                    "<ETag>\"1\"</ETag>"
                };
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

/// A datanode with an object in its blocks, and the bucket that it reaches.
struct Packed {
    bucket: Arc<Mutex<Bucket>>,
    server: DatanodeServer,
    caller: Caller,
    /// The lengths of the blocks, which have the numbers from 1 on.
    lengths: Vec<u64>,
    content: Vec<u8>,
    _namenode: Served,
}

impl Packed {
    /// Starts it with a pack and all the memory that it likes to have.
    async fn start() -> Self {
        Self::start_with(pack(), None).await
    }

    /// Starts it with blocks of these lengths. `more` is how much memory it has beyond the least
    /// that it needs; `None` for all that it likes to have.
    async fn start_with(lengths: Vec<u64>, more: Option<u64>) -> Self {
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
        if let Some(more) = more {
            options.memory_max = Some(1);
            let refused = DatanodeServer::start(options.clone()).await.err().unwrap();
            let DatanodeStartError::MemoryMax { min, .. } = refused else { panic!("{refused}") };
            options.memory_max = Some(min + more);
        }
        let server = DatanodeServer::start(options).await.unwrap();
        let caller = Caller::new(&server);
        let mut content = Vec::new();
        for (block, length) in (1..).zip(&lengths) {
            let piece = bytes(*length as usize, block as u8);
            for (index, run) in piece.chunks(256 << 10).enumerate() {
                caller.write(block, index as u64 * (256 << 10), run).await.unwrap();
            }
            content.extend(piece);
        }
        Self { bucket, server, caller, lengths, content, _namenode: namenode }
    }

    /// Returns the parts as the manager orders them: of 8 MiB at least, and the rest.
    fn parts(&self) -> Vec<UploadPart> {
        let (mut parts, mut end) = (Vec::<UploadPart>::new(), 0_u64);
        for (block, length) in (1..).zip(&self.lengths) {
            let block = UploadBlock {
                block: BlockId(block),
                epoch: Epoch(1),
                length: *length as u32,
                node: self.server.node(),
                address: self.server.address().to_string(),
            };
            match parts.last_mut() {
                Some(part) if end - part.offset < 8 * MIB => part.blocks.push(block),
                _ => parts.push(UploadPart {
                    number: parts.len() as u32,
                    offset: end,
                    inline: Vec::new(),
                    blocks: vec![block],
                }),
            }
            end += length;
        }
        parts
    }

    /// Sends the object; returns the upload, and its parts in the bucket.
    async fn send(&self) -> Result<(String, Vec<String>), Refusal> {
        self.send_parts(None, self.parts()).await
    }

    /// Sends parts of an upload, or of a new one.
    async fn send_parts(
        &self,
        upload: Option<String>,
        parts: Vec<UploadPart>,
    ) -> Result<(String, Vec<String>), Refusal> {
        let (store, key) = ("s".to_owned(), "x".to_owned());
        let (directory, may_claim) = (ObjectId(7), true);
        let order = UploadOrder { directory, may_claim, store, key, upload, parts };
        match self.caller.order_in(0, Order::Upload(Box::new(order))).await {
            Ok(OrderReply::Uploaded { upload, parts }) => Ok((upload, parts)),
            Err(CallError::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// Sends the object and completes it; returns how many requests that took.
    async fn put(&self) -> usize {
        self.bucket.lock().requests.clear();
        let made = self.send_and_complete().await;
        assert!(matches!(made, OrderReply::StoreChanged { done: 1, failure: None }), "{made:?}");
        let bucket = self.bucket.lock();
        assert!(bucket.objects["place/x"] == self.content, "the object has other bytes");
        bucket.requests.len()
    }

    async fn send_and_complete(&self) -> OrderReply {
        let (upload, parts) = self.send().await.unwrap();
        let (key, bytes) = ("x".to_owned(), self.content.len() as u64);
        let changes = vec![StoreChange::Complete { key, upload, parts, bytes }];
        let (directory, store) = (ObjectId(7), "s".to_owned());
        self.caller.order(Order::ChangeStore { directory, store, changes }).await
    }
}

/// Returns the lengths of a pack's blocks.
fn pack() -> Vec<u64> {
    [&[MIB; 32][..], &[LAST]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn pack_takes_four_requests_once_the_bucket_has_shown_how_fast_it_is() {
    let packed = Packed::start().await;
    // The first part shows it, and the rest goes as one.
    assert_eq!(packed.put().await, 5);
    // To begin, all of it, to complete, and to verify the length.
    assert_eq!(packed.put().await, 4);
    packed.bucket.lock().refuses = true;
    // What failed as one goes in five parts, after one more to begin and the one that failed.
    assert_eq!(packed.put().await, 3 + 1 + 5);
    // It then gets parts of half a pack at most.
    assert_eq!(packed.put().await, 3 + 3);
    packed.server.stop().await;
}

/// The object that the name had before has as many bytes.
#[tokio::test(flavor = "multi_thread")]
async fn upload_that_the_bucket_only_answers_to_have_completed_is_not_made() {
    let packed = Packed::start_with(vec![MIB], None).await;
    packed.put().await;
    packed.bucket.lock().completes_nothing = true;
    let made = packed.send_and_complete().await;
    let OrderReply::StoreChanged { done: 0, failure: Some(failure) } = &made else {
        panic!("{made:?}")
    };
    assert!(failure.to_string().contains("another entity tag"), "{failure}");
    packed.bucket.lock().completes_nothing = false;
    packed.put().await;
    packed.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_in_a_bucket_that_is_gone_is_not_ended() {
    let packed = Packed::start_with(vec![MIB], None).await;
    let (upload, _) = packed.send().await.unwrap();
    let end = || {
        let (directory, store) = (ObjectId(7), "s".to_owned());
        let uploads = vec![("x".to_owned(), upload.clone())];
        packed.caller.order_in(0, Order::AbortUploads { directory, store, uploads })
    };
    packed.bucket.lock().is_gone = true;
    let refused = end().await;
    let Err(CallError::Refused(refusal)) = &refused else { panic!("{refused:?}") };
    assert!(matches!(refusal, Refusal::TierFailed { .. }), "{refusal}");
    packed.bucket.lock().is_gone = false;
    assert!(matches!(end().await, Ok(OrderReply::Done)));
    packed.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_that_refuses_a_part_alone_fails_the_order() {
    let packed = Packed::start().await;
    packed.bucket.lock().part_bytes_max = Some(MIB);
    let refused = packed.send().await.unwrap_err();
    assert!(matches!(refused, Refusal::TierFailed { .. }), "{refused}");
    // The first part of each order, and no other.
    assert_eq!(packed.bucket.lock().too_long, 1);
    packed.bucket.lock().part_bytes_max = None;
    assert_eq!(packed.put().await, 3 + 2);
    packed.server.stop().await;
}

/// In each order for the pack, the part after the first would be as long as all of the rest.
#[tokio::test(flavor = "multi_thread")]
async fn bucket_that_refuses_long_parts_gets_the_pack_in_shorter_ones() {
    let packed = Packed::start().await;
    packed.bucket.lock().part_bytes_max = Some(16 * MIB);
    // The four parts after the first are refused as one.
    assert_eq!(packed.put().await, 3 + 1 + 1 + 4);
    for _ in 0..2 {
        assert_eq!(packed.put().await, 3 + 4);
    }
    packed.server.stop().await;
}

/// A longer part is tried each time the bucket has taken many: that fails no order, so an object is
/// not sent from its beginning again however long it is.
#[tokio::test(flavor = "multi_thread")]
async fn object_of_many_parts_gets_to_a_bucket_that_refuses_long_ones() {
    const PARTS: u32 = 40;
    let packed = Packed::start_with(vec![MIB; 8], None).await;
    {
        let mut bucket = packed.bucket.lock();
        (bucket.part_bytes_max, bucket.sums) = (Some(10 * MIB), Some(BTreeMap::new()));
    }
    let part = packed.parts().remove(0);
    let numbers: Vec<u32> = (0..PARTS).collect();
    let (mut upload, mut taken) = (None, 0);
    // As the manager orders them: eight parts, one order after the other.
    for numbers in numbers.chunks(8) {
        let offset = |number: u32| u64::from(number) * 8 * MIB;
        let numbered = |number: &u32| UploadPart {
            number: *number - numbers[0] + taken,
            offset: offset(*number),
            ..part.clone()
        };
        let parts = numbers.iter().map(numbered).collect();
        let (id, sent) = packed.send_parts(upload.take(), parts).await.unwrap();
        (upload, taken) = (Some(id), taken + sent.len() as u32);
    }
    let (sums, too_long) = {
        let mut bucket = packed.bucket.lock();
        (bucket.sums.take().unwrap(), bucket.too_long)
    };
    // Each part was sent alone in the end, and has its number in the bucket, from 1 on.
    assert_eq!(sums.keys().copied().collect::<Vec<_>>(), (1..=PARTS).collect::<Vec<_>>());
    let whole = crc32c(&packed.content);
    assert!(sums.values().all(|sum| *sum == whole), "a part has other bytes");
    // Four and then two parts as one at first, and two as one after 16 parts.
    assert_eq!(too_long, 3);
    packed.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_stay_short_where_there_is_no_memory_for_longer_ones() {
    let packed = Packed::start_with(pack(), Some(0)).await;
    for _ in 0..2 {
        assert_eq!(packed.put().await, 3 + 5);
    }
    packed.server.stop().await;
}

/// Joined parts have 10 MiB of memory. A part of 16 blocks has about 8 MiB in both cases, and twice
/// as much memory where a block is a little longer than half a buffer.
#[tokio::test(flavor = "multi_thread")]
async fn parts_are_joined_as_far_as_there_is_memory_for_the_buffers_of_their_blocks() {
    for (length, requests) in [(512 << 10, 3 + 2), (520 << 10, 3 + 3)] {
        let packed = Packed::start_with(vec![length; 48], Some(80 * MIB)).await;
        for _ in 0..2 {
            assert_eq!(packed.put().await, requests, "blocks of {length} bytes");
        }
        packed.server.stop().await;
    }
}

/// What a client reads while the bucket takes no part, and while it takes one.
#[derive(Debug, Default)]
struct Reads {
    alone: usize,
    beside: usize,
}

/// The client is slow while the bucket takes a part, as on a link that both share.
#[tokio::test(flavor = "multi_thread")]
async fn parts_leave_a_client_that_reads_most_of_the_time() {
    const ORDERS: usize = 12;
    let packed = Packed::start_with(vec![MIB], None).await;
    packed.bucket.lock().takes = Duration::from_millis(100);
    let (reads, is_over) = (Arc::<Mutex<Reads>>::default(), Arc::new(AtomicBool::new(false)));
    let reader = {
        let (caller, bucket) = (packed.caller.clone(), Arc::clone(&packed.bucket));
        let (reads, is_over) = (Arc::clone(&reads), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                caller.read(1, 1, 0, 64 << 10).await.unwrap();
                let is_taking = bucket.lock().taking > 0;
                let pause = if is_taking { 20 } else { 1 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let mut reads = reads.lock();
                *if is_taking { &mut reads.beside } else { &mut reads.alone } += 1;
            }
        })
    };
    until("the client reads", || reads.lock().alone > 100).await;
    let order = |number: usize| {
        let order = UploadOrder {
            directory: ObjectId(7),
            may_claim: true,
            store: "s".to_owned(),
            key: number.to_string(),
            upload: None,
            parts: packed.parts(),
        };
        let caller = packed.caller.clone();
        tokio::spawn(async move { caller.order(Order::Upload(Box::new(order))).await })
    };
    // The first one shows that there is a client.
    order(0).await.unwrap();
    *reads.lock() = Reads::default();
    let orders: Vec<_> = (1..ORDERS).map(order).collect();
    until("parts are taken beside the client", || packed.bucket.lock().taken >= 5).await;
    {
        let reads = reads.lock();
        assert!(reads.alone > 10 * reads.beside, "parts follow each other at once: {reads:?}");
    }
    is_over.store(true, Ordering::Relaxed);
    reader.await.unwrap();
    for order in orders {
        let sent = order.await.unwrap();
        assert!(matches!(sent, OrderReply::Uploaded { .. }), "{sent:?}");
    }
    assert_eq!(packed.bucket.lock().taken, ORDERS);
    packed.server.stop().await;
}
