//! A socket with TLS on it, in two halves.
//!
//! Both halves share the state of the connection; the holder of its lock reads or writes without
//! waiting, and waits for the socket without it.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use rustls::Connection;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::stream::Stream;

/// Bytes that are encrypted at once: several records for one system call. A record has at most
/// 16 KiB (RFC 8446, section 5.1), so sixteen of them. Chosen, not measured.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes read at once: then others on the thread get their turn. As many as are encrypted at once.
const READ_BYTES_MAX: usize = 256 << 10;

struct TlsInner {
    tcp: TcpStream,
    tls: Mutex<Connection>,
}

/// The half that is read.
pub(crate) struct TlsRead(Arc<TlsInner>);

/// The half that is written. Dropping it sends `close_notify`.
pub(crate) struct TlsWrite(Arc<TlsInner>);

/// A socket whose two ends have shaken hands.
#[derive(Debug)]
pub struct TlsStream {
    pub(crate) read: TlsRead,
    pub(crate) write: TlsWrite,
}

/// Puts a socket and the state of its TLS together, after the handshake.
pub(super) fn joined(tcp: TcpStream, mut tls: Connection) -> Stream {
    tls.set_buffer_limit(Some(BUFFER_BYTES));
    let shared = Arc::new(TlsInner { tcp, tls: Mutex::new(tls) });
    Stream::Tls(TlsStream { read: TlsRead(Arc::clone(&shared)), write: TlsWrite(shared) })
}

impl fmt::Debug for TlsRead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TlsRead({:?})", self.0.tcp)
    }
}

impl fmt::Debug for TlsWrite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TlsWrite({:?})", self.0.tcp)
    }
}

/// The socket in rustls's interface: what is not there now is `WouldBlock`.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsInner {
    /// Sends what is encrypted, as far as the kernel takes it; returns whether that was all.
    fn flush(&self, tls: &mut Connection) -> io::Result<bool> {
        while tls.wants_write() {
            match tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes what the socket has; returns whether it had anything, be it the end.
    fn take(&self, tls: &mut Connection) -> io::Result<bool> {
        match tls.read_tls(&mut Socket(&self.tcp)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        }
        let processed = tls.process_new_packets();
        // An alert, or an answer to new keys. What does not fit now goes with the next bytes.
        let flushed = self.flush(tls);
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        flushed.map(|_| true)
    }
}

impl TlsRead {
    /// Reads, or sees to it that the task is woken when there is something; nothing is the end.
    pub(crate) fn poll_read(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let TlsInner { tcp, tls } = &*self.0;
        let mut read = 0;
        loop {
            {
                let mut tls = tls.lock();
                loop {
                    match tls.reader().read(buffer.initialize_unfilled()) {
                        Ok(0) => return Poll::Ready(Ok(())),
                        Ok(bytes) => {
                            buffer.advance(bytes);
                            read += bytes;
                            if buffer.remaining() == 0 || read >= READ_BYTES_MAX {
                                return Poll::Ready(Ok(()));
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            if !self.0.take(&mut tls)? {
                                break;
                            }
                        }
                        // Without `close_notify`: frames contain their own length.
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            return Poll::Ready(Ok(()));
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
            if read > 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(tcp.poll_read_ready(context))?;
        }
    }
}

impl TlsWrite {
    /// Encrypts what there is room for; 0 when what was encrypted before has not left.
    pub(crate) fn write_now(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut tls = self.0.tls.lock();
        if !self.0.flush(&mut tls)? {
            return Ok(0);
        }
        let written = tls.writer().write_vectored(slices)?;
        self.0.flush(&mut tls)?;
        Ok(written)
    }

    /// Sends what was encrypted; returns whether all of it has left.
    pub(crate) fn flush_now(&self) -> io::Result<bool> {
        self.0.flush(&mut self.0.tls.lock())
    }

    /// Waits until the kernel takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.0.tcp.writable().await
    }
}

impl Drop for TlsWrite {
    fn drop(&mut self) {
        let mut tls = self.0.tls.lock();
        tls.send_close_notify();
        // The peer may be gone, or take nothing: then it does without.
        let _ = self.0.flush(&mut tls);
        let _ = shutdown(&self.0.tcp, Shutdown::Write);
    }
}
