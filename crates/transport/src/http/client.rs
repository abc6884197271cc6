//! One call of another server's page, for commands: a connection of its own, plain or with TLS.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, http};
use hyper_util::rt::TokioIo;
use sanderling_protocol::{Token, amount};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::tls::{ClientTls, Distrust};

/// Longest answer: a node with its drain has a few kilobytes. Pages of a thousand nodes have some
/// hundred. Chosen, not measured.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest time to connect and to shake hands. A lost first packet is sent again after 1 s and
/// after 3 s (RFC 6298, section 2), so two may be lost.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time to connect to a server on whose answer another caller waits: it is in the same
/// group, so it is near. One lost packet is sent again within it. The other caller may have
/// timeouts of a few seconds.
const PASS_ON_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, plain or with TLS.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A request to an HTTP endpoint.
#[derive(Debug)]
pub struct PageCall<'a> {
    /// The server: `host:port`.
    pub address: &'a str,
    /// How its certificate is checked; without it the call uses no TLS.
    pub tls: Option<&'a ClientTls>,
    /// The token to show, where one is required.
    pub token: Option<Token>,
    /// The method, in capitals.
    pub method: &'a str,
    /// The path, with its query.
    pub target: &'a str,
    /// The body: JSON.
    pub body: String,
    /// How long the answer may take.
    pub within: Duration,
}

/// A reason why there is no answer.
#[derive(Debug, Error)]
pub enum PageCallError {
    /// The server could not be reached, or it does not speak the expected protocol.
    #[error("{address} cannot be reached: {cause}")]
    Unreachable {
        /// The server.
        address: String,
        /// What happened.
        #[source]
        cause: PageFault,
    },
    /// The answer did not come in time.
    #[error("{address} did not answer within {}", amount::duration(*within))]
    TimedOut {
        /// The server.
        address: String,
        /// How long it was waited for.
        within: Duration,
    },
}

/// A reason why a call of a page failed.
#[derive(Debug, Error)]
pub enum PageFault {
    /// No connection could be made.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// The server's certificate is not believed.
    #[error("{0}")]
    Distrusted(#[from] Distrust),
    /// The method, the path or the token cannot stand in a request.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The connection broke, or the answer is no HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The caller has stopped to take the answer.
    #[error("its answer was not taken to the end")]
    NotTaken,
    /// The answer has more bytes than any page.
    #[error("its answer is too long")]
    TooLong,
}

impl PageCall<'_> {
    /// Makes the call; returns the answer's status and body.
    ///
    /// # Errors
    /// [`PageCallError`]: check that the server runs and where it serves HTTP.
    pub async fn send(self) -> Result<(u16, Vec<u8>), PageCallError> {
        let stream = connect(self.address, self.tls, CONNECT_TIMEOUT).await?;
        let answer = timeout(self.within, self.exchange(stream, None)).await;
        answer.unwrap_or_else(|_| Err(self.timed_out(self.within)))
    }

    /// Makes the call, and gives the body of an answer with status 200 away piece by piece; returns
    /// the status, and the body of any other answer. `within` bounds the time to the answer's head
    /// and that between two pieces, not the time in which `pieces` are taken.
    ///
    /// # Errors
    /// [`PageCallError`], also when the answer broke off or `pieces` are taken no more: drop what
    /// came, and try again.
    pub async fn download(
        self,
        pieces: mpsc::Sender<Bytes>,
    ) -> Result<(u16, Vec<u8>), PageCallError> {
        let stream = connect(self.address, self.tls, CONNECT_TIMEOUT).await?;
        self.exchange(stream, Some(pieces)).await
    }

