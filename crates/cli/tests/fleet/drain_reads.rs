//! A node that drains while thousands of reads of its blocks wait: they neither hold the drain up
//! nor are forgotten.

use std::io::{BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::cluster::model::Model;
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, until, until_drained};
use futures_util::StreamExt;
use futures_util::stream;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, NodeSelector, Op, Path};

/// Connections that read.
const CONNECTIONS: usize = 40;

/// Reads of each that are not answered: fewer than a server takes of one connection.
const OUTSTANDING: u64 = 256;

/// The shortest answer that a draining node holds back.
const READ_BYTES: u32 = 1 << 10;

/// So many that the drain takes minutes if each push makes every read look at all others.
const OBJECTS: u64 = 3000;

const OBJECT_BYTES: usize = 8 << 10;

/// Milliseconds from the notice to the node's end: several times what the drain takes.
const DEADLINE: i64 = 40_000;

fn name(at: u64) -> Path {
    path(&format!("/{at}"))
}

async fn fill(client: &Client) {
    let put = |at| async move {
        let (bytes, options) = (bytes_of(at, OBJECT_BYTES), PutOptions::default());
        client.put(&name(at), bytes, &options).await.expect("there is room");
    };
    stream::iter(0..OBJECTS).map(put).buffer_unordered(16).collect::<Vec<()>>().await;
}

async fn assert_all_there(client: &Client) {
    let get = |at| async move {
        let read = client.get(&name(at)).await.expect("it is there");
        assert!(read == bytes_of(at, OBJECT_BYTES), "{at} has other bytes");
    };
    stream::iter(0..OBJECTS).map(get).buffer_unordered(16).collect::<Vec<()>>().await;
    let report = client.report().await.expect("the namenode answers");
    assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
}

/// Connections that read the same range again and again, many times at once.
struct Readers {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    fn at(address: &str, request: Header, expected: &[u8]) -> Self {
        let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let reader = |_| {
            let (stream, expected) = (greeted(address), expected.to_vec());
            let (is_over, answered) = (Arc::clone(&is_over), Arc::clone(&answered));
            std::thread::spawn(move || read_on(stream, request, &expected, &is_over, &answered))
        };
        let threads = (0..CONNECTIONS).map(reader).collect();
        Self { is_over, answered, threads }
    }

    /// Sends no further reads, and waits until all that were sent are answered.
    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("every read is answered");
        }
    }
}

fn greeted(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let greeting = encode_body(&hello);
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = greeting.len() as u32;
    stream.write_all(&[&header.encode()[..], &greeting].concat()).expect("it is taken");
    assert_eq!(received(&mut stream, &mut Vec::new()).status, 0, "let in");
    stream
}

fn received(stream: &mut impl Read, body: &mut Vec<u8>) -> Header {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).expect("an answer");
    let header = Header::decode(&head).expect("it is ours");
    body.resize(header.body_bytes as usize, 0);
    stream.read_exact(body).expect("all of it");
    header
}

/// Sends each read again when it is answered, until that is over.
fn read_on(
    stream: TcpStream,
    request: Header,
    expected: &[u8],
    is_over: &AtomicBool,
    answered: &AtomicU64,
) {
    let mut read = BufReader::with_capacity(64 << 10, stream.try_clone().expect("a socket"));
    let (mut write, mut body) = (BufWriter::new(stream), Vec::new());
    let send = |write: &mut BufWriter<TcpStream>, number| {
        let header = Header { request: number, ..request };
        write.write_all(&header.encode()).expect("it is taken");
    };
    (1..=OUTSTANDING).for_each(|number| send(&mut write, number + 1));
    let mut left = OUTSTANDING;
    while left > 0 {
        if read.buffer().is_empty() {
            write.flush().expect("it is taken");
        }
        let header = received(&mut read, &mut body);
        if header.is_held_report() {
            continue;
        }
        // The node serves its old copies until it ends.
        assert!(header.status == 0 && body == expected, "another answer: {header:?}");
        answered.fetch_add(1, Ordering::Relaxed);
        match is_over.load(Ordering::Relaxed) {
            true => left -= 1,
            false => send(&mut write, header.request),
        }
    }
}

#[test]
fn drain_ends_in_time_while_thousands_of_reads_wait() {
    // Nothing leaves the node before its notice.
    let namenode = vec!["--no-manager".to_owned()];
    let mut cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    let address = cluster.datanodes[0].address.clone();
    let location = block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        Model::blocks(&client, &name(0)).await[0]
    });
    cluster.add("n1", &[]);
    cluster.add("n2", &[]);
    let mut request = Header::new(Op::Read, 0);
    (request.block, request.epoch, request.length) = (location.block, location.epoch, READ_BYTES);
    let first = bytes_of(0, OBJECT_BYTES);
    let readers = Readers::at(&address, request, &first[..READ_BYTES as usize]);
    let enough = 2 * CONNECTIONS as u64 * OUTSTANDING;
    let is_read = || (readers.answered.load(Ordering::Relaxed) >= enough).then_some(());
    until("all connections read", SOON, is_read);
    block_on(async {
        let client = cluster.client().await;
        let node = NodeSelector("n0".to_owned());
        client.notice(&node, DEADLINE, "test").await.expect("taken");
        let _manager = cluster.manager("drainer");
        until_drained(&client, "n0").await;
        readers.stop();
        cluster.datanode("n0").kill();
        assert_all_there(&client).await;
    });
}
