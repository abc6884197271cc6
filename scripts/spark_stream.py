#!/usr/bin/env python3
"""Counts rows by key as a stream of Spark whose checkpoint is in Sanderling.

`spark-submit --jars CLIENT.jar,HADOOP.jar scripts/spark_stream.py --help`. It goes on where the
checkpoint ends: start it again, on another machine too, after it was killed. docs/FRAMEWORKS.md
describes it.
"""

import argparse
import json
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Counts until the input ends (`--available-now`), or until it is ended."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--input", required=True, help="a directory of CSV files: key, value")
    arguments.add_argument("--output", required=True, type=Path, help="a directory for the counts")
    arguments.add_argument("--checkpoint", required=True, help="sanderling://HOST:PORT/DIRECTORY")
    arguments.add_argument("--available-now", action="store_true", help="end with the input")
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
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
