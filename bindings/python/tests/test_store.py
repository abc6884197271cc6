"""The store's calls, each against a real cluster."""

from __future__ import annotations

import array
import threading
import time

import pytest

import sanderling

BLOCKS = 3 * (1 << 20) + 12345
"""More than three blocks, so that every datanode takes part."""


def pattern(size: int, salt: int = 0) -> bytes:
    return bytes((index * 31 + salt) % 251 for index in range(1009)) * (size // 1009 + 1)


def test_object_is_read_as_written(store, directory):
    for size in (0, 1, 512, 513, 65536, BLOCKS):
        data = pattern(size)[:size]
        stat = store.put(f"{directory}/o", data)
        assert (stat.bytes, stat.kind, stat.is_sealed) == (size, "file", True)
        assert store.get(f"{directory}/o") == data


def test_anything_with_a_buffer_is_written(store, directory):
    numbers = array.array("d", [1.5, -2.0, 3.25])
    for data in (bytearray(b"abc"), memoryview(b"xabcx")[1:4], numbers):
        store.put(f"{directory}/b", data)
        assert store.get(f"{directory}/b") == bytes(memoryview(data).cast("B"))
    with pytest.raises(TypeError):
        store.put(f"{directory}/b", "text")


def test_ranges_are_read_alone_and_together(store, directory):
    data = pattern(BLOCKS)[:BLOCKS]
    store.put(f"{directory}/o", data)
    assert store.get_range(f"{directory}/o", 1048570, 12) == data[1048570:1048582]
    ranges = [(0, 4), (BLOCKS - 5, 5), (2_000_000, 100_000), (7, 0)]
    parts = store.get_ranges(f"{directory}/o", ranges)
    assert parts == [data[offset : offset + size] for offset, size in ranges]
    with pytest.raises(ValueError) as raised:
        store.get_range(f"{directory}/o", BLOCKS - 1, 2)
    assert raised.value.kind == "OutOfRange"


def test_put_replaces_or_refuses(store, directory):
    store.put(f"{directory}/o", b"old")
    store.put(f"{directory}/o", b"new")
    assert store.get(f"{directory}/o") == b"new"
    with pytest.raises(sanderling.Exists) as raised:
        store.put(f"{directory}/o", b"other", replace=False)
    assert isinstance(raised.value, FileExistsError)
    assert raised.value.path == f"{directory}/o"
    assert store.get(f"{directory}/o") == b"new"


def test_names_are_listed_renamed_and_deleted(store, directory):
    for name in ("b", "a", "ü \t☃"):
        store.put(f"{directory}/sub/{name}", b"x", parents=True)
    assert [entry.name for entry in store.list(f"{directory}/sub")] == ["a", "b", "ü \t☃"]
    with pytest.raises(sanderling.errors.NotEmpty):
        store.delete(f"{directory}/sub")
    store.rename(f"{directory}/sub", f"{directory}/moved")
    assert store.exists(f"{directory}/moved/ü \t☃")
    assert not store.exists(f"{directory}/sub/a")
    assert [path for path, _ in store.walk(directory)] == [directory, f"{directory}/moved"]
    assert store.usage(directory).files == 3
    assert store.delete(f"{directory}/moved", recursive=True).objects >= 3
    assert store.list(directory) == []


def test_errors_mirror_their_kinds(store, directory):
    with pytest.raises(FileNotFoundError) as missing:
        store.get(f"{directory}/none")
    assert missing.value.kind == "NotFound"
    assert missing.value.recovery is sanderling.Recovery.FIX
    assert missing.value.path == f"{directory}/none"
    with pytest.raises(IsADirectoryError):
        store.get(directory)
    for path in ("", "relative", "/a//b", "/a/../b", "/" + "x" * 256, "/a/"):
        with pytest.raises(ValueError) as bad:
            store.put(path, b"")
        assert bad.value.kind == "BadPath"
    with pytest.raises(ValueError) as unknown:
        store.put(f"{directory}/o", b"", storage_class="any")
    assert unknown.value.kind == "UnknownStorageClass"
    with pytest.raises(LookupError):
        store.notice("no such node", 5)
    with pytest.raises(ValueError):
        store.notice(store.nodes()[0].id, -1)


def test_address_without_a_server_is_reported_within_the_timeout():
    began = time.monotonic()
    with pytest.raises(ConnectionError) as raised:
        sanderling.connect("127.0.0.1:1", timeout=2)
    assert raised.value.kind == "Unreachable"
    assert time.monotonic() - began < 60


def test_address_comes_from_the_environment(cluster, monkeypatch):
    monkeypatch.setenv("SANDERLING_NAMENODE", cluster.address)
    assert sanderling.connect().address == cluster.address


def test_closed_store_refuses(cluster):
    store = cluster.store()
    store.close()
    with pytest.raises(sanderling.errors.Closed) as closed:
        store.list("/")
    assert (closed.value.kind, closed.value.recovery) == ("Closed", sanderling.Recovery.FIX)


def test_time_to_live_ends_an_object(store, directory):
    stat = store.put(f"{directory}/o", b"x", ttl=60)
    assert stat.expires_in is None or 0 < stat.expires_in <= 60
    store.set_ttl(f"{directory}/o", 0.05)
    deadline = time.monotonic() + 60
    while store.exists(f"{directory}/o"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_last_create_of_a_key_wins(store, directory):
    store.mkdir(f"{directory}/table", kind="table")
    for value in (b"one", b"two" * 1000):
        store.put(f"{directory}/table/key", value, kind="key_value")
        assert store.get(f"{directory}/table/key") == value
    assert store.stat(f"{directory}/table/key").kind == "key_value"


def test_job_ends_with_its_subtree(store, directory):
    job = store.register_job(
        f"{directory}/job", lease=600, quota_bytes=1 << 20, recompute_per_mib=0.5, expected_reads=3
    )
    hints = (job.hints["recompute_millis_per_mib"], job.hints["expected_reads"])
    assert hints == (500, 3)
    store.put(f"{directory}/job/o", b"x" * 1000)
    store.renew_job(job.job)
    assert [each.path for each in store.jobs() if each.job == job.job] == [f"{directory}/job"]
    with pytest.raises(sanderling.Full) as raised:
        store.put(f"{directory}/job/big", bytes(2 << 20))
    assert raised.value.kind == "QuotaPassed"
    store.end_job(job.job)
    assert not store.exists(f"{directory}/job/o")


def test_job_keeps_within_its_limits_of_names_and_attributes(store, directory):
    root = f"{directory}/limited"
    job = store.register_job(root, lease=600, names_max=3, attribute_bytes_max=20)
    assert store.job_account(job) == sanderling.JobAccount(1, 0, 3, 20)
    store.put(f"{root}/a", b"1", attributes={"kind": "x" * 8})
    with pytest.raises(sanderling.Full) as raised:
        store.put(f"{root}/b", b"1", attributes={"kind": "x" * 8})
    assert raised.value.kind == "JobLimitPassed" and "12 of 20" in str(raised.value)
    store.put(f"{root}/b", b"1")
    with pytest.raises(sanderling.Full) as raised:
        store.put(f"{root}/c", b"1")
    assert raised.value.kind == "JobLimitPassed" and "3 of 3" in str(raised.value)
    assert store.job_account(job.job) == sanderling.JobAccount(3, 12, 3, 20)
    store.end_job(job)
    with pytest.raises(sanderling.errors.BadRequest):
        store.register_job(root, names_max=0)
    with pytest.raises(ValueError, match="names_max"):
        store.register_job(root, names_max=-1)
    with store.job(root, names_max=1) as scope:
        with pytest.raises(sanderling.Full):
            scope.put("a", b"1")
        assert scope.account() == sanderling.JobAccount(1, 0, 1, None)


def test_threads_share_a_store_and_calls_release_the_lock(store, directory):
    data = pattern(BLOCKS)[:BLOCKS]
    store.put(f"{directory}/o", data)
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0)

    wrong = []

    def read() -> None:
        for _ in range(5):
            if store.get(f"{directory}/o") != data:
                wrong.append(1)

    ticker = threading.Thread(target=tick)
    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in (ticker, *readers):
        thread.start()
    before = ticks
    store.events(after=1 << 60, wait=0.3)
    assert ticks > before
    for thread in readers:
        thread.join()
    done.set()
    ticker.join()
    assert not wrong


def test_observer_sees_calls_and_errors(cluster, directory):
    seen = []
    with cluster.store(observer=lambda *call: seen.append(call)) as store:
        store.put(f"{directory}/o", b"12345")
        store.get(f"{directory}/o")
        with pytest.raises(sanderling.NotFound):
            store.get(f"{directory}/none")
    assert [(kind, size) for kind, size, *_ in seen] == [("write", 5), ("read", 5), ("read", 0)]
    assert isinstance(seen[-1][4], sanderling.NotFound)
