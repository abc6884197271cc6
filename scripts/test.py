#!/usr/bin/env python3
"""Runs every test of the repository and ends with one line: N passed, N failed, N skipped.

Two steps run at once, a third while processors are idle, each when those are over whose products it
uses. What a runner prints goes to target/logs/NAME.log, its seconds in target/logs/times.tsv; here
appears one line per step, and the end of the log when a step fails.
Needs nothing but Python 3.11, cargo and a C compiler.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as xml
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lints import lints_of_builds
from null_device import mend_null_device, null_device_is_whole
from step_plan import (
    FAILURES,
    JAVA_OPTIONS,
    LOGS,
    PROGRAM,
    ROOT,
    TIMES,
    Counts,
    Plan,
    Step,
    one,
    run,
)

# The wheel's command, which has what the product needs.
SANDERLING = ROOT / ".venv" / "bin" / "sanderling"
# The members of the workspace that need no Python to link against.
MEMBERS = ["--workspace", "--exclude", "sanderling-python"]
# The program and the native half of the Java client, with the profile of the tests and, because one
# test is among them, with the features of crates that tests need: what they share with the test
# programs is compiled once.
PROGRAM_SELECTION = [*MEMBERS, "--lib", "--bins", "--test", "repository"]
# Scripts, with the tests of them if not all, by the environment of the Spark that they run on. Most
# run on one: the files' show on the other that executors shuffle there, too.
SPARK_CHAOS = "scripts/spark_chaos.py --scale 0.1 --rounds 1 --dram 192MiB --queries"
SPARK_BENCH = ("bench/spark/run.py --check --scale 0.1 --no-jobs --datanodes 2 --dram 256MiB "
               "--spark 4.3")
SPARK_TESTS = {
    "spark43": [
        "scripts/spark_results_test.py ExecutorsTest SettingsTest AttemptsTest",
        "scripts/spark_faults_test.py ExecutorTest StoreTest FullStoreTest",
        "scripts/spark_start_test.py",
        "scripts/spark_files_test.py",
        "scripts/spark_stream_test.py",
        f"{SPARK_CHAOS} 67,95",
        f"{SPARK_BENCH} --queries 95 --modes sanderling",
    ],
    "spark35": ["scripts/spark_files_test.py"],
}
# All tests of both: make spark-test.
SPARK_SCRIPTS = [f"scripts/spark_{name}_test.py"
                 for name in ("results", "faults", "start", "files", "stream")]
SPARK_ALL = {
    "spark43": [
        *SPARK_SCRIPTS,
        f"{SPARK_CHAOS} 4,11,67,95",
        f"{SPARK_BENCH} --queries 4,67,78,95 --modes native,sanderling",
    ],
    "spark35": SPARK_SCRIPTS,
}
# Most JVMs of these tests spend their time on loading Spark: its classes are not verified again.
# ShuffleTest verifies them all, and those of the jar.
SPARK_JAVA = {"JAVA_TOOL_OPTIONS": f"{JAVA_OPTIONS} -XX:+UnlockDiagnosticVMOptions "
                                   "-XX:-BytecodeVerificationRemote"}
# The first of the simulated seeds.
FIRST_SEED = 0
# Seeds are drawn below this: they have not run before.
DRAWN_BELOW = 1 << 40
# The exit code of `sanderling --timeout` when the time is over.
DEADLINE = 124
# Each of them uses more than one processor at times; many wait for servers most of the time.
AT_ONCE = 2
# Of so many injected bugs one is run by the command.
NAMES_APART = 12
# Longest time of one installation: all of them take 250 s of processor time on a new machine.
INSTALL_SECONDS = 900.0
# Programs that compute yield to all others while the step rust runs.
RUST_SECONDS = 5400.0
# One Maven at a time writes into its local repository.
MAVEN = threading.Lock()
# What a build returns.
Built = TypeVar("Built")


def once(build: Callable[[], Built]) -> Callable[[], Built]:
    """Makes a build run once in a run, whatever step comes first; others wait for it."""
    lock = threading.Lock()
    done: list[Built] = []

    def built() -> Built:
        with lock:
            if not done:
                done.append(build())
            return done[0]

    return built


def install(kind: str) -> bool:
    """Installs an environment of Python."""
    return run(f"venv-{kind}", ["scripts/venv.sh", kind], seconds=INSTALL_SECONDS).is_fine


# The environments of Python: each is installed by the first step that needs it.
VENVS = {kind: once(partial(install, kind))
         for kind in ["test", "docs", "s3", "s3fs", "interop", *SPARK_TESTS]}


def venv(kind: str) -> bool:
    """Installs an environment of Python, unless it is there. Waits for no other environment."""
    return VENVS[kind]()


def main() -> int:
    """Runs the steps and returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("steps", nargs="*", help=f"only these of: {', '.join(STEPS)}")
    arguments.add_argument("--at-once", type=int, default=AT_ONCE, help="steps that run at once")
    arguments.add_argument("--spark-all", action="store_true", help="all tests of both Sparks")
    arguments.add_argument("--sim-seconds", type=float, default=1500.0, help="time for seeds")
    arguments.add_argument("--sim-seeds", type=int, default=1500, help="seeds at most")
    arguments.add_argument("--sim-drawn", type=int, default=1500, help="seeds drawn at random")
    arguments.add_argument("--sim-groups", type=int, default=600, help="seeds of groups")
    arguments.add_argument("--sim-first", type=int, help="the first drawn seed, to run it again")
    options = arguments.parse_args()
    unknown = [name for name in options.steps if name not in STEPS]
    if unknown:
        arguments.error(f"no step is called {unknown[0]}")
    if not shutil.which("cargo"):
        print("cargo is not in PATH: install Rust (https://rustup.rs)")
        return 2
    if not null_device_is_whole():
        mend_null_device()
    if not null_device_is_whole():
        print("/dev/null is no device: rm /dev/null && mknod -m 666 /dev/null c 1 3")
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / TIMES).unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    total = Counts()
    plan = Plan(STEPS, options.steps or list(STEPS), options)
    for name, counts in plan.run(max(1, options.at_once)).items():
        total.passed += counts.passed
        total.failed += counts.failed
        total.skipped += [f"{name}: {reason}" for reason in counts.skipped]
    for reason in total.skipped:
        print(f"SKIPPED {reason}")
    if FAILURES:
        print("\n".join(FAILURES))
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skipped)} skipped")
    return 1 if total.failed or not total.passed else 0


