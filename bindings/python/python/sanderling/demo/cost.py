"""What the machines would have cost, at the prices of the paper that the demo follows.

Brodmann et al., "An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources", figure 6:
n2-standard-16 on Google Cloud, on demand and spot. Its fleet is five machines, of which the spot
deployment keeps one on demand, for the namenode.
"""

from __future__ import annotations

from dataclasses import dataclass

ON_DEMAND_DOLLARS_PER_HOUR = 0.776944
SPOT_DOLLARS_PER_HOUR = 0.188320
PAPER_MACHINES = 5


@dataclass(frozen=True)
class Cost:
    """One fleet for one hour of undisturbed work."""

    spot_machines: int
    slowdown: float
    """Time under preemptions over undisturbed time."""

    @property
    def on_demand_dollars(self) -> float:
        """All machines on demand, undisturbed."""
        return (self.spot_machines + 1) * ON_DEMAND_DOLLARS_PER_HOUR

    @property
    def spot_dollars(self) -> float:
        """Datanodes on spot machines, the namenode on demand, for the longer time."""
        rate = self.spot_machines * SPOT_DOLLARS_PER_HOUR + ON_DEMAND_DOLLARS_PER_HOUR
        return rate * self.slowdown

    @property
    def saved(self) -> float:
        """The part that is saved."""
        return 1 - self.spot_dollars / self.on_demand_dollars