    async fn exchange(
        &self,
        stream: Box<dyn Duplex>,
        pieces: Option<mpsc::Sender<Bytes>>,
    ) -> Result<(u16, Vec<u8>), PageCallError> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.target)
            .header(HOST, self.address)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
        }
        let request = request.body(self.body.clone()).map_err(|error| self.unreachable(error))?;
        let (mut sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| self.unreachable(error))?;
        let exchange = async {
            let answered = timeout(self.within, sender.send_request(request)).await;
            let response = answered
                .map_err(|_| self.timed_out(self.within))?
                .map_err(|error| self.unreachable(error))?;
            let status = response.status().as_u16();
            let pieces = pieces.filter(|_| status == 200);
            Ok((status, self.body(response.into_body(), pieces).await?))
        };
        // The connection must be driven while the answer is read, and ends with it.
        tokio::pin!(connection, exchange);
        let mut is_open = true;
        loop {
            tokio::select! {
                answer = &mut exchange => return answer,
                _ = &mut connection, if is_open => is_open = false,
            }
        }
    }

    /// Reads the body: into `pieces`, or else into what it returns.
    async fn body(
        &self,
        incoming: Incoming,
        pieces: Option<mpsc::Sender<Bytes>>,
    ) -> Result<Vec<u8>, PageCallError> {
        let mut incoming = std::pin::pin!(incoming);
        let mut body = Vec::new();
        loop {
            let next = std::future::poll_fn(|context| incoming.as_mut().poll_frame(context));
            let next = timeout(self.within, next).await;
            let Some(frame) = next.map_err(|_| self.timed_out(self.within))? else {
                return Ok(body);
            };
            let Ok(data) = frame.map_err(|error| self.unreachable(error))?.into_data() else {
                continue;
            };
            match &pieces {
                Some(pieces) => {
                    let sent = pieces.send(data).await;
                    sent.map_err(|_| self.unreachable(PageFault::NotTaken))?;
                }
                None if body.len() + data.len() > ANSWER_BYTES_MAX => {
                    return Err(self.unreachable(PageFault::TooLong));
                }
                None => body.extend_from_slice(&data),
            }
        }
    }

    fn unreachable(&self, cause: impl Into<PageFault>) -> PageCallError {
        unreachable(self.address, cause)
    }

    fn timed_out(&self, within: Duration) -> PageCallError {
        timed_out(self.address, within)
    }
}

/// Sends a request as it is to the endpoint of another server; returns the answer with its body
/// still on the way. The connection ends with the body, or when that is dropped. `within` bounds
/// the time to the answer's head.
///
/// # Errors
/// [`PageCallError`]: the other server does not answer; the caller gets that as the response.
pub async fn pass_on<B>(
    request: Request<B>,
    address: &str,
    tls: Option<&ClientTls>,
    within: Duration,
) -> Result<Response<Incoming>, PageCallError>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = connect(address, tls, PASS_ON_TIMEOUT).await?;
    let shaken = handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| unreachable(address, error))?;
    // It ends with the answer's body.
    tokio::spawn(connection);
    let answered = timeout(within, sender.send_request(request)).await;
    let answered = answered.map_err(|_| timed_out(address, within))?;
    answered.map_err(|error| unreachable(address, error))
}

async fn connect(
    address: &str,
    tls: Option<&ClientTls>,
    within: Duration,
) -> Result<Box<dyn Duplex>, PageCallError> {
    let stream = timeout(within, TcpStream::connect(address)).await;
    let stream = stream.map_err(|_| timed_out(address, within))?;
    let stream = stream.map_err(|error| unreachable(address, error))?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let shaken = timeout(within, tls.connect_for_pages(stream)).await;
    let shaken = shaken.map_err(|_| timed_out(address, within))?;
    let stream = shaken.map_err(|error| match tls.distrust(&error) {
        Some(distrust) => unreachable(address, distrust),
        None => unreachable(address, error),
    })?;
    Ok(Box::new(stream))
}

fn unreachable(address: &str, cause: impl Into<PageFault>) -> PageCallError {
    PageCallError::Unreachable { address: address.to_owned(), cause: cause.into() }
}

fn timed_out(address: &str, within: Duration) -> PageCallError {
    PageCallError::TimedOut { address: address.to_owned(), within }
}
