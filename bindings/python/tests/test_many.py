"""Many objects in one call."""

from __future__ import annotations

import threading

import pytest

import sanderling

MIB = 1 << 20


def content(number: int) -> bytes:
    """Small ones and large ones in turn."""
    size = (10, 600, 70_000, MIB + 3)[number % 4]
    return bytes([number]) * size


def test_many_objects_are_read_as_they_were_written_together(store, directory):
    objects = {f"{directory}/{number}": content(number) for number in range(150)}
    stats = store.put_many(objects)
    assert [stat.path for stat in stats] == list(objects)
    assert [stat.bytes for stat in stats] == [len(data) for data in objects.values()]
    assert store.get_many(objects) == list(objects.values())
    pairs = ((f"{directory}/{number}", bytearray(b"new")) for number in range(3))
    store.put_many(pairs)
    assert store.get_many(f"{directory}/{number}" for number in range(3)) == [b"new"] * 3
    assert store.put_many([]) == []
    assert store.get_many([]) == []


def test_errors_are_raised_or_have_their_places(store, directory):
    store.put(f"{directory}/1", b"old")
    objects = [(f"{directory}/{number}", b"new") for number in range(3)]
    with pytest.raises(sanderling.Exists) as raised:
        store.put_many(objects, replace=False)
    assert raised.value.path == f"{directory}/1"
    assert store.get_many(name for name, _ in objects) == [b"new", b"old", b"new"]
    names = [f"{directory}/0", f"{directory}/none", f"{directory}/2"]
    with pytest.raises(sanderling.NotFound):
        store.get_many(names)
    first, error, last = store.get_many(names, return_errors=True)
    assert (first, last) == (b"new", b"new")
    assert isinstance(error, sanderling.NotFound)
    _, refused, _ = store.put_many(objects, replace=False, return_errors=True)
    assert isinstance(refused, sanderling.Exists)
    with pytest.raises(TypeError):
        store.put_many([(f"{directory}/0", "text")])
    with pytest.raises(sanderling.SanderlingError):
        store.put_many([("no path", b"bytes")])


def test_options_hold_for_all_and_are_checked(store, directory):
    store.put_many({f"{directory}/deep/er/{n}": b"x" for n in range(2)}, parents=True, ttl=600)
    left = [store.stat(f"{directory}/deep/er/{n}").expires_in for n in range(2)]
    assert all(0 < each <= 600 for each in left)
    with pytest.raises(ValueError):
        store.put_many({f"{directory}/a": b"x"}, storage_class="paper")
    with pytest.raises(ValueError):
        store.put(f"{directory}/a", b"x", storage_class="paper")


def test_other_threads_run_meanwhile(store, directory):
    objects = {f"{directory}/{number}": content(number) for number in range(40)}
    stop, turns = threading.Event(), []

    def turn() -> None:
        while not stop.is_set():
            turns.append(None)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        while not turns:
            pass
        before = len(turns)
        for _ in range(200):
            store.put_many(objects)
            if len(turns) > before and store.get_many(objects) == list(objects.values()):
                break
        assert len(turns) > before
    finally:
        stop.set()
        thread.join()


def test_observer_gets_all_bytes(cluster, directory):
    seen = []
    with cluster.store(observer=lambda *call: seen.append(call)) as store:
        store.put_many({f"{directory}/a": b"12", f"{directory}/b": b"345"})
        store.get_many([f"{directory}/a", f"{directory}/b", f"{directory}/c"], return_errors=True)
    assert [(kind, size) for kind, size, *_ in seen] == [("write", 5), ("read", 5)]
