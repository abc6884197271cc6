//! A relay before a server, which holds chosen requests back, or refuses them, while it is closed.

use std::collections::BTreeSet;
use std::sync::Arc;

use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::{Header, Refusal, Reply, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::SOON;

/// Where relays of servers listen that advertise it: these have the same ports of 127.0.0.1.
pub(crate) const RELAY_HOST: &str = "127.0.0.2";

/// Returns what a request is called that is held back or refused, by its header and body.
pub(crate) type Choice = fn(&Header, &[u8]) -> Option<String>;

/// Passes requests on to one server, and answers back.
pub(crate) struct Relay {
    pub(crate) address: String,
    /// The address of the server.
    pub(crate) server: String,
    gate: Arc<Gate>,
    accepting: JoinHandle<()>,
}

struct Gate {
    choice: Choice,
    /// What a chosen request gets while the relay is closed; `None`: it is held back.
    refusal: Option<Refusal>,
    state: watch::Sender<GateState>,
    /// What was held back or refused until now.
    held: watch::Sender<Vec<String>>,
    /// How many of the requests that were held back have been answered.
    answered: watch::Sender<usize>,
}

/// What becomes of chosen requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GateState {
    Open,
    Closed,
    /// Those that come pass, and those that are held back stay.
    Overtaking,
}

/// The requests of one connection that were held back and are not answered.
type HeldCalls = std::sync::Mutex<BTreeSet<u64>>;

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Relay {
    /// Starts before a server.
    pub(crate) async fn before(server: &str, choice: Choice) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::by(listener, server.to_owned(), choice, None)
    }

    /// Starts before a namenode, whose place it takes in the answers to chosen requests.
    pub(crate) async fn refusing(server: &str, choice: Choice, refusal: Refusal) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::by(listener, server.to_owned(), choice, Some(refusal))
    }

    /// Starts before a server that is to listen at `server`, and to advertise [`RELAY_HOST`].
    pub(crate) async fn before_advertised(choice: Choice) -> Self {
        let listener = TcpListener::bind((RELAY_HOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        Self::by(listener, format!("127.0.0.1:{port}"), choice, None)
    }

    fn by(listener: TcpListener, server: String, choice: Choice, refusal: Option<Refusal>) -> Self {
        let address = listener.local_addr().expect("it listens").to_string();
        let (state, held) = (watch::Sender::new(GateState::Open), watch::Sender::new(Vec::new()));
        let answered = watch::Sender::new(0);
        let gate = Arc::new(Gate { choice, refusal, state, held, answered });
        let (shared, target) = (Arc::clone(&gate), server.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (gate, target) = (Arc::clone(&shared), target.clone());
                tokio::spawn(async move { pass(&gate, &target, client).await });
            }
        });
        Self { address, server, gate, accepting }
    }

    /// Holds chosen requests back from now on, or refuses them. All others pass.
    pub(crate) fn close(&self) {
        self.gate.state.send_replace(GateState::Closed);
    }

    /// Lets go on what is held back, and all that comes.
    pub(crate) fn open(&self) {
        self.gate.state.send_replace(GateState::Open);
    }

    /// Lets go on all that comes, and goes on holding back what is held back.
    pub(crate) fn let_overtake(&self) {
        self.gate.state.send_replace(GateState::Overtaking);
    }

    /// Waits until the server has answered so many of the requests that were held back. Their
    /// clients may be gone.
    pub(crate) async fn answered(&self, count: usize) {
        let mut answered = self.gate.answered.subscribe();
        let all = answered.wait_for(|answered| *answered >= count);
        let all = tokio::time::timeout(SOON, all).await;
        all.expect("what was held back is answered in time").expect("the relay is there");
    }

    /// Waits until something is held back, and returns what came first.
    pub(crate) async fn held(&self) -> String {
        let mut held = self.gate.held.subscribe();
        let first = tokio::time::timeout(SOON, held.wait_for(|held| !held.is_empty())).await;
        let first = first.expect("a chosen request comes in time").expect("the relay is there");
        first[0].clone()
    }

    /// Returns what was held back or refused until now, in its order.
    pub(crate) fn all_held(&self) -> Vec<String> {
        self.gate.held.borrow().clone()
    }
}

