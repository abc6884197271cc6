"""Starts Spark applications inside a test: executors as processes of their own, a log to read.

Run with the Python of .venv-spark35 or .venv-spark43. The JVM of pyspark is one per process, its
SparkContext one per application, so that a test pays seconds and not tens of them.
"""

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from cluster import ROOT
from spark_cluster import SOON_SECONDS, spark_jar, until

sys.path.insert(0, str(ROOT / "bench" / "spark"))
import event_log  # noqa: E402

VERSION = pyspark.__version__
# What this process and its Spark write to the disk.
OWN = tempfile.TemporaryDirectory(prefix="sanderling-spark-", ignore_cleanup_errors=True)
BACKEND = "CoarseGrainedExecutorBackend"
LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def launch(*jars: Path, role: str = "") -> None:
    """Starts the JVM of pyspark with Sanderling's jar, or other classes.

    What the driver and its executors log is in target/logs, one file for each script, and for each
    role of a process that a script starts beside itself.
    """
    logs = ROOT / "target" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    name = f"{Path(sys.argv[0]).stem}{role}-{VERSION}"
    settings = logs / f"{name}.log4j2.properties"
    settings.write_text(LOG4J.format(file=logs / f"{name}.spark.log"))
    (logs / f"{name}.spark.log").unlink(missing_ok=True)
    classes = ":".join(map(str, jars or [spark_jar()]))
    logging = f"-Dlog4j2.configurationFile={settings}"
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([
        "--driver-memory", "1g", "--driver-class-path", classes,
        "--conf", f"spark.executor.extraClassPath={classes}",
        "--conf", f"spark.driver.extraJavaOptions={logging}",
        "--conf", f"spark.executor.extraJavaOptions={logging}", "pyspark-shell"])
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The JVM starts with the settings of its first user, for all later ones.
    SparkContext._ensure_initialized()
    atexit.register(end)


def end() -> None:
    """Ends the JVM, then removes what it made again after its applications had gone."""
    stop_context()
    jvm = SparkContext._gateway.proc
    SparkContext._gateway.shutdown()
    # It ends when its last writer closes it.
    jvm.stdin.close()
    jvm.wait(SOON_SECONDS)
    OWN.cleanup()


class Application:
    """One Spark application with executors as processes; `account` is the account of its log."""

    def __init__(self, settings: dict[str, str], master: str = "local-cluster[2,1,1024]") -> None:
        self.own = Path(tempfile.mkdtemp(prefix="app-", dir=OWN.name))
        (self.own / "log").mkdir()
        defaults = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{self.own}/log",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.executor.memory": "1g",
            "spark.default.parallelism": "6",
            "spark.sql.shuffle.partitions": "6",
            "spark.sql.warehouse.dir": f"{self.own}/warehouse",
            "spark.local.dir": str(self.own),
            "spark.worker.cleanup.enabled": "true",
        }
        builder = SparkSession.builder.appName("sanderling").master(master)
        for key, value in (defaults | settings).items():
            builder = builder.config(key, value)
        try:
            self.spark = builder.getOrCreate()
        except BaseException:
            stop_context()
            shutil.rmtree(self.own, ignore_errors=True)
            raise
        self.context = self.spark.sparkContext
        self.jvm = self.context._jvm
        self.id = self.context.applicationId
        self._account: event_log.Account | None = None
        self._read_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_what: object) -> None:
        self.stop()

    def executors(self) -> list[int]:
        """Returns the process ids of this application's executors."""
        return [process for process, command in processes() if BACKEND in command
                and self.id in command]

    def wait_for_executors(self, count: int, seconds: float = SOON_SECONDS) -> list[int]:
        """Waits until so many executors have registered, and returns their process ids."""
        tracker = self.context._jsc.sc().statusTracker()
        until(f"{count} executors", lambda: len(tracker.getExecutorInfos()) - 1 == count,
              seconds=seconds)
        return self.executors()

    def kill_executor(self) -> None:
        """Kills one executor with SIGKILL, and waits until Spark has another one for it."""
        before = self.wait_for_executors(2)
        os.kill(before[0], signal.SIGKILL)
        until("a new executor", lambda: set(self.executors()) - set(before))

    def account(self) -> event_log.Account:
        """Returns the account of what happened since the last call, of jobs that have ended."""
        self.context._jsc.sc().listenerBus().waitUntilEmpty()
        [log] = [log for log in (self.own / "log").iterdir() if not log.name.startswith(".")]
        with log.open("rb") as whole:
            whole.seek(self._read_bytes)
            new = whole.read()
        new = new[:new.rfind(b"\n") + 1]
        self._read_bytes += len(new)
        return event_log.read_events(json.loads(line) for line in new.splitlines())

    def stop(self) -> event_log.Account:
        """Ends the application and returns the account of its log."""
        if self._account is None:
            self.spark.stop()
            self._account = event_log.read_latest(self.own / "log")
            shutil.rmtree(self.own, ignore_errors=True)
        return self._account


class Standalone:
    """A standalone master and workers, each on an address of its own of this machine's loopback.

    To Spark each address is a host: it loses all that was on one with its worker.
    """

    def __init__(self, hosts: tuple[str, ...], cores: int = 1) -> None:
        self.own = Path(tempfile.mkdtemp(prefix="workers-", dir=OWN.name))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self.start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
            self.master = self.printed("master", r"Starting Spark master at (spark://\S+)")
            for host in hosts:
                self.start(host, "worker.Worker", "--host", host, "--cores", str(cores),
                           "--memory", "1g", "--work-dir", str(self.own / host), self.master)
            for host in hosts:
                self.printed(host, r"(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_what: object) -> None:
        self.stop()

    def start(self, name: str, role: str, *words: str) -> None:
        """Starts a process of the cluster manager."""
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                   f"org.apache.spark.deploy.{role}", "--webui-port", "0", *words]
        environment = os.environ | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOG_DIR": str(self.own)}
        with open(self.own / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)

    def printed(self, name: str, pattern: str) -> str:
        """Waits until a process logs something and returns it."""
        def found() -> re.Match[str] | None:
            if self.processes[name].poll() is not None:
                raise AssertionError((self.own / f"{name}.log").read_text()[-2000:])
            return re.search(pattern, (self.own / f"{name}.log").read_text())
        return str(until(f"{name} logs {pattern}", found).group(1))

    def kill(self, name: str) -> None:
        """Kills a worker and its executors with SIGKILL, as when its machine goes."""
        process = self.processes.pop(name)
        executors = [number for number, command in processes()
                     if BACKEND in command and f"Worker@{name}:" in command]
        for number in [process.pid, *executors]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """Ends all processes."""
        for name in list(self.processes):
            self.kill(name)
        shutil.rmtree(self.own, ignore_errors=True)


def stop_context() -> None:
    """Ends what is left of a context that could not start."""
    context = SparkSession.getActiveSession()
    if context is not None:
        context.stop()


def processes() -> list[tuple[int, str]]:
    """Returns the processes of this machine with their command lines."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8",
                                                                                     "replace")
            except OSError:
                continue
            found.append((int(entry.name), command))
    return found


class Background:
    """Runs something in a thread; `result` waits for it and raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._value = work()
        except BaseException as error:
            self._error = error

    def is_running(self) -> bool:
        """Returns whether it is still at work."""
        return self._thread.is_alive()

    def result(self, seconds: float = 3 * SOON_SECONDS) -> Any:
        """Returns what it returned; fails when it takes longer than that."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise AssertionError(f"still at work after {seconds} s: it hangs")
        if self._error is not None:
            raise self._error
        return self._value
