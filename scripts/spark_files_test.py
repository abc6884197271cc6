#!/usr/bin/env python3
"""Tests that Spark keeps checkpoints and tables in the store while it shuffles there.

Run as scripts/spark_results_test.py is.
"""

import unittest

from spark_cluster import Cluster, hadoop_jar, spark_jar
from spark_session import VERSION, Application, launch

# With Spark 3.5, this is the test of `make test` whose executor is a process of its own.
MASTER = "local-cluster[1,2,1024]" if VERSION.startswith("3.") else "local[2]"
# Spark replaces files of a stream's checkpoint in one step only through this interface.
STREAMS = {"spark.hadoop.fs.AbstractFileSystem.sanderling.impl": "io.sanderling.hadoop.Sanderling"}


def setUpModule() -> None:
    launch(spark_jar(), hadoop_jar())


class FilesTest(unittest.TestCase):
    cluster: Cluster
    app: Application

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(datanodes=2, dram="192MiB")
        cls.addClassCleanup(cls.cluster.stop)
        cls.root = f"sanderling://{cls.cluster.address}"
        cls.app = Application(cls.cluster.spark_settings() | STREAMS, MASTER)
        cls.addClassCleanup(cls.app.stop)

    def setUp(self) -> None:
        self.app.account()

    def test_tables_and_checkpoints_live_beside_the_shuffle(self) -> None:
        app = self.app
        rows = app.spark.range(0, 50_000, 1, 4).selectExpr("id", "id % 10 as k")
        rows.repartition(5).write.partitionBy("k").parquet(f"{self.root}/tables/facts")
        app.spark.range(0, 100).selectExpr("id as k", "id * 2 as v") \
            .write.csv(f"{self.root}/tables/names", header=True)
        read = app.spark.read.parquet(f"{self.root}/tables/facts")
        names = app.spark.read.csv(f"{self.root}/tables/names", header=True, inferSchema=True)
        joined = read.join(names.hint("broadcast"), "k").selectExpr("count(*)", "sum(v)")
        plan = joined._jdf.queryExecution().executedPlan().toString()
        self.assertIn("BroadcastHashJoin", plan)
        self.assertEqual(tuple(joined.collect()[0]), (50_000, 5_000 * 90))
        self.assertEqual(read.where("k = 7").count(), 5_000)

        app.context.setCheckpointDir(f"{self.root}/checkpoints")
        kept = app.context.parallelize(range(1000), 3).map(lambda n: (n % 10, n)) \
            .reduceByKey(lambda left, right: left + right, 4)
        kept.checkpoint()
        self.assertEqual(kept.count(), 10)
        self.assertTrue(kept.isCheckpointed())
        self.assertTrue(str(kept.getCheckpointFile()).startswith(self.root))
        self.assertEqual(sum(value for _, value in kept.collect()), sum(range(1000)))
        self.assertTrue(self.cluster.names("/spark"), "nothing was shuffled on the store")
        self.assertEqual(app.account().tasks_failed, 0)

    def test_writing_again_without_leave_is_refused_and_with_it_replaces(self) -> None:
        place = f"{self.root}/table"
        self.app.spark.range(10).write.parquet(place)
        with self.assertRaisesRegex(Exception, "(?i)already exists"):
            self.app.spark.range(20).write.parquet(place)
        self.app.spark.range(20).write.mode("overwrite").parquet(place)
        self.assertEqual(self.app.spark.read.parquet(place).count(), 20)

    def test_a_stream_goes_on_from_its_checkpoint(self) -> None:
        spark, place = self.app.spark, f"{self.root}/stream"
        for number in range(2):
            spark.range(number * 10, number * 10 + 10, 1, 1).write.mode("append") \
                .parquet(f"{place}/input")
            query = spark.readStream.schema("id long").parquet(f"{place}/input").writeStream \
                .option("checkpointLocation", f"{place}/checkpoint") \
                .trigger(availableNow=True).start(f"{place}/output", format="parquet")
            query.awaitTermination()
        found = spark.read.parquet(f"{place}/output").collect()
        self.assertEqual(sorted(row[0] for row in found), list(range(20)))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.app.stop()
        assert "table" in cls.cluster.names("/"), "tables outlive the application"


if __name__ == "__main__":
    unittest.main(verbosity=2)
