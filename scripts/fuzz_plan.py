"""Divides a number of executions among fuzz targets, and keeps what was done on the disk.

A plan is carried out in slices of some minutes, on any number of workers. Each target gets a floor
of executions first; what is left to do then goes to all of them in equal shares of time, so that a
slow parser is not tested less than a fast one. Only finished slices count. A plan that was
interrupted continues with the next one.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

SCHEMA = 1


@dataclass
class Progress:
    """What was done for one target."""

    executions: int = 0
    seconds: float = 0.0
    edges: int = 0
    features: int = 0
    slowest_seconds: int = 0
    commits: list[str] = field(default_factory=list)
    has_finding: bool = False

    def add(self, done: Slice, commit: str) -> None:
        """Adds a slice, of the code of that commit."""
        self.executions += done.executions
        self.seconds += done.seconds
        self.edges, self.features = done.edges, done.features
        self.slowest_seconds = max(self.slowest_seconds, done.slowest_seconds)
        self.has_finding = done.has_finding
        if commit not in self.commits:
            self.commits.append(commit)


@dataclass
class Slice:
    """What one run of a target did."""

    executions: int
    seconds: float
    edges: int
    features: int
    slowest_seconds: int
    has_finding: bool


class Plan:
    """Which target is next, until all have the floor and together the total."""

    def __init__(self, file: Path, names: list[str], total: int, floor: int) -> None:
        self.file, self.total, self.floor = file, total, floor
        self.targets = {name: Progress() for name in names}
        self.running: set[str] = set()
        if file.exists():
            read = json.loads(file.read_text())
            if read["schema"] != SCHEMA:
                raise ValueError(f"{file} is of another version: remove it to begin anew")
            for name, done in read["targets"].items():
                if name in self.targets:
                    self.targets[name] = Progress(**done)

    def done(self) -> int:
        """Returns the executions of all targets together."""
        return sum(done.executions for done in self.targets.values())

    def next(self) -> str | None:
        """Takes the next target that no worker runs; None if there is nothing left to do.

        A target that found something is not run again: its input is to be looked at first.
        """
        free = {name: done for name, done in self.targets.items()
                if name not in self.running and not done.has_finding}
        under = [name for name, done in free.items() if done.executions < self.floor]
        if not under and self.done() >= self.total:
            return None
        name = min(under or free, key=lambda name: free[name].seconds, default=None)
        if name is not None:
            self.running.add(name)
        return name

    def end(self, name: str, done: Slice | None, commit: str) -> None:
        """Gives a target back, with what its slice did, and writes the plan to the disk."""
        self.running.discard(name)
        if done is None:
            return
        self.targets[name].add(done, commit)
        targets = {name: asdict(done) for name, done in self.targets.items()}
        text = json.dumps({"schema": SCHEMA, "targets": targets}, indent=1)
        new = self.file.with_suffix(".new")
        new.write_text(text + "\n")
        os.replace(new, self.file)

    def is_whole(self) -> bool:
        """Returns whether everything was done, and nothing found."""
        found = any(done.has_finding for done in self.targets.values())
        least = min(done.executions for done in self.targets.values())
        return not found and least >= self.floor and self.done() >= self.total
