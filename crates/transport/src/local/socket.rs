//! Unix sockets that keep the boundaries of packets, and pass descriptors.
//!
//! Calls block, or return at once; a call that must not wait long calls [`PacketSocket::wait`]
//! first, or waits for [`PacketSocket::ready`].
#![allow(
    unsafe_code,
    reason = "the peer's user, and waiting for a descriptor that tokio does not support"
)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket for packets.
#[derive(Debug)]
pub struct PacketSocket {
    file: OwnedFd,
}

impl PacketSocket {
    fn new() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let file = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        Ok(Self { file })
    }

    /// Creates a socket at a path where no file exists yet, and listens there without blocking.
    /// `backlog` connections can wait to be accepted.
    ///
    /// # Errors
    /// The kernel's error: the path exists, cannot be made, or is longer than 107 bytes. Choose
    /// another path.
    pub fn listen(path: &Path, backlog: i32) -> io::Result<Self> {
        let socket = Self::new()?;
        rustix::net::bind(&socket.file, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket.file, backlog)?;
        rustix::io::ioctl_fionbio(&socket.file, true)?;
        Ok(socket)
    }

    /// Takes the next connection of a listening socket.
    ///
    /// # Errors
    /// `WouldBlock` when there is none yet: wait until [`Self::ready`]. Else the kernel's error:
    /// try again later.
    pub fn accept(&self) -> io::Result<Self> {
        let file = rustix::net::accept_with(&self.file, SocketFlags::CLOEXEC)?;
        Ok(Self { file })
    }

    /// Connects to a listening socket's path. It does not wait for room in the listener's queue.
    ///
    /// # Errors
    /// `WouldBlock` when too many wait to be accepted, or else the kernel's error: use TCP.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = Self::new()?;
        // A connection to a Unix socket waits for nothing but room in the listener's queue.
        rustix::io::ioctl_fionbio(&socket.file, true)?;
        rustix::net::connect(&socket.file, &SocketAddrUnix::new(path)?)?;
        rustix::io::ioctl_fionbio(&socket.file, false)?;
        Ok(socket)
    }

    /// Returns the user that the peer's process ran as when it connected.
    ///
    /// # Errors
    /// The kernel's error: drop the connection, whose user is unknown.
    pub fn peer_uid(&self) -> io::Result<u32> {
        let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut bytes = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("twelve bytes");
        // SAFETY: the kernel writes at most `bytes` bytes into `peer`, which has as many and takes
        // any value, and the length into `bytes`.
        let result = unsafe {
            libc::getsockopt(
                self.file.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut bytes,
            )
        };
        if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
    }

    /// Sends one packet, with a descriptor if there is one to pass. Blocks while the peer has not
    /// read the packets before.
    ///
    /// # Errors
    /// The kernel's error, `BrokenPipe` when the peer is gone: close the connection.
    pub fn send(&self, parts: &[IoSlice<'_>], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.send_with(parts, file, SendFlags::NOSIGNAL)
    }

    /// Sends as [`Self::send`] does, but fails with `WouldBlock` where that would block.
    ///
    /// # Errors
    /// `WouldBlock` while the peer has not read the packets before: send again later. Else as
    /// [`Self::send`].
    pub fn send_now(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.send_with(parts, None, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        parts: &[IoSlice<'_>],
        file: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.as_slice();
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        loop {
            match rustix::net::sendmsg(&self.file, parts, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Receives one packet into `buffer`; waits for it without end. Returns the number of its
    /// bytes, 0 when the peer is gone. What does not fit into `buffer` is dropped.
    ///
    /// # Errors
    /// The kernel's error: close the connection.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.file, &mut *buffer, RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => {}
                received => return Ok(received?.0),
            }
        }
    }

    /// Receives a packet that is there, with the descriptor that it may bring; `None` when there is
    /// none. A packet of 0 bytes means that the peer is gone.
    ///
    /// # Errors
    /// The kernel's error: close the connection.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(&self.file, &mut parts, &mut control, flags) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(received) => {
                let file = control.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut files) => files.next(),
                    _ => None,
                });
                Ok(Some((received.bytes, file)))
            }
        }
    }

    /// Waits at most `within` until a packet is there or the peer is gone; returns whether one of
    /// the two is so.
    ///
    /// # Errors
    /// The kernel's error: close the connection.
    pub fn wait(&self, within: Duration) -> io::Result<bool> {
        let mut files = [PollFd::new(&self.file, PollFlags::IN)];
        let within = Timespec::try_from(within).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut files, Some(&within)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    /// Returns whether the peer is gone; what it sent before may still be there.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        let mut files = [PollFd::new(&self.file, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut files, Some(&now)), Ok(1..))
    }

    /// Waits as [`Self::wait`] does, but without blocking the thread and for as long as it takes;
    /// also until a connection is there to be accepted. One caller at a time.
    ///
    /// # Errors
    /// The kernel's error, also when two wait: close the connection, or wait for the next one
    /// later.
    pub async fn ready(self: &Arc<Self>) -> io::Result<()> {
        // SAFETY: the registration holds the socket, whose descriptor is open and the same until
        // the last holder is gone.
        let registered =
            unsafe { AsyncFd::register_with_interest(Arc::clone(self), Interest::READABLE) };
        registered?.readable().await.map(drop)
    }

    /// Ends the connection for both sides: every thread that waits on it wakes.
    pub fn shut_down(&self) {
        // It may have ended by itself.
        let _ = rustix::net::shutdown(&self.file, Shutdown::Both);
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
