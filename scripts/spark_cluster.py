"""Locates Sanderling's jars for Spark, and runs a cluster for the tests of them."""

import functools
import os
import re
from pathlib import Path

import cluster
from cluster import ROOT, SetUpError

# Spark's JVMs take their time beside.
SOON_SECONDS = 120.0
until = functools.partial(cluster.until, seconds=SOON_SECONDS)
# The end of a map output's path; the second number is Spark's map id.
MAP_OUTPUT = re.compile(r"/shuffle-\d+/map-\d+-(\d+)$")
SHUFFLE_MANAGER = "org.apache.spark.shuffle.sanderling.SanderlingShuffleManager"


def spark_jar() -> Path:
    """Returns the jar that gives a Spark of any supported version Sanderling's shuffle."""
    named = os.environ.get("SANDERLING_SPARK_JAR")
    return Path(named).absolute() if named else built_jar("spark")


def hadoop_jar() -> Path:
    """Returns the jar of the sanderling:// FileSystem; the client is in the one of Spark."""
    return built_jar("hadoop")


def built_jar(module: str) -> Path:
    """Returns the jar of a module of jvm/."""
    built = [jar for jar in (ROOT / f"jvm/{module}/target").glob(f"sanderling-{module}-*.jar")
             if not jar.stem.endswith(("-tests", "-sources", "-javadoc"))]
    if not built:
        raise SetUpError(f"jvm/{module}/target has no sanderling-{module} jar: run `make jvm`")
    return built[0]


class Cluster(cluster.Cluster):
    """A cluster to which applications of Spark's shuffle."""

    soon_seconds = SOON_SECONDS

    @property
    def address(self) -> str:
        """Returns where applications find it."""
        return self.namenode

    def lost_map_outputs(self) -> set[int]:
        """Returns the map ids of the outputs that the store reports lost, of all applications."""
        report = self.losses()["report"]
        if report["is_truncated"]:
            raise ValueError("more was lost than the store can name: shuffle or kill less")
        found = [MAP_OUTPUT.search(loss["path"]) for loss in report["losses"]]
        return {int(one.group(1)) for one in found if one}

    def spark_settings(self) -> dict[str, str]:
        """Returns what an application sets to shuffle here."""
        return {"spark.shuffle.manager": SHUFFLE_MANAGER,
                "spark.sanderling.address": self.address}
