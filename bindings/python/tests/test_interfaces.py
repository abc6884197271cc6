"""What the store offers beside whole objects: parts, tables, jobs, conditions, progress, events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy
import pytest

import sanderling
from cluster_fixtures import until
from sanderling.errors import BadRequest, Changed, Closed

MIB = 1 << 20


def pattern(size: int) -> bytes:
    return numpy.arange(size // 4 + 1, dtype="<u4").tobytes()[:size]


# In place


@pytest.mark.parametrize("size", [0, 5, 100_000, 3 * MIB + 7, 40 * MIB + 1])
def test_get_into_fills_the_callers_buffer(store, directory, size):
    data = pattern(size)
    store.put(f"{directory}/a", data)
    into = bytearray(size + 10)
    assert store.get_into(f"{directory}/a", into) == size
    assert into[:size] == data and into[size:] == bytes(10)
    array = numpy.zeros(size // 2, dtype=numpy.uint8)
    assert store.get_into(f"{directory}/a", array, offset=size // 3) == len(array)
    assert array.tobytes() == data[size // 3 : size // 3 + len(array)]
    assert store.get_into(f"{directory}/a", bytearray(3), offset=size + 5) == 0


def test_get_into_refuses_what_it_cannot_fill(store, directory):
    store.put(f"{directory}/a", b"bytes")
    with pytest.raises(ValueError, match="read-only"):
        store.get_into(f"{directory}/a", b"12345")
    with pytest.raises(ValueError, match="contiguous"):
        store.get_into(f"{directory}/a", numpy.zeros(10, dtype=numpy.uint8)[::2])
    with pytest.raises(ValueError, match="objects"):
        store.get_into(f"{directory}/a", numpy.zeros(10, dtype=object))
    with pytest.raises(TypeError):
        store.get_into(f"{directory}/a", "12345")


def test_get_into_is_the_read_that_deletes(store, directory):
    store.put(f"{directory}/a", pattern(2 * MIB), delete_after_read=True)
    assert store.get_into(f"{directory}/a", bytearray(100)) == 100
    assert store.exists(f"{directory}/a")
    assert store.get_into(f"{directory}/a", bytearray(2 * MIB)) == 2 * MIB
    assert not store.exists(f"{directory}/a")


# Attributes and conditions


def test_attributes_are_kept_beside_the_bytes(store, directory):
    path = f"{directory}/a"
    assert store.put(path, b"1", attributes={"type": "text", "ä": ""}).attributes["ä"] == ""
    stat = store.set_attributes(path, {"tag": "new"})
    assert stat.attributes == store.stat(path).attributes == {"tag": "new"}
    assert store.list(directory)[0].attributes == {}
    assert store.list(directory, attributes=True)[0].attributes == {"tag": "new"}
    with store.open(path, "wb", attributes={"one": "1"}) as file:
        file.write(b"bytes")
        file.set_attribute("two", "2")
    assert store.stat(path).attributes == {"one": "1", "two": "2"}
    with pytest.raises(Changed):
        store.set_attributes(path, {}, if_object=stat.object)
    with pytest.raises(BadRequest):
        store.put(path, b"1", attributes={"large": "x" * 100_000})
    with pytest.raises(TypeError):
        store.put(path, b"1", attributes={"number": 1})


@pytest.mark.parametrize("size", [10, 2 * MIB])
def test_conditions_hold_when_the_object_is_complete(store, directory, size):
    path, data = f"{directory}/a", pattern(size)
    first = store.put(path, data, if_absent=True)
    with pytest.raises(sanderling.Exists):
        store.put(path, data, if_absent=True)
    second = store.put(path, data, if_object=first.object)
    with pytest.raises(Changed):
        store.delete(path, if_object=first.object)
    with pytest.raises(Changed):
        store.put(path, data, if_object=first.object)
    with pytest.raises(Changed):
        with store.open(path, "wb", if_object=second.object) as file:
            file.write(data)
            store.put(f"{directory}/b", b"else")
            store.rename(f"{directory}/b", path, replace=True)
    assert store.get(path) == b"else"


def test_concat_makes_one_file_without_moving_bytes(store, directory):
    parts = [f"{directory}/part-{each}" for each in range(3)]
    data = [pattern(size) for size in (MIB + 1, 10, 3 * MIB)]
    for part, each in zip(parts, data):
        store.put(part, each, is_inline_allowed=False)
    stat = store.concat(parts, f"{directory}/whole", attributes={"parts": "3"})
    assert stat.attributes == {"parts": "3"} and stat.bytes == sum(map(len, data))
    assert bytes(store.get(f"{directory}/whole")) == b"".join(data)
    assert [entry.name for entry in store.list(directory)] == ["whole"]
    with pytest.raises(sanderling.NotFound):
        store.concat(parts, f"{directory}/again")


# Multifiles and tables


def test_many_writers_write_one_multifile(store, directory):
    bag = store.multifile(f"{directory}/deep/bag")
    contents = {f"part-{each}": pattern(200_000 * each) for each in range(5)}

    def write(name):
        with bag.part(name) as part:
            part.write(contents[name])

    threads = [threading.Thread(target=write, args=[name]) for name in contents]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [part.name for part in bag.parts()] == sorted(contents)
    whole = b"".join(contents[name] for name in sorted(contents))
    with bag.open() as stream:
        assert stream.read(10) == whole[:10]
        assert stream.read() == whole[10:]
        assert stream.read() == b""
    assert {name: bytes(data) for name, data in bag} == contents
    with bag.open_part("part-3") as part:
        assert part.read() == contents["part-3"]
    with pytest.raises(sanderling.Exists):
        bag.part("part-3")
    bag.put("part-3", b"new")
    assert bag.get("part-3") == b"new"
    with pytest.raises(ValueError):
        bag.part("a/b")
    with pytest.raises(sanderling.NotFound):
        store.multifile(f"{directory}/nothing", create=False).open()
    assert bag.delete().objects == 6


def test_table_is_a_mapping(store, directory):
    table = store.table(f"{directory}/deep/table")
    table["one"], table["two"] = b"1", bytearray(b"2")
    assert table["one"] == b"1" and table.get("none") is None and table.get("none", 5) == 5
    assert len(table) == 2 and list(table) == ["one", "two"] and "one" in table
    assert "none" not in table and 7 not in table and "a/b" not in table
    table["one"] = b"new"
    assert {key: bytes(value) for key, value in table.items()} == {"one": b"new", "two": b"2"}
    assert [bytes(value) for value in table.values()] == [b"new", b"2"]
    table.update({"three": b"3"})
    assert table.pop("three") == b"3" and table.pop("three", None) is None
    with pytest.raises(KeyError) as caught:
        table["none"]
    assert isinstance(caught.value, sanderling.NotFound) and caught.value.key == "none"
    with pytest.raises(KeyError):
        del table["none"]
    for bad in ("", "a/b"):
        with pytest.raises(ValueError):
            table[bad] = b"1"
    with pytest.raises(TypeError):
        table[5] = b"1"
    assert len(table.put_many({f"k{each}": b"" for each in range(50)})) == 50
    assert table.get_many(["one", "two"]) == [b"new", b"2"]
    assert store.stat(f"{table.path}/one").kind == "key_value"
    table.put("brief", b"1", ttl=0.001)
    until("the value goes", lambda: "brief" not in table)
    table.clear()
    assert len(table) == 0 and table.delete().objects == 1


# Jobs


def test_job_goes_with_its_block(store, directory):
    root = f"{directory}/job"
    with store.job(root, lifetime=30, quota=8 * MIB, expected_bytes=MIB, throughput=1000) as job:
        assert job.is_alive and job.info.quota_bytes == 8 * MIB
        assert job.info.hints["expected_bytes"] == MIB
        job.put("deep/a", b"1")
        assert job.get("deep/a") == b"1" and job.usage().files == 1
        with pytest.raises(sanderling.Full):
            job.put("large", bytes(9 * MIB))
        assert [each.job for each in store.jobs() if each.path == root] == [job.id]
    assert not store.exists(root) and not job.is_alive
    with pytest.raises(Closed):
        job.put("b", b"1")
    job.end()
    with pytest.raises(ZeroDivisionError):
        with store.job(root) as job:
            job.put("a", b"1")
            1 / 0
    assert not store.exists(root)


def test_job_may_be_kept_and_its_objects_read_once(store, directory):
    root = f"{directory}/job"
    with store.job(root, keep_after=True, delete_after_read=True, latency_sensitive=True) as job:
        job.put("a", b"1")
        job.put("b", b"2")
        assert job.get("a") == b"1"
        with pytest.raises(sanderling.NotFound):
            job.get("a")
    assert store.get(f"{root}/b") == b"2"


def test_lease_is_renewed_while_the_program_is_busy(store, directory):
    with store.job(f"{directory}/job", lifetime=3) as job:
        job.put("a", b"1")
        info = store.register_job(f"{directory}/other", lease=3)
        # Another of the same length, that no client renews, ends meanwhile.
        until("the other ends", lambda: info.job not in {each.job for each in store.jobs()})
        assert job.is_alive and job.get("a") == b"1"


def test_job_that_was_ended_elsewhere_is_known_to_be_gone(store, directory):
    with store.job(f"{directory}/job", lifetime=2) as job:
        store.end_job(job.info)
        until("the job is known to be gone", lambda: not job.is_alive)


def test_job_of_a_program_that_dies_goes(store, directory):
    program = f"""
