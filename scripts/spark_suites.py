#!/usr/bin/env python3
"""Runs Spark's own suites with Sanderling's shuffle manager, on a real cluster.

Which ones, and which of their cases not and why, is in jvm/spark-suites/suites.toml. The jars come
from jvm/spark-suites/pom.xml. `--native` runs the same with Spark's own shuffle, cases that are
skipped for ours included: what fails there is not ours.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster import ROOT, SetUpError
from spark_cluster import Cluster, spark_jar

HOME = ROOT / "jvm" / "spark-suites"
TARGET = HOME / "target"
SCALA = "2.13"
SPARK = "4.2.0"
# What Spark's own build opens to its tests on Java 17.
OPENED = [f"java.base/{name}" for name in (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
    "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")]
OPENED.append("java.security.jgss/sun.security.krb5")


@dataclass
class Suite:
    """One suite with the cases that run alone, or those that do not run."""

    name: str
    only: list[str] = field(default_factory=list)
    skip: dict[str, str] = field(default_factory=dict)


@dataclass
class Report:
    """What became of the cases: `Suite: case` by name."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def main() -> int:
    """Runs what the command line selects and prints one line per case that did not pass."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--whole", action="store_true", help="not only the lean selection")
    arguments.add_argument("--native", action="store_true", help="with Spark's own shuffle")
    arguments.add_argument("--suite", action="append", default=[], help="only suites named so")
    arguments.add_argument("--seconds", type=int, default=5400, help="give up after so long")
    arguments.add_argument("--dependencies", action="store_true", help="only bring the jars")
    options = arguments.parse_args()
    suites = [suite for suite in plan(options.whole, options.native)
              if not options.suite or any(name in suite.name for name in options.suite)]
    if not suites:
        arguments.error("no suite is named so in suites.toml")
    try:
        if options.dependencies:
            print(f"{len(dependencies())} jars")
            return 0
        report = run(suites, options.native, options.seconds)
    except SetUpError as error:
        print(f"spark_suites: {error}", file=sys.stderr)
        return 2
    if options.whole:
        for name, reason in described()["not"].items():
            print(f"DOES NOT APPLY {name}: {reason}")
    for name, reason in sorted(report.skipped.items()):
        print(f"SKIPPED {name}: {reason}")
    for name, reason in sorted(report.failed.items()):
        print(f"FAILED {name}: {reason}")
    print(f"{len(report.passed)} passed, {len(report.failed)} failed, "
          f"{len(report.skipped)} skipped")
    return 1 if report.failed or not report.passed else 0


def described() -> dict[str, Any]:
    """Returns the content of suites.toml."""
    return tomllib.loads((HOME / "suites.toml").read_text())


def plan(is_whole: bool, is_native: bool) -> list[Suite]:
    """Returns the suites to run. The whole run takes every case of a suite that has a lean one."""
    all_suites = described()
    reasons = all_suites["reasons"]
    chosen = all_suites["lean"] | (all_suites["whole"] if is_whole else {})
    suites = []
    for name, how in chosen.items():
        skip = {case: reasons.get(reason, reason) for case, reason in how.get("skip", {}).items()}
        suites.append(Suite(name, how.get("only", []), {} if is_native else skip))
    return suites


def run(suites: list[Suite], is_native: bool, seconds: int) -> Report:
    """Runs suites in one JVM and returns what became of their cases."""
    jars = dependencies()
    if is_native:
        return run_with(suites, jars, [], seconds)
    jars.append(spark_jar())
    with Cluster(datanodes=3, dram="512MiB") as cluster:
        settings = [f"-D{key}={value}" for key, value in cluster.spark_settings().items()]
        return run_with(suites, jars, settings, seconds)


def dependencies() -> list[Path]:
    """Returns the jars that Spark's tests need; Maven brings them once for each pom.xml."""
    jars, stamp = TARGET / "jars", TARGET / "jars.stamp"
    wanted = (HOME / "pom.xml").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        command = ["mvn", "-B", "-q", "-f", str(HOME / "pom.xml"), "dependency:copy-dependencies"]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise SetUpError(f"{' '.join(command)}:\n{(ran.stdout + ran.stderr)[-2000:]}")
        stamp.write_text(wanted)
    return sorted(jars.glob("*.jar"))


