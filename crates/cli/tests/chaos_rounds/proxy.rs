//! A proxy before the namenode that swallows replies for a while: requests arrive and are done, and
//! their caller hears nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

const CHUNK: usize = 1 << 16;

/// Stands between one client and the namenode.
pub(crate) struct Proxy {
    pub(crate) address: String,
    state: Arc<State>,
    accepting: tokio::task::JoinHandle<()>,
}

struct State {
    namenode: String,
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
    pub(crate) async fn start(namenode: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (namenode, swallows) = (namenode.to_owned(), AtomicBool::new(false));
        let state = Arc::new(State { namenode, swallows, over: Notify::new() });
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

    /// Ends every connection, and lets those that come pass again.
    pub(crate) fn open(&self) {
        self.state.swallows.store(false, Ordering::Relaxed);
        self.state.over.notify_waiters();
    }
}

async fn pass(state: &State, client: TcpStream) {
    let Ok(namenode) = TcpStream::connect(&state.namenode).await else { return };
    let (_, _) = (client.set_nodelay(true), namenode.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_namenode, mut to_namenode) = namenode.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_namenode);
    let replies = async {
        let mut chunk = vec![0; CHUNK];
        while let Ok(bytes @ 1..) = from_namenode.read(&mut chunk).await {
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
