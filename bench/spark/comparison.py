"""The comparison itself: applications that take turns, rounds, traces."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accounts
import artifacts
import engine
import fleet
import machine
import modes
import preempt
import tables
import workloads
from results import difference
from world import ROOT, World, run_json

SCHEMA_VERSION = 1
REPLACE_SECONDS = 2.0
# What Brodmann et al.'s runs took, section 4.1.
MODEL_SECONDS = 7200.0
LOCAL_CORES = 2
NO_PREEMPTIONS = "no-preemptions"
# The two frequencies of Brodmann et al., section 4.1: machines of 16 and of 32 processors.
MODELS = {"16": "bathtub:n1-highcpu-16", "32": "bathtub:n1-highcpu-32"}


class Work:
    """One query or job with its right result."""

    def __init__(self, name: str, wanted: Any, run: Callable[[engine.Session, str], Any]) -> None:
        self.name = name
        self.wanted = wanted
        self.run = run


@dataclass
class Application:
    """One mode: its application, and the machines that it runs on."""

    mode: modes.Mode
    session: engine.Session
    executors: preempt.Executors | None
    datanodes: preempt.Datanodes | None


class Comparison:
    """Everything that one run of the comparison holds."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began = time.monotonic()
        self.deadline = self.began + options.minutes * 60
        self.directory = options.out.resolve() / "work"
        self.runs: list[dict[str, Any]] = []
        self.played: list[dict[str, Any]] = []
        self.problems: list[str] = []
        # Called with each notice, kill and replacement, by the watching threads.
        self.on_event: Callable[[str], None] = lambda text: None
        self._stack = contextlib.ExitStack()
        self._starter = self._stack.enter_context(ThreadPoolExecutor(1))

    @functools.cached_property
    def sanderling(self) -> Path:
        """Returns the program; native rounds alone do without."""
        return artifacts.sanderling()

    def close(self) -> None:
        """Ends all processes."""
        self._stack.close()

    def run(self) -> dict[str, Any]:
        """Runs all rounds and returns what is to be kept."""
        options = self.options
        if modes.SANDERLING in options.modes:
            # Better reported now than after the other modes have started.
            artifacts.jar()
        if options.traces:
            self.note(f"the program is {self.sanderling}")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.note(f"TPC-DS data at scale {options.scale:g}, and DuckDB's results")
        self.data = tables.generate(options.scale, options.cache.resolve())
        self.work = self._works()
        self.applications = [self._open(name) for name in options.modes]
        versions = {one.session.version for one in self.applications}
        for at in range(options.warm_ups):
            self._round(NO_PREEMPTIONS, -1 - at)
        # A JVM gets faster for many rounds: the traces that leave it alone are played beside the
        # round that they are compared with, the others at the end.
        mild = [one for one in options.traces if one.startswith("datanodes")]
        for at in range(options.rounds):
            if at and self._is_late(at, mild):
                self.note(f"time for {at} of {options.rounds} rounds without preemptions")
                break
            beside = [NO_PREEMPTIONS, *(mild if at < options.preempted_rounds else [])]
            turn = at % len(beside)
            for trace in beside[turn:] + beside[:turn]:
                if trace == NO_PREEMPTIONS:
                    self._round(trace, at)
                else:
                    self._traced(trace, at)
        for at in range(options.preempted_rounds):
            for trace in options.traces:
                if trace not in mild:
                    self._traced(trace, at)
        for one in self.applications:
            one.session.close()
        self._account()
        return self._kept(versions.pop())

    def _works(self) -> list[Work]:
        queries = tables.queries(self.options.queries, self.data)
        self.files = tables.used(queries, self.data)
        made = [
            Work(query.name, query.wanted,
                 lambda session, id_, query=query: session.sql(id_, query.text))
            for query in queries
        ]
        if not self.options.no_jobs:
            made += [
                Work(job.name, job.wanted,
                     lambda session, id_, job=job: session.job(
                         id_, job.name, job.records, job.value_bytes))
                for job in workloads.jobs(self.options.scale)
            ]
        return made

    def _open(self, name: str) -> Application:
        """Starts a mode's processes and its application."""
        options = self.options
        self.note(f"Spark {options.spark}, {modes.TITLES[name]}")
        directory = self.directory / name
        namenode, datanodes = "", None
        if name == modes.SANDERLING:
            datanodes = self._fleet(directory)
            namenode = datanodes.fleet.address
        mode = modes.Mode(name, directory, namenode)
        conf = mode.conf(options.executor_memory, options.cores)
        memory, address, machines = engine.DRIVER_MEMORY, f"local[{LOCAL_CORES}]", None
        if options.check:
            # One process is enough to see whether results are right, and starts in a third.
            conf |= {"spark.sql.shuffle.partitions": "8"}
            memory = options.executor_memory
        else:
            size = engine.Size(options.workers, options.cores)
            machines = self._stack.enter_context(
                engine.workers(directory, size, mode.decommissions, directory / "local"))
            address = machines.address
        conf |= dict(one.split("=", 1) for one in options.conf)
        opened = {"name": f"spark-bench {name}", "address": address, "conf": conf,
                  "tables": self.files}
        session = engine.Session(name, opened, directory / "driver.log", memory)
        self._stack.callback(session.close)
        executors = preempt.Executors(machines) if machines else None
        return Application(mode, session, executors, datanodes)

    def _fleet(self, directory: Path) -> preempt.Datanodes:
        directory.mkdir(parents=True, exist_ok=True)
        world = World(self.sanderling, Path(), Path(sys.executable), directory)
        options = self.options
        made = self._stack.enter_context(
            fleet.fleet(world, options.datanodes, options.dram, has_local_endpoint=True))

        def start(name: str) -> Any:
            words = ["--namenode", made.address, "datanode", "--name", name]
            words += ["--dram", options.dram, "--http", "none"]
            server, _ = fleet.start(world, self._stack, made.directory, name, words)
            return server

        return preempt.Datanodes(made, start)

    def _round(self, trace: str, number: int) -> None:
        """Runs every piece of work once in every mode; the modes take turns in being first."""
        for at, work in enumerate(self.work):
            turn = (at + number) % len(self.applications)
            order = self.applications[turn:] + self.applications[:turn]
            for application in order:
                self._once(application, trace, number, work)
        self._note_round(trace, number)

    def _once(self, application: Application, trace: str, number: int, work: Work) -> None:
        id_ = f"{trace}/{number}/{work.name}"
        answer = work.run(application.session, id_)
        problem = answer.get("error") or difference(work.wanted, answer["rows"])
        self.runs.append({
            "mode": application.mode.name, "trace": trace, "round": number, "work": work.name,
            "began": answer["began"], "seconds": answer["seconds"], "problem": problem,
        })

    def _traced(self, trace: str, number: int) -> None:
        """Runs a round in each mode that the trace can harm, while machines are taken."""
        what, model = trace.split("-")
        for application in self.applications:
            if what == "datanodes" and application.datanodes is None:
                continue
            seconds = self._usual_seconds(application.mode.name)
            if time.monotonic() + 1.3 * seconds > self.deadline:
                self.note(f"no time for {trace} in {application.mode.name}")
                continue
            machines: Any = application.executors
            if what == "datanodes":
                machines = application.datanodes
            before = self._report(application)
            with self._player(machines, model, seconds, number) as player:
                began = time.time()
                for work in self.work:
                    self._once(application, trace, number, work)
                ended = time.time()
            after = self._report(application)
            self.problems += [f"{trace}, {application.mode.name}: {one}" for one in player.problems]
            self.played.append({
                "mode": application.mode.name, "trace": trace, "round": number,
                "slots": machines.slots, "began": began, "ended": ended,
                "taken": player.as_json(),
                "moved": after["moved"] - before["moved"],
                "lost": after["lost"] - before["lost"],
            })
            self._note_round(trace, number)

    def _player(
        self, machines: Any, model: str, seconds: float, number: int
    ) -> preempt.Player:
        """Draws a trace in which the model's two hours pass in the time of a round without any."""
        options = self.options
        command = [str(self.sanderling), "--json", "lab", "trace"]
        command += ["--nodes", str(max(machines.slots, 2)), "--work", f"{round(seconds * 1000)}ms"]
        command += ["--notice", f"{round(options.notice * 1000)}ms", "--model", MODELS[model]]
        command += ["--replace-after", f"{round(REPLACE_SECONDS * 1000)}ms"]
        command += ["--seed", str(options.seed + number)]
        command += ["--time-scale", f"{options.speed * MODEL_SECONDS / seconds:.6f}"]
        drawn = run_json(command)["preemptions"]
        return preempt.Player(machines, drawn, options.notice, REPLACE_SECONDS, self._starter,
                              self.on_event)

    def _usual_seconds(self, mode: str) -> float:
        """Returns how long a round without preemptions takes in a mode."""
        times: dict[str, list[float]] = {}
        for one in self.runs:
            if one["mode"] == mode and one["trace"] == NO_PREEMPTIONS:
                times.setdefault(one["work"], []).append(one["seconds"])
        return sum(statistics.median(each) for each in times.values())

    def _report(self, application: Application) -> dict[str, int]:
        """Returns the bytes that the namenode has moved and declared lost so far."""
        if application.datanodes is None:
            return {"moved": 0, "lost": 0}
        # Exit code 5 means that something was lost: that is a result, too.
        command = [str(self.sanderling), "--namenode", application.datanodes.fleet.address]
        ran = subprocess.run([*command, "--json", "-q", "fsck"], capture_output=True, check=False)
        found = json.loads(ran.stdout)["report"]
        return {"moved": found["moved_bytes"] + found["promoted_bytes"], "lost": found["bytes"]}

    def _is_late(self, number: int, mild: list[str]) -> bool:
        """Returns whether another round, with all that is to follow, would end after its time."""
        options = self.options
        usual = {one.mode.name: self._usual_seconds(one.mode.name) for one in self.applications}
        once = sum(usual.values())
        beside = len(mild) * usual.get(modes.SANDERLING, 0.0)
        after = (len(options.traces) - len(mild)) * options.preempted_rounds * once
        seconds = once + (beside if number < options.preempted_rounds else 0.0) + after
        return time.monotonic() + seconds > self.deadline

    def _account(self) -> None:
        """Adds the figures of the event logs to every run."""
        for application in self.applications:
            log = self.directory / application.mode.name / "events" / (
                application.session.application)
            found = accounts.by_work(log)
            for one in self.runs:
                if one["mode"] == application.mode.name:
                    id_ = f"{one['trace']}/{one['round']}/{one['work']}"
                    one["figures"] = found.get(id_, {})
            lives = accounts.executors(log)
            for one in self.played:
                if one["mode"] == application.mode.name and one["trace"].startswith("executors"):
                    one["absent"] = accounts.absent_seconds(
                        lives, one["began"], one["ended"], one["slots"])

    def _kept(self, version: str) -> dict[str, Any]:
        options = self.options
        names = ["scale", "rounds", "workers", "cores", "executor_memory", "datanodes", "dram",
                 "notice", "seed", "modes", "traces", "conf"]
        return {
            "schema_version": SCHEMA_VERSION,
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
            "revision": machine.revision(ROOT),
            "machine": machine.describe({"spark": version}),
            "spark": version,
            "options": {name: getattr(options, name) for name in names},
            "work": [one.name for one in self.work],
            "runs": self.runs,
            "played": self.played,
            "problems": self.problems,
            "seconds": time.monotonic() - self.began,
        }

    def note(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", file=sys.stderr, flush=True)

    def _note_round(self, trace: str, number: int) -> None:
        """Prints how long a round took in each mode."""
        parts = []
        for application in self.applications:
            mine = [one for one in self.runs if one["mode"] == application.mode.name
                    and one["trace"] == trace and one["round"] == number]
            if mine:
                right = sum(not one["problem"] for one in mine)
                seconds = sum(one["seconds"] for one in mine)
                parts.append(f"{application.mode.name} {seconds:.1f} s, {right}/{len(mine)} right")
        self.note(f"{trace}, round {number}: {'; '.join(parts)}")
