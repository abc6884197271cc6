#!/usr/bin/env python3
"""Runs TPC-DS on Spark with its own shuffle and with Sanderling's, with and without preemptions.

Every result is compared with DuckDB's. Writes target/spark-bench/index.html and result.json; exit
code 0 when every result is right, 1 when one is not, 2 for a wrong command line, 3 when something
that is needed is not there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

import modes  # noqa: E402 - found in the directory above

# Queries that the literature on shuffles names, and others that shuffle much at scale 1.
QUERIES = [4, 5, 9, 11, 14, 16, 17, 18, 23, 24, 25, 29, 31, 38, 47, 49, 50, 51, 54, 57, 58, 59, 64,
           65, 67, 72, 74, 75, 78, 80, 87, 93, 94, 95, 97]
SPARKS = {"3.5": "spark35", "4.1": "spark41", "4.3": "spark43"}
TRACES = [f"{what}-{size}" for what in ("datanodes", "executors") for size in ("16", "32")]


def main() -> int:
    """Reads the command line, goes into Spark's environment, and runs."""
    options = read(sys.argv[1:])
    enter(options.spark, Path(__file__))
    # The options of the JVMs are part of what is compared; the collector is set by the modes.
    options_of_jvms = os.environ.pop("JAVA_TOOL_OPTIONS", "").split()
    if options.check:
        kept = [word for word in options_of_jvms if not word.endswith("GC")]
        os.environ |= {"JAVA_TOOL_OPTIONS": " ".join(kept)} if kept else {}
    # These need the environment's packages.
    import comparison
    import report
    from goal import Unavailable
    from tables import MissingTool

    try:
        with contextlib.closing(comparison.Comparison(options)) as made:
            kept = made.run()
    except (Unavailable, MissingTool, TimeoutError) as error:
        print(f"spark-bench: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    wrong = [one for one in kept["runs"] if one["problem"]]
    for one in wrong:
        print(f"WRONG {one['mode']} {one['trace']} round {one['round']} {one['work']}: "
              f"{one['problem']}")
    if options.check:
        print(f"{len(kept['runs']) - len(wrong)} of {len(kept['runs'])} results are right: Spark "
              f"{kept['spark']}, {', '.join(options.modes)}")
    else:
        page = report.write(kept, options.out)
        if options.keep:
            report.keep(kept, ROOT / "bench" / "results")
        print(report.text(kept))
        print(f"report: {page}")
    return 1 if wrong or kept["problems"] else 0


def enter(spark: str, program: Path) -> None:
    """Goes on as the same program within the environment of a line of Spark's.

    Exits with 3 when the environment cannot be made.
    """
    environment = SPARKS[spark]
    python = ROOT / f".venv-{environment}" / "bin" / "python"
    if Path(sys.prefix) == python.parent.parent:
        return
    made = subprocess.run([str(ROOT / "scripts" / "venv.sh"), environment], check=False)
    if made.returncode:
        sys.exit(3)
    os.execv(python, [str(python), str(program), *sys.argv[1:]])


def read(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; exits with 2 when it is wrong."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.queries = [int(one) for one in options.queries.split(",") if one]
    except ValueError:
        parser.error("--queries: numbers with commas between them, as in 4,11,14")
    if any(not 1 <= number <= 99 for number in options.queries):
        parser.error("--queries: 1 to 99")
    options.modes = _listed(parser, "--modes", options.modes, modes.NAMES)
    options.traces = _listed(parser, "--traces", options.traces, TRACES)
    if not options.modes:
        parser.error(f"--modes: some of {','.join(modes.NAMES)}")
    if min(options.rounds, options.workers, options.cores, options.datanodes) < 1:
        parser.error("--rounds, --workers, --cores and --datanodes: at least 1")
    if min(options.scale, options.notice, options.minutes, options.speed) <= 0:
        parser.error("--scale, --notice, --minutes and --speed must be positive")
    if options.check:
        options.rounds, options.traces, options.warm_ups = 1, [], 0
    return options


def _listed(
    parser: argparse.ArgumentParser, flag: str, text: str, known: list[str]
) -> list[str]:
    """Returns the names of a list with commas; exits with 2 when one is not known."""
    names = [one for one in text.split(",") if one and one != "none"]
    for name in names:
        if name not in known:
            parser.error(f"{flag}: {name!r} is none of {','.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--spark", choices=SPARKS, default="4.1", help="Spark's line (%(default)s)")
    add("--queries", default=",".join(map(str, QUERIES)), help="numbers (%(default)s)")
    add("--scale", type=float, default=1.0, help="TPC-DS scale (%(default)s)")
    add("--rounds", type=int, default=5, help="rounds without preemptions (%(default)s)")
    add("--warm-ups", type=int, default=1, help="rounds before, not counted (%(default)s)")
    add("--preempted-rounds", type=int, default=1, help="rounds of each trace (%(default)s)")
    add("--minutes", type=float, default=1e6, help="begin no round that would end later")
    add("--modes", default=",".join(modes.NAMES), help="(%(default)s)")
    add("--traces", default=",".join(TRACES), help="or none (%(default)s)")
    add("--no-jobs", action="store_true", help="leave GroupBy and sort out")
    add("--workers", type=int, default=2, help="Spark's workers (%(default)s)")
    add("--cores", type=int, default=1, help="cores of each worker (%(default)s)")
    add("--executor-memory", default="1500m", help="(%(default)s)")
    add("--datanodes", type=int, default=4, help="(%(default)s)")
    add("--dram", default="512MiB", help="memory of each datanode (%(default)s)")
    add("--notice", type=float, default=4.0, help="seconds from notice to SIGKILL (%(default)s)")
    add("--speed", type=float, default=1.0,
        help="how much more often machines are taken than in the paper (%(default)s)")
    add("--seed", type=int, default=1, help="of the first trace (%(default)s)")
    add("--conf", action="append", default=[], metavar="KEY=VALUE",
        help="another setting of Spark's, for all modes")
    add("--cache", type=Path, default=ROOT / "target" / "tpcds", help="of data (%(default)s)")
    add("--out", type=Path, default=ROOT / "target" / "spark-bench", help="(%(default)s)")
    add("--keep", action="store_true", help="also write a dated copy to bench/results")
    add("--check", action="store_true", help="one round, results only: no page, no traces")
    return parser


if __name__ == "__main__":
    sys.exit(main())
