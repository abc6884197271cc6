#!/usr/bin/env python3
"""Counts rows by key as a stream of Spark whose checkpoint is in Sanderling.

`spark-submit --jars CLIENT.jar,HADOOP.jar scripts/spark_stream.py --help`. It goes on where the
checkpoint ends: start it again, on another machine too, after it was killed. Started by `python3`,
it gets SIGTERM itself: then it stops the query, and ends when the store of the durable directory
has the checkpoint. docs/FRAMEWORKS.md describes both.
"""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Counts until the input ends (`--available-now`), or until it is ended."""
    leave = threading.Event()
    # The handler only sets the event: a call of the JVM may be under way in this thread.
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--input", required=True, help="a directory of CSV files: key, value")
    arguments.add_argument("--output", required=True, type=Path, help="a directory for the counts")
    arguments.add_argument("--checkpoint", required=True, help="sanderling://HOST:PORT/DIRECTORY")
    arguments.add_argument("--available-now", action="store_true", help="end with the input")
    arguments.add_argument("--durable-timeout", type=float, default=25, metavar="SECONDS",
                           help="after SIGTERM, how long to wait for the store at most")
    options = arguments.parse_args()

    spark = (
        SparkSession.builder.appName("counts")
        # Spark replaces files of a checkpoint in one step only through this interface.
        .config("spark.hadoop.fs.AbstractFileSystem.sanderling.impl",
                "io.sanderling.hadoop.Sanderling")
        # Each file of a checkpoint waits for the durable directory's store before it is renamed.
        .config("spark.hadoop.fs.sanderling.timeout", "5m")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )

    def keep(counts: DataFrame, batch: int) -> None:
        """Writes the counts of a batch; the same batch again replaces them."""
        found = {row["key"]: row["count"] for row in counts.collect()}
        place = options.output / f"counts-{batch}.json"
        new = place.with_suffix(".new")
        new.write_text(json.dumps(found))
        os.replace(new, place)

    rows = (
        spark.readStream.schema("key string, value long")
        .option("maxFilesPerTrigger", 1).csv(options.input)
    )
    query = (
        rows.groupBy("key").count().writeStream.outputMode("complete")
        .option("checkpointLocation", options.checkpoint).foreachBatch(keep)
    )
    if options.available_now:
        query = query.trigger(availableNow=True)
    running = query.start()
    while not leave.is_set() and not running.awaitTermination(1):
        pass
    if leave.is_set():
        running.stop()
        print("the query has stopped", flush=True)
        wait_durable(spark, options.checkpoint, options.durable_timeout)


def wait_durable(spark: SparkSession, checkpoint: str, seconds: float) -> None:
    """Waits until the store of the durable directory has the checkpoint."""
    place = urlsplit(checkpoint)
    # The client in Java, which the file system above needs, too.
    java = spark._jvm.io.sanderling.client
    client = java.SanderlingClient.connect(place.netloc, java.ClientOptions.create())
    left = client.waitDurable(place.path, int(seconds * 1000))
    if left.isPresent():
        sys.exit(f"the store does not have all of {checkpoint} after {seconds} s")


if __name__ == "__main__":
    main()
