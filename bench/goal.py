"""The target of a row, and the results of its rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any


class Unavailable(Exception):
    """A row cannot be measured here; the text has the reason and the remedy."""


@dataclass(frozen=True)
class Goal:
    """One figure to reach: at least `target`, or with `is_limit` at most."""

    name: str
    target: float
    is_limit: bool = False
    unit: str = "ratio"

    def is_reached(self, value: float) -> bool:
        """Returns whether a value is on the right side of the target."""
        return value <= self.target if self.is_limit else value >= self.target

    def shortfall(self, value: float) -> float:
        """Returns how far a value is from the target, as a factor; up to 1 it is reached."""
        if self.is_limit:
            return value / self.target
        return self.target / value if value > 0 else float("inf")


@dataclass(frozen=True)
class Sample:
    """The result of one round for one goal: the value that is judged, and its parts."""

    value: float
    ours: float
    peer: float | None = None
    unit: str = ""
    beside: dict[str, float] = field(default_factory=dict)

    @classmethod
    def ratio(cls, ours: float, peer: float, unit: str) -> Sample:
        """Divides ours by the peer's.

        Raises `Unavailable` when the peer measured nothing.
        """
        if peer <= 0:
            raise Unavailable(f"the peer measured {peer} {unit}")
        return cls(ours / peer, ours, peer, unit)


@dataclass
class Outcome:
    """One goal and its samples, one for each round."""

    row: int
    goal: Goal
    samples: list[Sample] = field(default_factory=list)
    why_not: str = ""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Outcome:
        """Reads an outcome from what `record` returned."""
        goal = Goal(record["name"], record["target"], record["is_limit"], record["unit"])
        rounds = record.get("rounds", [])
        samples = [Sample(one["value"], one["ours"], one["peer"], one["unit"]) for one in rounds]
        return cls(record["row"], goal, samples, record.get("why_not", ""))

    @property
    def values(self) -> list[float]:
        return [sample.value for sample in self.samples]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_measured(self) -> bool:
        return bool(self.samples) and not self.why_not

    @property
    def is_reached(self) -> bool:
        return self.is_measured and self.goal.is_reached(self.median)

    def record(self) -> dict[str, Any]:
        """Returns the outcome as it is kept in a file."""
        head: dict[str, Any] = {"row": self.row, "name": self.goal.name}
        limits = {
            "target": self.goal.target,
            "is_limit": self.goal.is_limit,
            "unit": self.goal.unit,
        }
        if not self.is_measured:
            nothing: dict[str, Any] = {"ratio": None, "min": None, "max": None}
            return head | nothing | limits | {"reached": False, "why_not": self.why_not}
        numbers = {"ratio": self.median, "min": min(self.values), "max": max(self.values)}
        rounds = [
            {"value": one.value, "ours": one.ours, "peer": one.peer, "unit": one.unit} | one.beside
            for one in self.samples
        ]
        return head | numbers | limits | {"reached": self.is_reached, "rounds": rounds}


def outcomes_of(rows: list[dict[str, Any]]) -> list[Outcome]:
    """Reads the goals of all rows of a results file."""
    return [Outcome.of(goal) for row in rows for goal in row.get("goals", [row])]


def record_of_row(outcomes: list[Outcome]) -> dict[str, Any]:
    """Returns one record for a row: of several goals, the one furthest from its target.

    A row is reached when all its goals are; those are kept beside it.
    """
    records = [outcome.record() for outcome in outcomes]
    if len(records) == 1:
        return records[0]

    def distance(at: int) -> float:
        one = outcomes[at]
        return one.goal.shortfall(one.median) if one.is_measured else float("inf")

    worst = records[max(range(len(records)), key=distance)]
    reached = all(record["reached"] for record in records)
    return worst | {"reached": reached, "goals": records}
