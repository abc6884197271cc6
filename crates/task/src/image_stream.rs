//! CRIU's streaming protocol: images come and go through pipes, without a copy on a disk.
//!
//! CRIU connects to a socket in its directory of images. For each image it sends its name, as a
//! little-endian length of 32 bits and a protobuf message with one string. At a restore the other
//! side answers whether there is such an image. Then CRIU sends an end of a pipe.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::pipe::fcntl_setpipe_size;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{StreamedImage, join_images};
use thiserror::Error;

use crate::dump_gate::DumpGate;
use crate::image_queue::{ImagePiece, ImageQueue, ImageSender};
use crate::pack_writer::PackWriter;

/// The socket of a dump, in the directory of images.
pub(crate) const CAPTURE_SOCKET: &str = "streamer-capture.sock";

/// The socket of a restore.
pub(crate) const SERVE_SOCKET: &str = "streamer-serve.sock";

/// The longest request, in bytes: a name of an image has some 20 bytes, so a longer one is none.
/// Chosen, not measured.
const REQUEST_BYTES_MAX: u32 = 4096;

/// Bytes that a pipe is made to hold, so that CRIU and its reader rarely wait for each other; the
/// kernel permits it to every process by default (`/proc/sys/fs/pipe-max-size`). Chosen, not
/// measured.
const PIPE_BYTES: usize = 1 << 20;

/// Images that one dump may have: some for each process, and some for all. It bounds the memory of
/// their names; no machine has as many processes. Chosen, not measured.
const IMAGES_MAX: usize = 1 << 20;

/// The answer that an image exists, after its length of 4 bytes: field 1 (a number, protobuf's
/// encoding), true.
const EXISTS: &[u8] = &[2, 0, 0, 0, 0x08, 1];

/// The answer that an image does not exist: the same with false.
const ABSENT: &[u8] = &[2, 0, 0, 0, 0x08, 0];

/// The first byte of a message whose field 1 is a string (protobuf's encoding: number 1, wire type
/// 2).
const STRING_1: u8 = 0x0a;

