//! Servers of the release before, which read no token that names its cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::access::parts;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{ClusterId, Header, Op, Refusal};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, Handled, Response, Secret, Security,
    ServeOptions, Service, TokenSource, listen, serve,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Reads tokens as the previous release does, which supports no claims but its own.
struct Earlier(Secret);

impl Service for Earlier {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let token = hello.token.as_ref().unwrap();
        if parts(token).unwrap().claims().unwrap().lineage != Default::default() {
            let why = Refusal::TOKEN_CLAIMS.to_owned();
            return Err(Refusal::Unauthenticated { why });
        }
        self.0.check(token)?;
        Ok(HelloReply { role: Role::Datanode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        Handled::Now(Response { header: header.reply(), body: vec![body] })
    }
}

#[tokio::test]
async fn server_shows_one_of_the_release_before_a_token_that_it_reads() {
    let secret = Secret::of(&[7; 32]);
    let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let service = Arc::new(Earlier(secret.clone()));
    tokio::spawn(serve(listener, service, ServeOptions::default(), stop.clone()));
    let connect = async |token: TokenSource| {
        let credentials = Credentials { token: Some(token), tls: None };
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let cluster = Some(ClusterId(7));
        let hello = Hello { role: Role::Namenode, cluster, node: None, token: None };
        let deadline = Instant::now() + Duration::from_secs(30);
        let (connection, _) = Connection::connect_with(&address, hello, deadline, &options).await?;
        connection.call(Header::new(Op::Meta, 1), vec![Bytes::from("x")], deadline).await
    };
    connect(TokenSource::Own(secret.clone(), Role::Namenode)).await.unwrap();
    // A process that was given a token has no other.
    let given = TokenSource::Given(secret.own(Role::Client, Some(ClusterId(7))));
    let refused = connect(given).await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refusal::Unauthenticated { .. })), "{refused}");
    stop.cancel();
}