def spark_home(jars: list[Path]) -> Path:
    """Makes what Spark takes for its own build, from which executors take their classes."""
    home = TARGET / "home"
    assembly = home / "assembly" / "target" / f"scala-{SCALA}" / "jars"
    assembly.mkdir(parents=True, exist_ok=True)
    (home / "launcher" / "target" / f"scala-{SCALA}").mkdir(parents=True, exist_ok=True)
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "log4j2.properties").write_text((HOME / "log4j2.properties").read_text())
    for stale in assembly.iterdir():
        stale.unlink()
    for jar in jars:
        (assembly / jar.name).symlink_to(jar)
    return home


def run_with(suites: list[Suite], jars: list[Path], settings: list[str], seconds: int) -> Report:
    home = spark_home(jars)
    tests = next(jar for jar in jars if jar.name == f"spark-core_{SCALA}-{SPARK}-tests.jar")
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        (work / "plan").write_text("".join(lines(suites)))
        reports = work / "reports"
        home_of_java = os.environ.get("JAVA_HOME")
        java = f"{home_of_java}/bin/java" if home_of_java else "java"
        command = [java, "-Xmx1500m", "-ea", *(f"--add-opens={name}=ALL-UNNAMED"
                                                     for name in OPENED),
                   "-Dio.netty.tryReflectionSetAccessible=true", "-Dspark.testing=1",
                   f"-Dspark.test.home={home}", f"-Djava.io.tmpdir={work}",
                   f"-Dlog4j2.configurationFile={HOME / 'log4j2.properties'}",
                   "-Dspark.ui.enabled=false", "-Dspark.unsafe.exceptionOnMemoryLeak=true",
                   *settings, "-cp", ":".join(map(str, jars)), str(HOME / "Run.java"),
                   str(work / "plan"), str(tests), str(reports)]
        environment = os.environ | {
            "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": SCALA, "SPARK_TESTING": "1",
            "SPARK_LOCAL_IP": "127.0.0.1"}
        try:
            ran = subprocess.run(command, cwd=work, env=environment, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise SetUpError(f"the suites did not end within {seconds} s") from None
        report = collect(reports, suites)
    if ran.returncode and not report.failed:
        report.failed["the run"] = f"exit code {ran.returncode}"
    return report


def lines(suites: list[Suite]) -> list[str]:
    """Returns the plan that Run.java reads."""
    found = []
    for suite in suites:
        found.append(f"{suite.name}|suite|\n")
        found += [f"{suite.name}|only|{case}\n" for case in suite.only]
        found += [f"{suite.name}|not|{case}\n" for case in suite.skip]
    return found


def collect(reports: Path, suites: list[Suite]) -> Report:
    """Reads the reports; a suite without one did not run, which is a failure."""
    report = Report()
    for suite in suites:
        short = suite.name.rsplit(".", 1)[1]
        for case, reason in suite.skip.items():
            report.skipped[f"{short}: {case}"] = reason
        found = reports / f"TEST-{suite.name}.xml"
        if not found.exists():
            report.failed[f"{short}"] = "the suite did not run"
            continue
        for case in xml.parse(found).iter("testcase"):
            name = f"{short}: {case.get('name')}"
            bad = case.find("failure") if case.find("error") is None else case.find("error")
            if bad is not None:
                report.failed[name] = re.sub(r"\s+", " ", bad.get("message") or "")[:300]
            elif case.find("skipped") is not None:
                report.skipped[name] = "Spark's own suite skips it"
            else:
                report.passed.append(name)
    return report


if __name__ == "__main__":
    sys.exit(main())
