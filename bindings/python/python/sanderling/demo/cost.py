"""What the machines would have cost, at the prices of the paper that the demo follows.

Brodmann et al., "An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources", figure 6:
n2-standard-16 on Google Cloud, on demand and spot. Its fleet is five machines, of which the spot
deployment keeps one on demand, for the namenode. A group of namenodes and its spare are on spot
machines, too; machines on demand need one namenode only.
"""

from __future__ import annotations

from dataclasses import dataclass

ON_DEMAND_DOLLARS_PER_HOUR = 0.776944
SPOT_DOLLARS_PER_HOUR = 0.188320
PAPER_MACHINES = 5


@dataclass(frozen=True)
class Cost:
    """One fleet for one hour of work without preemptions."""

    datanodes: int
    slowdown: float
    """Time under preemptions over the time without them."""
    spot_namenodes: int = 0
    """Machines of namenodes, if they are spot machines; else one is on demand."""

    @property
    def spot_machines(self) -> int:
        """Those of the spot fleet that are preempted."""
        return self.datanodes + self.spot_namenodes

    @property
    def on_demand_machines(self) -> int:
        """Those of the spot fleet that are not."""
        return 0 if self.spot_namenodes else 1

    @property
    def compared_machines(self) -> int:
        """Those of the fleet on demand."""
        return self.datanodes + 1

    @property
    def on_demand_dollars(self) -> float:
        """All machines on demand, without preemptions."""
        return self.compared_machines * ON_DEMAND_DOLLARS_PER_HOUR

    @property
    def spot_dollars(self) -> float:
        """The spot fleet, for the longer time."""
        spot = self.spot_machines * SPOT_DOLLARS_PER_HOUR
        rate = spot + self.on_demand_machines * ON_DEMAND_DOLLARS_PER_HOUR
        return rate * self.slowdown

    @property
    def saved(self) -> float:
        """The part that is saved."""
        return 1 - self.spot_dollars / self.on_demand_dollars
