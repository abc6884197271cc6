//! Listening, by default on loopback, and what a listener does when it cannot accept.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::log_limit::LogLimiter;
use crate::security::Security;

/// Most connections that wait to be accepted: as many as Linux allows by default. A caller that
/// finds the queue full tries again after a second.
const WAITING_MAX: u32 = 4096;

/// Time until a listener tries again that could not accept a connection: the process is out of
/// descriptors, most likely, and the connections that are open go on meanwhile. Chosen, not
/// measured.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The same when another connection is being closed for its descriptor: 200 silent connections
/// leave in a second. Chosen, not measured.
const CLOSING_PAUSE: Duration = Duration::from_millis(5);

/// Lines about connections that the listeners of this process could not accept.
static NOT_ACCEPTED: LogLimiter = LogLimiter::per_minute();

/// Returns whether an address, with or without a port, reaches its own machine alone.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let host = match address.parse::<IpAddr>() {
        Ok(_) => address,
        Err(_) => address.rsplit_once(':').map_or(address, |(host, _)| host),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A reason why a server cannot listen.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The address is reachable from other machines and callers would not be authenticated.
    #[error(
        "{address} can be reached from other machines and {missing}: give --secret-file, \
         --tls-cert, --tls-key and --tls-ca (made by sanderling token secret and sanderling tls \
         new), listen on 127.0.0.1, or pass --allow-unauthenticated on a network that you trust"
    )]
    NotLoopback {
        /// The requested address.
        address: String,
        /// What is missing.
        missing: &'static str,
    },
    /// Another process listens there.
    #[error("{address} is in use: stop the process that listens there, or choose another port")]
    InUse {
        /// The requested address.
        address: String,
    },
    /// The operating system refused.
    #[error("cannot listen on {address}: {cause}")]
    Io {
        /// The requested address.
        address: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// Listens on `address` (`host:port`; port 0 for any).
///
/// # Errors
/// [`ListenError::NotLoopback`] without a secret and a certificate, unless that is allowed: give
/// both, or an address of loopback; [`ListenError::InUse`]: choose another port.
pub async fn listen(address: &str, security: &Security) -> Result<TcpListener, ListenError> {
    let io = |cause| ListenError::Io { address: address.to_owned(), cause };
    let mut resolved = lookup_host(address).await.map_err(io)?;
    let Some(target) = resolved.next() else {
        return Err(io(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    };
    if !target.ip().is_loopback()
        && let Some(missing) = security.missing()
    {
        return Err(ListenError::NotLoopback { address: address.to_owned(), missing });
    }
    bind(target).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address: address.to_owned() },
        _ => io(cause),
    })
}

/// Listens on `address` as [`listen`], or on a free port of the same host if another process has
/// that one: for a default that several servers of one machine share.
///
/// # Errors
/// As [`listen`], but for [`ListenError::InUse`].
pub async fn listen_there_or_free(
    address: SocketAddr,
    security: &Security,
) -> Result<TcpListener, ListenError> {
    match listen(&address.to_string(), security).await {
        Err(ListenError::InUse { .. }) => {
            let free = SocketAddr::new(address.ip(), 0);
            let listener = listen(&free.to_string(), security).await?;
            let port = listener.local_addr().map_or(0, |it| it.port());
            tracing::info!(%address, port, "another process has the port: a free one is used");
            Ok(listener)
        }
        listening => listening,
    }
}

/// Logs that a listener could not accept a connection, five times a minute at most for all
/// listeners of the process. `listener` names what it serves.
pub fn log_not_accepted(listener: &str, error: &io::Error) {
    if let Some(passed_over) = NOT_ACCEPTED.admit(Instant::now()) {
        tracing::warn!(listener, %error, passed_over, "a connection could not be accepted");
    }
}

/// Accepts connections until `shutdown` is cancelled, each once `enter` has given it a place, and
/// runs what `begin` returns for it. Returns the connections that are still open then.
///
/// When there are no descriptors, `close_oldest` closes a connection that has shown nothing yet,
/// and returns whether there was one. `name` is what the listener serves, for the log.
pub(crate) async fn accept_until<P, Entering, Connection>(
    shutdown: &CancellationToken,
    listener: &TcpListener,
    name: &str,
    enter: impl Fn(IpAddr) -> Entering,
    close_oldest: impl Fn() -> bool,
    mut begin: impl FnMut(TcpStream, P) -> Connection,
) -> JoinSet<()>
where
    Entering: Future<Output = P>,
    Connection: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let (stream, address) = listener.accept().await?;
            Ok::<_, io::Error>((stream, enter(address.ip()).await))
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return connections,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, place)) => {
                connections.spawn(begin(stream, place));
            }
            Err(error) => {
                log_not_accepted(name, &error);
                let is_out = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
                let is_closing = is_out && close_oldest();
                sleep(if is_closing { CLOSING_PAUSE } else { ACCEPT_PAUSE }).await;
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that starts again finds its port although connections of the last one linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_in_addresses() {
        for address in ["127.0.0.1:7611", "[::1]:7611", "localhost:1", "127.9.0.1:1", "::1"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["10.0.0.2:7611", "node.local:7611", "[fe80::1]:1", ""] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
