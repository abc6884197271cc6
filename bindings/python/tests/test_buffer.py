"""What `get` returns: bytes that lie where they were read."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy
import pyarrow
import pytest
from cluster_fixtures import until

import sanderling

SIZE = 3 * (1 << 20) + 12345
"""More than three blocks."""

DATA = bytes(index * 31 % 251 for index in range(1009)) * (SIZE // 1009 + 1)


@pytest.fixture(params=[0, 5, 70_000, SIZE])
def size(request) -> int:
    return request.param


@pytest.fixture
def buffer(store, directory, size) -> sanderling.Buffer:
    store.put(f"{directory}/o", DATA[:size])
    return store.get(f"{directory}/o")


def test_buffer_equals_its_bytes(buffer, size):
    data = DATA[:size]
    assert isinstance(buffer, sanderling.Buffer)
    assert buffer == data and data == buffer and not buffer != data
    assert buffer == bytearray(data) and buffer == memoryview(data)
    assert buffer != data + b"x" and buffer != "text" and buffer is not None
    assert (len(buffer), bool(buffer), hash(buffer)) == (size, size > 0, hash(data))
    assert bytes(buffer) == buffer.tobytes() == data
    assert {data: 1}[buffer] == 1
    assert buffer < data + b"x" and buffer <= data and buffer >= data
    with pytest.raises(TypeError):
        _ = buffer < 1


def test_buffer_is_cut_like_bytes(buffer, size):
    data = DATA[:size]
    for cut in (slice(None), slice(1, -1), slice(-3, None), slice(4, 1), slice(None, None, -7)):
        assert buffer[cut] == data[cut]
        assert isinstance(buffer[cut], sanderling.Buffer)
    if size:
        assert (buffer[0], buffer[-1]) == (data[0], data[-1])
        assert list(buffer[:9]) == list(data[:9])
    for index in (size, -size - 1):
        with pytest.raises(IndexError):
            _ = buffer[index]
    with pytest.raises(TypeError):
        _ = buffer["0"]


def test_methods_of_bytes_work(store, directory):
    store.put(f"{directory}/o", b"a b\n")
    buffer = store.get(f"{directory}/o")
    assert (buffer.decode(), buffer.split(), buffer.hex()) == ("a b\n", [b"a", b"b"], "6120620a")
    assert b" b" in buffer and 10 in buffer and b"x" not in buffer
    assert (buffer + b"c", b"c" + buffer, b"".join([buffer])) == (b"a b\nc", b"ca b\n", b"a b\n")
    assert (str(buffer, "ascii"), struct.unpack("4s", buffer)) == ("a b\n", (b"a b\n",))
    assert repr(buffer) == "<sanderling.Buffer of 4 bytes: b'a b\\n'>"
    with pytest.raises(AttributeError):
        _ = buffer.read


def test_views_copy_nothing_and_are_read_only(buffer, size):
    view = memoryview(buffer)
    assert view.readonly and (view.format, view.nbytes, view.contiguous) == ("B", size, True)
    array = numpy.frombuffer(buffer, dtype=numpy.uint8) if size else numpy.zeros(0)
    wrapped = pyarrow.py_buffer(buffer)
    assert wrapped.size == size and not wrapped.is_mutable
    if size:
        assert array.ctypes.data == wrapped.address
        assert numpy.frombuffer(buffer[1:], dtype=numpy.uint8).ctypes.data == wrapped.address + 1
    with pytest.raises((TypeError, ValueError)):
        view[:] = bytes(size)
    with pytest.raises(TypeError):
        struct.pack_into("B", buffer, 0, 1)


def test_bytes_stay_as_long_as_a_view_of_them(store, directory):
    store.put(f"{directory}/o", DATA[:SIZE])
    buffer = store.get(f"{directory}/o")
    gone = weakref.ref(buffer)
    array = numpy.frombuffer(buffer, dtype=numpy.uint8)
    part = buffer[100:]
    del buffer
    store.delete(f"{directory}/o")
    gc.collect()
    assert gone() is not None
    assert array.tobytes() == DATA[:SIZE]
    del array
    gc.collect()
    assert gone() is None
    assert part == DATA[100:SIZE]


def exit_code_of_child(reads: Callable[[], bool]) -> int:
    """Forks a child that reads something, and returns how it ended."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            # The signal is expected: neither a report nor a core file.
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            code = 0 if reads() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_child_reads_a_copy_but_no_view(store, directory):
    path, data = f"{directory}/o", DATA[: 1 << 20]
    store.put(path, data)

    def mapped() -> sanderling.Buffer | None:
        before = store.metrics()["same_host_read_bytes"]
        buffer = store.get(path)
        return buffer if store.metrics()["same_host_read_bytes"] > before else None

    buffer = until("the object is read on the same host", mapped)
    array, copy = numpy.frombuffer(buffer, dtype=numpy.uint8), bytes(buffer)
    assert exit_code_of_child(lambda: copy == data) == 0
    assert exit_code_of_child(lambda: buffer[0] == data[0]) == -signal.SIGSEGV
    assert exit_code_of_child(lambda: array[-1] == data[-1]) == -signal.SIGSEGV
    assert buffer == data and array.tobytes() == data


