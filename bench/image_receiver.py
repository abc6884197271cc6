"""Serves the images of a dump to `criu restore --stream`, from memory and without anything else.

CRIU connects to a socket in its directory. For each image it sends the length of a message as 32
bits, little-endian, and the message: a protobuf with the image's name in field 1. The answer has a
message in the same way, whose field 1 is whether there is such an image. If there is, CRIU sends
the end of a pipe, into which the image goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from goal import Unavailable

SOCKET = "streamer-serve.sock"
EXISTS = b"\x02\x00\x00\x00\x08\x01"
ABSENT = b"\x02\x00\x00\x00\x08\x00"
# As much as a runner's pipes hold, and what one call moves at most.
PIPE_BYTES = 1 << 20


@contextlib.contextmanager
def receiver(images: Path) -> Iterator[None]:
    """Serves the images of a directory to one CRIU while a `with` block runs.

    The directory is on tmpfs: its files are memory, whose pages go into the pipes without a copy.
    Raises `Unavailable` at the end if a request could not be served.
    """
    failures: list[str] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(images / SOCKET))
        listener.listen(1)
        thread = threading.Thread(target=serve, args=(listener, images, failures), daemon=True)
        thread.start()
        try:
            yield
        finally:
            # It still waits if CRIU has failed before it connected.
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as late:
                late.connect(str(images / SOCKET))
            thread.join()
            (images / SOCKET).unlink()
    if failures:
        raise Unavailable(f"the receiver of CRIU's images failed: {failures[0]}")


def serve(listener: socket.socket, images: Path, failures: list[str]) -> None:
    """Answers the requests of one connection, and notes what went wrong."""
    connection, _ = listener.accept()
    writers: list[threading.Thread] = []
    with connection:
        try:
            while (name := requested(connection)) is not None:
                file = images / name
                if not file.is_file():
                    connection.sendall(ABSENT)
                    continue
                connection.sendall(EXISTS)
                _, [pipe], _, _ = socket.recv_fds(connection, 1, 1)
                # One thread for each: CRIU reads many images at once.
                writers.append(threading.Thread(target=write, args=(file, pipe, failures)))
                writers[-1].start()
        except (OSError, ValueError) as error:
            failures.append(str(error))
    for writer in writers:
        writer.join()


def requested(connection: socket.socket) -> str | None:
    """Returns the name of the image that CRIU requests next; `None` at the end."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if not head:
        return None
    length = int.from_bytes(head, "little")
    message = connection.recv(length, socket.MSG_WAITALL)
    # No image has a name of 128 bytes, so that its length is one byte.
    if len(message) != length or message[:2] != bytes([0x0A, length - 2]):
        raise ValueError(f"a request that names no image: {message!r}")
    return message[2:].decode()


def write(file: Path, pipe: int, failures: list[str]) -> None:
    """Writes an image into a pipe. CRIU that has failed, or has read enough, breaks it."""
    try:
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        with open(file, "rb") as image:
            while os.splice(image.fileno(), pipe, PIPE_BYTES):
                pass
    except BrokenPipeError:
        pass
    except OSError as error:
        failures.append(f"{file.name}: {error}")
    finally:
        os.close(pipe)
