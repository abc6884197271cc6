"""Notices, deaths and restarts of real processes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from cluster_fixtures import until
from conftest import is_running

import sanderling

DATA = os.urandom(12 << 20)


def node_of(store: sanderling.Store, node: int) -> sanderling.Node:
    return next(each for each in store.nodes(all=True) if each.id == node)


def test_noticed_node_loses_nothing(own_cluster):
    store = own_cluster.store()
    store.put("/o", DATA)
    leaving = max(store.nodes(), key=lambda node: node.home_bytes)
    assert leaving.home_bytes > 0
    node = own_cluster.notice(leaving, deadline_seconds=200, reason="spot preemption")
    assert node.policy == "draining"
    assert 0 < node.deadline_in <= 200
    until("drained", lambda: node_of(store, leaving.id).policy == "drained")
    own_cluster.kill(leaving)
    joined = own_cluster.add()
    assert joined != leaving.id
    assert store.get("/o") == DATA
    report = store.report()
    assert (report.notices, report.bytes) == (1, 0)
    assert report.moved_bytes >= leaving.exposure_bytes
    kinds = {event.kind for event in store.events()}
    assert {"node_registered", "node_noticed", "blocks_moved", "node_drained"} <= kinds
    assert store.fsck().problems == []


def test_writer_goes_on_through_a_notice(own_cluster):
    store = own_cluster.store()
    gone = []

    def take_away() -> None:
        for node in [each.id for each in own_cluster.nodes()][:2]:
            own_cluster.notice(node, 200)
            until("drained", lambda node=node: node_of(store, node).policy == "drained")
            own_cluster.kill(node)
            gone.append(own_cluster.add())

    thread = threading.Thread(target=take_away)
    with own_cluster.store().open("/o", "xb") as file:
        thread.start()
        written = 0
        while thread.is_alive() or written < 8 << 20:
            offset = written % (len(DATA) - 4096)
            file.write(DATA[offset : offset + 4096])
            written += 4096
            if written > 24 << 20:
                thread.join()
                break
    thread.join()
    assert len(gone) == 2
    assert store.stat("/o").bytes == written
    found = store.get("/o")
    offsets = range(0, written, 4096)
    assert all(
        found[at : at + 4096] == DATA[at % (len(DATA) - 4096) :][:4096] for at in offsets
    )
    assert store.report().bytes == 0


def test_loss_without_a_notice_is_typed_and_exact(own_cluster):
    store = own_cluster.store()
    store.put("/o", DATA)
    victim = max(store.nodes(), key=lambda node: node.exposure_bytes)
    own_cluster.kill(victim)
    until("declared lost", lambda: store.report().bytes > 0)
    with pytest.raises(sanderling.DataUnavailable) as raised:
        store.get("/o")
    error = raised.value
    assert error.recovery is sanderling.Recovery.RECOMPUTE
    assert error.path == "/o"
    assert error.object == store.stat("/o").object
    lost = sum(size for _, size in error.ranges)
    assert lost == victim.exposure_bytes == store.report().bytes == store.stat("/o").lost_bytes
    kept = [0]
    for offset, size in error.ranges:
        if offset > kept[-1]:
            assert store.get_range("/o", kept[-1], offset - kept[-1]) == DATA[kept[-1] : offset]
        kept.append(offset + size)
    (loss,) = [each for each in store.report().losses if each.path == "/o"]
    assert loss.ranges == error.ranges


def test_restarted_namenode_has_everything(own_cluster):
    store = own_cluster.store()
    store.put("/before", DATA)
    own_cluster.restart_namenode()
    assert store.get("/before") == DATA
    store.put("/after", b"x")
    until("all nodes are back", lambda: len(store.nodes()) == 3)


def test_cluster_stops_with_its_processes():
    with sanderling.Cluster.local(datanodes=2, dram_bytes=16 << 20) as cluster:
        pids = list(cluster.pids.values())
        directory = cluster.directory
        assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not directory.exists()
    with pytest.raises(sanderling.ClusterError):
        _ = cluster.address
    cluster.stop()


def test_processes_die_with_their_parent(tmp_path):
    script = (
        "import os, sys, sanderling\n"
        "cluster = sanderling.Cluster.local(datanodes=1, dram_bytes=16 << 20)\n"
        "print(*cluster.pids.values(), flush=True)\n"
        "sys.stdin.read()\n"
        "os._exit(9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A process that ends like that leaves its files.
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout and parent.stdin
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.stdin.close()
    assert pids
    until("the datanode is gone", lambda: not any(map(is_running, pids)))


def test_nodes_added_from_a_short_thread_live_on(own_cluster):
    added = []
    thread = threading.Thread(target=lambda: added.append(own_cluster.add()))
    thread.start()
    thread.join()
    # The kernel sends a parent's death signal at once: a heartbeat after it shows that none came.
    store, began = own_cluster.store(), time.monotonic()
    until(
        "a heartbeat",
        lambda: node_of(store, added[0]).heartbeat_age < time.monotonic() - began,
    )
    assert node_of(store, added[0]).availability == "up"


def test_server_that_cannot_start_reports_the_reason(tmp_path):
    blocked = tmp_path / "cluster"
    blocked.mkdir()
    (blocked / "namenode").write_text("not a directory")
    with pytest.raises(sanderling.ClusterError) as raised:
        sanderling.Cluster.local(datanodes=1, directory=blocked)
    assert "namenode ended with status" in str(raised.value)


def test_command_line_runs_from_the_package(cluster):
    command = [sys.executable, "-m", "sanderling"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert sanderling.__version__ in done.stdout
    arguments = ["--namenode", cluster.address, "node", "ls", "--json"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def leases(store: sanderling.Store) -> int:
    """Returns the number of ranges of the datanodes' memory that clients look at."""
    count = 0
    for node in store.nodes():
        with urllib.request.urlopen(f"http://{node.http_address}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        (line,) = [it for it in lines if it.startswith("sanderling_datanode_leases ")]
        count += int(float(line.split(" ")[1]))
    return count


def test_child_that_ends_returns_no_lease_of_its_parent(own_cluster):
    store, data = own_cluster.store(), DATA[: 1 << 20]
    store.put("/o", data)

    def mapped() -> sanderling.Buffer | None:
        before = store.metrics()["same_host_read_bytes"]
        read = store.get("/o")
        return read if store.metrics()["same_host_read_bytes"] > before else None

    buffer = until("the object is read on the same host", mapped)
    until("its lease alone is held", lambda: leases(store) == 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            del buffer
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # What the child had returned would be taken back before this request.
    assert store.get("/o") == data
    until("the lease of the view is held", lambda: leases(store) == 1)
    assert buffer == data


def on_disk(directory):
    """Returns all bytes below a directory of disk tiers."""
    return b"".join(path.read_bytes() for path in directory.glob("node-*/**/*") if path.is_file())


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_bytes_on_disk_are_plain_only_without_a_key(tmp_path, is_encrypted):
    key = tmp_path / "blocks.key"
    key.write_text(os.urandom(32).hex())
    key.chmod(0o600)
    pattern = b"nobody else may read this line\n"
    data = pattern * ((2 << 20) // len(pattern))
    home = tmp_path / "cluster"
    with sanderling.Cluster.local(
        1, 32 << 20, 64 << 20, home, encrypt=key if is_encrypted else None
    ) as cluster:
        store = cluster.store()
        store.put("/o", data, storage_class="disk")
        found = on_disk(home)
        assert len(found) >= len(data)
        assert (pattern in found) is not is_encrypted
        # Of a node that is added, too.
        cluster.kill(cluster.nodes()[0])
        cluster.add()
        until("the loss is known", lambda: store.report().bytes >= len(data))
        store.put("/o", data, storage_class="disk")
        assert (pattern in on_disk(home)) is not is_encrypted
        assert store.get("/o") == data


def test_key_that_others_can_read_and_one_for_nothing_are_refused(tmp_path):
    key = tmp_path / "blocks.key"
    key.write_text(os.urandom(32).hex())
    key.chmod(0o644)
    with pytest.raises(sanderling.ClusterError, match="chmod 600"):
        sanderling.Cluster.local(1, 32 << 20, 64 << 20, encrypt=key)
    with pytest.raises(ValueError, match="disk_bytes"):
        sanderling.Cluster.local(1, encrypt=key)
