//! A proxy before the namenode that swallows the reply to a chosen request, or holds a request up.
//!
//! The request is done; its caller gets nothing, sees the connection end, and sends it again. What
//! is sent again waits at the proxy until the test has done what happens in between.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses its part, and may panic")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::frame::{HEADER_BYTES, decode_body};
use sanderling_protocol::{Header, Op, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// Stands between clients and the namenode.
pub(crate) struct Proxy {
    pub(crate) address: String,
    state: Arc<State>,
    accepting: tokio::task::JoinHandle<()>,
}

struct State {
    namenode: String,
    /// The kind of request whose next reply is swallowed.
    armed: Mutex<Option<&'static str>>,
    /// The kinds of which the next request is held up.
    held: Mutex<Option<&'static [&'static str]>>,
    stopped: Notify,
    /// Whether requests go on to the namenode.
    is_open: watch::Sender<bool>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    pub(crate) async fn start(namenode: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State {
            namenode: namenode.to_owned(),
            armed: Mutex::new(None),
            held: Mutex::new(None),
            stopped: Notify::new(),
            is_open: watch::Sender::new(true),
        });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                tokio::spawn(async move { pass(&state, client).await });
            }
        });
        Self { address, state, accepting }
    }

    /// Swallows the next reply to a frame with a request of that kind.
    pub(crate) fn swallow(&self, kind: &'static str) {
        *self.state.armed.lock() = Some(kind);
    }

    /// Waits until it is swallowed. From then on no request passes.
    pub(crate) async fn swallowed(&self) {
        let waited = tokio::time::timeout(Duration::from_secs(60), self.state.stopped.notified());
        waited.await.expect("the request comes within a minute");
    }

    /// Holds up the next request of one of these kinds. From then on no request passes.
    pub(crate) fn hold(&self, kinds: &'static [&'static str]) {
        *self.state.held.lock() = Some(kinds);
    }

    /// Does `first` through the proxy, of which the next request of one of these kinds is held up
    /// until `between` is done.
    pub(crate) async fn hold_up<T: Send + 'static>(
        &self,
        kinds: &'static [&'static str],
        first: impl Future<Output = T> + Send + 'static,
        between: impl Future<Output = ()>,
    ) -> T {
        self.hold(kinds);
        let first = tokio::spawn(first);
        self.swallowed().await;
        between.await;
        self.open();
        first.await.unwrap()
    }

    /// Lets requests pass again.
    pub(crate) fn open(&self) {
        self.state.is_open.send_replace(true);
    }

    /// Does `first` through the proxy, whose reply to a request of that kind is swallowed; then
    /// `between`, and only then what is sent again arrives.
    pub(crate) async fn repeat<T: Send + 'static>(
        &self,
        kind: &'static str,
        first: impl Future<Output = T> + Send + 'static,
        between: impl Future<Output = ()>,
    ) -> T {
        self.swallow(kind);
        let first = tokio::spawn(first);
        self.swallowed().await;
        between.await;
        self.open();
        first.await.unwrap()
    }
}

/// Passes frames on, both ways, until one side ends or a reply is swallowed.
async fn pass(state: &Arc<State>, client: TcpStream) {
    let Ok(namenode) = TcpStream::connect(&state.namenode).await else { return };
    client.set_nodelay(true).unwrap();
    namenode.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_namenode, to_namenode) = namenode.into_split();
    let asked: Mutex<HashMap<u64, Vec<&'static str>>> = Mutex::default();
    tokio::select! {
        () = requests(state, &asked, from_client, to_namenode) => {}
        () = replies(state, &asked, from_namenode, to_client) => {}
    }
}

type Asked = Mutex<HashMap<u64, Vec<&'static str>>>;

async fn requests(state: &State, asked: &Asked, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    while let Some((header, frame)) = frame(&mut from).await {
        if header.op == Op::Meta {
            let requests: Vec<Request> = decode_body(&frame[HEADER_BYTES..]).unwrap();
            let kinds: Vec<_> = requests.iter().map(Request::kind).collect();
            let is_held = |held: &mut &[&str]| kinds.iter().any(|kind| held.contains(kind));
            if state.held.lock().take_if(is_held).is_some() {
                state.is_open.send_replace(false);
                state.stopped.notify_one();
            }
            asked.lock().insert(header.request, kinds);
        }
        let mut is_open = state.is_open.subscribe();
        if is_open.wait_for(|is_open| *is_open).await.is_err()
            || to.write_all(&frame).await.is_err()
        {
            return;
        }
    }
}

async fn replies(state: &State, asked: &Asked, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    while let Some((header, frame)) = frame(&mut from).await {
        let kinds = asked.lock().remove(&header.request).unwrap_or_default();
        let is_wanted = |kind: &mut &'static str| kinds.contains(kind);
        if state.armed.lock().take_if(is_wanted).is_some() {
            state.is_open.send_replace(false);
            state.stopped.notify_one();
            return;
        }
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Reads one frame.
async fn frame(from: &mut OwnedReadHalf) -> Option<(Header, Vec<u8>)> {
    let mut frame = vec![0; HEADER_BYTES];
    from.read_exact(&mut frame).await.ok()?;
    let header = Header::decode(frame[..].try_into().unwrap()).unwrap();
    frame.resize(HEADER_BYTES + header.body_bytes as usize, 0);
    from.read_exact(&mut frame[HEADER_BYTES..]).await.ok()?;
    Some((header, frame))
}
