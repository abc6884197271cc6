"""The ways to shuffle that are compared, each as settings of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import artifacts

NATIVE = "native"
DECOMMISSION = "decommission"
SANDERLING = "sanderling"
NAMES = [NATIVE, DECOMMISSION, SANDERLING]

TITLES = {
    NATIVE: "native: sort shuffle on local disk",
    DECOMMISSION: "native with decommissioning and fallback storage",
    SANDERLING: "Sanderling",
}

# G1 marks beside the program, and when one marking took long, it expects that of all and never
# stops: half a core of two, in one mode's driver and not in another's.
COLLECTOR = "-XX:+UseParallelGC"


@dataclass(frozen=True)
class Mode:
    """One way to shuffle. Directories belong to the run."""

    name: str
    directory: Path
    namenode: str = ""

    @property
    def decommissions(self) -> bool:
        """Returns whether a worker's notice makes its executors stop taking tasks."""
        return self.name != NATIVE

    def conf(self, executor_memory: str, cores: int) -> dict[str, str]:
        """Returns Spark's settings: what all modes share, then the mode's own."""
        logs = self.directory / "events"
        logs.mkdir(parents=True, exist_ok=True)
        shared = {
            "spark.executor.memory": executor_memory,
            "spark.executor.cores": str(cores),
            "spark.driver.defaultJavaOptions": COLLECTOR,
            "spark.executor.defaultJavaOptions": COLLECTOR,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.local.dir": str(self.directory / "local"),
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            # Spark 3.5 and 4 differ in the default; the queries are written without it in mind.
            "spark.sql.ansi.enabled": "false",
            "spark.decommission.enabled": str(self.decommissions).lower(),
        }
        return shared | getattr(self, f"_{self.name}")()

    def _native(self) -> dict[str, str]:
        return {}

    def _decommission(self) -> dict[str, str]:
        fallback = self.directory / "fallback"
        fallback.mkdir(parents=True, exist_ok=True)
        return {
            "spark.storage.decommission.enabled": "true",
            "spark.storage.decommission.shuffleBlocks.enabled": "true",
            "spark.storage.decommission.rddBlocks.enabled": "true",
            "spark.storage.decommission.fallbackStorage.path": fallback.as_uri() + "/",
            "spark.storage.decommission.fallbackStorage.cleanUp": "true",
        }

    def _sanderling(self) -> dict[str, str]:
        return artifacts.settings(self.namenode)
