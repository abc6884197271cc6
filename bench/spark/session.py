"""One Spark application, driven by lines of JSON: a request on stdin, its reply on stdout.

It runs in a process of its own, so that several live side by side and take turns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import workloads
from results import to_json


def main() -> None:
    """Opens the application that the first line describes and answers until stdin ends."""
    # Whatever else prints must not come between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    opened = json.loads(sys.stdin.readline())
    try:
        spark = _open(opened)
    except Exception as error:  # noqa: BLE001 - reported to what started this
        _reply(replies, {"error": _first_line(error)})
        return
    _reply(replies, {"version": spark.version, "application": spark.sparkContext.applicationId})
    try:
        for line in sys.stdin:
            answer = _answer(spark, json.loads(line))
            # Spark forgets a shuffle when the driver's collector does: after each piece of work,
            # so that none has to live with another's, on disk or in a datanode.
            spark.sparkContext._jvm.System.gc()
            _reply(replies, answer)
    finally:
        spark.stop()


def _open(opened: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(opened["name"]).config("spark.master", opened["address"])
    for key, value in opened["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for table in opened["tables"]:
        spark.read.parquet(table).createOrReplaceTempView(Path(table).stem)
    return spark


def _answer(spark: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Runs one piece of work and returns its time with its rows, or with what went wrong."""
    spark.sparkContext.setJobGroup(request["id"], request["id"])
    began, clock = time.time(), time.monotonic()
    try:
        if "sql" in request:
            rows = to_json(spark.sql(request["sql"]).collect())
        else:
            rows = workloads.run(spark, **request["job"])
    except Exception as error:  # noqa: BLE001 - a failed query is a result
        return {
            "id": request["id"],
            "began": began,
            "seconds": time.monotonic() - clock,
            "error": _first_line(error),
        }
    seconds = time.monotonic() - clock
    return {"id": request["id"], "began": began, "seconds": seconds, "rows": rows}


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[:3])[:600]}"


def _reply(replies: Any, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
