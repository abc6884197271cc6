"""A cluster of several namenodes: one is killed, and nothing that was acknowledged is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError

import pytest
from cluster_fixtures import until
from conftest import DRAM_BYTES, is_running

import sanderling

PAUSE_SECONDS = 0.002
"""Between two values of a load: more of them show nothing more, and take the processors."""

CALL_SECONDS_MAX = 30.0
"""Deadline of one call: an election takes about a second, and the processors are shared."""

NOTICE_SECONDS = 60.0
"""A namenode leaves within about a second. More only delays a test that fails."""


@pytest.fixture
def group():
    """Three namenodes. `local` has deadlines for its start, `stop` for the end."""
    with sanderling.Cluster.local(2, DRAM_BYTES, namenodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole_group():
    """Three namenodes for all tests that leave them alone."""
    with sanderling.Cluster.local(2, DRAM_BYTES, namenodes=3) as cluster:
        yield cluster


def notice(cluster: sanderling.Cluster, index: int) -> None:
    """Gives a namenode a notice that is long enough."""
    cluster.notice_namenode(index, NOTICE_SECONDS)


def value(number: int) -> bytes:
    """Returns what is put as number N: every seventh is in blocks of datanodes, others inline."""
    return b"%d." % number * (20_000 if number % 7 == 0 else 1)


def members(cluster: sanderling.Cluster, index: int) -> dict:
    """Returns the group as the namenode of an index reports it."""
    url = f"http://{cluster.namenodes[index].http_address}/v1/group"
    with urllib.request.urlopen(url, timeout=CALL_SECONDS_MAX) as page:
        return json.load(page)


def test_all_namenodes_vote_when_local_returns(whole_group):
    group = whole_group
    assert len(group.namenodes) == 3
    assert group.address == ",".join(each.address for each in group.namenodes)
    assert len({each.pid for each in group.namenodes}) == 3
    for index, namenode in enumerate(group.namenodes):
        assert is_running(namenode.pid)
        assert namenode.directory == group.directory / f"namenode-{index}"
        assert namenode.directory.is_dir()
    leader = group.leader()
    rows = members(group, leader)["members"]
    assert {row["address"] for row in rows} == set(group.address.split(","))
    assert all(row["is_voter"] for row in rows)
    assert [row["is_leader"] for row in rows if row["address"] == group.namenodes[leader].address]
    with pytest.raises(FrozenInstanceError):
        group.namenodes[0].pid = 1
    # Each datanode has all addresses, so it does not depend on the first namenode.
    for pid in group.pids.values():
        with open(f"/proc/{pid}/cmdline") as file:
            assert group.address in file.read().split("\0")


def test_five_namenodes_vote():
    with sanderling.Cluster.local(1, DRAM_BYTES, namenodes=5) as cluster:
        rows = members(cluster, cluster.leader())["members"]
        assert [row["is_voter"] for row in rows] == [True] * 5


class Load:
    """A client that puts one value after the other until the block ends. No call may fail."""

    def __init__(self, cluster: sanderling.Cluster) -> None:
        self.acknowledged = 0
        self._cluster = cluster
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Load:
        self._writer = self._pool.submit(self._put)
        self.until_more(50)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._pool.shutdown()
        # An error of a call is raised here.
        self._writer.result()

    def until_more(self, count: int) -> None:
        """Waits until so many more values are acknowledged."""
        wanted = self.acknowledged + count
        until("values", lambda: self._writer.done() or self.acknowledged >= wanted)

    def check(self) -> None:
        """Reads every acknowledged value through a client that has the addresses of now."""
        with self._cluster.store(timeout=CALL_SECONDS_MAX) as store:
            for number in range(self.acknowledged):
                assert store.get(f"/{number}") == value(number)
            assert store.report().bytes == 0

    def _put(self) -> None:
        with self._cluster.store(timeout=CALL_SECONDS_MAX) as store:
            while not self._is_over.is_set():
                store.put(f"/{self.acknowledged}", value(self.acknowledged))
                self.acknowledged += 1
                time.sleep(PAUSE_SECONDS)


def test_killed_leader_loses_nothing_that_was_acknowledged(group):
    with Load(group) as load:
        for _ in range(2):
            load.until_more(50)
            leader = group.leader()
            group.kill_namenode(leader)
            load.until_more(50)
            assert group.leader() != leader
            group.restart_namenode(leader)
    load.check()


def test_noticed_leader_leaves_before_its_deadline_and_a_spare_votes(group):
    spare = group.add_namenode()
    assert spare == group.namenodes[3]
    assert is_running(spare.pid)
    assert spare.directory == group.directory / "namenode-3"
    assert group.address.split(",")[3] == spare.address
    noticed = group.leader()
    before = group.namenodes[noticed]
    with Load(group) as load:
        began = time.monotonic()
        group.notice_namenode(noticed, NOTICE_SECONDS)
        until("it is gone", lambda: group.namenodes[noticed].is_gone)
        assert time.monotonic() - began < NOTICE_SECONDS
        assert not is_running(before.pid)
        load.until_more(50)
    # Its index stays, and no client connects to its address any more.
    after = group.namenodes[noticed]
    assert (after.pid, after.address) == (None, before.address)
    assert before.address not in group.address
    leader = group.leader()
    assert leader != noticed
    rows = members(group, leader)["members"]
    assert {row["address"] for row in rows} == set(group.address.split(","))
    assert [row["is_voter"] for row in rows] == [True] * 3
    load.check()
    for call in (group.kill_namenode, group.restart_namenode, lambda it: notice(group, it)):
        with pytest.raises(LookupError, match="add_namenode"):
            call(noticed)


def test_every_namenode_is_replaced_one_after_the_other(group):
    # The cluster's own client has these three, and is idle until they are gone.
    assert len(group.nodes()) == 2
    with Load(group) as load:
        for index in range(3):
            group.add_namenode()
            notice(group, index)
            until("it is gone", lambda index=index: group.namenodes[index].is_gone)
            load.until_more(50)
    assert [each.is_gone for each in group.namenodes] == [True] * 3 + [False] * 3
    assert group.address == ",".join(each.address for each in group.namenodes[3:])
    load.check()
    # The three that are left survive one loss, and a datanode joins by their addresses.
    group.kill_namenode(group.leader())
    added = group.add()
    assert added in [node.id for node in group.nodes()]
    load.check()


def test_noticed_namenode_without_a_spare_stays_until_one_is_added(group):
    leader = group.leader()
    noticed = (leader + 1) % 3
    notice(group, noticed)

    def has_notice() -> bool:
        rows = members(group, group.leader())["members"]
        return [row["address"] for row in rows if row.get("notice_left_millis")] == [
            group.namenodes[noticed].address
        ]

    until("the leader has the notice", has_notice)
    assert not group.namenodes[noticed].is_gone
    group.add_namenode()
    until("it is gone", lambda: group.namenodes[noticed].is_gone)


def test_namenode_that_was_terminated_is_not_gone(group):
    index = (group.leader() + 1) % 3
    os.kill(group.namenodes[index].pid, signal.SIGTERM)
    until("it has ended", lambda: group.namenodes[index].pid is None)
    assert not group.namenodes[index].is_gone
    assert group.namenodes[index].address in group.address
    group.restart_namenode(index)
    assert is_running(group.namenodes[index].pid)


def test_namenode_alone_becomes_a_group_and_is_replaced():
    with sanderling.Cluster.local(1, DRAM_BYTES) as cluster, Load(cluster) as load:
        for _ in range(3):
            cluster.add_namenode()
        names = [each.directory.name for each in cluster.namenodes]
        assert names == ["namenode", "namenode-1", "namenode-2", "namenode-3"]
        notice(cluster, 0)
        until("it is gone", lambda: cluster.namenodes[0].is_gone)
        load.until_more(50)
        assert cluster.leader() in (1, 2, 3)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 8 * 24 * 3600])
def test_notice_of_a_wrong_length_is_refused(seconds, whole_group):
    with pytest.raises(ValueError, match="seven days"):
        whole_group.notice_namenode(0, seconds)
    assert whole_group.namenodes[0].pid


def test_restarted_namenode_votes_again(group):
    killed = group.leader()
    before = group.namenodes[killed]
    group.kill_namenode(killed)
    assert group.leader() != killed
    assert not is_running(before.pid)
    assert group.namenodes[killed].pid is None
    assert group.http_address in [each.http_address for each in group.namenodes if each.pid]
    assert group.namenode_pid in [each.pid for each in group.namenodes]
    with group.store(timeout=CALL_SECONDS_MAX) as store:
        store.put("/without", b"two of three")

        group.restart_namenode(killed)
        after = group.namenodes[killed]
        assert after.pid not in (None, before.pid)
        assert (after.address, after.http_address) == (before.address, before.http_address)
        assert after.directory == before.directory

        # Without the vote of the restarted one, the last one would have no majority.
        group.kill_namenode(group.leader())
        store.put("/with", b"two of three")
        assert store.get("/without") == store.get("/with") == b"two of three"


def test_one_of_three_refuses_until_another_one_is_back(group):
    first, second = 0, 1
    group.kill_namenode(first)
    group.kill_namenode(second)
    with group.store(timeout=1.0) as store, pytest.raises(sanderling.SanderlingError):
        store.put("/refused", b"")
    group.restart_namenode(second)
    with group.store(timeout=CALL_SECONDS_MAX) as store:
        store.put("/accepted", b"")


def test_datanode_that_is_added_after_the_first_namenode_died_serves(group):
    group.kill_namenode(0)
    added = group.add()
    assert added in group.pids
    assert added in [node.id for node in group.nodes()]


@pytest.mark.parametrize("count", [0, 2, 4, 6, 7, -1, None, "3"])
def test_other_numbers_of_namenodes_are_refused(count, tmp_path):
    home = tmp_path / "cluster"
    with pytest.raises(ValueError, match="1, 3 or 5"):
        sanderling.Cluster.local(directory=home, namenodes=count)
    assert not home.exists()


def test_namenode_that_is_none_or_does_not_run_is_refused(group):
    for index in (3, -1):
        with pytest.raises(LookupError, match="it has 3"):
            group.kill_namenode(index)
        with pytest.raises(LookupError, match="it has 3"):
            group.restart_namenode(index)
        with pytest.raises(LookupError, match="it has 3"):
            notice(group, index)
    group.kill_namenode(2)
    for call in (group.kill_namenode, lambda index: notice(group, index)):
        with pytest.raises(LookupError, match="restart_namenode"):
            call(2)


@pytest.mark.parametrize(("earlier", "later"), [(3, 3), (3, 1), (1, 3)])
def test_group_starts_in_no_directory_of_an_earlier_cluster(earlier, later, tmp_path):
    with sanderling.Cluster.local(0, DRAM_BYTES, directory=tmp_path, namenodes=earlier):
        pass
    with pytest.raises(ValueError, match="another directory"):
        sanderling.Cluster.local(0, DRAM_BYTES, directory=tmp_path, namenodes=later)


def test_namenode_alone_starts_on_the_catalog_of_an_earlier_one(tmp_path):
    with sanderling.Cluster.local(0, DRAM_BYTES, directory=tmp_path) as cluster:
        cluster.store().mkdir("/kept")
    with sanderling.Cluster.local(0, DRAM_BYTES, directory=tmp_path) as cluster:
        assert cluster.store().exists("/kept")


def test_namenode_alone_is_killed_and_restarted():
    with sanderling.Cluster.local(0, DRAM_BYTES) as cluster:
        (before,) = cluster.namenodes
        assert (before.address, before.http_address) == (cluster.address, cluster.http_address)
        assert before.pid == cluster.namenode_pid
        assert before.directory == cluster.directory / "namenode"
        assert cluster.leader() == 0
        with cluster.store(timeout=CALL_SECONDS_MAX) as store:
            store.put("/o", b"1")
            cluster.kill_namenode(0)
            assert (cluster.address, cluster.namenodes[0].pid) == (before.address, None)
            cluster.restart_namenode()
            assert store.get("/o") == b"1"
        (after,) = cluster.namenodes
        assert (after.address, after.http_address) == (before.address, before.http_address)
        assert after.pid != before.pid


def test_stop_ends_all_namenodes(group):
    group.kill_namenode(1)
    pids = [each.pid for each in group.namenodes if each.pid] + list(group.pids.values())
    assert len(pids) == 4
    group.stop()
    assert not any(map(is_running, pids))
    assert not group.directory.exists()
    for call in (
        group.leader,
        group.add_namenode,
        lambda: group.namenodes,
        lambda: group.restart_namenode(0),
        lambda: notice(group, 0),
    ):
        with pytest.raises(sanderling.ClusterError, match="stopped"):
            call()


def test_all_namenodes_die_with_their_parent(tmp_path):
    script = (
        "import os, sys, sanderling\n"
        "cluster = sanderling.Cluster.local(1, 16 << 20, namenodes=3)\n"
        "cluster.restart_namenode(1)\n"
        "cluster.add_namenode()\n"
        "print(*cluster.pids.values(), *(it.pid for it in cluster.namenodes), flush=True)\n"
        "sys.stdin.read()\n"
        "os._exit(9)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Its end leaves the files.
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout and parent.stdin
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.stdin.close()
    assert len(pids) == 5
    until("all processes are gone", lambda: not any(map(is_running, pids)))
