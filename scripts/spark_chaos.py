#!/usr/bin/env python3
"""Kills datanodes without notice while Spark runs TPC-DS, and compares every result with DuckDB's.

Run with the Python of .venv-spark43 or .venv-spark35, which `scripts/venv.sh spark43` makes. The
same seed draws the same nodes and pauses; what Spark does meanwhile is its own affair.
Exit code 0: every result right, nothing hung, and no map ran again but those that the store lost.
"""

import argparse
import random
import sys
import threading
import time
from pathlib import Path
from typing import Self

from cluster import ROOT, SetUpError
from spark_cluster import Cluster
from spark_session import Application, Background, launch

import tables  # noqa: E402 - spark_session sets where it is
from results import difference, to_json  # noqa: E402

QUERIES = [4, 11, 14, 23, 64, 67, 72, 78, 93, 95]
DATANODES = 4
PAUSE_SECONDS_MIN = 0.5
PAUSE_SECONDS_MAX = 4.0
# A query that takes longer hangs.
QUERY_SECONDS_MAX = 900.0
# A stage is run again for each node that dies under it; Spark's own limit is 4.
SETTINGS = {"spark.stage.maxConsecutiveAttempts": "100", "spark.task.maxFailures": "20",
            "spark.sql.shuffle.partitions": "8"}


class Killer:
    """Kills a node every few seconds, and starts another in its place, until it is stopped.

    It stops for a while after so many in one query: on a slow machine no stage would ever end.
    """

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.killed = 0
        self.left = 0
        self._cluster = cluster
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_what: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error:
            raise self._error

    def _run(self) -> None:
        nodes = [f"n{number}" for number in range(DATANODES)]
        try:
            while not self._stop.wait(self._random.uniform(PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX)):
                if self.left == 0:
                    continue
                self.left -= 1
                place = self._random.randrange(DATANODES)
                self._cluster.kill(nodes[place])
                self.killed += 1
                nodes[place] = f"n{DATANODES + self.killed}"
                self._cluster.start_datanode(nodes[place])
        except (AssertionError, OSError, SetUpError) as error:
            self._error = error


def main() -> int:
    """Runs the queries under fire and prints one line for each, then the account."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seed", type=int, default=1, help="which nodes die, and when")
    arguments.add_argument("--scale", type=float, default=1.0, help="of the data; 1 is 1 GB")
    arguments.add_argument("--rounds", type=int, default=2, help="times that each query runs")
    arguments.add_argument("--kills", type=int, default=3, help="most nodes killed in one query")
    arguments.add_argument("--dram", default="512MiB", help="memory of each datanode")
    arguments.add_argument("--queries", default=",".join(map(str, QUERIES)))
    options = arguments.parse_args()
    asked = [int(number) for number in options.queries.split(",")]
    try:
        made = tables.generate(options.scale, ROOT / "target" / "tpcds")
        queries = tables.queries(asked, made)
        launch()
        problems = run(options, queries, tables.used(queries, made))
    except (SetUpError, tables.MissingTool, ValueError) as error:
        print(f"spark_chaos: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(f"WRONG {problem}")
    return 1 if problems else 0


def run(options: argparse.Namespace, queries: list[tables.Query], files: list[str]) -> list[str]:
    """Runs everything and returns what was wrong."""
    problems = []
    with Cluster(DATANODES, options.dram) as cluster:
        settings = SETTINGS | cluster.spark_settings()
        with Application(settings, "local-cluster[2,1,1024]") as app:
            for file in files:
                app.spark.read.parquet(file).createOrReplaceTempView(Path(file).stem)
            app.wait_for_executors(2)
            with Killer(cluster, options.seed) as killer:
                for turn in range(options.rounds):
                    for query in queries:
                        killer.left = options.kills
                        problem = one(app, query)
                        problems += [f"round {turn + 1} {query.name}: {problem}"] if problem else []
            lost = cluster.lost_map_outputs()
        account = app.stop()
    again = account.map_outputs_replaced
    needless = set(again) - lost
    print(f"seed {options.seed}: {options.rounds * len(queries) - len(problems)} of "
          f"{options.rounds * len(queries)} results are right, {killer.killed} datanodes killed, "
          f"{len(lost)} map outputs lost, {account.map_outputs_missed} of them missed by a reducer,"
          f" {len(again)} of {account.map_tasks} maps ran again, {len(needless)} of them"
          f" needlessly, {account.fetch_failures} fetch failures, "
          f"{account.tasks_failed - account.fetch_failures} other failures")
    if needless:
        problems.append(f"maps ran again whose outputs were not lost: {sorted(needless)}")
    return problems


def one(app: Application, query: tables.Query) -> str:
    """Runs a query and returns what is wrong with its result; empty when nothing is."""
    began = time.monotonic()
    running = Background(lambda: to_json(app.spark.sql(query.text).collect()))
    try:
        problem = difference(query.wanted, running.result(QUERY_SECONDS_MAX))
    except Exception as error:
        problem = " ".join(str(error).split())[:600]
    seconds = time.monotonic() - began
    print(f"{query.name}: {problem or 'right'} after {seconds:.1f} s", flush=True)
    return problem


if __name__ == "__main__":
    sys.exit(main())
