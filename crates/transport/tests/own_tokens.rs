//! The tokens that a process with the secret makes for itself.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::access::parts;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{ClusterId, Header, Refusal};
use sanderling_transport::{
    ConnectionOptions, Credentials, Handled, Pool, PoolOptions, Response, Secret, Security,
    ServeOptions, Service, TokenSource, listen, serve,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const HERE: ClusterId = ClusterId(7);

/// A namenode that notes which clusters the tokens name.
#[derive(Default)]
struct Namenode(Mutex<Vec<Option<ClusterId>>>);

impl Service for Namenode {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let claims = parts(hello.token.as_ref().unwrap()).unwrap().claims().unwrap();
        self.0.lock().unwrap().push(claims.lineage.cluster);
        Ok(HelloReply { role: Role::Namenode, cluster: Some(HERE), node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        Handled::Now(Response { header: header.reply(), body: vec![body] })
    }
}

#[tokio::test]
async fn connection_is_kept_only_with_a_token_that_names_the_cluster() {
    let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let namenode = Arc::new(Namenode::default());
    tokio::spawn(serve(listener, Arc::clone(&namenode), ServeOptions::default(), stop.clone()));
    let role = Role::Manager;
    let token = Some(TokenSource::Own(Secret::of(&[7; 32]), role));
    let credentials = Credentials { token, tls: None };
    let connection = ConnectionOptions { credentials, ..ConnectionOptions::default() };
    let pool = Pool::new(PoolOptions { role, connection, ..PoolOptions::default() });
    let deadline = Instant::now() + Duration::from_secs(30);
    for round in 1..=2 {
        // A call in the background connects while the cluster is requested.
        let (in_background, learned) = tokio::join!(
            pool.connection(&address, None, deadline),
            pool.learn_cluster(&address, deadline)
        );
        assert_eq!((in_background.is_ok(), learned.is_ok()), (true, true));
        pool.connection(&address, None, deadline).await.unwrap();
        let expected = [None, Some(HERE)].repeat(round);
        assert_eq!(*namenode.0.lock().unwrap(), expected, "round {round}");
        pool.set_cluster(None);
        pool.forget(&address);
    }
    stop.cancel();
}
