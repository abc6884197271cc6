"""How long spot machines live, and the trace of preemptions that the demo plays."""

from __future__ import annotations

import csv
import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

FLEET_AGE_HOURS = 96.0
"""How long the fleet has run when the trace begins. Its machines started over one day: a fleet that
starts all at once would also reach the 24 h limit all at once, day after day."""

HOURS_MAX = 24.0
"""Old preemptible machines of Google lived at most this long; the bathtub model describes them."""


End = tuple[float, int, float]
"""When a machine ends: hour of the trace, slot, and how many hours it lived."""


class Lifetimes(Protocol):
    """A distribution of lifetimes."""

    def hours(self, chance: random.Random) -> float:
        """Draws one lifetime."""
        ...


@dataclass(frozen=True)
class Bathtub:
    """The model of Kadupitiya, Jadhao and Sharma, "Modeling the Temporally Constrained Preemptions
    of Transient Cloud VMs", HPDC 2020: many machines die young, few in between, the rest at 24 h.

    F(t) = A (1 - exp(-t / tau1) + exp((t - b) / tau2)), t in hours. The defaults are their
    simulator's. F(24) is 0.83; the rest of the mass lies at 24 h.
    """

    a: float = 0.4137
    tau1: float = 0.9
    tau2: float = 0.76
    b: float = 24.0

    def gone_by(self, hours: float) -> float:
        """Returns the probability that a machine is gone after so many hours."""
        if hours <= 0:
            return 0.0
        if hours >= HOURS_MAX:
            return 1.0
        early = 1 - math.exp(-hours / self.tau1)
        return self.a * (early + math.exp((hours - self.b) / self.tau2))

    def hours(self, chance: random.Random) -> float:
        """Draws one lifetime by inverting F."""
        wanted = chance.random()
        low, high = 0.0, HOURS_MAX
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.gone_by(middle) < wanted else (low, middle)
        return high


@dataclass(frozen=True)
class Exponential:
    """Preemptions without memory, nearer to today's spot machines, which have no 24 h limit."""

    mean_hours: float = 12.0

    def hours(self, chance: random.Random) -> float:
        """Draws one lifetime."""
        return chance.expovariate(1 / self.mean_hours)


@dataclass(frozen=True)
class Recorded:
    """Lifetimes drawn again from recorded ones."""

    lifetimes: tuple[float, ...]

    @classmethod
    def read(cls, path: Path) -> Recorded:
        """Reads a CSV file with a column `lifetime_seconds`."""
        with path.open(newline="") as file:
            hours = tuple(float(row["lifetime_seconds"]) / 3600 for row in csv.DictReader(file))
        if not hours:
            raise ValueError(f"{path} holds no lifetimes")
        return cls(hours)

    def hours(self, chance: random.Random) -> float:
        """Draws one lifetime."""
        return chance.choice(self.lifetimes)


@dataclass(frozen=True)
class Preemption:
    """One notice of the trace."""

    at_seconds: float
    """When, from the start of the trace, in the demo's time."""
    slot: int
    """Which place of the fleet; a replacement takes its predecessor's."""
    lived_hours: float
    """How long the machine lived, in the model's time."""
    deferred_seconds: float
    """How much later than in the model: no more than `overlap_max` leave at a time."""


@dataclass(frozen=True)
class Trace:
    """The preemptions of one run and its clock."""

    preemptions: tuple[Preemption, ...]
    seconds_per_hour: float
    """Length of the model's hour in the demo's time."""
    seconds: float
    """When the last machine is gone."""


@dataclass(frozen=True)
class Shape:
    """What the trace must fit."""

    slots: int
    notices: int
    """The trace ends with this many."""
    seconds: float
    """The model's time is compressed so that the last machine is gone by then."""
    notice_seconds: float
    overlap_max: int
    replace_seconds: float = 2.0
    """A replacement lives at least this long, so that it has joined before its own notice."""


def draw(model: Lifetimes, seed: int, shape: Shape) -> Trace:
    """Draws a trace: each slot holds one machine after the other, each with its own lifetime."""
    drawn = list(islice(_ends(model, random.Random(seed), shape.slots), shape.notices))
    last_hour = drawn[-1][0]
    seconds_per_hour = max(shape.seconds - shape.notice_seconds, 1.0) / last_hour
    return _trace(drawn, seconds_per_hour, shape)


def draw_beside(trace: Trace, model: Lifetimes, seed: int, shape: Shape) -> Trace:
    """Draws the trace of other machines on the clock of `trace`: the notices that fit into its
    time, but at most `shape.notices` and at least one, for which the first machine is taken earlier
    than in the model if that is needed.
    """
    chance = random.Random(f"beside {seed}")
    last = max(shape.seconds - shape.notice_seconds, 0.0)
    first, *others = islice(_ends(model, chance, shape.slots), shape.notices)
    hour, slot, lived = first
    drawn = [(min(hour, last / trace.seconds_per_hour), slot, lived), *others]
    beside = _trace(drawn, trace.seconds_per_hour, shape)
    kept = tuple(each for each in beside.preemptions if each.at_seconds <= last + 1e-9)
    return Trace(kept, trace.seconds_per_hour, kept[-1].at_seconds + shape.notice_seconds)


def _trace(drawn: list[End], seconds_per_hour: float, shape: Shape) -> Trace:
    """Defers what is too much at a time, and what a replacement would not live to see."""
    ends: list[float] = []
    slot_free = dict.fromkeys(range(shape.slots), 0.0)
    preemptions = []
    for hour, slot, lived in drawn:
        wanted = hour * seconds_per_hour
        room = ends[-shape.overlap_max] if len(ends) >= shape.overlap_max else 0.0
        at = max(wanted, slot_free[slot], room)
        ends.append(at + shape.notice_seconds)
        ends.sort()
        slot_free[slot] = at + shape.notice_seconds + shape.replace_seconds
        preemptions.append(Preemption(at, slot, lived, at - wanted))
    preemptions.sort(key=lambda each: each.at_seconds)
    return Trace(tuple(preemptions), seconds_per_hour, ends[-1])


def _ends(model: Lifetimes, chance: random.Random, slots: int) -> Iterator[End]:
    """Yields when machines end, one after the other, replacements included."""
    alive: list[End] = []
    for slot in range(slots):
        started, lived = chance.uniform(0, HOURS_MAX), model.hours(chance)
        heapq.heappush(alive, (started + lived, slot, lived))
    while True:
        hour, slot, lived = heapq.heappop(alive)
        if hour > FLEET_AGE_HOURS:
            yield hour - FLEET_AGE_HOURS, slot, lived
        following = model.hours(chance)
        heapq.heappush(alive, (hour + following, slot, following))
