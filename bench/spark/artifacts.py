"""What this repository builds that the comparison runs: the binary, and the jars for Spark."""

from __future__ import annotations

import os
from pathlib import Path

from goal import Unavailable
from world import ROOT


def sanderling() -> Path:
    """Returns the program `sanderling` with all its commands, `lab` among them.

    Raises `Unavailable` with the command that builds it.
    """
    asked = os.environ.get("SANDERLING_BIN")
    tried = [Path(asked)] if asked else [
        ROOT / "target" / "release" / "sanderling",
        ROOT / "target" / "debug" / "sanderling",
    ]
    for program in tried:
        if program.exists():
            return program
    raise Unavailable(f"{tried[0]} is not there: make build")


def jar() -> Path:
    """Returns the jar of Sanderling's shuffle, one for all of Spark's lines.

    Raises `Unavailable` with the command that builds it.
    """
    asked = os.environ.get("SANDERLING_SPARK_JAR")
    built = sorted((ROOT / "jvm" / "spark" / "target").glob("sanderling-spark-*.jar"))
    plain = [one for one in built if not one.stem.endswith(("sources", "javadoc", "tests"))]
    program = Path(asked) if asked else next(iter(plain), None)
    if program is None or not program.exists():
        raise Unavailable(f"{program or 'jvm/spark/target/sanderling-spark-*.jar'} is not there: "
                          "make jvm")
    return program


def settings(namenode: str) -> dict[str, str]:
    """Returns Spark's settings for Sanderling's shuffle."""
    path = str(jar())
    return {
        "spark.driver.extraClassPath": path,
        "spark.executor.extraClassPath": path,
        "spark.shuffle.manager": "org.apache.spark.shuffle.sanderling.SanderlingShuffleManager",
        "spark.sanderling.address": namenode,
    }
