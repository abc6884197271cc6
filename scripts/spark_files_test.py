#!/usr/bin/env python3
"""Tests that Spark keeps checkpoints and tables in the store while it shuffles there.

Run as scripts/spark_results_test.py is.
"""

import unittest

from spark_cluster import Cluster, hadoop_jar, spark_jar
from spark_session import Application, launch


def setUpModule() -> None:
    launch(spark_jar(), hadoop_jar())


class FilesTest(unittest.TestCase):
    def setUp(self) -> None:
        self.cluster = Cluster(datanodes=2, dram="192MiB")
        self.addCleanup(self.cluster.stop)
        self.root = f"sanderling://{self.cluster.address}"

    def test_tables_and_checkpoints_live_beside_the_shuffle(self) -> None:
        with Application(self.cluster.spark_settings(), "local[2]") as app:
            facts = app.spark.range(0, 50_000, 1, 4).selectExpr("id", "id % 10 as k")
            facts.repartition(5).write.partitionBy("k").parquet(f"{self.root}/tables/facts")
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
        self.assertEqual(app.stop().tasks_failed, 0)
        self.assertIn("tables", self.cluster.names("/"), "tables outlive the application")

    def test_writing_again_without_leave_is_refused_and_with_it_replaces(self) -> None:
        with Application(self.cluster.spark_settings(), "local[2]") as app:
            place = f"{self.root}/table"
            app.spark.range(10).write.parquet(place)
            with self.assertRaisesRegex(Exception, "(?i)already exists"):
                app.spark.range(20).write.parquet(place)
            app.spark.range(20).write.mode("overwrite").parquet(place)
            self.assertEqual(app.spark.read.parquet(place).count(), 20)


if __name__ == "__main__":
    unittest.main(verbosity=2)
