#!/usr/bin/env python3
"""Tests how the steps of scripts/test.py and the programs of scripts/rust_tests.py are run."""

import argparse
import contextlib
import functools
import importlib.util
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest
from pathlib import Path
from types import ModuleType
from unittest import mock

import idle
import step_plan
from step_plan import Counts, Step

SCRIPTS = Path(__file__).resolve().parent
# Longer than anything here takes, also on a busy machine.
LONG_SECONDS = 60.0


def loaded(name: str) -> ModuleType:
    """Loads a script: `test` alone would be a package of Python's own."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


steps = loaded("test")
rust_tests = loaded("rust_tests")


def is_there(pid: int) -> bool:
    """Returns whether a process runs: not one that ended and was not waited for."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def until_gone(pid: int) -> bool:
    """Waits until a process is gone."""
    deadline = time.monotonic() + LONG_SECONDS
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_there(pid)


class Steps(unittest.TestCase):
    """Steps that run at once."""

    def setUp(self) -> None:
        self.own = tempfile.TemporaryDirectory()
        self.addCleanup(self.own.cleanup)
        logs = mock.patch.object(step_plan, "LOGS", Path(self.own.name))
        logs.start()
        self.addCleanup(logs.stop)

    def run_steps(self, made: dict, at_once: int = 2) -> tuple[dict, str]:
        """Runs steps and returns what they found and what was printed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            counts = step_plan.Plan(made, list(made), argparse.Namespace()).run(at_once)
        return counts, out.getvalue()

    def test_two_steps_run_at_once_and_a_third_waits_for_what_it_uses(self) -> None:
        both = threading.Barrier(2, timeout=LONG_SECONDS)
        ended = []

        def meets(name: str) -> Counts:
            both.wait()
            ended.append(name)
            return Counts(passed=1)

        def uses(_options: argparse.Namespace) -> Counts:
            return Counts(passed=len(ended))

        counts, out = self.run_steps({
            "last": Step(uses, ("left", "right")),
            "left": Step(lambda _: meets("left")),
            "right": Step(lambda _: meets("right")),
        })
        self.assertEqual(counts["last"].passed, 2)
        self.assertEqual(list(counts), ["last", "left", "right"])
        self.assertRegex(out, r"\[1/3\] last: 2 passed, 0 failed, 0 skipped in \d+ s")

    def run_idle(self, share: float, met: threading.Barrier) -> list[bool]:
        """Runs three steps, two at once, with so idle processors; returns which of them met."""

        def meets(_options: argparse.Namespace) -> Counts:
            with contextlib.suppress(threading.BrokenBarrierError):
                met.wait()
                return Counts(passed=1)
            return Counts(failed=1)

        idle = mock.patch.object(step_plan.Idleness, "share", lambda _: share)
        with idle, mock.patch.object(step_plan, "LOOK_SECONDS", 0.05):
            counts, _ = self.run_steps({name: Step(meets) for name in "abc"})
        return [one.passed == 1 for one in counts.values()]

    def test_third_step_begins_while_processors_are_idle(self) -> None:
        met = threading.Barrier(3, timeout=LONG_SECONDS)
        self.assertEqual(self.run_idle(step_plan.IDLE_FOR_ONE_MORE, met), [True] * 3)

    def test_no_third_step_begins_while_processors_are_busy(self) -> None:
        met = threading.Barrier(3, timeout=1.0)
        self.assertEqual(self.run_idle(step_plan.IDLE_FOR_ONE_MORE - 0.01, met), [False] * 3)

    def test_step_that_fills_gaps_runs_beside_the_others_at_the_lowest_priority(self) -> None:
        all_three = threading.Barrier(3, timeout=LONG_SECONDS)

        def meets(_options: argparse.Namespace) -> Counts:
            all_three.wait()
            name = f"priority-{threading.get_ident()}"
            log = step_plan.run(name, [sys.executable, "-c", "import os; print(os.nice(0))"]).log
            return Counts(passed=int(log) + 1)

        made = {name: Step(meets) for name in ("left", "right")}
        counts, _ = self.run_steps({**made, "gaps": Step(meets, fills_gaps=True)})
        usual = os.nice(0) + 1
        passed = [counts[name].passed for name in ("left", "right", "gaps")]
        self.assertEqual(passed, [usual, usual, step_plan.LOWEST + 1])

    def test_step_that_fills_gaps_runs_alone_when_one_runs_at_once(self) -> None:
        now = []

        def alone(_options: argparse.Namespace) -> Counts:
            now.append(1)
            found = len(now)
            now.pop()
            return Counts(passed=found)

        counts, _ = self.run_steps({
            "one": Step(alone),
            "gaps": Step(alone, ("one",), fills_gaps=True),
            "last": Step(alone, ("gaps",)),
        }, at_once=1)
        self.assertEqual([one.passed for one in counts.values()], [1, 1, 1])

    def test_step_that_raises_has_failed_and_the_others_go_on(self) -> None:
        counts, out = self.run_steps({
            "bad": Step(lambda _: 1 // 0),
            "good": Step(lambda _: Counts(passed=1), ("bad",)),
        }, at_once=1)
        self.assertEqual((counts["bad"].failed, counts["good"].passed), (1, 1))
        self.assertIn("ZeroDivisionError", out)

    def test_end_of_a_run_names_what_failed_and_why(self) -> None:
        script = "print('FAIL: test_of_it (a.b)'); print('\\n'.join('rest' * 99)); exit(3)"

        def fails(_options: argparse.Namespace) -> Counts:
            return step_plan.one(step_plan.run("its-log", [sys.executable, "-c", script]))

        with mock.patch.object(step_plan, "FAILURES", []) as failures:
            self.run_steps({"bad": Step(fails)})
        self.assertEqual(failures, [
            "FAILED its-log: exit code 3\n    FAIL: test_of_it (a.b)", "FAILED bad: 1"])

    def test_failed_point_of_tap_is_shown_with_its_cause(self) -> None:
        log = ["ok 1 - fine", "    not ok 2 - it draws", "      ---", "      duration_ms: 7",
               "      error: |-", "        #count has 3 after 60 s", "      ...", "    1..2",
               "not ok 3 - a suite", "  ---", "  ...", "# fail 1"]
        self.assertEqual(step_plan.what_failed("\n".join(log)), log[1:7] + log[8:11])
        self.assertEqual(step_plan.essence("\n".join(log)), log[1:3] + log[4:7] + log[8:11])

    def test_every_step_comes_behind_those_that_it_uses(self) -> None:
        names = list(steps.STEPS)
        for name, step in steps.STEPS.items():
            for before in step.after:
                self.assertLess(names.index(before), names.index(name))

    def test_build_runs_once_for_steps_that_run_at_once(self) -> None:
        runs = []

        def build() -> bool:
            runs.append(len(runs))
            return False

        built = steps.once(build)
        counts, _ = self.run_steps({
            name: Step(lambda _: Counts(failed=int(not built()))) for name in "abc"})
        self.assertEqual([one.failed for one in counts.values()], [1, 1, 1])
        self.assertEqual(len(runs), 1)

    def test_no_step_waits_until_all_environments_are_installed(self) -> None:
        for name, step in steps.STEPS.items():
            self.assertNotIn("environments", step.after, name)
        of_docs = threading.Event()

        def install(kind: str) -> bool:
            return kind == "docs" or of_docs.wait(LONG_SECONDS)

        made = {kind: steps.once(functools.partial(install, kind)) for kind in steps.VENVS}
        with mock.patch.object(steps, "VENVS", made):
            slow = threading.Thread(target=steps.venv, args=("test",))
            slow.start()
            self.assertTrue(steps.venv("docs"))
            self.assertTrue(slow.is_alive())
            of_docs.set()
            slow.join()

    def test_environment_that_two_steps_need_is_installed_once_within_its_bound(self) -> None:
        ran = []

        def runs(name: str, _command: list[str], seconds: float) -> step_plan.Run:
            ran.append((name, seconds))
            return step_plan.Run("", True)

        made = {"s3": steps.once(functools.partial(steps.install, "s3"))}
        with mock.patch.object(steps, "VENVS", made), mock.patch.object(steps, "run", runs):
            counts, _ = self.run_steps({
                name: Step(lambda _: Counts(passed=int(steps.venv("s3")))) for name in "ab"})
        self.assertEqual([one.passed for one in counts.values()], [1, 1])
        self.assertEqual(ran, [("venv-s3", 900.0)])

    def test_command_that_takes_too_long_is_ended_with_what_it_started(self) -> None:
        pid = Path(self.own.name) / "pid"
        script = f"sleep 1000 & echo $! > {pid}; echo begun; wait"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            ran = step_plan.run("late", ["bash", "-c", script], seconds=2.0)
        self.assertFalse(ran.is_fine)
        self.assertIn("not finished after 2 s", out.getvalue())
        self.assertIn("begun", out.getvalue())
        self.assertTrue(until_gone(int(pid.read_text())))

    def test_processor_time_of_a_command_counts(self) -> None:
        step_plan.CURRENT.seconds = 0.0
        busy = [sys.executable, "-c", "sum(range(3_000_000))"]
        self.assertTrue(step_plan.run("busy", busy).is_fine)
        self.assertGreater(step_plan.CURRENT.seconds, 0.0)
        name, seconds, used = Path(self.own.name, step_plan.TIMES).read_text().split()
        self.assertEqual(name, "busy")
        self.assertGreater(float(seconds), 0.0)
        self.assertGreaterEqual(float(used), 0.0)


class Idle(unittest.TestCase):
    """The part of the processors that is idle."""

    def test_what_is_idle_or_yields_counts_as_idle(self) -> None:
        with tempfile.TemporaryDirectory() as own:
            stat = Path(own, "stat")
            stat.write_text("cpu  100 10 100 1000 10 0 0 0 0 0\ncpu0 1 2 3 4\n")
            with mock.patch.object(idle, "STAT", stat):
                idleness = idle.Idleness()
                # Of 100 ticks 55 are of users, 15 yielded, 20 idled, 10 waited for a disk.
                stat.write_text("cpu  155 25 100 1020 20 0 0 0 0 0\ncpu0 1 2 3 4\n")
                self.assertAlmostEqual(idleness.share(), 0.45)
                self.assertEqual(idleness.share(), 0.0)

    def test_system_that_does_not_count_is_never_idle(self) -> None:
        with mock.patch.object(idle, "STAT", Path("/not/there")):
            self.assertEqual(idle.Idleness().share(), 0.0)


class Lints(unittest.TestCase):
    """What lets builds be the check of clippy as well."""

    def test_builds_refuse_what_clippy_finds_in_ci_alone(self) -> None:
        of_builds = steps.lints_of_builds.__wrapped__
        with mock.patch.dict(os.environ, {"CI": "true"}):
            lints = of_builds()
        others = {key: value for key, value in os.environ.items() if key != "CI"}
        with mock.patch.dict(os.environ, others, clear=True):
            self.assertEqual(of_builds(), {})
        if not lints:
            self.skipTest("clippy is not installed")
        with tempfile.TemporaryDirectory() as own:
            source = Path(own, "lib.rs")
            for text, code in [("pub fn one() -> u8 {\n    1\n}\n", 0),
                               ("pub fn one() -> u8 {\n    return 1;\n}\n", 1)]:
                source.write_text(text)
                command = [lints["RUSTC_WORKSPACE_WRAPPER"], "rustc", "--crate-type", "lib",
                           "--out-dir", own, str(source)]
                ran = subprocess.run(command, env=os.environ | lints, capture_output=True)
                self.assertEqual(ran.returncode, code, ran.stderr.decode())


class Page(unittest.TestCase):
    """What the page about tests states of the steps."""

    def test_page_names_every_step(self) -> None:
        text = (SCRIPTS.parent / "docs" / "TESTING.md").read_text()
        words = text.split("One step alone:")[1].split(". `program`")[0]
        named = re.findall(r"`([a-z0-9]+)`", words)
        self.assertEqual(sorted(named), sorted(steps.STEPS))


class Programs(unittest.TestCase):
    """Test programs of Rust packages."""

    def setUp(self) -> None:
        self.own = tempfile.TemporaryDirectory()
        self.addCleanup(self.own.cleanup)
        self.directory = Path(self.own.name)

    def program(self, text: str) -> "rust_tests.Program":
        """Makes a program of a shell script."""
        path = self.directory / "program"
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return rust_tests.Program(str(path), "sanderling-x", "slow", self.directory)

    def test_program_that_takes_too_long_is_ended_with_its_group_and_named(self) -> None:
        program = self.program("sleep 1000 & echo $! > pid; echo begun; wait")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            failed = rust_tests.run([program], 2.0)
        self.assertEqual(failed, ["sanderling-x slow (not finished after 2 s)"])
        self.assertIn("begun", out.getvalue())
        self.assertTrue(until_gone(int((self.directory / "pid").read_text())))

    def test_program_that_leaves_something_running_does_not_hang(self) -> None:
        program = self.program("sleep 1000 & echo $! > pid")
        done = program.run(LONG_SECONDS)
        os.kill(int((self.directory / "pid").read_text()), 9)
        self.assertEqual(done.why, "")

    def test_exit_code_of_a_program_is_named(self) -> None:
        self.assertEqual(self.program("exit 7").run(LONG_SECONDS).why, "exit code 7")

    def run_idle(self, share: float, packages: list[str], seconds: int) -> list[str]:
        """Runs a program of each package with so idle processors; returns what began and ended.

        Each runs until three have begun, or for so long.
        """
        log = self.directory / "log"
        path = self.program(f"""echo begins $CARGO_PKG_NAME $(nice) >> {log}
            until [ $SECONDS -gt {seconds} ] || [ "$(grep -c begins {log})" -ge 3 ]; do
                sleep 0.01
            done
            echo ends $CARGO_PKG_NAME >> {log}""").path
        found = [rust_tests.Program(path, package, "it", self.directory) for package in packages]
        idleness = mock.patch.object(rust_tests.Idleness, "share", lambda _: share)
        looks = mock.patch.object(rust_tests, "LOOK_SECONDS", 0.05)
        with idleness, looks, contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(rust_tests.run(found, 2 * LONG_SECONDS), [])
        return log.read_text().splitlines()

    def test_third_program_begins_while_idle_and_one_that_computes_yields(self) -> None:
        packages = ["a", "b", "c", rust_tests.COMPUTING[0]]
        lines = self.run_idle(rust_tests.IDLE_FOR_ONE_MORE, packages, int(LONG_SECONDS))
        usual = os.nice(0)
        begun = {f"begins a {usual}", f"begins b {usual}",
                 f"begins {packages[3]} {min(idle.LOWEST, usual + rust_tests.YIELDING)}"}
        self.assertEqual(set(lines[:3]), begun)
        self.assertIn(f"begins c {usual}", lines)

    def test_no_third_program_begins_while_processors_are_busy(self) -> None:
        lines = self.run_idle(rust_tests.IDLE_FOR_ONE_MORE - 0.01, ["a", "b", "c"], 1)
        third = [at for at, line in enumerate(lines) if line.startswith("begins")][2]
        self.assertTrue(any(line.startswith("ends") for line in lines[:third]), lines)

    def test_every_file_of_tests_is_in_a_program(self) -> None:
        root = SCRIPTS.parent
        listed = 0
        for manifest in sorted(root.glob("crates/*/Cargo.toml")):
            package = tomllib.loads(manifest.read_text())
            if package["package"].get("autotests", True):
                continue
            roots = {manifest.parent / test["path"] for test in package["test"]}
            modules = {manifest.parent / "tests" / f"{name}.rs" for one in roots
                       for name in re.findall(r"^mod (\w+);$", one.read_text(), re.MULTILINE)}
            listed += 1
            self.assertEqual(set(manifest.parent.glob("tests/*.rs")) - roots - modules, set())
        self.assertGreater(listed, 0)

    def test_arguments_for_the_test_programs_are_refused(self) -> None:
        ran = subprocess.run([sys.executable, SCRIPTS / "rust_tests.py", "-p", "sanderling-tidy",
                              "--", "one_test"], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("`--`", ran.stderr)
        self.assertEqual(ran.stdout, "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
