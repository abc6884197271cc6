"""What a row is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goal import Goal, Sample
from world import World


@dataclass(frozen=True)
class Row:
    """A line of the comparison: its goals, the programs it needs, and how a round is measured.

    `measure` measures both sides and returns one sample for each goal.
    """

    number: int
    goals: tuple[Goal, ...]
    measure: Callable[[World], list[Sample]]
    peers: frozenset[str] = frozenset()
    needs_wheel: bool = False
