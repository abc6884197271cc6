"""File objects."""

from __future__ import annotations

import csv
import io
import random
import shutil
import subprocess
import sys
import warnings

import pytest

import sanderling

DATA = bytes(range(256)) * 9000


def test_streamed_object_is_read_as_written(store, directory):
    pieces = random.Random(1)
    with store.open(f"{directory}/o", "wb") as file:
        position = 0
        while position < len(DATA):
            size = pieces.choice([1, 100, 5000, 300_000, 1_500_000])
            assert file.write(DATA[position : position + size]) == len(
                DATA[position : position + size]
            )
            position = min(position + size, len(DATA))
            assert file.tell() == position
    assert file.stat.bytes == len(DATA)
    assert store.get(f"{directory}/o") == DATA


def test_large_buffer_may_change_once_it_is_written(store, directory):
    # More than four blocks, which is where buffers begin to be sent from their own memory.
    data, expected = bytearray(DATA * 2), b""
    with store.open(f"{directory}/o", "wb") as file:
        for turn in range(3):
            # Blocks begin at other places of the buffer each time.
            file.write(b"x" * turn)
            file.write(data)
            expected += b"x" * turn + data
            data.reverse()
            # A bytearray that is still read cannot be resized.
            data.append(turn)
    assert store.get(f"{directory}/o") == expected


@pytest.mark.parametrize("buffer_bytes", [0, 100, 64 << 10])
def test_seek_and_read_agree_with_a_local_file(store, directory, buffer_bytes):
    store.put(f"{directory}/o", DATA)
    local, chance = io.BytesIO(DATA), random.Random(2)
    with store.open(f"{directory}/o", buffer_bytes=buffer_bytes) as file:
        for _ in range(150):
            whence = chance.choice([0, 0, 2])
            offset = chance.randrange(len(DATA) + 10) - (len(DATA) if whence == 2 else 0)
            offset = max(offset, -len(DATA)) if whence == 2 else offset
            assert file.seek(offset, whence) == local.seek(offset, whence)
            size = chance.choice([0, 1, 10, 1000, 70_000, 1_200_000])
            assert file.read(size) == local.read(size)
            assert file.tell() == local.tell()
        file.seek(0)
        assert file.read() == DATA
        assert file.read(1) == b""
        target = bytearray(70_001)
        file.seek(5)
        assert file.readinto(target) == len(target)
        assert target == DATA[5:70_006]


def test_exception_commits_nothing(store, directory):
    store.put(f"{directory}/o", b"old")
    with pytest.raises(RuntimeError), store.open(f"{directory}/o", "wb") as file:
        file.write(DATA)
        raise RuntimeError("the task failed")
    assert store.get(f"{directory}/o") == b"old"
    with pytest.raises(RuntimeError), store.open(f"{directory}/new", "w") as text:
        text.write("half")
        raise RuntimeError("the task failed")
    assert not store.exists(f"{directory}/new")


def test_dropped_writer_commits_nothing(store, directory):
    file = store.open(f"{directory}/o", "xb")
    file.write(DATA)
    with pytest.warns(ResourceWarning):
        del file
    assert not store.exists(f"{directory}/o")


def test_dropped_text_writer_leaves_the_older_object(store, directory):
    store.put(f"{directory}/o", b"old")
    file = store.open(f"{directory}/o", "w")
    file.write("half")
    with pytest.warns(ResourceWarning):
        del file
    assert store.get(f"{directory}/o") == b"old"
    # A wrapper of the standard library's own would close what it wraps, too.
    file = io.TextIOWrapper(store.open(f"{directory}/o", "wb"))
    file.write("half")
    file.flush()
    with pytest.warns(ResourceWarning):
        del file
    assert store.get(f"{directory}/o") == b"old"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_dropped_writer_is_aborted_also_where_warnings_are_errors(store, directory):
    file = store.open(f"{directory}/o", "xb")
    file.write(b"half")
    file.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del file
    assert not store.exists(f"{directory}/o")


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_program_that_fails_with_an_open_writer_leaves_the_older_object(store, directory, mode):
    path, half = f"{directory}/o", "half" if mode == "w" else b"half"
    store.put(path, b"old")
    program = f"""
import sanderling
file = sanderling.connect({store.address!r}).open({path!r}, {mode!r})
file.write({half!r})
raise RuntimeError("the rest cannot be computed")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == 1 and b"RuntimeError" in ended.stderr
    assert store.get(path) == b"old"


def test_commit_is_left_to_the_caller_without_autocommit(store, directory):
    file = store.open(f"{directory}/o", "wb", autocommit=False)
    file.write(b"kept")
    file.close()
    file.commit()
    assert store.get(f"{directory}/o") == b"kept"
    file = store.open(f"{directory}/o", "wb", autocommit=False)
    file.write(b"not kept")
    file.close()
    file.discard()
    assert store.get(f"{directory}/o") == b"kept"


def test_flushed_bytes_are_readable_before_the_end(store, directory):
    with store.open(f"{directory}/o", "xb") as file:
        file.write(b"first")
        file.flush()
        assert store.get(f"{directory}/o") == b"first"
        file.write(b" second")
    assert store.get(f"{directory}/o") == b"first second"


def test_flushed_bytes_of_a_replacement_appear_with_its_close(store, directory):
    with store.open(f"{directory}/new", "wb") as file:
        file.write(b"first")
        file.flush()
        assert not store.exists(f"{directory}/new")
    assert store.get(f"{directory}/new") == b"first"
    with store.open(f"{directory}/new", "wb") as file:
        file.write(b"second")
        file.flush()
        assert store.get(f"{directory}/new") == b"first"
    assert store.get(f"{directory}/new") == b"second"


def test_append_goes_on_at_the_end(store, directory):
    for piece in (b"one ", b"two ", DATA):
        with store.open(f"{directory}/o", "ab") as file:
            file.write(piece)
    assert store.get(f"{directory}/o") == b"one two " + DATA


def test_exclusive_creation_refuses_an_existing_object(store, directory):
    store.put(f"{directory}/o", b"old")
    with pytest.raises(FileExistsError):
        store.open(f"{directory}/o", "xb")


def test_second_writer_is_refused(store, directory):
    with store.open(f"{directory}/o", "ab") as file:
        file.write(b"mine")
        with (
            pytest.raises(sanderling.errors.SecondWriter),
            sanderling.connect(store.address, timeout=3) as other,
        ):
            other.open(f"{directory}/o", "ab")
    assert store.get(f"{directory}/o") == b"mine"


def test_text_and_standard_tools_work(store, directory):
    rows = [["id", "name"], ["1", "Ä"], ["2", "two\nlines"]]
    with store.open(f"{directory}/t.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    with store.open(f"{directory}/t.csv", "r", newline="") as file:
        assert list(csv.reader(file)) == rows
    store.put(f"{directory}/o", DATA)
    copy = io.BytesIO()
    with store.open(f"{directory}/o") as file:
        shutil.copyfileobj(file, copy)
    assert copy.getvalue() == DATA


def test_closed_files_and_unknown_modes_are_refused(store, directory):
    store.put(f"{directory}/o", b"x")
    file = store.open(f"{directory}/o")
    file.close()
    with pytest.raises(ValueError):
        file.read()
    with pytest.raises(ValueError):
        store.open(f"{directory}/o", "r+b")
    with pytest.raises(FileNotFoundError):
        store.open(f"{directory}/none")
