#!/usr/bin/env python3
"""Tests the reader of Spark's event logs on small logs made by hand."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import accounts
import event_log

Event = dict[str, Any]


def stage(number: int, attempt: int = 0, rdd: int | None = None) -> Event:
    info = {"Stage ID": number, "Stage Attempt ID": attempt, "Number of Tasks": 2,
            "RDD Info": [{"RDD ID": number if rdd is None else rdd}]}
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info}


def task(number: int, index: int, at: int, reason: Event | str = "Success", attempt: int = 0,
         kind: str = "ShuffleMapTask", **more: Any) -> Event:
    """Returns the end of a task that took one second from `at`, both in milliseconds."""
    why = {"Reason": reason} if isinstance(reason, str) else reason
    metrics = {
        "Disk Bytes Spilled": 5,
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 100, "Shuffle Records Written": 10,
                                  "Shuffle Write Time": 7},
        "Shuffle Read Metrics": {"Remote Bytes Read": 30, "Local Bytes Read": 20,
                                 "Total Records Read": 3, "Remote Blocks Fetched": 2,
                                 "Local Blocks Fetched": 1, "Fetch Wait Time": 4},
    }
    return {"Event": "SparkListenerTaskEnd", "Stage ID": number, "Stage Attempt ID": attempt,
            "Task Type": kind, "Task End Reason": why, "Task Metrics": metrics,
            "Task Info": {"Task ID": number * 100 + attempt * 10 + index, "Index": index,
                          "Partition ID": index, "Launch Time": at, "Finish Time": at + 1000,
                          **more}}


def fetch_failed(shuffle: int, map_index: int) -> Event:
    return {"Reason": "FetchFailed", "Shuffle ID": shuffle, "Map Index": map_index,
            "Message": "lost\n  it"}


class AccountsTest(unittest.TestCase):
    """What the comparison takes from a log."""

    def log(self, *all_events: Event) -> Path:
        made = tempfile.NamedTemporaryFile("w", suffix=".log")
        self.addCleanup(made.close)
        made.writelines(json.dumps(event) + "\n" for event in all_events)
        made.flush()
        return Path(made.name)

    def test_tasks_are_distinguished_by_work_stage_and_executor(self) -> None:
        def job(group: str) -> Event:
            return {"Event": "SparkListenerJobStart", "Properties": {accounts.GROUP: group}}

        log = self.log(
            stage(0), task(0, 0, 500, **{"Executor ID": "9"}),
            job("no-preemptions/0/q3"), stage(2), task(2, 0, 1000, **{"Executor ID": "0"}),
            task(2, 1, 1000, **{"Executor ID": "1"}), stage(1),
            # A broadcast's job has a group of its own and belongs to the query.
            job("3f2a"), task(1, 0, 1500, **{"Executor ID": "1"}),
            task(1, 1, 1500, "ExceptionFailure", **{"Executor ID": "0"}),
            job("no-preemptions/1/q3"), stage(3), task(3, 0, 2500, **{"Executor ID": "0"}),
        )
        found = accounts.by_work(log)
        self.assertEqual(found["no-preemptions/0/q3"]["stages"],
                         [{"1": [1, 1.0]}, {"0": [1, 1.0], "1": [1, 1.0]}])
        self.assertEqual(found["no-preemptions/0/q3"]["tasks_failed"], 1)
        self.assertEqual(found["no-preemptions/1/q3"]["stages"], [{"0": [1, 1.0]}])

    def test_executors_are_missing_from_their_notice_until_the_next_has_registered(self) -> None:
        def event(what: str, executor: str, at: float) -> Event:
            return {"Event": f"SparkListenerExecutor{what}", "Executor ID": executor,
                    "Timestamp": round(at * 1000)}

        lives = accounts.executors(self.log(
            event("Added", "0", 1), event("Added", "1", 2),
            # The notice, then the kill; the next worker is killed before its executor registered.
            event("Removed", "1", 10), event("Removed", "1", 14), event("Removed", "2", 20),
            event("Added", "3", 30.5), event("Removed", "0", 38)))
        self.assertEqual(lives, [(1, 38), (2, 10), (30.5, float("inf"))])
        self.assertAlmostEqual(accounts.absent_seconds(lives, 5, 40, 2), 20.5 + 2)
        self.assertAlmostEqual(accounts.absent_seconds(lives, 12, 16, 2), 4)
        self.assertAlmostEqual(accounts.absent_seconds(lives, 3, 9, 2), 0)


class EventLogTest(unittest.TestCase):
    def test_metrics_of_successful_tasks_are_added(self) -> None:
        account = event_log.read_events([
            {"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"},
            {"Event": "SparkListenerApplicationStart", "App ID": "app", "Timestamp": 1000},
            stage(0), task(0, 0, 1000), task(0, 1, 1000),
            task(1, 0, 2000, "ExceptionFailure", kind="ResultTask"),
            {"Event": "SparkListenerApplicationEnd", "Timestamp": 9000},
        ])
        self.assertEqual((account.version, account.application), ("4.3.0", "app"))
        self.assertEqual(account.seconds, 8.0)
        self.assertTrue(account.is_complete)
        self.assertEqual((account.tasks, account.tasks_succeeded, account.tasks_failed), (3, 2, 1))
        shuffle = account.shuffle
        self.assertEqual((shuffle.write_bytes, shuffle.write_records), (200, 20))
        self.assertEqual((shuffle.read_bytes, shuffle.read_records, shuffle.read_blocks),
                         (100, 6, 6))
        self.assertEqual(account.failures, {"ExceptionFailure": 1})

    def test_only_what_ran_after_a_loss_is_recomputed(self) -> None:
        lost = fetch_failed(0, 1)
        account = event_log.read_events([
            stage(0), task(0, 0, 0), task(0, 1, 0),
            stage(1), task(1, 0, 2000, lost, kind="ResultTask"),
            task(1, 1, 2000, lost, kind="ResultTask"),
            stage(0, 1), task(0, 1, 4000, attempt=1),
            stage(1, 1), task(1, 0, 6000, attempt=1, kind="ResultTask"),
            stage(1, 2), task(1, 0, 8000, lost, attempt=2, kind="ResultTask"),
            stage(0, 2), task(0, 1, 10000, attempt=2),
        ])
        self.assertEqual(account.map_tasks_recomputed, 2)
        self.assertEqual(account.map_outputs_replaced, [1, 11])
        self.assertEqual(account.fetch_failures, 3)
        self.assertEqual(account.map_outputs_missed, 1)
        self.assertEqual((account.stages, account.stage_attempts), (2, 6))
        self.assertEqual(account.messages, {"FetchFailed": "lost it"})

    def test_a_later_job_that_makes_a_lost_output_again_recomputes(self) -> None:
        account = event_log.read_events([
            stage(0, rdd=7), task(0, 0, 0), task(0, 1, 0),
            stage(1), task(1, 0, 2000, fetch_failed(0, 0), kind="ResultTask"),
            stage(5, rdd=7), task(5, 0, 4000),
        ])
        self.assertEqual(account.map_tasks_recomputed, 1)

    def test_two_shuffles_of_one_rdd_recompute_nothing(self) -> None:
        account = event_log.read_events([
            stage(0, rdd=7), task(0, 0, 0), stage(5, rdd=7), task(5, 0, 4000)])
        self.assertEqual(account.map_tasks_recomputed, 0)

    def test_a_copy_of_a_slow_task_is_not_a_recomputation(self) -> None:
        account = event_log.read_events([
            stage(0), task(0, 0, 0), task(0, 0, 500, Speculative=True),
            task(0, 1, 0, "TaskKilled")])
        self.assertEqual(account.map_tasks_recomputed, 0)
        self.assertEqual((account.tasks_speculative, account.tasks_killed), (1, 1))
        self.assertEqual(account.tasks_failed, 0)

    def test_a_map_that_went_with_its_executor_is_resubmitted_and_recomputed(self) -> None:
        account = event_log.read_events([
            stage(0), task(0, 0, 0), {"Event": "SparkListenerExecutorRemoved"},
            task(0, 0, 0, "Resubmitted"), task(0, 0, 2000)])
        self.assertEqual((account.tasks, account.tasks_resubmitted), (2, 1))
        self.assertEqual(account.map_tasks_recomputed, 1)
        self.assertEqual(account.executors_removed, 1)

    def test_queries_have_their_times(self) -> None:
        account = event_log.read_events([
            {"Event": event_log.SQL + "SparkListenerSQLExecutionStart", "executionId": 3,
             "description": "q4", "time": 1000},
            {"Event": event_log.SQL + "SparkListenerSQLExecutionEnd", "executionId": 3,
             "time": 3500, "errorMessage": ""},
        ])
        self.assertEqual([(query.description, query.seconds) for query in account.queries],
                         [("q4", 2.5)])

    def test_a_log_cut_within_a_line_counts_up_to_there(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory) / "app.inprogress"
            whole = "".join(json.dumps(event) + "\n" for event in (stage(0), task(0, 0, 0)))
            log.write_text(whole + '{"Event": "SparkLis')
            account = event_log.read_latest(directory)
        self.assertEqual((account.tasks, account.is_complete), (1, False))

    def test_a_rolling_log_is_read_in_the_order_of_numbers(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory) / "eventlog_v2_app"
            log.mkdir()
            (log / "appstatus_app").write_text("")
            for number in (2, 10, 1):
                text = json.dumps({"Event": "SparkListenerLogStart", "Spark Version": str(number)})
                (log / f"events_{number}_app").write_text(text + "\n")
            self.assertEqual(event_log.read_latest(directory).version, "10")

    def test_what_cannot_be_read_is_reported_in_one_sentence(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaisesRegex(event_log.EventLogError, "eventLog.enabled"):
                event_log.read_latest(directory)
            packed = Path(directory) / "app.zstd"
            packed.write_bytes(b"\x28\xb5\x2f\xfd\n\n")
            script = str(Path(event_log.__file__))
            ran = subprocess.run([sys.executable, script, str(packed)], capture_output=True)
        self.assertEqual(ran.returncode, 1)
        self.assertIn(b"spark.eventLog.compress=false", ran.stderr)
        self.assertNotIn(b"Traceback", ran.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
