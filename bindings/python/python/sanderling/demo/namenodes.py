"""Plays the trace of the namenodes' machines: a notice, the end of the process, a new spare."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from sanderling import Cluster
from sanderling.cluster import Namenode
from sanderling.demo.preemption import Preemption, Trace
from sanderling.namenode_http import call

LOOK_SECONDS = 0.02
"""Pause between two looks at whether a noticed namenode has left."""


@dataclass
class Member:
    """One namenode process in one place of the group. Times are of `time.monotonic`."""

    slot: int
    index: int
    """Its index in the cluster's namenodes."""
    name: str
    address: str
    began: float
    noticed: float | None = None
    has_led: bool = False
    """Whether it led when its notice came."""
    ended: float | None = None
    has_left: bool = False
    """It ended by itself before its deadline; otherwise it was killed then."""
    lived_hours: float | None = None
    deferred_seconds: float = 0.0


@dataclass
class Namenodes:
    """The namenodes by place, with those that were there before."""

    cluster: Cluster
    trace: Trace
    notice_seconds: float
    members: list[Member] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        # One thread: at most one namenode leaves at a time, because there is one spare.
        self._thread = threading.Thread(target=self._run, name="namenodes", daemon=True)
        self._current: dict[int, Member] = {}
        for slot, namenode in enumerate(self.cluster.namenodes):
            self._joined(_member(slot, slot, namenode))

    def start(self) -> None:
        """Starts the trace's clock."""
        self._thread.start()

    def is_over(self) -> bool:
        """Returns whether every machine of the trace is gone and replaced."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Gives the rest of the trace up and waits for what is under way."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def noticed(self) -> list[Member]:
        """Returns those that got a notice, in its order."""
        with self._lock:
            gone = [each for each in self.members if each.noticed is not None]
        return sorted(gone, key=lambda each: each.noticed or 0.0)

    def _run(self) -> None:
        began = time.monotonic()
        for preemption in self.trace.preemptions:
            if self._stop.wait(max(began + preemption.at_seconds - time.monotonic(), 0.0)):
                return
            try:
                if preemption is self.trace.preemptions[0]:
                    self._put_leader_in(preemption.slot)
                self._preempt(preemption)
            except Exception as error:  # noqa: BLE001 - reported with the result
                self.problems.append(f"namenodes: {type(error).__name__}: {error}")
                return

    def _put_leader_in(self, slot: int) -> None:
        """Gives the leader the place whose machine is taken first.

        Which namenode leads is not part of the trace, and the machines are alike until then.
        """
        index = self.cluster.leader()
        leader = next(each for each in self._current.values() if each.index == index)
        other = self._current[slot]
        leader.slot, other.slot = other.slot, leader.slot
        self._current[leader.slot], self._current[other.slot] = leader, other

    def _preempt(self, preemption: Preemption) -> None:
        leaving = self._current[preemption.slot]
        leaving.lived_hours = preemption.lived_hours
        leaving.deferred_seconds = preemption.deferred_seconds
        leaving.has_led = self._leads(leaving)
        leaving.noticed = time.monotonic()
        deadline = leaving.noticed + self.notice_seconds
        self.cluster.notice_namenode(leaving.index, self.notice_seconds, "spot preemption")
        while time.monotonic() < deadline:
            if self.cluster.namenodes[leaving.index].is_gone:
                leaving.ended, leaving.has_left = time.monotonic(), True
                break
            time.sleep(LOOK_SECONDS)
        # The machine is there until then, and its replacement after it, as of datanodes.
        time.sleep(max(deadline - time.monotonic(), 0.0))
        if not leaving.has_left:
            leaving.ended = time.monotonic()
            self.cluster.kill_namenode(leaving.index)
        spare = self.cluster.add_namenode()
        self._joined(_member(preemption.slot, len(self.cluster.namenodes) - 1, spare))

    def _leads(self, member: Member) -> bool:
        namenode = self.cluster.namenodes[member.index]
        _, page = call(namenode.http_address, "GET", "/v1/group")
        return page.get("state") == "leader"

    def _joined(self, member: Member) -> None:
        with self._lock:
            self._current[member.slot] = member
            self.members.append(member)


def _member(slot: int, index: int, namenode: Namenode) -> Member:
    name = namenode.directory.name
    return Member(slot, index, name, namenode.address, time.monotonic())
