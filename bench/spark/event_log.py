#!/usr/bin/env python3
"""Reads Spark's event log and prints what an application did: tasks, failures, shuffle, time.

`python3 bench/spark/event_log.py FILE` prints the account as JSON. FILE is one log or the directory
of a rolling one, neither compressed: spark.eventLog.compress=false. The log's format is Spark's
own, core's org.apache.spark.util.JsonProtocol; the same from Spark 3.5 to 4.3.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
MAP_TASK = "ShuffleMapTask"
SQL = "org.apache.spark.sql.execution.ui."


class EventLogError(Exception):
    """A log cannot be read; the text has the reason and the next step."""


@dataclass
class Shuffle:
    """What successful tasks wrote to and read from shuffles, as the UI adds it up."""

    write_bytes: int = 0
    write_records: int = 0
    write_nanos: int = 0
    read_local_bytes: int = 0
    read_remote_bytes: int = 0
    read_records: int = 0
    read_blocks: int = 0
    fetch_wait_millis: int = 0

    @property
    def read_bytes(self) -> int:
        """Returns the bytes read, wherever they came from."""
        return self.read_local_bytes + self.read_remote_bytes

    def add(self, metrics: Event) -> None:
        """Adds one task's metrics."""
        wrote = metrics.get("Shuffle Write Metrics", {})
        read = metrics.get("Shuffle Read Metrics", {})
        self.write_bytes += wrote.get("Shuffle Bytes Written", 0)
        self.write_records += wrote.get("Shuffle Records Written", 0)
        self.write_nanos += wrote.get("Shuffle Write Time", 0)
        self.read_local_bytes += read.get("Local Bytes Read", 0)
        self.read_remote_bytes += read.get("Remote Bytes Read", 0)
        self.read_records += read.get("Total Records Read", 0)
        self.read_blocks += read.get("Local Blocks Fetched", 0)
        self.read_blocks += read.get("Remote Blocks Fetched", 0)
        self.fetch_wait_millis += read.get("Fetch Wait Time", 0)


@dataclass
class Query:
    """One execution of Spark SQL. `seconds` is None while it has no end in the log."""

    execution: int
    description: str
    started_millis: int
    seconds: float | None = None
    error: str = ""


@dataclass
class Account:
    """What one application did. Times are seconds of wall time."""

    application: str = ""
    version: str = ""
    seconds: float = 0.0
    jobs: int = 0
    jobs_failed: int = 0
    # Ended tasks; those that succeeded; those that failed for any reason but being killed on
    # purpose (a copy was faster, the stage ended). Spark's word for a map task whose output was
    # dropped after it succeeded is Resubmitted: that is no ended task and has its own counter.
    tasks: int = 0
    tasks_succeeded: int = 0
    tasks_failed: int = 0
    tasks_killed: int = 0
    tasks_speculative: int = 0
    tasks_resubmitted: int = 0
    fetch_failures: int = 0
    map_tasks: int = 0
    # Map tasks that ran again, to success, after the same partition's output had been there.
    map_tasks_recomputed: int = 0
    # The outputs that they replaced, by Spark's map id: the task id of the success before. None is
    # there twice.
    map_outputs_replaced: list[int] = field(default_factory=list)
    # Distinct (shuffle, map) that reducers named in their fetch failures.
    map_outputs_missed: int = 0
    stages: int = 0
    stage_attempts: int = 0
    stages_failed: int = 0
    executors_added: int = 0
    executors_removed: int = 0
    spilled_bytes: int = 0
    task_seconds: float = 0.0
    shuffle: Shuffle = field(default_factory=Shuffle)
    failures: dict[str, int] = field(default_factory=dict)
    # The first message of each kind of failure: what a reader needs next.
    messages: dict[str, str] = field(default_factory=dict)
    queries: list[Query] = field(default_factory=list)
    is_complete: bool = False


@dataclass
class MapOutput:
    """The last success of one map partition, and how much had been lost by then."""

    map_id: int
    stage: int
    finished_millis: int
    losses: int


