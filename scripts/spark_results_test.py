#!/usr/bin/env python3
"""Tests that Spark's answers and numbers with Sanderling's shuffle are those of its own shuffle.

Run with .venv-spark35/bin/python and .venv-spark43/bin/python, which scripts/venv.sh makes. The
program is SANDERLING_BIN, else the one in .venv, else the one that cargo built.
"""

import functools
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from spark_cluster import Cluster
from spark_session import Application, Standalone, event_log, launch

ROWS = 30_000
# One map's bytes for one reducer: many blocks of the store, many buffers of Spark.
GIANT_ROWS = 200_000
NO_COMPRESSION = {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"}
FEW = ("group", "join", "repartition")
VARIANTS = {
    "AQE off": {"spark.sql.adaptive.enabled": "false"},
    "encryption": {"spark.io.encryption.enabled": "true"},
    "lz4": {"spark.io.compression.codec": "lz4"},
    "lzf": {"spark.io.compression.codec": "lzf"},
    "snappy": {"spark.io.compression.codec": "snappy"},
    "zstd": {"spark.io.compression.codec": "zstd"},
    "no compression": NO_COMPRESSION,
    "encryption, no compression": NO_COMPRESSION | {"spark.io.encryption.enabled": "true"},
    "spills": {"spark.shuffle.spill.numElementsForceSpillThreshold": "2000"},
    "always merged by sort": {"spark.shuffle.sort.bypassMergeThreshold": "1"},
    "read in small pieces": {"spark.reducer.maxSizeInFlight": "64k",
                             "spark.reducer.maxReqsInFlight": "2"},
}
# Each variant is in one of these, but for two: other tests have lz4, Spark's own choice, and no
# compression alone.
COMBINED = (
    ("AQE off", "lzf", "always merged by sort"),
    ("encryption", "snappy", "read in small pieces"),
    ("zstd", "spills"),
    ("encryption, no compression",),
)

cluster: Cluster
work: tempfile.TemporaryDirectory[str]


def setUpModule() -> None:
    global cluster, work
    work = tempfile.TemporaryDirectory()
    launch()
    cluster = Cluster(datanodes=3, dram="384MiB")


def tearDownModule() -> None:
    cluster.stop()
    work.cleanup()


def ours(settings: dict[str, str] | None = None, master: str = "local[2]") -> Application:
    """Starts an application that shuffles on Sanderling; in one process by default."""
    return Application(cluster.spark_settings() | (settings or {}), master)


def native(settings: dict[str, str] | None = None) -> Application:
    """Starts an application with Spark's own shuffle."""
    return Application(settings or {}, "local[2]")


@functools.cache
def native_answers() -> tuple[dict[str, Any], dict[str, Any], event_log.Account]:
    """Returns the rows of SQL and of RDDs with Spark's own shuffle, and its account."""
    with native() as app:
        found = answers(app.spark), python_answers(app)
    return *found, app.stop()


def answers(spark: SparkSession, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Runs queries that shuffle in every way Spark SQL has, or some, and returns their rows."""
    rows = spark.range(0, ROWS, 1, 5).selectExpr(
        "id", "id * 7919 % 1009 as k", "cast(id as string) as s")
    few = spark.range(0, 1009, 3, 3).selectExpr("id as k", "sha2(cast(id as string), 256) as name")
    rows.createOrReplaceTempView("facts")
    few.createOrReplaceTempView("names")
    queries = {
        "group": "select k, count(*) n, sum(id) total, max(s) top from facts group by k order by k",
        "distinct": "select count(distinct k) a, count(distinct id % 77) b from facts",
        "join": "select /*+ MERGE(names) */ name, count(*) n, sum(id) total from facts join names "
                "using (k) group by name order by name",
        "outer": "select /*+ SHUFFLE_HASH(names) */ name is null as without, count(*) n from facts "
                 "left join names using (k) group by 1 order by 1",
        "sort": "select s, id from facts order by s desc, id limit 2000",
        "window": "select k, id from (select k, id, row_number() over (partition by k order by s) "
                  "as place from facts) where place = 3 order by k",
        "repartition": "select sum(hash(id, k, s)) from (select /*+ REPARTITION(23) */ * "
                       "from facts)",
        "range": "select sum(hash(id, k, s)) from (select /*+ REPARTITION_BY_RANGE(9, s) */ * "
                 "from facts)",
        "empty": "select k, count(*) from facts where id < 0 group by k",
    }
    return {name: [tuple(row) for row in spark.sql(text).collect()]
            for name, text in queries.items() if not names or name in names}


def python_answers(app: Application) -> dict[str, Any]:
    """Runs RDDs of Python, whose rows cross the shuffle as pickled batches."""
    pairs = app.context.parallelize(range(5000), 4).map(lambda number: (number % 97, number))
    other = app.context.parallelize([(number, str(number)) for number in range(0, 97, 2)], 3)
    return {
        "reduce": sorted(pairs.reduceByKey(lambda left, right: left + right, 5).collect()),
        "sorted": pairs.sortByKey(numPartitions=3).keys().collect(),
        "cogroup": sorted((key, sorted(left), sorted(right))
                          for key, (left, right) in pairs.cogroup(other, 4).collect()),
    }


class ExecutorsTest(unittest.TestCase):
    maxDiff = 2000

    def test_executors_of_their_own_answer_as_native_and_report_the_same_numbers(self) -> None:
        expected, expected_python, native_account = native_answers()
        with ours(master="local-cluster[1,2,1024]") as app:
            app.wait_for_executors(1)
            self.assertEqual(answers(app.spark), expected)
            self.assertEqual(python_answers(app), expected_python)
            self.assertTrue(cluster.names("/spark"), "nothing was shuffled on the store")
        account = app.stop()
        self.same_numbers(account, native_account)
        self.assertEqual((account.tasks_failed, account.fetch_failures), (0, 0))
        self.assertEqual(cluster.names("/spark"), [], "the application left something behind")

    def same_numbers(self, account: event_log.Account,
                     native_account: event_log.Account) -> None:
        """Compares what the UI shows with what it shows for Spark's own shuffle."""
        mine, other = account.shuffle, native_account.shuffle
        self.assertEqual(mine.write_records, other.write_records)
        self.assertEqual(mine.read_records, other.read_records)
        # The same sort writers and codec: the bytes differ by what is left out at most.
        self.assertAlmostEqual(mine.write_bytes / other.write_bytes, 1.0, delta=0.05)
        self.assertAlmostEqual(mine.read_bytes / other.read_bytes, 1.0, delta=0.05)
        self.assertGreater(mine.write_nanos, 0)
        self.assertGreater(mine.read_blocks, 0)


class SettingsTest(unittest.TestCase):
    maxDiff = 2000

    def test_every_setting_of_the_shuffle_gives_the_same_answers(self) -> None:
        for names in COMBINED:
            settings = functools.reduce(dict.__or__, (VARIANTS[name] for name in names))
            same_answers(self, ", ".join(names), settings)

    def test_partitions_of_no_length_and_two_thousand_of_them(self) -> None:
        with ours({"spark.sql.adaptive.enabled": "false",
                   "spark.sql.shuffle.partitions": "2000"}) as app:
            # By their hashes, the keys leave more than half of the partitions empty.
            few = app.spark.range(0, ROWS, 1, 8).selectExpr("id", "id % 1009 as k")
            found = few.groupBy("k").count().selectExpr("count(*)", "sum(count)").collect()[0]
            self.assertEqual(tuple(found), (1009, ROWS))

    def test_one_giant_partition_beside_empty_ones(self) -> None:
        settings = NO_COMPRESSION | {"spark.sql.adaptive.enabled": "false"}
        with ours(settings) as app:
            rows = app.spark.range(0, GIANT_ROWS, 1, 2).selectExpr(
                "1 as k", "id", "sha2(cast(id as string), 512) as a",
                "sha2(cast(-id as string), 512) as b")
            wide = rows.repartition(5, "k").selectExpr("count(*)", "sum(hash(id, a, b))").collect()
            self.assertEqual(tuple(wide[0]),
                             tuple(rows.selectExpr("count(*)", "sum(hash(id, a, b))").collect()[0]))
        self.assertGreater(app.stop().shuffle.read_bytes, 50 << 20)

    def test_a_skewed_join_is_split_by_map_and_right(self) -> None:
        settings = {"spark.sql.adaptive.enabled": "true",
                    "spark.sql.autoBroadcastJoinThreshold": "-1",
                    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
                    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "10k",
                    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "2",
                    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "20k"}
        with ours(settings) as app:
            left = app.spark.range(0, ROWS, 1, 8).selectExpr(
                "if(id % 10 < 9, 7, id % 1000) as k", "id", "sha2(cast(id as string), 256) as s")
            right = app.spark.range(0, 1000, 1, 4).selectExpr("id as k", "id * 3 as v")
            joined = left.join(right, "k")
            found = joined.selectExpr("count(*)", "sum(v)", "sum(hash(s))").collect()[0]
            plan = joined._jdf.queryExecution().executedPlan().toString()
            expected = left.selectExpr("count(*)", "sum(k * 3)", "sum(hash(s))").collect()[0]
        self.assertEqual(tuple(found), tuple(expected), plan)


class EachSettingTest(unittest.TestCase):
    """Runs each variant in an application of its own. `make test` leaves it out."""

    maxDiff = 2000

    def test_each_setting_of_the_shuffle_alone_gives_the_same_answers(self) -> None:
        for name, settings in VARIANTS.items():
            same_answers(self, name, settings)


def same_answers(test: unittest.TestCase, name: str, settings: dict[str, str]) -> None:
    """Compares the answers with some settings with those of Spark's own shuffle."""
    expected, _, _ = native_answers()
    with test.subTest(name), ours(settings) as app:
        test.assertEqual(answers(app.spark, FEW), {name: expected[name] for name in FEW})


class AttemptsTest(unittest.TestCase):
    def test_a_failed_attempt_leaves_no_row_behind(self) -> None:
        def rows(index: int, _rows: Any) -> Any:
            attempt = TaskContext.get().attemptNumber()
            for number in range(3000):
                if attempt == 0 and index % 2 and number == 2000:
                    raise OSError("the first attempt fails on purpose")
                yield (number % 31, (index, attempt, number))

        with ours({"spark.shuffle.spill.numElementsForceSpillThreshold": "500"},
                  "local[2,3]") as app:
            made = app.context.parallelize(range(4), 4).mapPartitionsWithIndex(rows)
            found = sorted(made.partitionBy(7).values().collect())
        self.assertEqual(found, sorted((index, index % 2, number) for index in range(4)
                                       for number in range(3000)))
        self.assertEqual(app.stop().tasks_failed, 2)


class SpeculationTest(unittest.TestCase):
    """Lets Spark copy a slow task. `make test` leaves it out: a suite of Spark's own does it too.

    That is the case SPARK-8029 of SortShuffleSuite: attempts of one task at one time.
    """

    def test_the_copy_of_a_slow_task_mixes_no_bytes_with_it(self) -> None:
        flags = tempfile.mkdtemp(dir=work.name)

        def rows(index: int, _rows: Any) -> Any:
            attempt = TaskContext.get().attemptNumber()
            for number in range(2000):
                if index == 0 and number == 1000:
                    # Both attempts are in the middle of their rows at one time.
                    Path(flags, f"attempt-{attempt}").touch()
                    deadline = time.monotonic() + 100
                    while len(list(Path(flags).iterdir())) < 2 and time.monotonic() < deadline:
                        time.sleep(0.02)
                yield (number % 31, (index, attempt, number))

        settings = {"spark.speculation": "true", "spark.speculation.multiplier": "1.1",
                    "spark.speculation.quantile": "0.5", "spark.speculation.interval": "100ms",
                    "spark.speculation.minTaskRuntime": "100ms",
                    "spark.shuffle.spill.numElementsForceSpillThreshold": "500"}
        # Spark never starts a copy on the host of the slow one, so there are two.
        with Standalone(("127.0.0.2", "127.0.0.3"), cores=2) as workers, \
                ours(settings, workers.master) as app:
            app.wait_for_executors(2)
            made = app.context.parallelize(range(4), 4).mapPartitionsWithIndex(rows)
            found = made.partitionBy(7).values().collect()
        account = app.stop()
        self.assertGreaterEqual(account.tasks_speculative, 1)
        for index in range(4):
            mine = [row for row in found if row[0] == index]
            self.assertEqual(len({attempt for _, attempt, _ in mine}), 1, "two attempts are mixed")
            self.assertEqual(sorted(number for _, _, number in mine), list(range(2000)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
