"""Watches what the namenodes are in their group: which one leads, and which ones vote."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from sanderling import Cluster
from sanderling.namenode_http import call

SAMPLES_PER_SECOND = 8.0

LEADER, VOTER, SPARE = "leader", "voter", "spare"


@dataclass(frozen=True)
class Role:
    """What one namenode was from one moment to another, by `time.monotonic`."""

    address: str
    role: str
    began: float
    ended: float


class Roles:
    """A thread that calls namenodes in turn until one answers, several times a second."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: list[tuple[float, dict[str, str]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roles", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def spans(self, address: str) -> list[Role]:
        """Returns what the namenode of an address was, in the order of time."""
        spans: list[Role] = []
        last = None
        for at, roles in list(self._seen):
            role = roles.get(address)
            if role is not None:
                if spans and role == last:
                    spans[-1] = Role(address, role, spans[-1].began, at)
                else:
                    # The one before lasts until here.
                    if spans and last is not None:
                        spans[-1] = Role(address, last, spans[-1].began, at)
                    spans.append(Role(address, role, at, at))
            last = role
        return spans

    def _run(self) -> None:
        while not self._stop.wait(1 / SAMPLES_PER_SECOND):
            roles = self._roles()
            if roles:
                self._seen.append((time.monotonic(), roles))

    def _roles(self) -> dict[str, str]:
        """Returns the roles as the leader has them, or as another one while none answers as it."""
        found: dict[str, str] = {}
        for namenode in self._cluster.namenodes:
            if namenode.pid is None:
                continue
            try:
                _, page = call(namenode.http_address, "GET", "/v1/group")
            except OSError:
                continue
            roles = {row["address"]: _role(row) for row in page.get("members", [])}
            if page.get("state") == "leader":
                return roles
            found = found or roles
        return found


def _role(row: dict[str, Any]) -> str:
    if row["is_leader"]:
        return LEADER
    return VOTER if row["is_voter"] else SPARE
