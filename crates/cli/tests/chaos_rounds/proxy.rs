//! A proxy before a server that swallows its replies for a while: requests arrive and are done, and
//! their caller gets no reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const CHUNK: usize = 1 << 16;

/// Stands between a server and the clients that use the proxy's address.
pub(crate) struct Proxy {
    pub(crate) address: String,
    state: Arc<State>,
    accepting: tokio::task::JoinHandle<()>,
}

struct State {
    server: String,
    swallows: AtomicBool,
    /// Ends the connections whose replies were swallowed.
    over: Notify,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// Starts to listen at `address`; the calling thread must belong to a runtime.
    pub(crate) fn start(address: &str, server: &str) -> Self {
        let listener = std::net::TcpListener::bind(address).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let listener = TcpListener::from_std(listener).expect("a runtime");
        let address = listener.local_addr().expect("bound").to_string();
        let (server, swallows) = (server.to_owned(), AtomicBool::new(false));
        let state = Arc::new(State { server, swallows, over: Notify::new() });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                tokio::spawn(async move { pass(&state, client).await });
            }
        });
        Self { address, state, accepting }
    }

    /// From now on no reply passes.
    pub(crate) fn swallow(&self) {
        self.state.swallows.store(true, Ordering::Relaxed);
    }

    /// From now on no reply passes, for so long; the caller goes on meanwhile.
    pub(crate) fn swallow_for(&self, time: Duration) {
        self.swallow();
        let state = Arc::clone(&self.state);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            state.open();
        });
    }

    /// Ends every connection, and lets those that come pass again.
    pub(crate) fn open(&self) {
        self.state.open();
    }
}

impl State {
    fn open(&self) {
        self.swallows.store(false, Ordering::Relaxed);
        self.over.notify_waiters();
    }
}

async fn pass(state: &State, client: TcpStream) {
    let Ok(server) = TcpStream::connect(&state.server).await else { return };
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let replies = async {
        let mut chunk = vec![0; CHUNK];
        while let Ok(bytes @ 1..) = from_server.read(&mut chunk).await {
            let is_swallowed = state.swallows.load(Ordering::Relaxed);
            if !is_swallowed && to_client.write_all(&chunk[..bytes]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = requests => {}
        () = replies => {}
        () = state.over.notified() => {}
    }
}
