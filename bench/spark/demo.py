#!/usr/bin/env python3
"""Shows Spark at work on machines that are being taken away: `make demo DEMO=spark`.

TPC-DS queries run with Sanderling's shuffle, once without preemptions, then while datanodes get
notices and are killed, then while Spark's own workers are. Exit code 0 when every result is right,
no task failed and nothing was lost.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import run

# Enough shuffles to have something to lose, small enough for five minutes on two cores.
QUERIES = "3,7,11,14,18,25,29,38,46,50,65,69,74,78,87,93,95"
DEFAULTS = ["--modes", "sanderling", "--queries", QUERIES, "--rounds", "1", "--no-jobs",
            "--datanodes", "5", "--speed", "4", "--minutes", "12",
            "--traces", "datanodes-32,executors-16", "--out", "demo-out"]


def main() -> int:
    """Runs the demonstration and prints its table."""
    options = run.read([*DEFAULTS, *sys.argv[1:]])
    run.enter(options.spark, Path(__file__))
    import comparison
    import report
    import summary
    from goal import Unavailable
    from tables import MissingTool

    try:
        with contextlib.closing(comparison.Comparison(options)) as made:
            made.on_event = made.note
            kept = made.run()
    except (Unavailable, MissingTool, TimeoutError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted; every process is stopped", file=sys.stderr)
        return 130
    page = report.write(kept, options.out)
    problems = [f"{one['trace']}, {one['work']}: {one['problem']}"
                for one in kept["runs"] if one["problem"]] + kept["problems"]
    preempted = summary.preempted(kept)
    problems += [f"{one.trace}: {one.figures[what]} {what.replace('_', ' ')}"
                 for one in preempted for what in ("tasks_failed", "fetch_failures")
                 if one.figures[what]]
    problems += [f"{one.trace}: {one.lost_bytes} bytes lost" for one in preempted if one.lost_bytes]
    print(_table(kept, preempted))
    print()
    for problem in problems:
        print(f"WRONG: {problem}")
    if not problems:
        print("  every result is right, no task failed and nothing was lost")
    print(f"\n  open the report: {Path(page).resolve().as_uri()}")
    return 1 if problems else 0


def _table(kept: dict, preempted: list) -> str:
    right = sum(not one["problem"] for one in kept["runs"])
    lines = [
        ("Spark", kept["spark"], f"with Sanderling's shuffle in {kept['options']['datanodes']} "
                                 "datanodes"),
        ("results right", f"{right} / {len(kept['runs'])}",
         f"{len(kept['work'])} TPC-DS queries, compared with DuckDB's"),
    ]
    for one in preempted:
        what = one.trace.split("-")[0]
        lines += [
            (f"{what} taken", str(one.notices),
             "each got a notice, was killed at its deadline, and replaced"),
            ("  failed tasks", str(one.figures["tasks_failed"]),
             f"{one.figures['fetch_failures']} fetch failures, "
             f"{one.figures['map_tasks_recomputed']} maps ran again"),
            ("  bytes moved", f"{one.moved_bytes / (1 << 20):.1f} MiB",
             f"off leaving datanodes; {one.lost_bytes} bytes lost"),
            ("  time", f"{one.seconds:.1f} s",
             f"{one.slowdown:+.1%} over the time without preemptions; {one.capacity_lost:.1%} of "
             "the workers' time was gone"),
        ]
    lines.append(("whole run", f"{kept['seconds']:.0f} s", "data, processes, rounds"))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "\n".join(f"  {one:<{widths[0]}}  {two:>{widths[1]}}  {three}"
                     for one, two, three in lines)


if __name__ == "__main__":
    sys.exit(main())
