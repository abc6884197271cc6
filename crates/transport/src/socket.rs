//! Options of every socket, on both ends.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Silence after which the kernel asks whether the peer's machine is still there.
const PROBE_AFTER: Duration = Duration::from_secs(15);

/// Time between two such questions.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Unanswered questions after which the connection breaks.
const PROBES_MAX: u32 = 3;

/// Sets what every connection has.
///
/// Machines taken back by the cloud say no goodbye: without probes their connections would stay
/// open for ever and in the end use up all that a server accepts.
pub(crate) fn prepare(stream: &TcpStream) {
    // Frames are gathered before they are written: waiting for more would only add latency.
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY)
        .with_retries(PROBES_MAX);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "a connection goes without probes");
    }
}