/// Why CRIU's requests for images cannot be served.
#[derive(Debug, Error)]
pub(crate) enum ImageRequestError {
    /// An image has the name of an earlier one, or there are too many.
    #[error("the image {name} comes again")]
    ComesAgain {
        /// Its name.
        name: String,
    },
    /// A request is longer than any with a name.
    #[error("a request of {bytes} bytes")]
    TooLong {
        /// Its bytes.
        bytes: u32,
    },
    /// A request is not of the protocol.
    #[error("a request names no image")]
    NamesNone,
    /// No descriptor came with a request.
    #[error("a request came without its pipe")]
    WithoutPipe,
    /// The socket has failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Receives all images of a dump, until CRIU closes the socket, and stores them. The gate is opened
/// when the last one was read; what is in the queue then is stored after that.
///
/// # Errors
/// The connection or a pipe failed, or the dump was given up: what was received is of no use.
pub(crate) fn receive(
    socket: UnixStream,
    gate: &Arc<DumpGate>,
    writer: &mut PackWriter,
    queue: ImageQueue,
) -> Result<(), Failure> {
    let (sender, gate) = (queue.sender(), Arc::clone(gate));
    let accepting = std::thread::spawn(move || accept_images(socket, &gate, &sender));
    let mut images: BTreeMap<String, StreamedImage> = BTreeMap::new();
    while let Some((name, piece)) = queue.take().map_err(broken)? {
        let image = images.entry(name).or_default();
        match piece {
            ImagePiece::Chunk(buffer) => {
                image.chunks.push(writer.store(&buffer)?);
                queue.give_back(buffer);
            }
            ImagePiece::Tail(bytes) => image.tail = bytes,
        }
    }
    drop(queue);
    let names = accepting.join().map_err(|_| broken("a thread has failed"))?;
    let names = names.map_err(|error| broken(&error).with_source(error))?;
    if names.len() != images.len() {
        return Err(broken(format_args!("{} of {} images came", images.len(), names.len())));
    }
    let joined = join_images(&images);
    for (position, name) in joined.known {
        writer.note(position, name);
    }
    for (position, bytes) in joined.rest {
        if let Some(name) = writer.store(&bytes)? {
            writer.note(position, name);
        }
    }
    writer.set_stream_bytes(joined.bytes);
    Ok(())
}

/// Serves images of a restore until CRIU closes the socket. `write` writes an image into a pipe;
/// it runs on a thread of its own.
///
/// # Errors
/// The connection failed.
pub(crate) fn serve(
    mut socket: UnixStream,
    exists: impl Fn(&str) -> bool,
    write: impl Fn(&str, File) + Send + Clone + 'static,
) -> Result<(), ImageRequestError> {
    while let Some(name) = read_request(&mut socket)? {
        if !exists(&name) {
            socket.write_all(ABSENT)?;
            continue;
        }
        socket.write_all(EXISTS)?;
        let pipe = File::from(receive_pipe(&socket)?);
        // One that stays shorter costs time alone.
        let _ = fcntl_setpipe_size(&pipe, PIPE_BYTES);
        let write = write.clone();
        std::thread::spawn(move || write(&name, pipe));
    }
    Ok(())
}

/// Accepts the pipes of images and reads each on a thread of its own; returns the images' names.
fn accept_images(
    mut socket: UnixStream,
    gate: &DumpGate,
    sender: &ImageSender,
) -> Result<Vec<String>, ImageRequestError> {
    let mut names = Vec::new();
    let mut readers = Vec::new();
    let mut is_frozen = true;
    loop {
        if is_frozen {
            let mut waited =
                [PollFd::new(&socket, PollFlags::IN), PollFd::new(&gate.written, PollFlags::IN)];
            retry_on_intr(|| poll(&mut waited, None)).map_err(io::Error::from)?;
            // All requests were sent before, so that none is left now.
            if waited[0].revents().is_empty() {
                all_read(&mut readers);
                gate.open();
                sender.task_goes_on();
                is_frozen = false;
                continue;
            }
        }
        let Some(name) = read_request(&mut socket)? else { break };
        let pipe = File::from(receive_pipe(&socket)?);
        // One that stays shorter costs time alone.
        let _ = fcntl_setpipe_size(&pipe, PIPE_BYTES);
        if names.len() == IMAGES_MAX || names.contains(&name) {
            return Err(ImageRequestError::ComesAgain { name });
        }
        names.push(name.clone());
        let sender = sender.clone();
        readers.push(std::thread::spawn(move || read_pieces(pipe, &name, &sender)));
    }
    all_read(&mut readers);
    gate.open();
    sender.task_goes_on();
    Ok(names)
}

fn all_read(readers: &mut Vec<JoinHandle<()>>) {
    // One that has failed has sent why.
    readers.drain(..).for_each(|reader| drop(reader.join()));
}

fn broken(why: impl std::fmt::Display) -> Failure {
    let cause = format!("CRIU's images could not be received: {why}");
    Failure::new(Exit::Failure, FailureKind::CriuDump, cause)
}

/// Reads an image chunk by chunk. The last piece is shorter than a chunk, and may be empty.
fn read_pieces(mut pipe: File, name: &str, sender: &ImageSender) {
    loop {
        let mut buffer = sender.buffer();
        let bytes = match fill(&mut pipe, &mut buffer) {
            Ok(bytes) => bytes,
            Err(error) => return sender.fail(format!("{name}: {error}")),
        };
        let is_last = bytes < buffer.len();
        let piece = if is_last {
            let tail = buffer[..bytes].to_vec();
            sender.give_back(buffer);
            ImagePiece::Tail(tail)
        } else {
            ImagePiece::Chunk(buffer)
        };
        // If it is not taken, the dump was given up: the pipe breaks at CRIU's side.
        if !sender.send(name, piece) || is_last {
            return;
        }
    }
}

/// Reads until a buffer is full or nothing follows; returns the number of bytes. Each call takes
/// all that the pipe has.
fn fill(pipe: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut bytes = 0;
    while bytes < buffer.len() {
        match pipe.read(&mut buffer[bytes..]) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Reads the name of the next image; `None` at the end.
fn read_request(socket: &mut UnixStream) -> Result<Option<String>, ImageRequestError> {
    let mut length = [0; 4];
    match socket.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > REQUEST_BYTES_MAX {
        return Err(ImageRequestError::TooLong { bytes: length });
    }
    let mut message = vec![0; length as usize];
    socket.read_exact(&mut message)?;
    name_of(&message).map(Some).ok_or(ImageRequestError::NamesNone)
}

/// Reads a message with a string in field 1.
fn name_of(message: &[u8]) -> Option<String> {
    let mut rest = message.strip_prefix(&[STRING_1])?;
    let mut length = 0_usize;
    for shift in [0, 7] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (rest.len() == length).then(|| String::from_utf8(rest.to_vec()).ok())?;
        }
    }
    None
}

fn receive_pipe(socket: &UnixStream) -> Result<OwnedFd, ImageRequestError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC).map_err(io::Error::from)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.flatten().next().ok_or(ImageRequestError::WithoutPipe)
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;
    use sanderling_core::checkpoint::CHUNK_BYTES;

    use super::*;

    #[test]
    fn image_that_comes_in_parts_becomes_whole_chunks_and_a_rest() {
        let (reader, writer) = pipe().unwrap();
        let mut writer = File::from(writer);
        let queue = ImageQueue::of_task(0, Some(0));
        let sender = queue.sender();
        let reading = std::thread::spawn(move || read_pieces(File::from(reader), "pages", &sender));
        let bytes: Vec<u8> = (0..CHUNK_BYTES + 5).map(|at| at as u8).collect();
        bytes.chunks(1000).for_each(|part| writer.write_all(part).unwrap());
        drop(writer);
        reading.join().unwrap();
        let (chunk, tail) = bytes.split_at(CHUNK_BYTES);
        let pieces = [ImagePiece::Chunk(chunk.to_vec()), ImagePiece::Tail(tail.to_vec())];
        for piece in pieces {
            assert_eq!(queue.take().unwrap(), Some(("pages".to_owned(), piece)));
        }
        assert_eq!(queue.take().unwrap(), None);
    }

    #[test]
    fn requests_are_read_and_others_are_refused() {
        let mut message = vec![STRING_1, 13];
        message.extend(b"inventory.img");
        assert_eq!(name_of(&message).as_deref(), Some("inventory.img"));
        let long = [&[STRING_1, 0x80, 1][..], &[b'a'; 128]].concat();
        assert_eq!(name_of(&long).map(|name| name.len()), Some(128));
        for bad in [&[][..], &[STRING_1], &[STRING_1, 5, b'a'], &[0x08, 1], &[STRING_1, 0x80]] {
            assert_eq!(name_of(bad), None, "{bad:?}");
        }
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(&[0xff; 4]).unwrap();
        let refused = read_request(&mut other);
        assert!(matches!(refused, Err(ImageRequestError::TooLong { bytes: u32::MAX })));
        drop(one);
        assert!(read_request(&mut other).unwrap().is_none());
    }
}