import sanderling, sys, time
job = sanderling.connect("{store.address}").job("{directory}/job", lifetime=1.0)
job.put("a", b"1")
print("ready", flush=True)
time.sleep(600)
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    assert store.exists(f"{directory}/job/a")
    child.kill()
    child.wait()
    until("the subtree goes", lambda: not store.exists(f"{directory}/job"))


# Progress


def test_progress_is_reported(store, directory):
    path, data = f"{directory}/a", pattern(9 * MIB + 1)
    seen = []
    assert store.put(path, data, progress=seen.append).bytes == len(data)
    assert seen == sorted(seen) and seen[-1] == len(data) and len(seen) >= 3
    seen.clear()
    assert store.get(path, progress=seen.append) == data
    assert seen == sorted(seen) and seen[-1] == len(data) and len(seen) >= 3
    seen.clear()
    with store.open(path, progress=seen.append) as file:
        file.read(5 * MIB)
        file.read()
    assert seen == [5 * MIB, len(data)]
    store.put(path, b"", progress=seen.append)
    assert store.get(path, progress=seen.append) == b""
    store.put(path, b"once", delete_after_read=True)
    assert store.get(path, progress=seen.append) == b"once" and not store.exists(path)


def test_error_in_progress_ends_the_call(store, directory):
    path, data = f"{directory}/a", bytes(9 * MIB)
    store.put(path, b"old")

    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.put(path, data, progress=fail)
    with pytest.raises(ZeroDivisionError):
        with store.open(path, "wb", progress=fail) as file:
            file.write(data)
    assert store.get(path) == b"old"
    with pytest.raises(ZeroDivisionError):
        store.get(path, progress=fail)
    store.put(path, b"new")
    assert [entry.name for entry in store.list(directory)] == ["a"]


# Events


def test_events_are_followed_and_resumed(own_cluster):
    store, nodes = own_cluster.store(), own_cluster.nodes()
    own_cluster.notice(nodes[0], deadline_seconds=60)
    seen = []
    for event in store.follow(0):
        seen.append(event)
        if event.kind == "node_noticed":
            break
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    following = store.follow(seen[-1].sequence)
    own_cluster.kill(nodes[0])
    assert next(following).sequence == seen[-1].sequence + 1
    assert any(event.kind == "node_gone" for event in following)
    # In a fleet where nothing happens it ends after the timeout.
    assert list(store.follow(10**12, timeout=0.2)) == []
    with pytest.raises(ValueError):
        store.follow(-1)


def test_interrupt_ends_following(store):
    # Tests in the background of a shell ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(store.follow(10**12))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
