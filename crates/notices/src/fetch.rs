//! One HTTP request to a metadata service.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Uri, http};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest answer: hundreds of scheduled events. An event of Azure has some hundred bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// A metadata service. Every request has a connection of its own: they are few, and a service that
/// restarts must not be found dead by the next one.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    authority: String,
    within: Duration,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// The header `ETag`, if there is one.
    pub(crate) etag: Option<String>,
}

/// Why a metadata service gave no answer. For [`Self::Url`], correct the address; else look again
/// later.
#[derive(Debug, Error)]
pub enum FetchError {
    /// The address is not one of a plain HTTP service.
    #[error("{url:?} is not http://HOST or http://HOST:PORT")]
    Url {
        /// What was given.
        url: String,
    },
    /// It could not be reached, or broke off.
    #[error("{authority}: {cause}")]
    Broken {
        /// The service.
        authority: String,
        /// What happened.
        #[source]
        cause: BrokenCause,
    },
    /// It took too long.
    #[error("{authority} did not answer within {}", sanderling_protocol::amount::duration(*within))]
    TimedOut {
        /// The service.
        authority: String,
        /// How long it was waited for.
        within: Duration,
    },
}

/// Why a request to a metadata service broke off.
#[derive(Debug, Error)]
pub enum BrokenCause {
    /// No connection could be made.
    #[error("{0}")]
    Connect(#[from] io::Error),
    /// What was to be sent cannot stand in a request.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// The connection broke, or the answer is no HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The body of the answer broke off, or is too long.
    #[error("{0}")]
    Body(#[from] Box<dyn StdError + Send + Sync>),
}

impl Service {
    pub(crate) fn new(url: &str, within: Duration) -> Result<Self, FetchError> {
        let bad = || FetchError::Url { url: url.to_owned() };
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        match uri.authority() {
            Some(authority) if uri.scheme_str() == Some("http") && is_bare => {
                Ok(Self { authority: authority.to_string(), within })
            }
            _ => Err(bad()),
        }
    }

    pub(crate) const fn within(&self) -> Duration {
        self.within
    }

    /// Reads a page.
    pub(crate) async fn get(
        &self,
        path: &str,
        header: (&str, &str),
    ) -> Result<HttpReply, FetchError> {
        self.get_within(path, header, self.within).await
    }

    /// Reads a page that may be long in coming.
    pub(crate) async fn get_within(
        &self,
        path: &str,
        header: (&str, &str),
        within: Duration,
    ) -> Result<HttpReply, FetchError> {
        self.send(Method::GET, path, header, "", within).await
    }

    /// Sends a request with a body, which is JSON unless it is empty.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        header: (&str, &str),
        body: &str,
        within: Duration,
    ) -> Result<HttpReply, FetchError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(header.0, header.1)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(|error| self.broken(error))?;
        match timeout(within, self.exchange(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(FetchError::TimedOut { authority: self.authority.clone(), within }),
        }
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<HttpReply, FetchError> {
        let has_port = self.authority.rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.chars().all(|digit| digit.is_ascii_digit())
        });
        let address =
            if has_port { self.authority.clone() } else { format!("{}:80", self.authority) };
        let stream = TcpStream::connect(&address).await.map_err(|error| self.broken(error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(error))?;
        let exchange = async {
            let response =
                sender.send_request(request).await.map_err(|error| self.broken(error))?;
            let status = response.status().as_u16();
            let etag = response.headers().get("etag").and_then(|etag| etag.to_str().ok());
            let etag = etag.map(str::to_owned);
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| self.broken(error))?.to_bytes();
            Ok(HttpReply { status, body: String::from_utf8_lossy(&body).into_owned(), etag })
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

    fn broken(&self, cause: impl Into<BrokenCause>) -> FetchError {
        FetchError::Broken { authority: self.authority.clone(), cause: cause.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_taken() {
        let within = Duration::from_secs(1);
        for good in ["http://169.254.169.254", "http://127.0.0.1:80/", "http://[::1]:8080"] {
            assert!(Service::new(good, within).is_ok(), "{good}");
        }
        for bad in ["", "169.254.169.254", "https://a", "http://a/latest", "http://a/?q", "file:/x"]
        {
            assert!(Service::new(bad, within).is_err(), "{bad}");
        }
    }
}
