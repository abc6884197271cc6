//! Descriptors that a process gets from the one that starts it.
#![allow(unsafe_code, reason = "rustix has no close_range")]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Of the system call: they are closed at the next exec, not now.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// The first descriptor after those of input and output.
const FIRST: libc::c_uint = 3;

/// Keeps all descriptors beside input and output from the programs that this process starts: CRIU
/// dumps none that comes from outside of the task.
///
/// # Errors
/// The system's error: kernels before Linux 5.11 cannot do this.
pub(crate) fn keep_from_children() -> io::Result<()> {
    // SAFETY: the call takes three numbers, and no descriptor is closed under its owner.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a descriptor, with one byte, to the process at the other end of a socket.
///
/// # Errors
/// The kernel's.
pub(crate) fn send_descriptor(socket: impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let bytes = [IoSlice::new(&[0])];
    retry_on_intr(|| sendmsg(&socket, &bytes, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a descriptor that was sent by [`send_descriptor`].
///
/// # Errors
/// The kernel's; nothing was sent, or something else.
pub(crate) fn receive_descriptor(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(&socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let received = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    received.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, Write, pipe};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptor_is_received_before_what_follows_it() {
        let (mut one, mut other) = UnixStream::pair().expect("a pair");
        let (reader, mut writer) = pipe().expect("a pipe");
        send_descriptor(&one, reader.as_fd()).expect("sent");
        one.write_all(b"request").expect("written");
        drop((one, reader));
        let received = receive_descriptor(&other).expect("received");
        writer.write_all(b"bytes").expect("written");
        drop(writer);
        let mut text = String::new();
        PipeReader::from(received).read_to_string(&mut text).expect("read");
        assert_eq!(text, "bytes");
        text.clear();
        other.read_to_string(&mut text).expect("read");
        assert_eq!(text, "request");
        receive_descriptor(&other).expect_err("nothing was sent");
    }
}