def step_format(_options: argparse.Namespace) -> Counts:
    """Checks that rustfmt would change nothing, and the texts of the newest commits."""
    if subprocess.run(["cargo", "fmt", "--version"], capture_output=True).returncode:
        return Counts(skipped=["rustfmt is not installed: rustup component add rustfmt"])
    counts = one(run("format", ["cargo", "fmt", "--all", "--check"]))
    checked = run("history", [sys.executable, "scripts/history.py"], passes=(0, 77))
    if not checked.is_fine:
        counts.failed += 1
    elif "not checked" in checked.log:
        counts.skipped.append(checked.log.strip())
    else:
        counts.passed += 1
    add_unittest(counts, "history-test", [sys.executable, "scripts/history_test.py"])
    return counts


def step_clippy(_options: argparse.Namespace) -> Counts:
    """Checks that clippy finds nothing."""
    if subprocess.run(["cargo", "clippy", "--version"], capture_output=True).returncode:
        return Counts(skipped=["clippy is not installed: rustup component add clippy"])
    if lints := lints_of_builds():
        # The Python package is not among these: the step wheel compiles it.
        build = ["cargo", "build", "--locked", *MEMBERS, "--all-targets", "--keep-going"]
        return one(run("clippy", build, own=lints))
    targets = ["--locked", "--workspace", "--all-targets", "--keep-going"]
    return one(run("clippy", ["cargo", "clippy", *targets, "--", "-D", "warnings"]))


