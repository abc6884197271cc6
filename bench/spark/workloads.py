"""GroupBy and sort, the two shuffle-heavy jobs of Stuedi, "Data Processing at the Speed of 100
Gbps using Apache Crail", slides "Spark GroupBy (80M keys, 4K)" and "Sorting 12.8 TB on 128 nodes".

There a group-by moves 80 million keys with values of 4 KiB and counts the groups; the sort has
records of 100 bytes with keys of 10 (sortbenchmark.org). Here both are as large as requested.
They run in the JVM: no Python touches a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SORT_RECORD_BYTES = 100
SORT_KEY_BYTES = 10
# An id takes eight of a record's bytes; by their sum a lost or doubled record is seen.
SORT_ID_BYTES = 8

_DIGEST_BYTES = 128


@dataclass(frozen=True)
class Job:
    """One of the two jobs and its size."""

    name: str
    records: int
    value_bytes: int

    @property
    def wanted(self) -> list[list[float]]:
        """Returns what the job has to find: counts, bytes, the sum of ids."""
        ids = self.records * (self.records - 1) / 2
        if self.name == "group-by":
            return [[float(self.records), float(self.records * self.value_bytes), ids]]
        return [[float(self.records), ids, 0.0]]


def jobs(scale: float) -> list[Job]:
    """Returns both jobs: at scale 1 they move about 400 MB each before compression."""
    return [
        Job("group-by", round(100_000 * scale), 4096),
        Job("sort", round(4_000_000 * scale), SORT_RECORD_BYTES),
    ]


def run(spark: Any, name: str, records: int, value_bytes: int) -> list[list[float]]:
    """Runs one job in a session and returns what it found."""
    found = (_group_by if name == "group-by" else _sort)(spark, records, value_bytes)
    return [[float(value) for value in found]]


def _group_by(spark: Any, records: int, value_bytes: int) -> Any:
    """Groups values by key, four to a key, and counts and measures them."""
    from pyspark.sql import functions as f

    made = spark.range(records).select(
        (f.col("id") % max(records // 4, 1)).alias("key"), "id", _random(value_bytes).alias("value")
    )
    grouped = made.groupBy("key").agg(f.collect_list(f.struct("id", "value")).alias("values"))

    def total(of: Any) -> Any:
        zero = f.lit(0).cast("long")
        return f.sum(f.aggregate("values", zero, lambda sum_, each: sum_ + of(each)))

    return grouped.agg(
        f.sum(f.size("values")),
        total(lambda each: f.length(each["value"])),
        total(lambda each: each["id"]),
    ).collect()[0]


def _sort(spark: Any, records: int, record_bytes: int) -> Any:
    """Sorts records over all partitions and counts partitions that overlap the one before."""
    from pyspark.sql import functions as f

    rest = record_bytes - SORT_KEY_BYTES - SORT_ID_BYTES
    made = spark.range(records).select(
        f.substring(f.sha2(f.col("id").cast("string"), 256), 1, SORT_KEY_BYTES).alias("key"),
        "id",
        _random(rest).alias("rest"),
    )
    # The number of the partition is not a function of the row: Spark may not leave the sort out.
    placed = made.orderBy("key").withColumn("part", f.spark_partition_id())
    parts = placed.groupBy("part").agg(
        f.count("*").alias("many"),
        f.sum("id").alias("ids"),
        f.min("key").alias("low"),
        f.max("key").alias("high"),
        f.sum(f.length("rest")),
    )
    found = sorted(parts.collect())
    wrong = sum(one["high"] >= other["low"] for one, other in zip(found, found[1:], strict=False))
    return sum(row["many"] for row in found), sum(row["ids"] for row in found), wrong


def _random(size: int) -> Any:
    """Returns text that differs everywhere, so that compression finds nothing but its digits."""
    from pyspark.sql import functions as f

    parts = [
        f.sha2(f.concat(f.col("id").cast("string"), f.lit(f"-{at}")), 512)
        for at in range(-(-size // _DIGEST_BYTES))
    ]
    return f.substring(f.concat(*parts), 1, size)