class Reader:
    """Adds events up, one by one, in the order of the log."""

    def __init__(self) -> None:
        self.account = Account()
        self._started = 0
        self._last = 0
        self._reasons: Counter[str] = Counter()
        self._queries: dict[int, Query] = {}
        self._stage_ids: set[int] = set()
        # The RDD that a stage computes: a shuffle's map stage may come again in a later job under
        # another number, but over the same RDD.
        self._rdd_of_stage: dict[int, int] = {}
        self._outputs: dict[tuple[int, int], MapOutput] = {}
        self._missed: set[tuple[int, int]] = set()
        self._losses = 0

    def add(self, event: Event) -> None:
        """Adds one event; unknown ones are ignored."""
        name = str(event.get("Event", "")).removeprefix(SQL).removeprefix("SparkListener")
        handler = getattr(self, f"_on_{name}", None)
        if handler:
            handler(event)

    def finish(self) -> Account:
        """Returns the account of what was added so far."""
        account = self.account
        account.failures = dict(self._reasons)
        account.queries = list(self._queries.values())
        account.stages = len(self._stage_ids)
        account.map_outputs_missed = len(self._missed)
        account.map_tasks_recomputed = len(account.map_outputs_replaced)
        account.seconds = max(0, self._last - self._started) / 1000
        return account

    def _saw(self, millis: int | None) -> None:
        self._last = max(self._last, millis or 0)

    def _on_LogStart(self, event: Event) -> None:
        self.account.version = event.get("Spark Version", "")

    def _on_ApplicationStart(self, event: Event) -> None:
        self.account.application = event.get("App ID", "")
        self._started = event["Timestamp"]
        self._saw(self._started)

    def _on_ApplicationEnd(self, event: Event) -> None:
        self.account.is_complete = True
        self._saw(event["Timestamp"])

    def _on_ExecutorAdded(self, _event: Event) -> None:
        self.account.executors_added += 1

    def _on_ExecutorRemoved(self, _event: Event) -> None:
        self.account.executors_removed += 1
        self._losses += 1

    def _on_JobStart(self, _event: Event) -> None:
        self.account.jobs += 1

    def _on_JobEnd(self, event: Event) -> None:
        self._saw(event.get("Completion Time"))
        if event["Job Result"]["Result"] != "JobSucceeded":
            self.account.jobs_failed += 1

    def _on_StageSubmitted(self, event: Event) -> None:
        info = event["Stage Info"]
        self._stage_ids.add(info["Stage ID"])
        self.account.stage_attempts += 1
        rdds = info.get("RDD Info") or []
        if rdds:
            self._rdd_of_stage[info["Stage ID"]] = rdds[0]["RDD ID"]

    def _on_StageCompleted(self, event: Event) -> None:
        info = event["Stage Info"]
        self._saw(info.get("Completion Time"))
        self.account.stages_failed += "Failure Reason" in info

    def _on_TaskEnd(self, event: Event) -> None:
        account, info = self.account, event["Task Info"]
        why = event["Task End Reason"]["Reason"]
        self._saw(info["Finish Time"])
        if why == "Resubmitted":
            account.tasks_resubmitted += 1
            self._losses += 1
            return
        account.tasks += 1
        account.tasks_speculative += bool(info.get("Speculative"))
        account.map_tasks += event["Task Type"] == MAP_TASK
        account.task_seconds += max(0, info["Finish Time"] - info["Launch Time"]) / 1000
        if why == "Success":
            account.tasks_succeeded += 1
            metrics = event.get("Task Metrics") or {}
            account.shuffle.add(metrics)
            account.spilled_bytes += metrics.get("Disk Bytes Spilled", 0)
            if event["Task Type"] == MAP_TASK:
                self._map_succeeded(event)
            return
        self._failed(why, event["Task End Reason"])

    def _failed(self, why: str, reason: Event) -> None:
        account = self.account
        if why == "TaskKilled":
            account.tasks_killed += 1
            return
        account.tasks_failed += 1
        self._reasons[why] += 1
        text = reason.get("Message") or reason.get("Description") or reason.get("Loss Reason")
        account.messages.setdefault(why, " ".join(str(text or "").split())[:500])
        if why == "FetchFailed":
            account.fetch_failures += 1
            self._losses += 1
            self._missed.add((reason["Shuffle ID"], reason["Map Index"]))

    def _map_succeeded(self, event: Event) -> None:
        """Counts a map task that was started although its output had been there.

        Two tasks of one partition at a time are speculation. A stage with another number over the
        same RDD makes an output again only if something was lost in between; else it is another
        shuffle of that RDD.
        """
        stage, info = event["Stage ID"], event["Task Info"]
        partition = info.get("Partition ID", -1)
        key = (self._rdd_of_stage.get(stage, -1 - stage),
               info["Index"] if partition < 0 else partition)
        before = self._outputs.get(key)
        if before is not None:
            is_after = info["Launch Time"] >= before.finished_millis
            is_same = before.stage == stage or before.losses < self._losses
            if is_after and is_same:
                self.account.map_outputs_replaced.append(before.map_id)
        self._outputs[key] = MapOutput(info["Task ID"], stage, info["Finish Time"], self._losses)

    def _on_SQLExecutionStart(self, event: Event) -> None:
        number = event["executionId"]
        self._queries[number] = Query(number, event.get("description", ""), event["time"])

    def _on_SQLExecutionEnd(self, event: Event) -> None:
        query = self._queries.get(event["executionId"])
        if query:
            query.seconds = (event["time"] - query.started_millis) / 1000
            query.error = event.get("errorMessage") or ""


def read(path: str | Path) -> Account:
    """Returns the account of the log at a path: one file, or a rolling log's directory.

    A log whose application died ends anywhere, perhaps within a line: what is there counts, and
    `is_complete` is false.
    """
    return read_events(events(Path(path)))


def read_events(all_events: Iterable[Event]) -> Account:
    """Returns the account of events."""
    reader = Reader()
    for event in all_events:
        reader.add(event)
    return reader.finish()


def read_latest(directory: str | Path) -> Account:
    """Returns the account of the newest log in spark.eventLog.dir."""
    logs = [log for log in Path(directory).iterdir() if not log.name.startswith(".")]
    if not logs:
        raise EventLogError(f"{directory} has no event log: set spark.eventLog.enabled=true")
    return read(max(logs, key=lambda log: log.stat().st_mtime_ns))


def events(path: Path) -> Iterator[Event]:
    """Yields the events of a log in order."""
    for part in parts(path):
        with part.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError:
                    if line.endswith(b"\n"):
                        raise EventLogError(
                            f"{part}: line {number} is no JSON; was the log compressed? Set "
                            "spark.eventLog.compress=false") from None


def parts(path: Path) -> list[Path]:
    """Returns the files of a log in the order of their numbers."""
    if not path.exists():
        raise EventLogError(f"{path} is not there: set spark.eventLog.enabled=true")
    if not path.is_dir():
        return [path]
    rolled = [part for part in path.iterdir() if part.name.startswith("events_")]
    if not rolled:
        raise EventLogError(f"{path} is no rolling event log: it has no file events_1_...")
    return sorted(rolled, key=lambda part: int(part.name.split("_")[1]))


def main() -> int:
    """Prints the account of the log that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        account = read(sys.argv[1])
    except EventLogError as error:
        print(f"event_log: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(account), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
