//! The streams that carry frames: TCP between machines, Unix sockets within one.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::RecvFlags;
use rustix::net::sockopt::set_tcp_user_timeout;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::tls::{TlsRead, TlsStream, TlsWrite};

/// Idle time after which the kernel probes whether the peer's machine is still there. Calls have
/// deadlines of their own, so this only frees connections on which none waits: a vanished peer is
/// gone after 15 s and three probes, 30 s, as long as a write waits at most (`WRITE_TIMEOUT` of
/// `connection`).
const PROBE_AFTER: Duration = Duration::from_secs(15);

/// Time between two such probes. Lost packets are sent again after 1 s at most, as a rule, so an
/// answer comes within it.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Unanswered probes after which the connection breaks. One or two may be lost on a bad link.
const PROBES_MAX: u32 = 3;

/// A connected socket. Everything above it is the same for both kinds.
#[derive(Debug)]
pub enum Stream {
    /// To any machine.
    Tcp(TcpStream),
    /// Within this machine.
    Unix(UnixStream),
    /// To any machine, encrypted.
    Tls(TlsStream),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

impl Stream {
    /// Sets the options that every connection has, and splits it.
    pub(crate) fn prepared(self) -> (ReadHalf, WriteHalf) {
        match self {
            Self::Tls(TlsStream { read, write }) => (ReadHalf::Tls(read), WriteHalf::Tls(write)),
            Self::Tcp(stream) => {
                prepare(&stream);
                let (read, write) = stream.into_split();
                (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
            }
            Self::Unix(stream) => {
                let (read, write) = stream.into_split();
                (ReadHalf::Unix(read), WriteHalf::Unix(write))
            }
        }
    }
}

/// Sets what every TCP connection has.
///
/// Machines taken back by the cloud close no connection: without probes their connections would
/// stay open for ever and in the end use up all that a server accepts.
pub(crate) fn prepare(stream: &TcpStream) {
    // Frames are gathered before they are written: waiting for more would only add latency.
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES_MAX);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "a connection goes without probes");
    }
}

/// Breaks a connection whose peer has acknowledged nothing of what was sent to it for so long. By
/// itself the kernel goes on for about 15 minutes (`net.ipv4.tcp_retries2`), and takes what little
/// is written meanwhile. An idle connection then breaks after that time, too: the kernel ends its
/// probes by it.
pub(crate) fn break_unacknowledged(stream: &TcpStream, within: Duration) {
    // 0 is the default of the kernel, which takes 31 bits.
    let most = i32::MAX.unsigned_abs();
    let millis = u32::try_from(within.as_millis()).map_or(most, |millis| millis.clamp(1, most));
    if let Err(error) = set_tcp_user_timeout(stream, millis) {
        tracing::debug!(%error, "a connection goes without a bound on acknowledgements");
    }
}

/// The half of a stream that is read.
#[derive(Debug)]
pub(crate) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Tls(TlsRead),
}

impl ReadHalf {
    /// Reads what is there now, whatever the runtime's state of the socket: 0 bytes at the end,
    /// `None` when there is nothing. The runtime is woken for these bytes, too, and then finds
    /// none.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(descriptor) = self.descriptor() else { return Ok(None) };
        match rustix::net::recv(descriptor, buffer, RecvFlags::DONTWAIT) {
            Ok((_, read)) => Ok(Some(read)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether [`Self::read_now`] can ever find anything. What is encrypted has to be read
    /// by the task that waits for it.
    pub(crate) const fn can_look(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(half) => Some(half.as_ref().as_fd()),
            Self::Unix(half) => Some(half.as_ref().as_fd()),
            Self::Tls(_) => None,
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_read(context, buffer),
            Self::Unix(half) => Pin::new(half).poll_read(context, buffer),
            Self::Tls(half) => half.poll_read(context, buffer),
        }
    }
}

/// The half of a stream that is written. Dropping it shuts the stream down in this direction.
#[derive(Debug)]
pub(crate) enum WriteHalf {
    Tcp(tcp::OwnedWriteHalf),
    Unix(unix::OwnedWriteHalf),
    Tls(TlsWrite),
}

impl WriteHalf {
    /// Writes what the kernel takes at once; 0 when it takes nothing now.
    pub(crate) fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match self {
            Self::Tcp(half) => half.try_write_vectored(slices),
            Self::Unix(half) => half.try_write_vectored(slices),
            Self::Tls(half) => return half.write_now(slices),
        };
        match written {
            Ok(0) => Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            written => written,
        }
    }

    /// Waits until the kernel takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.writable().await,
            Self::Unix(half) => half.writable().await,
            Self::Tls(half) => half.writable().await,
        }
    }

    /// Gives the kernel what was taken by [`Self::write_now`] and not given to it yet; returns
    /// whether it has all of it.
    pub(crate) fn flush_now(&self) -> io::Result<bool> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(true),
            Self::Tls(half) => half.flush_now(),
        }
    }
}