/// Passes frames on, both ways, until one side ends. What is held back when the client ends goes to
/// the server later all the same.
async fn pass(gate: &Gate, server: &str, client: TcpStream) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("it is connected");
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (to_client, calls) = (Mutex::new(to_client), HeldCalls::default());
    let to_server = Arc::new(Mutex::new(to_server));
    let replies = replies(gate, from_server, &to_client, &calls);
    tokio::pin!(replies);
    tokio::select! {
        () = requests(gate, from_client, &to_server, &to_client, &calls) => {}
        () = &mut replies => return,
    }
    // A server that finds the end of its connection behind a request may drop that.
    let held = (!calls.lock().expect("no holder panics").is_empty()).then_some(to_server);
    replies.await;
    drop(held);
}

async fn requests(
    gate: &Gate,
    mut from: OwnedReadHalf,
    to: &Arc<Mutex<OwnedWriteHalf>>,
    back: &Mutex<OwnedWriteHalf>,
    calls: &HeldCalls,
) {
    while let Some((header, frame)) = frame(&mut from).await {
        let chosen = (gate.choice)(&header, &frame[HEADER_BYTES..]);
        let chosen = chosen.filter(|_| *gate.state.borrow() == GateState::Closed);
        let passed = match (chosen, &gate.refusal) {
            (None, _) => to.lock().await.write_all(&frame).await,
            (Some(name), None) => {
                calls.lock().expect("no holder panics").insert(header.request);
                hold(gate, name, frame, Arc::clone(to));
                Ok(())
            }
            (Some(name), Some(refusal)) => {
                gate.held.send_modify(|held| held.push(name));
                let reply = refused(&header, &frame[HEADER_BYTES..], refusal);
                back.lock().await.write_all(&reply).await
            }
        };
        if passed.is_err() {
            return;
        }
    }
}

/// Passes whole frames on, so that a refusal comes between two of them.
async fn replies(
    gate: &Gate,
    mut from: OwnedReadHalf,
    to: &Mutex<OwnedWriteHalf>,
    calls: &HeldCalls,
) {
    while let Some((header, frame)) = frame(&mut from).await {
        // The client may be gone.
        let _ = to.lock().await.write_all(&frame).await;
        if calls.lock().expect("no holder panics").remove(&header.request) {
            gate.answered.send_modify(|answered| *answered += 1);
        }
    }
}

/// Sends a frame once the relay is open. Frames that come later pass it.
fn hold(gate: &Gate, name: String, frame: Vec<u8>, to: Arc<Mutex<OwnedWriteHalf>>) {
    let mut state = gate.state.subscribe();
    gate.held.send_modify(|held| held.push(name));
    tokio::spawn(async move {
        let is_open = state.wait_for(|state| *state == GateState::Open).await.is_ok();
        if is_open {
            // Its connection may have ended.
            let _ = to.lock().await.write_all(&frame).await;
        }
    });
}

/// Returns the frame that refuses all requests of a body.
fn refused(header: &Header, body: &[u8], refusal: &Refusal) -> Vec<u8> {
    let requests: Vec<Request> = decode_body(body).expect("they were chosen");
    let replies = requests.iter().map(|_| Err(refusal.clone()));
    let replies: Vec<Result<Reply, Refusal>> = replies.collect();
    let body = encode_body(&replies);
    let body_bytes = u32::try_from(body.len()).expect("a refusal is short");
    let header = Header { body_bytes, ..header.reply() };
    [&header.encode()[..], &body].concat()
}

/// Reads one frame.
async fn frame(from: &mut OwnedReadHalf) -> Option<(Header, Vec<u8>)> {
    let mut frame = vec![0; HEADER_BYTES];
    from.read_exact(&mut frame).await.ok()?;
    let head = frame.first_chunk().expect("it has as many bytes");
    let header = Header::decode(head).expect("clients and servers send frames");
    frame.resize(HEADER_BYTES + header.body_bytes as usize, 0);
    from.read_exact(&mut frame[HEADER_BYTES..]).await.ok()?;
    Some((header, frame))
}