def step_licences(_options: argparse.Namespace) -> Counts:
    """Checks licences and sources of what is linked, that check, and the fuzzers' lock file."""
    counts = one(run("licences", [sys.executable, "scripts/licences.py", "check"]))
    # The programs of fuzz/ are outside the workspace: no other step reads their lock file.
    fuzz = ["cargo", "fetch", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml"]
    is_current = run("fuzz-lock", fuzz).is_fine
    counts.passed += is_current
    counts.failed += not is_current
    add_unittest(counts, "licences-test", [sys.executable, "scripts/licences_test.py"])
    return counts


def add_texts(counts: Counts, name: str, archives: list[Path]) -> None:
    """Looks for the texts of licences in each wheel or jar that was built."""
    if not archives:
        print("nothing was built to look for licences in")
        counts.failed += 1
    for archive in archives:
        command = [sys.executable, "scripts/licences.py", "look", str(archive)]
        is_fine = run(f"licences-{name}", command).is_fine
        counts.passed += is_fine
        counts.failed += not is_fine


def step_rust(_options: argparse.Namespace) -> Counts:
    """Runs the tests of all crates: units, machines, simulation, processes, tidiness."""
    has_peers()
    is_monitored = has_promtool()
    no_criu = why_no_criu()
    counts = Counts()
    add_unittest(counts, "runner-test", [sys.executable, "scripts/runner_test.py"])
    add_unittest(counts, "compiling-test", [sys.executable, "scripts/compiling_test.py"])
    add_unittest(counts, "mutants-test", [sys.executable, "scripts/mutants_test.py"])
    add_unittest(counts, "fuzz-plan-test", [sys.executable, "scripts/fuzz_plan_test.py"])
    result = run("rust", [sys.executable, "scripts/rust_tests.py", *MEMBERS],
                 seconds=RUST_SECONDS, own=lints_of_builds())
    for passed, failed in re.findall(r"^test result: .*? (\d+) passed; (\d+) failed", result.log,
                                     re.MULTILINE):
        counts.passed += int(passed)
        counts.failed += int(failed)
    ignored = re.findall(r"^test (.+?) \.\.\. ignored(?:, (.*))?$", result.log, re.MULTILINE)
    counts.skipped += [f"{name}: {reason or 'ignored'}" for name, reason in ignored]
    if not is_monitored:
        counts.skipped.append("the checks of deploy/prometheus: scripts/promtool.sh failed")
    if no_criu:
        counts.skipped.append(f"restores by CRIU: {no_criu}")
    if not result.is_fine and not counts.failed:
        counts.failed = 1
    return counts


@once
def why_no_criu() -> str:
    """Returns why tasks cannot be restored by CRIU here; empty if they can.

    It is unpacked where nothing else is on the machine, which CI marks a machine as.
    """
    if os.geteuid() != 0:
        return "this needs root"
    unpacked = ROOT / "target" / "criu" / "criu"
    is_here = unpacked.exists() or shutil.which("criu") or "SANDERLING_CRIU" in os.environ
    if not is_here and not os.environ.get("CI"):
        return "CRIU is not here: scripts/criu.sh"
    if not is_here and not run("criu", ["scripts/criu.sh"], seconds=300).is_fine:
        return "scripts/criu.sh failed"
    found = unpacked if unpacked.exists() else "criu"
    program = os.environ.get("SANDERLING_CRIU", str(found))
    is_usable = run("criu-check", [program, "check"], seconds=60).is_fine
    return "" if is_usable else "`criu check` fails"


def step_environments(_options: argparse.Namespace) -> Counts:
    """Installs what other steps need, beside the build of the program.

    It counts nothing, and no step waits for it: a step that lacks something installs that itself,
    or waits for that alone, and skips or fails without.
    """
    has_promtool()
    has_peers()
    why_no_criu()
    has_maven = shutil.which("mvn") is not None
    # The step jvm may have Maven already: then the step spark brings them.
    if has_maven and not MAVEN.locked():
        has_spark_jars()
    for kind in VENVS:
        if has_maven or kind not in SPARK_TESTS:
            venv(kind)
    return Counts()


@once
def has_spark_jars() -> bool:
    """Brings the jars of Spark's own tests."""
    command = [sys.executable, "scripts/spark_suites.py", "--dependencies"]
    with MAVEN:
        return run("spark-jars", command, seconds=INSTALL_SECONDS).is_fine


def step_program(_options: argparse.Namespace) -> Counts:
    """Builds the program with all commands and the native half of the Java client."""
    return Counts(passed=1) if build_program() else Counts(failed=1)


def step_wheel(_options: argparse.Namespace) -> Counts:
    """Builds the wheel, beside the program: most of its crates are compiled by then."""
    counts = Counts()
    if build_wheel():
        add_texts(counts, "wheel", list((ROOT / "target/wheels").glob("sanderling-*.whl")))
    else:
        counts.failed += 1
    return counts


@once
def has_peers() -> bool:
    """Installs what some tests run against. Without it, they are skipped with a reason."""
    return run("peers", ["scripts/peers.sh"], seconds=300).is_fine


@once
def has_promtool() -> bool:
    """Unpacks promtool. Without it, the tests of the monitoring files skip what needs it."""
    return run("promtool", ["scripts/promtool.sh"], seconds=300).is_fine


@once
def build_wheel() -> bool:
    """Builds the wheel and installs it beside what its tests need, unless it is there."""
    # The wheel that is shipped links for eight minutes, on one core. This one has the profile of
    # the tests.
    wheel = ["env", "PROFILE=dev", "scripts/build-wheel.sh"]
    return venv("test") and run("wheel", wheel, own=lints_of_builds()).is_fine


@once
def build_program() -> bool:
    """Builds the program with all commands and the native half of the Java client."""
    selection = f"SELECTION={' '.join(PROGRAM_SELECTION)}"
    program = ["env", selection, "scripts/build-jvm.sh"]
    return run("program", program, own=lints_of_builds()).is_fine


def step_python(_options: argparse.Namespace) -> Counts:
    """Runs the tests of the Python package."""
    return pytest("pytest", ".venv", "bindings/python/tests") if build_wheel() else Counts(failed=1)


def step_interop(_options: argparse.Namespace) -> Counts:
    """Runs the tools that people already use on the store, in an environment of their own."""
    wheels = sorted((ROOT / "target" / "wheels").glob("sanderling-*.whl"))
    if not wheels:
        print("target/wheels has no wheel: the step wheel makes it")
        return Counts(failed=1)
    if not venv("interop"):
        reason = "pandas, Polars, Dask, Ray could not be installed: scripts/venv.sh interop"
        return Counts(skipped=[reason])
    install = [".venv-interop/bin/python", "-m", "pip", "install", "--quiet", "--no-deps",
               "--disable-pip-version-check", "--force-reinstall", str(wheels[-1])]
    if not run("wheel-interop", install).is_fine:
        return Counts(failed=1)
    return pytest("interop", ".venv-interop", "bindings/python/interop")


def pytest(name: str, venv: str, tests: str) -> Counts:
    """Runs a directory of Python tests in an environment and counts them."""
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [f"{venv}/bin/python", "-m", "pytest", "-q", "-ra", f"--junitxml={report}", tests]
    result = run(name, command, seconds=3000)
    if not report.exists():
        return Counts(failed=1)
    counts = Counts()
    count_cases(counts, report)
    if not result.is_fine and not counts.failed:
        counts.failed = 1
    return counts


def count_cases(counts: Counts, report: Path) -> None:
    """Counts the tests of a report in JUnit's format."""
    for case in xml.parse(report).iter("testcase"):
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
        elif skip is not None:
            # Surefire has the reason behind the name of an exception, above its stack.
            reason = skip.get("message") or (skip.text or "no reason given").splitlines()[0]
            reason = re.sub(r"^[\w.]+Exception: (Assumption failed: )?", "", reason)
            counts.skipped.append(f"{case.get('name')}: {reason}")
        else:
            counts.passed += 1


def step_packages(_options: argparse.Namespace) -> Counts:
    """Checks what packages are made from: units, scripts, metadata, manual pages."""
    counts = Counts()
    has_peers()
    # They hold the commands of the wheel.
    environment = ["env", f"SANDERLING_BIN={SANDERLING}"]
    add_unittest(counts, "packages", [*environment, sys.executable, "packaging/check_test.py"])
    return counts


def step_s3(_options: argparse.Namespace) -> Counts:
    """Runs the object tier against an S3 server, and S3's clients against the gateway."""
    if not build_program():
        return Counts(failed=1)
    if not venv("s3"):
        return Counts(skipped=["moto, the S3 server, could not be installed: scripts/venv.sh s3"])
    counts = Counts()
    for name in ["s3_test", "gateway_test", "gateway_conformance_test", "gateway_habits_test",
                 "gateway_secure_test", "gateway_clients_test", "gateway_faults_test",
                 "gateway_page_test"]:
        add(counts, name, ".venv-s3")
    if venv("s3fs"):
        add(counts, "gateway_s3fs_test", ".venv-s3fs")
        add(counts, "gateway_page_test", ".venv-s3fs")
    else:
        counts.skipped.append("s3fs could not be installed: scripts/venv.sh s3fs")
    return counts


def add(counts: Counts, name: str, venv: str) -> None:
    """Runs a script of unittest in its environment and counts its tests."""
    result = run(name, [f"{venv}/bin/python", f"scripts/{name}.py"], seconds=1800)
    passed = len(re.findall(r"\.\.\. ok$", result.log, re.MULTILINE))
    counts.passed += passed
    counts.failed += 0 if result.is_fine and passed else 1


def step_console(_options: argparse.Namespace) -> Counts:
    """Drives the web console in a browser."""
    has_peers()
    if not build_program():
        return Counts(failed=1)
    # 3: a browser, Node or its packages are missing.
    result = run("console", ["scripts/console-test/run.sh"], seconds=600, passes=(0, 3))
    counted = {word: int(number) for word, number in
               re.findall(r"^# (pass|fail) (\d+)$", result.log, re.MULTILINE)}
    if result.is_fine and not counted:
        return Counts(skipped=[result.log.strip().splitlines()[-1]])
    failed = counted.get("fail", 0)
    return Counts(counted.get("pass", 0), failed or (0 if result.is_fine else 1))


def step_jvm(_options: argparse.Namespace) -> Counts:
    """Builds the Java client and what stands on it, and runs the tests of its modules."""
    if not shutil.which("mvn"):
        return Counts(skipped=["Maven and a JDK are not installed: apt install maven"])
    for report in ROOT.glob("jvm/*/target/surefire-reports/TEST-*.xml"):
        report.unlink()
    if not build_program():
        return Counts(failed=1)
    verify = ["mvn", "--batch-mode", "--no-transfer-progress", "--fail-at-end", "-f",
              "jvm/pom.xml", "verify"]
    with MAVEN:
        result = run("jvm", verify, seconds=1800)
    counts = Counts()
    for report in sorted(ROOT.glob("jvm/*/target/surefire-reports/TEST-*.xml")):
        count_cases(counts, report)
    if not (result.is_fine and counts.passed) and not counts.failed:
        counts.failed = 1
    # Those with the native half in them.
    jars = [*ROOT.glob("jvm/client/target/sanderling-client-*.jar"),
            *ROOT.glob("jvm/spark/target/sanderling-spark-*.jar")]
    others = ("-tests.jar", "-sources.jar", "-javadoc.jar")
    add_texts(counts, "jars", [jar for jar in jars if not jar.name.endswith(others)])
    return counts


def step_spark(options: argparse.Namespace) -> Counts:
    """Runs cases of Spark's own suites, and real applications of two Sparks, with our shuffle."""
    if not shutil.which("mvn"):
        return Counts(skipped=["Maven and a JDK are not installed: apt install maven"])
    if not list(ROOT.glob("jvm/spark/target/sanderling-spark-*.jar")):
        print("jvm/spark/target has no jar: the step jvm makes it")
        return Counts(failed=1)
    if not build_program():
        return Counts(failed=1)
    # Without them the suites fail, and show why.
    has_spark_jars()
    counts = Counts()
    command = [sys.executable, "scripts/spark_suites.py"]
    command += ["--whole"] if options.spark_all else []
    suites = run("spark-suites", command, seconds=3600, own=SPARK_JAVA)
    found = re.search(r"^(\d+) passed, (\d+) failed, \d+ skipped$", suites.log, re.MULTILINE)
    counts.passed += int(found[1]) if found else 0
    counts.failed += int(found[2]) if found else 1
    counts.skipped += re.findall(r"^SKIPPED (.*)$", suites.log, re.MULTILINE)
    for name in ["event_log", "results", "summary"]:
        add_unittest(counts, f"spark-{name}", [sys.executable, f"bench/spark/test_{name}.py"])
    lines = []
    tests = SPARK_ALL if options.spark_all else SPARK_TESTS
    for spark, scripts in tests.items():
        if not venv(spark):
            counts.skipped.append(f"pyspark could not be installed: scripts/venv.sh {spark}")
            continue
        lines += [f"{spark}={jars}" for jars in
                  ROOT.glob(f".venv-{spark}/lib/python*/site-packages/pyspark/jars")]
        for script in scripts:
            path, *words = script.split()
            name = f"{spark}-{Path(path).stem}"
            command = [f".venv-{spark}/bin/python", path, *words]
            if path.endswith("_test.py"):
                add_unittest(counts, name, command, own=SPARK_JAVA)
            else:
                is_fine = run(name, command, seconds=1200, own=SPARK_JAVA).is_fine
                counts.passed += is_fine
                counts.failed += not is_fine
    add_lines(counts, lines)
    return counts


def add_lines(counts: Counts, lines: list[str]) -> None:
    """Runs applications in Java on the jars of each Spark and the one jar of ours."""
    if not lines:
        return
    report = ROOT / "jvm/spark/target/surefire-reports"
    report /= "TEST-org.apache.spark.shuffle.sanderling.ShuffleTest.xml"
    report.unlink(missing_ok=True)
    command = ["mvn", "--batch-mode", "--no-transfer-progress", "-f", "jvm/pom.xml", "-pl", "spark",
               "-am", "-Dtest=ShuffleTest", "-Dsurefire.failIfNoSpecifiedTests=false",
               f"-Dspark.lines={','.join(lines)}", "verify"]
    is_fine = run("spark-lines", command, seconds=1800).is_fine
    if report.exists():
        count_cases(counts, report)
    elif not is_fine:
        counts.failed += 1


def add_unittest(counts: Counts, name: str, command: list[str],
                 own: dict[str, str] | None = None) -> None:
    """Runs a script of unittest and counts its tests by its last line."""
    result = run(name, command, seconds=1800, own=own)
    ran = re.search(r"^Ran (\d+) tests? in", result.log, re.MULTILINE)
    bad = sum(map(int, re.findall(r"(?:failures|errors)=(\d+)", result.log)))
    skipped = re.findall(r"\.\.\. skipped '(.*)'$", result.log, re.MULTILINE)
    counts.skipped += skipped
    counts.passed += max(0, int(ran[1]) - bad - len(skipped)) if ran else 0
    counts.failed += max(bad, 0 if result.is_fine and ran else 1)


def step_docs(_options: argparse.Namespace) -> Counts:
    """Builds the documentation site, rustdoc included; warnings and broken links are errors."""
    if not venv("docs"):
        return Counts(skipped=["Zensical could not be installed: scripts/venv.sh docs"])
    return one(run("docs", [".venv-docs/bin/python", "scripts/docs.py", "build"], seconds=1200))


def step_bench(_options: argparse.Namespace) -> Counts:
    """Tests the comparison with other systems, and runs a row of it where iperf3 can be had."""
    if not build_program():
        return Counts(failed=1)
    result = run("bench", [sys.executable, "bench/test_compare.py"], seconds=1800)
    counts = Counts(passed=len(re.findall(r"\.\.\. ok$", result.log, re.MULTILINE)))
    counts.skipped = re.findall(r"\.\.\. skipped '(.*)'$", result.log, re.MULTILINE)
    counts.failed = 0 if result.is_fine and counts.passed else 1
    return counts


def step_simulation(options: argparse.Namespace) -> Counts:
    """Runs known seeds, drawn ones, then some injected bugs, which a checker must find."""
    if not build_program():
        return Counts(failed=1)
    counts = run_seeds(options, "simulation", FIRST_SEED, options.sim_seeds)
    first, drawn = options.sim_first, options.sim_drawn
    if first is not None:
        drawn = drawn or 1
    elif drawn:
        first = secrets.randbelow(DRAWN_BELOW)
    if drawn:
        again = f"--sim-first {first} --sim-drawn {drawn} simulation"
        print(f'    drawn seeds from {first} on: make test ARGS="{again}"', flush=True)
        found = run_seeds(options, "simulation-drawn", first, drawn)
        counts.passed += found.passed
        counts.failed += found.failed
    groups = run_seeds(options, "simulation-groups", FIRST_SEED, options.sim_groups, "--groups")
    counts.passed += groups.passed
    counts.failed += groups.failed
    listed = run("variants", [str(PROGRAM), "--json", "sim", "--bug", "list"])
    names = [variant["name"] for variant in find(listed.log, "variants", [])]
    if not names:
        counts.failed += 1
    # A test of the simulator finds all of them: here it is the command that is tried.
    for name in names[(first or 0) % NAMES_APART::NAMES_APART]:
        command = [str(PROGRAM), "-q", "sim", "--seeds", "12000", "--bug", name]
        found = run(f"bug-{name}", command, seconds=1500, passes=(1,))
        counts.passed += found.is_fine
        counts.failed += not found.is_fine
    return counts


def run_seeds(options: argparse.Namespace, name: str, first: int, count: int,
              *flags: str) -> Counts:
    """Runs a range of seeds until a violation, or until the time is over."""
    limit = f"{options.sim_seconds:g}s"
    seeds = ["--seed", str(first), "--seeds", str(count), *flags]
    command = [str(PROGRAM), "-q", "--timeout", limit, "sim", *seeds]
    result = run(name, command, options.sim_seconds + 120, passes=(0, DEADLINE))
    for line in re.findall(r"^\d+ seeds in .*$", result.log, re.MULTILINE):
        print(f"    {line}", flush=True)
    return one(result)


def step_linearizability(_options: argparse.Namespace) -> Counts:
    """Judges what callers of a group saw while its namenodes died: the tests of rust wrote it."""
    if not shutil.which("go"):
        return Counts(skipped=["Go is not installed: apt install golang"])
    place = "scripts/linearizability"
    counts = one(run("linearizability-test", ["go", "-C", place, "test", "./..."]))
    histories = sorted((ROOT / "target" / "histories").glob("*.jsonl"))
    if not histories:
        counts.skipped.append("there is no history: the step rust writes one")
        return counts
    judged = run("linearizability", ["go", "-C", place, "run", ".", *map(str, histories)])
    counts.passed += judged.is_fine
    counts.failed += not judged.is_fine
    return counts


def step_demo(_options: argparse.Namespace) -> Counts:
    """Runs the main job, small: every result right, nothing lost, no client error."""
    if not build_wheel():
        return Counts(failed=1)
    small = ["--scale", "0.1", "--queries", "20", "--notices", "3", "--seconds", "20"]
    small += ["--notice-seconds", "8", "--baseline-seconds", "5"]
    # Not the cache of the step spark, which may run now.
    small += ["--cache", "target/tpcds-demo", "--out", "target/logs/demo"]
    return one(run("demo", [str(SANDERLING), "demo", *small], seconds=900))


def find(log: str, key: str, default: Any) -> Any:
    """Returns a value of the last JSON object in a log."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            return json.loads(line).get(key, default)
    return default


# In the order in which they begin where they may: what others wait for and what takes long first.
STEPS = {
    "format": Step(step_format),
    "licences": Step(step_licences),
    "program": Step(step_program),
    # While nothing else can begin. No step waits for it.
    "environments": Step(step_environments),
    # Cargo locks the directory: clippy and the build of the tests come behind the program, one
    # after the other, and the JVM and Spark beside clippy.
    "clippy": Step(step_clippy, ("program",)),
    "jvm": Step(step_jvm, ("program",)),
    "rust": Step(step_rust, ("program", "clippy")),
    "spark": Step(step_spark, ("jvm",)),
    "wheel": Step(step_wheel, ("program",)),
    "python": Step(step_python, ("wheel",)),
    "simulation": Step(step_simulation, ("program",), fills_gaps=True),
    "s3": Step(step_s3, ("program",)),
    "console": Step(step_console, ("program",)),
    "packages": Step(step_packages, ("wheel",)),
    "interop": Step(step_interop, ("wheel",)),
    "linearizability": Step(step_linearizability, ("rust",)),
    "docs": Step(step_docs),
    "demo": Step(step_demo, ("wheel",)),
    "bench": Step(step_bench, ("program",)),
}

if __name__ == "__main__":
    sys.exit(main())
