"""What can be set."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from sanderling.cluster import NAMENODES
from sanderling.demo.preemption import Bathtub, Exponential, Lifetimes, Recorded

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


@dataclass(frozen=True)
class Options:
    """One run of the demo. The defaults fit two cores, 4 GB and five minutes."""

    scale: float = 1.0
    """TPC-DS scale factor: 1 is 0.4 GB of Parquet, enough that no query's result is empty."""
    datanodes: int = 5
    namenodes: int = 3
    """Those that vote; with more than one there is a spare besides, and their machines are
    preempted, too."""
    seed: int = 1
    notices: int = 8
    seconds: float = 100.0
    """Length of the trace."""
    baseline_seconds: float = 40.0
    """Length of the run without preemptions, at least one whole round."""
    notice_seconds: float = 4.0
    """A notice of 30 s, as on Google Cloud, shortened: 64 GB of a machine became 0.1 GB."""
    overlap_max: int = 2
    queries: int = 99
    writers: int = 2
    writer_bytes_per_second: int = 16 << 20
    """Each writer's pace. Unpaced, writers would only measure which of them gets the two cores."""
    live_bytes: int = 16 << 20
    """What each writer keeps before it checks and deletes its oldest object."""
    dram_bytes: int | None = None
    """Memory of each datanode; by default enough with `overlap_max` + 1 nodes less."""
    model: Lifetimes = field(default_factory=Bathtub)
    model_name: str = "bathtub"
    cache: Path = Path()
    out: Path = Path("demo-out")
    is_json: bool = False
    is_quiet: bool = False

    @property
    def spares(self) -> int:
        """Namenodes that do not vote until another one leaves."""
        return 1 if self.namenodes > 1 else 0


def parse(arguments: list[str]) -> Options:
    """Reads the command line; exits with 2 when it is wrong."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        model = _model(given.model, given.mean_hours)
        dram = None if given.dram is None else size(given.dram)
        rate = size(given.writer_rate)
    except (OSError, ValueError, KeyError) as error:
        parser.error(str(error))
    if given.datanodes < 5:
        parser.error("--datanodes: at least five are needed")
    if given.namenodes not in NAMENODES:
        parser.error("--namenodes: 1, 3 or 5")
    if not 20 <= given.queries <= 99:
        parser.error("--queries: 20 to 99")
    if given.scale <= 0 or given.notices < 1 or min(given.seconds, given.notice_seconds) <= 0:
        parser.error("--scale, --notices, --seconds and --notice-seconds must be positive")
    if not 1 <= given.overlap <= given.datanodes - 3:
        parser.error(f"--overlap: 1 to {given.datanodes - 3} with {given.datanodes} datanodes")
    return Options(
        scale=given.scale,
        datanodes=given.datanodes,
        namenodes=given.namenodes,
        seed=given.seed,
        notices=given.notices,
        seconds=given.seconds,
        baseline_seconds=given.baseline_seconds,
        notice_seconds=given.notice_seconds,
        overlap_max=given.overlap,
        queries=given.queries,
        writers=given.writers,
        writer_bytes_per_second=rate,
        dram_bytes=dram,
        model=model,
        model_name=given.model,
        cache=given.cache,
        out=given.out,
        is_json=given.json,
        is_quiet=given.quiet,
    )


def size(text: str) -> int:
    """Reads a size: `64MiB`, `64M`, `1e9`."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*(|[kmg]i?)b?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is no size: write it as 64MiB, 64M or 1e9")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _model(name: str, mean_hours: float) -> Lifetimes:
    if name == "bathtub":
        return Bathtub()
    if name == "exponential":
        return Exponential(mean_hours)
    return Recorded.read(Path(name))


def _parser() -> argparse.ArgumentParser:
    default = Options()
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    parser = argparse.ArgumentParser(
        prog="sanderling demo",
        description="Runs TPC-DS queries over the store while its nodes are preempted.",
        epilog="Exit code 0 when every result is right and nothing was lost, else 1.",
    )
    add = parser.add_argument
    add("--scale", type=float, default=default.scale, help="TPC-DS scale (%(default)s)")
    add("--datanodes", type=int, default=default.datanodes, help="at least 5 (%(default)s)")
    add(
        "--namenodes",
        type=int,
        default=default.namenodes,
        help="1, 3 or 5; several are preempted, too, and have a spare (%(default)s)",
    )
    add("--seed", type=int, default=default.seed, help="seed of the trace (%(default)s)")
    add(
        "--notices",
        type=int,
        default=default.notices,
        help="preemptions of datanodes; those of namenodes follow the same clock (%(default)s)",
    )
    add(
        "--seconds",
        type=float,
        default=default.seconds,
        help="length of the run under preemptions (%(default)s)",
    )
    add(
        "--baseline-seconds",
        type=float,
        default=default.baseline_seconds,
        help="length of the run without preemptions before it (%(default)s)",
    )
    add(
        "--notice-seconds",
        type=float,
        default=default.notice_seconds,
        help="from a notice to SIGKILL (%(default)s)",
    )
    add(
        "--overlap",
        type=int,
        default=default.overlap_max,
        help="most machines that leave at a time (%(default)s)",
    )
    add("--queries", type=int, default=default.queries, help="20 to 99 (%(default)s)")
    add("--writers", type=int, default=default.writers, help="writer threads (%(default)s)")
    add("--writer-rate", default="16MiB", help="pace of each writer per second (%(default)s)")
    add("--dram", help="memory of each datanode (what the fleet needs)")
    add(
        "--model",
        default=default.model_name,
        help="lifetimes: bathtub, exponential, or a CSV file with lifetime_seconds (%(default)s)",
    )
    add("--mean-hours", type=float, default=12.0, help="mean of exponential (%(default)s)")
    add(
        "--cache",
        type=Path,
        default=home / "sanderling" / "tpcds",
        help="directory of the generated data (%(default)s)",
    )
    add("--out", type=Path, default=default.out, help="directory of the report (%(default)s)")
    add("--json", action="store_true", help="print the result as JSON")
    add("-q", "--quiet", action="store_true", help="no progress")
    return parser