def test_buffer_is_pickled_as_bytes(buffer, size):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(buffer, protocol))
        assert type(copy) is bytes and copy == DATA[:size]
    beside: list[pickle.PickleBuffer] = []
    text = pickle.dumps(buffer, 5, buffer_callback=beside.append)
    assert len(text) < 200
    assert pickle.loads(text, buffers=beside) == DATA[:size]


def test_ranges_and_views_of_files_are_buffers(store, directory):
    store.put(f"{directory}/o", DATA[:SIZE])
    for part in store.get_ranges(f"{directory}/o", [(0, 10), (5, 0)]):
        assert isinstance(part, sanderling.Buffer)
    assert isinstance(store.get_range(f"{directory}/o", 3, 4), sanderling.Buffer)
    with store.open(f"{directory}/o") as file:
        assert file.view() == DATA[:SIZE]
        assert file.view(7, 9) == DATA[7:16]
        assert file.tell() == 0
        assert isinstance(file.read(10), bytes)
        with pytest.raises(ValueError):
            file.view(SIZE, 1)


def test_any_contiguous_buffer_is_put(store, directory):
    numbers = numpy.arange(300_000, dtype=numpy.float64).reshape(100, 3000)
    text = bytes(numbers)
    for data in (numbers, bytearray(text), memoryview(text), pyarrow.py_buffer(text)):
        store.put(f"{directory}/o", data)
        assert store.get(f"{directory}/o") == text
    again = store.get(f"{directory}/o")
    store.put(f"{directory}/again", again[8:])
    assert store.get(f"{directory}/again") == text[8:]
    store.put(f"{directory}/o", numbers[:0])
    assert store.get(f"{directory}/o") == b""
    for scattered in (numbers[:, ::2], numbers.T):
        with pytest.raises(ValueError):
            store.put(f"{directory}/o", scattered)


def test_put_lets_its_buffer_go(store, directory):
    data = bytearray(DATA[:SIZE])
    store.put(f"{directory}/o", data)
    # A bytearray that a view still reads cannot be resized.
    data.append(1)
    with pytest.raises(sanderling.NotFound):
        store.put(f"{directory}/none/o", data)
    data.append(2)
    assert len(data) == SIZE + 2


PUTS = 12
"""Puts at once to a node that takes nothing. Each has four blocks under way, all of them on one
connection: far more bytes than the kernel takes.
"""

KEPT_SECONDS = 30.0
"""How long a connection keeps what its peer does not take, as the documentation has it."""


@contextlib.contextmanager
def node_over_tcp(cluster: sanderling.Cluster) -> Iterator[int]:
    """Starts a datanode that clients of its machine reach by TCP alone; yields its process."""
    command = [
        sys.executable, "-m", "sanderling", "datanode", "--namenode", cluster.address,
        "--listen", "127.0.0.1:0", "--http", "none", "--dram", str(128 << 20),
        "--local-socket", "none", "--exit-with-parent",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            until("the datanode serves", cluster.nodes)
            yield process.pid
        finally:
            process.kill()


def is_resized(data: bytearray) -> bool:
    """Returns whether a bytearray could be resized: no other buffer of it is open."""
    try:
        data.append(0)
    except BufferError:
        return False
    return True


def test_buffer_that_a_stopped_node_does_not_take_is_free_after_half_a_minute():
    data = bytearray(8 << 20)

    def put(store: sanderling.Store, number: int) -> None:
        with pytest.raises(sanderling.SanderlingError):
            store.put(f"/late-{number}", data)

    def is_free(store: sanderling.Store) -> bool:
        # What is not needed any more is let go by the next call.
        assert store.exists("/first")
        return is_resized(data)

    with (
        sanderling.Cluster.local(datanodes=0) as cluster,
        node_over_tcp(cluster) as node,
        cluster.store(timeout=4) as store,
        ThreadPoolExecutor(PUTS) as threads,
    ):
        store.put("/first", bytes(1 << 20))
        os.kill(node, signal.SIGSTOP)
        for late in [threads.submit(put, store, number) for number in range(PUTS)]:
            late.result()
        ended = time.monotonic()
        assert not is_resized(data), "the connection keeps nothing"
        until("the buffer is free", lambda: is_free(store))
        # On a busy machine it takes a while until that is noticed.
        assert time.monotonic() - ended < KEPT_SECONDS + 15
