"""Durable directories from Python: made, looked at, and waited for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cluster_fixtures import until
from conftest import DRAM_BYTES

import sanderling
import sanderling.aio
from sanderling.fs import SanderlingFileSystem
from sanderling.namenode_http import call


@pytest.fixture
def durable(own_cluster: sanderling.Cluster, tmp_path: Path) -> Iterator[Path]:
    """The directory that is the store `archive`, which one more datanode reaches."""
    place = tmp_path / "archive"
    place.mkdir()
    command = [
        sys.executable, "-m", "sanderling", "datanode", "--namenode", own_cluster.address,
        "--http", "none", "--dram", str(DRAM_BYTES), "--durable", f"archive=file://{place}",
        "--exit-with-parent",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        yield place
        process.kill()


def made(store: sanderling.Store, path: str) -> None:
    """Makes a durable directory once the datanode has reported its store."""

    def is_made() -> bool:
        try:
            store.make_durable(path, "archive", parents=True)
        except sanderling.SanderlingError as error:
            assert "no datanode has a store" in str(error)
            return False
        return True

    until("the store is reported", is_made)


def test_what_is_sealed_lies_in_the_store(own_cluster, durable):
    with own_cluster.store() as store:
        made(store, "/out")
        value = bytes(range(256)) * 1000
        store.put("/out/step-1/state", value, parents=True)
        store.wait_durable("/out", timeout=60)
        assert (durable / "step-1" / "state").read_bytes() == value
        found = store.durability("/out/step-1/state")
        assert (found.directory, found.store, found.key) == ("/out", "archive", "step-1/state")
        assert found.is_durable
        assert (found.backlog_changes, found.backlog_age) == (0, None)
        assert store.durability("/") is None
        with pytest.raises(sanderling.SanderlingError, match="in no durable directory"):
            store.wait_durable("/", timeout=1)


def test_bound_of_the_backlog_stays_unless_another_is_named(own_cluster, durable):
    def bound() -> int:
        _, answer = call(own_cluster.http_address, "GET", "/v1/durable")
        (found,) = answer["directories"]
        return found["backlog_bytes_max"]

    with own_cluster.store() as store:
        made(store, "/out")
        assert bound() == 16 << 30
        store.make_durable("/out", "archive", parents=True, backlog_max=5 << 20)
        store.make_durable("/out", "archive", parents=True)
        assert bound() == 5 << 20


def in_store(place: Path) -> list[str]:
    """Returns the files that a store has for its directory."""
    found = (each.relative_to(place) for each in place.rglob("*") if each.is_file())
    return sorted(str(each) for each in found if each.parts[0] != ".sanderling")


def test_transaction_of_which_the_store_lacks_a_file_commits_none(own_cluster, durable):
    fs, hasty = (
        SanderlingFileSystem(address=own_cluster.address, timeout=timeout) for timeout in (60, 3)
    )
    store, away = fs.store, durable.with_name("away")
    made(store, "/out")
    fs.pipe_file("/out/old", b"before")
    store.wait_durable("/out", timeout=60)

    def written(fs: SanderlingFileSystem) -> list[sanderling.ObjectWriter]:
        files = [fs.open(f"/out/{name}", "wb") for name in ("first", "old", "last")]
        for number, file in enumerate(files):
            file.write(b"%d" % number * 100_000)
        return files

    def moved_away(first, commit) -> None:
        # The first file is sealed and copied, the others are not.
        store.wait_durable(first.name, timeout=60)
        durable.rename(away)
        commit()

    with pytest.raises(TimeoutError, match="/out"), hasty.transaction:
        first, second, _ = written(hasty)
        second.commit = partial(moved_away, first, second.commit)
    assert not store.exists("/out/first") and not store.exists("/out/last")
    assert store.get("/out/old") == b"before"
    away.rename(durable)
    # What could not be deleted before the store had it goes by itself.
    until("the rest is gone", lambda: fs.ls("/out", detail=False) == ["/out/old"])
    store.wait_durable("/out", timeout=60)
    assert in_store(durable) == ["old"]
    with fs.transaction:
        written(fs)
        fs.pipe_file("/out/last", b"replaced in the transaction")
    assert fs.ls("/out", detail=False) == ["/out/first", "/out/last", "/out/old"]
    store.wait_durable("/out", timeout=60)
    assert in_store(durable) == ["first", "last", "old"]
    assert (durable / "old").read_bytes() == b"1" * 100_000
    assert (durable / "last").read_bytes() == b"replaced in the transaction"


def test_wait_ends_with_the_reason(own_cluster, durable):
    with own_cluster.store() as store:
        made(store, "/out")
        store.put("/out/first", b"first")
        store.wait_durable("/out", timeout=60)
        durable.rename(durable.with_name("away"))
        store.put("/out/second", b"second")
        until("it is stalled", lambda: store.durability("/out").stalled)
        with pytest.raises(TimeoutError, match="1 changes of /out wait for the store archive"):
            store.wait_durable("/out/second", timeout=0.2)
        assert not store.durability("/out/second").is_durable
        durable.with_name("away").rename(durable)

        async def waited() -> None:
            async with sanderling.aio.connect(own_cluster.address) as again:
                await again.wait_durable("/out/second", timeout=60)

        asyncio.run(waited())
        assert (durable / "second").read_bytes() == b"second"
