//! What listens at an address that is no namenode's.

use std::time::Duration;

use sanderling_protocol::Refusal;
use sanderling_transport::{CallError, WrongPeer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// How long the peer may take to show which protocol it uses. A server of HTTP or TLS answers at
/// once. The user waits this much longer for an error; if the answer is lost, the error is the one
/// that there was before. Chosen, not measured.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How many bytes show which protocol it is: `HTTP/` has five, the beginning of a TLS record two.
const PROBE_BYTES: usize = 5;

/// Returns the error of a first connection to a namenode: the protocol that the peer uses, if it is
/// another one, else the error as it was. It takes no longer than the deadline.
pub async fn diagnosed(address: &str, error: CallError, deadline: Instant) -> CallError {
    let is_strange = matches!(
        &error,
        CallError::Closed { .. }
            | CallError::BadReply { .. }
            | CallError::Refused(Refusal::BadFrame { .. } | Refusal::UnknownVersion { .. })
    );
    if !is_strange {
        return error;
    }
    let deadline = deadline.min(Instant::now() + PROBE_TIMEOUT);
    let Ok(Some(first)) = timeout_at(deadline, first_bytes(address)).await else { return error };
    let found = match first {
        [b'H', b'T', b'T', b'P', b'/'] => WrongPeer::Http,
        // An alert of TLS.
        [0x15, 0x03, ..] => WrongPeer::Tls,
        _ => return error,
    };
    CallError::WrongAddress { address: address.to_owned(), found }
}

/// Sends a request of HTTP and returns how the answer begins.
async fn first_bytes(address: &str) -> Option<[u8; PROBE_BYTES]> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = b"GET /healthz HTTP/1.1\r\nHost: namenode\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut first = [0; PROBE_BYTES];
    stream.read_exact(&mut first).await.ok()?;
    Some(first)
}
