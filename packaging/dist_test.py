#!/usr/bin/env python3
"""Installs each package of dist/ in a clean root, and uses it.

Needs root, the packages (`make dist`), and what each test names. A test whose tool is missing is
skipped with the command that installs it; a package that is missing fails its test.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import crates  # noqa: E402
import jars  # noqa: E402
import tools as installer  # noqa: E402
import tree  # noqa: E402
import uses  # noqa: E402

DIST = tree.DIST
VERSION = tree.version()
# Made once, and copied for each test: an hour of waiting for mirrors is not the packages' affair.
BASE = tree.WORK / "debian-root"
SUITE = "bookworm"
DATA = bytes(range(256)) * 16384  # 4 MiB
# Finds that no namenode runs. The next word is a directory: that of the disk that it measures.
DOCTOR = ("doctor", "--namenode", "127.0.0.1:1", "--dram", "1MiB", "--dir")
# A first result may take so long on a machine that was idle before: with a lower load average.
FIRST_RESULT_SECONDS_MAX = 60
IDLE_LOAD_MAX = 2
# Debian sorts a version with a tilde before the one without it.
OLDER = f"{VERSION}~older"
UNITS = ("sanderling-namenode", "sanderling-datanode")


# What a test below uses. A file of another name has no test yet.
USED = (
    "SHA256SUMS", "*.cdx.json",
    f"sanderling-{VERSION}-linux-x86_64.tar.gz", f"sanderling_{VERSION}_amd64.deb",
    f"sanderling-{VERSION}-linux-x86_64.oci.tar",
    f"sanderling-{VERSION}-*-manylinux_2_28_x86_64.whl", f"sanderling-{VERSION}.tar.gz",
    *(f"crates/{name}-{VERSION}.crate" for name in crates.CRATES),
    *jars.names(), *(f"{name}.{kind}" for name in jars.names() for kind in jars.HASHES),
)


def needs(tools: str, package: str):
    """Skips a test where a tool is missing, and cannot be installed."""
    missing = [tool for tool in tools.split() if not shutil.which(tool)]
    if missing and installer.install([package]):
        missing = [tool for tool in missing if not shutil.which(tool)]
    return unittest.skipIf(missing, f"{', '.join(missing)} is missing: apt install {package}")


def package(pattern: str) -> Path:
    """Returns the one package of a name."""
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        raise AssertionError(f"dist/{pattern}: {len(found)} files, not one: make dist")
    return found[0]


def run(*command: str | Path, code: int | None = 0, **more) -> subprocess.CompletedProcess:
    """Runs a command; raises with what it printed if it ends with another code."""
    words = [str(word) for word in command]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=1800, **more)
    if code is not None and ran.returncode != code:
        raise AssertionError(f"{' '.join(words)}: exit code {ran.returncode}\n{ran.stdout[-4000:]}"
                             f"\n{ran.stderr[-4000:]}")
    return ran


def wait_for(what: str, condition, seconds: float = 60.0):
    """Waits until a condition holds; returns its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


def clean() -> dict[str, str]:
    """Returns an environment without anything of this checkout."""
    kept = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "JAVA_HOME", "CARGO_HOME", "RUSTUP_HOME")
    return {key: value for key, value in os.environ.items()
            if key in kept or key.startswith("PIP_")}


def drained(page: str, seconds: float = 60.0) -> dict:
    """Follows the events of a namenode until a node is empty; returns that event."""
    end = time.monotonic() + seconds
    with urllib.request.urlopen(f"{page}v1/events?after=0", timeout=seconds) as lines:
        for line in lines:
            kind = json.loads(line[6:])["kind"] if line.startswith(b"data: ") else {}
            if "node_drained" in kind:
                return kind["node_drained"]
            if time.monotonic() > end:
                break
    raise AssertionError(f"{page}: no node was drained within {seconds:.0f} s")


def node(page: str, name: str) -> dict:
    """Returns a node as the namenode serves it."""
    with urllib.request.urlopen(f"{page}v1/nodes/{name}", timeout=30) as answer:
        return json.load(answer)


class Case(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="sanderling-dist-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)

    @contextlib.contextmanager
    def cluster(self):
        """Serves a cluster with the program of the tarball; its value is the namenode's address."""
        run("tar", "-xzf", package(f"sanderling-{VERSION}-linux-x86_64.tar.gz"), "-C", self.place)
        (program,) = self.place.glob("*/bin/sanderling")
        env = clean() | {"XDG_RUNTIME_DIR": str(self.place), "HOME": str(self.place)}
        local = ("--dir", self.place / "local")
        started = run(program, "local", "start", "--datanodes", "2", "--dram", "64MiB",
                      "--port", "0", "--http-port", "0", *local, env=env)
        try:
            yield started.stdout.strip()
        finally:
            run(program, "local", "stop", *local, env=env)

    def make_older(self, program: Path) -> None:
        """Makes another file of a program, with the same code: nothing reads what is at its end."""
        with program.open("ab") as file:
            file.write(b"older")

    def cites_pages_below(self, prefix: Path, printed: str, root: Path = Path("/")) -> None:
        """Checks that what the doctor cites is a file of the package, as the root has it."""
        (page,) = re.findall(r"(\S+/DAY-TWO\.md)#sanderlingnamenodemissing", printed)
        self.assertEqual(prefix / "share/doc/sanderling/docs/DAY-TWO.md", Path(page))
        self.assertTrue((root / page.lstrip("/")).is_file(), page)

    def use(self, program: Path | str) -> None:
        """Starts a cluster with a program, moves a file through a drain, reads it back."""
        data = self.place / "data"
        data.write_bytes(DATA)
        env = clean() | {"XDG_RUNTIME_DIR": str(self.place), "HOME": str(self.place)}
        run(program, "local", "start", "--datanodes", "2", "--dram", "64MiB",
            "--port", "0", "--http-port", "0", "--dir", self.place / "local", env=env)
        try:
            status = json.loads(run(program, "--json", "local", "status", "--dir",
                                    self.place / "local", env=env).stdout)
            near = ("--namenode", status["namenode"])
            run(program, *near, "fs", "put", data, "/data", env=env)
            drained = run(program, *near, "node", "notice", "datanode-0", "--deadline", "30s",
                          "--wait", env=env)
            self.assertIn("lost 0 B", drained.stdout)
            run(program, *near, "fs", "get", "/data", self.place / "back", env=env)
            self.assertEqual(DATA, (self.place / "back").read_bytes())
        finally:
            run(program, "local", "stop", "--dir", self.place / "local", env=env)


class SumsTest(unittest.TestCase):
    """The checksums and bills of materials."""

    def test_sums_cover_every_file(self):
        run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS", cwd=DIST)
        listed = {line.split("  ", 1)[1] for line in (DIST / "SHA256SUMS").read_text().splitlines()}
        there = {path.relative_to(DIST).as_posix() for path in DIST.rglob("*") if path.is_file()}
        self.assertEqual({"SHA256SUMS"}, there - listed)

    def test_bills_of_materials_are_whole(self):
        bills = sorted(DIST.glob("*.cdx.json"))
        self.assertEqual(4, len(bills), "program, image, wheel, jars")
        for path in bills:
            bill = json.loads(path.read_text())
            self.assertEqual(("CycloneDX", "1.6"), (bill["bomFormat"], bill["specVersion"]))
            self.assertGreater(len(bill["components"]), 50, path.name)
            places = [part["purl"] for part in bill["components"]]
            self.assertEqual(len(set(places)), len(places), path.name)
            (own,) = bill["dependencies"]
            self.assertEqual(sorted(places), sorted(own["dependsOn"]), path.name)
            for part in bill["components"]:
                self.assertTrue(part["version"], part["purl"])
                if part["purl"].startswith("pkg:cargo/"):
                    self.assertTrue(part["licenses"][0]["expression"], part["purl"])
                    self.assertEqual(64, len(part["hashes"][0]["content"]), part["purl"])

    def test_every_file_is_used_by_a_test(self):
        used = {name: set(DIST.glob(name)) for name in USED}
        for name, found in used.items():
            self.assertTrue(found, name)
        there = {path for path in DIST.rglob("*") if path.is_file()}
        unused = there.difference(*used.values())
        self.assertEqual([], sorted(path.relative_to(DIST).as_posix() for path in unused))


class TarballTest(Case):
    """The archive of the program."""

    def test_installs_over_a_running_older_program(self):
        run("tar", "-xzf", package("sanderling-*-linux-x86_64.tar.gz"), "-C", self.place)
        (folder,) = self.place.iterdir()
        prefix = self.place / "usr"
        run(folder / "install.sh", prefix, env=clean())
        program = prefix / "bin/sanderling"
        self.assertEqual(f"sanderling {VERSION}", run(program, "--version").stdout.strip())
        for name in ("share/man/man1/sanderling-fs-put.1.gz", "share/doc/sanderling/LICENSE",
                     "share/bash-completion/completions/sanderling",
                     "share/doc/sanderling/THIRD-PARTY.txt",
                     "share/doc/sanderling/docs/DAY-TWO.md",
                     "share/doc/sanderling/docs/mechanisms/relocation.md",
                     "share/doc/sanderling/deploy/prometheus/rules.yml",
                     "share/doc/sanderling/deploy/grafana/fleet.json"):
            self.assertTrue((prefix / name).stat().st_size, name)
        self.cites_pages_below(prefix, run(program, *DOCTOR, self.place, code=1, env=clean() | {
            "HOME": str(self.place), "XDG_RUNTIME_DIR": str(self.place)}).stdout)
        self.make_older(program)
        with self.namenode(program) as (server, near):
            run(program, *near, "fs", "mkdir", "/kept", env=clean())
            ran = run(folder / "install.sh", prefix, env=clean())
            self.assertIn("servers that run keep their program", ran.stdout)
            self.assertFalse(os.path.samefile(f"/proc/{server.pid}/exe", program))
            run(program, *near, "fs", "stat", "/kept", env=clean())
        with self.namenode(program) as (server, near):
            self.assertTrue(os.path.samefile(f"/proc/{server.pid}/exe", program))
            run(program, *near, "fs", "stat", "/kept", env=clean())
        self.use(program)

    @contextlib.contextmanager
    def namenode(self, program: Path):
        """Serves a namenode on this test's journal; its value is the process, and its flags."""
        ready = self.place / "ready"
        ready.unlink(missing_ok=True)
        with subprocess.Popen([program, "namenode", "--listen", "127.0.0.1:0", "--http", "none",
                               "--dir", self.place / "journal", "--ready-file", ready]) as server:
            try:
                wait_for("the namenode", ready.exists)
                yield server, ("--namenode", json.loads(ready.read_text())["address"])
            finally:
                server.terminate()
                self.assertEqual(0, server.wait(30))

    @needs("readelf", "binutils")
    def test_needs_glibc_2_28_at_most(self):
        run("tar", "-xzf", package("sanderling-*-linux-x86_64.tar.gz"), "-C", self.place)
        (program,) = self.place.glob("*/bin/sanderling")
        shown = run("readelf", "--version-info", program).stdout
        found = {tuple(map(int, word.removeprefix("GLIBC_").split(".")))
                 for word in shown.split() if word.startswith("GLIBC_2")}
        self.assertLessEqual(max(found)[:2], (2, 28))
        for name in (str(Path.home()).encode() + b"/", str(tree.ROOT).encode()):
            self.assertNotIn(name, program.read_bytes())


class WheelTest(Case):
    """The Python package."""

    def test_works_in_an_empty_environment(self):
        wheel = package("sanderling-*-manylinux_2_28_x86_64.whl")
        run(sys.executable, "-m", "venv", self.place / "venv")
        python = self.place / "venv/bin/python"
        run(python, "-m", "pip", "install", "--no-index", "--quiet", wheel, env=clean())
        script = (
            "import sanderling\n"
            "with sanderling.Cluster.local(datanodes=2, dram_bytes=64 << 20) as cluster:\n"
            "    store = sanderling.connect(cluster.address)\n"
            "    data = bytes(range(256)) * 16384\n"
            "    store.put('/data', data)\n"
            "    cluster.notice(cluster.nodes()[0], deadline_seconds=20)\n"
            "    next(it for it in store.follow(0, timeout=30) if it.kind == 'node_drained')\n"
            "    assert store.get('/data') == data\n")
        run(python, "-I", "-c", script, env=clean(), cwd=self.place)
        self.use(self.place / "venv/bin/sanderling")
        shown = run(python, "-m", "pip", "show", "--verbose", "sanderling").stdout
        for value in (tree.project()["issues"], tree.project()["security"]):
            self.assertIn(value, shown)
        # The pages are not in it: the program cites their addresses.
        found = run(self.place / "venv/bin/sanderling", *DOCTOR, self.place, code=1,
                    cwd=self.place, env=clean() | {
                        "HOME": str(self.place), "XDG_RUNTIME_DIR": str(self.place)}).stdout
        page = f"{tree.project()['documentation']}DAY-TWO.html#sanderlingnamenodemissing"
        self.assertIn(page, found)
        shown = run(self.place / "venv/bin/sanderling", "config", "--help", cwd=self.place,
                    env=clean()).stdout
        self.assertIn(f"{tree.project()['documentation']}CONFIGURATION.html", shown)
        # The measuring apparatus is not in it.
        refused = run(self.place / "venv/bin/sanderling", "bench", code=None)
        self.assertNotEqual(0, refused.returncode)

    def test_first_result_takes_four_commands(self):
        env, load = self.empty_environment(), os.getloadavg()[0]
        # Of many blocks: a small file can leave the node that is drained without one.
        file = self.place / "file"
        file.write_bytes(DATA * 4)
        started = time.monotonic()
        self.install(env)
        installed = time.monotonic()
        address = run("sh", "-euc", "sanderling local start --port 0 --http-port 0", env=env
                      ).stdout.strip()
        try:
            env |= {"SANDERLING_NAMENODE": address}
            run("sh", "-euc", f"sanderling fs put {file} /first", env=env)
            ran = run("sh", "-euc", "sanderling node notice datanode-0 --deadline 30s --wait",
                      env=env)
            self.assertIn("lost 0 B", ran.stdout)
            status = json.loads(run("sh", "-euc", "sanderling --json local status", env=env).stdout)
            page = f"http://{status['http_address']}/"
            self.shows_console(page)
            self.assertGreater(drained(page)["moved_bytes"], 0)
            self.assertEqual("drained", node(page, "datanode-0")["policy"])
            ended = time.monotonic()
        finally:
            run("sh", "-euc", "sanderling local stop", env=env)
        self.judge("four commands", installed - started, ended - started, load)

    def test_tour_is_seen_within_the_first_minute(self):
        env, load = self.empty_environment(), os.getloadavg()[0]
        printed = self.place / "tour.log"
        started = time.monotonic()
        self.install(env)
        installed = time.monotonic()
        with printed.open("w") as log, subprocess.Popen(
                ["sh", "-euc", "exec sanderling tour --port 0"], env=env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log) as tour:
            try:
                found = wait_for("the console's address", lambda: re.search(
                    r"^console +(http\S+/)$", printed.read_text(), re.MULTILINE))
                page = found[1]
                self.shows_console(page)
                # While it drains, and then as emptied.
                wait_for("the notice", lambda: "draining" == node(page, "spot-0")["policy"])
                moved = drained(page)["moved_bytes"]
                ended = time.monotonic()
                self.assertGreater(moved, 0)
                self.assertEqual(0, tour.wait(120), printed.read_text())
            finally:
                tour.terminate()
                tour.wait(60)
                run("sh", "-euc", "sanderling local stop", env=env, code=None)
        self.assertRegex(printed.read_text(), r"(?m)^lost +0 B$")
        self.judge("the tour", installed - started, ended - started, load)

    def test_reinstalled_wheel_leaves_a_running_cluster_alone(self):
        env = self.empty_environment()
        self.install(env)
        (self.place / "data").write_bytes(DATA)
        started = run("sanderling", "local", "start", "--port", "0", "--http-port", "0", env=env)
        env |= {"SANDERLING_NAMENODE": started.stdout.strip()}

        def servers() -> dict[int, bool]:
            status = json.loads(run("sanderling", "--json", "local", "status", env=env).stdout)
            return {server["pid"]: server["is_running"] for server in status["processes"]}

        try:
            run("sanderling", "fs", "put", self.place / "data", "/data", env=env)
            before = servers()
            self.install(env, "--force-reinstall")
            self.assertEqual(before, servers())
            self.assertEqual({True}, set(before.values()))
            # A drain runs code that they have not run before.
            ran = run("sanderling", "node", "notice", "datanode-0", "--deadline", "30s", "--wait",
                      env=env)
            self.assertIn("lost 0 B", ran.stdout)
            run("sanderling", "fs", "get", "/data", self.place / "back", env=env)
            self.assertEqual(DATA, (self.place / "back").read_bytes())
        finally:
            run("sanderling", "local", "stop", env=env)

    def empty_environment(self) -> dict[str, str]:
        """Makes an empty virtual environment; returns the variables of commands in it.

        Directories are of this test's own; apart from that and the ports, commands are a page's.
        """
        run(sys.executable, "-m", "venv", self.place / "venv")
        return clean() | {"PATH": f"{self.place / 'venv/bin'}:{os.environ['PATH']}",
                          "HOME": str(self.place), "XDG_RUNTIME_DIR": str(self.place),
                          "SANDERLING_LOCAL_DIR": str(self.place / "local")}

    def install(self, env: dict[str, str], flag: str = "") -> None:
        """Installs the wheel."""
        wheel = package("sanderling-*-manylinux_2_28_x86_64.whl")
        run("sh", "-euc", f"pip install --quiet --no-index {flag} {wheel}", env=env)

    def shows_console(self, page: str) -> None:
        """Checks that the console is served."""
        with urllib.request.urlopen(page, timeout=30) as answer:
            self.assertIn("<title>", answer.read().decode())

    def judge(self, what: str, install: float, whole: float, load: float) -> None:
        """Prints how long a first result took, and judges it if the machine was idle before."""
        print(f"{what}: {whole:.1f} s from pip install to the drain that the console shows, "
              f"{install:.1f} s of them for the installation; load average {load:.2f}",
              file=sys.stderr)
        if load < IDLE_LOAD_MAX:
            self.assertLessEqual(whole, FIRST_RESULT_SECONDS_MAX)
        else:
            print(f"not judged: a machine with a load average below {IDLE_LOAD_MAX} has "
                  f"{FIRST_RESULT_SECONDS_MAX} s", file=sys.stderr)

    @needs("cargo cc", "build-essential, and cargo from https://rustup.rs")
    def test_source_builds_a_wheel_that_works(self):
        source = package("sanderling-*.tar.gz".replace("*", VERSION))
        run(sys.executable, "-m", "venv", self.place / "venv")
        python = self.place / "venv/bin/python"
        # Not optimized, and with the compiled dependencies of `make test`: minutes less.
        env = clean() | {"CARGO_TARGET_DIR": str(tree.ROOT / "target"),
                         "MATURIN_PEP517_ARGS": "--profile dev"}
        run(python, "-m", "pip", "install", "--quiet", source, env=env)
        self.use(self.place / "venv/bin/sanderling")


@unittest.skipIf(os.geteuid(), "starts systemd in a root of its own: needs root")
class DebianTest(Case):
    """The Debian package, in a root made by debootstrap, under a systemd of its own."""

    @needs("debootstrap unshare setpriv ip", "debootstrap util-linux iproute2")
    def test_units_serve_and_drain(self):
        root = self.boot(package("sanderling_*_amd64.deb"))
        self.enter("systemctl", "start", *UNITS)
        for unit in UNITS:
            self.assertEqual("active", self.enter("systemctl", "is-active", unit).stdout.strip())
        (root / "srv/data").write_bytes(DATA)
        self.enter("sanderling", "fs", "put", "/srv/data", "/data")
        self.start_second(root)
        self.enter("systemctl", "stop", "sanderling-datanode")
        shown = self.enter("systemctl", "show", "--property=Result,ExecMainStatus",
                           "sanderling-datanode").stdout
        self.assertIn("Result=success", shown)
        self.assertIn("ExecMainStatus=0", shown)
        self.reads_back(root)
        # The namenode may write nowhere else, and runs as a user of its own.
        pid = self.main_pid("sanderling-namenode")
        status = self.enter("cat", f"/proc/{pid}/status").stdout
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("CapEff:\t0000000000000000", status)
        for name in ("docs/DAY-TWO.md", "deploy/prometheus/rules.yml"):
            self.assertTrue((root / "usr/share/doc/sanderling" / name).stat().st_size, name)
        self.cites_pages_below(Path("/usr"), self.enter("sanderling", *DOCTOR, "/srv", code=1)
                               .stdout, root)
        self.enter("dpkg", "--purge", "sanderling")
        self.assertFalse((root / "var/lib/sanderling").exists())

    @needs("debootstrap unshare setpriv ip dpkg-deb", "debootstrap util-linux iproute2 dpkg")
    def test_upgrade_of_an_older_package_keeps_servers_and_data(self):
        present = package("sanderling_*_amd64.deb")
        root = self.boot(self.older(present))
        self.enter("systemctl", "enable", "--now", *UNITS)
        (root / "srv/data").write_bytes(DATA)
        self.enter("sanderling", "fs", "put", "/srv/data", "/data")
        settings = root / "etc/sanderling/datanode.env"
        settings.write_text(f"{settings.read_text()}# of this machine\n")
        pids = {unit: self.main_pid(unit) for unit in UNITS}
        shutil.copy(present, root / "srv/present.deb")
        ran = self.enter("dpkg", "-i", "/srv/present.deb")
        for unit in UNITS:
            self.assertIn(f"{unit}.service runs the program of {OLDER} until", ran.stdout)
            self.assertEqual(pids[unit], self.main_pid(unit))
            self.assertFalse(self.runs_the_installed_program(unit), unit)
            self.assertEqual("enabled", self.enter("systemctl", "is-enabled", unit).stdout.strip())
        self.assertIn("# of this machine", settings.read_text())
        self.reads_back(root)
        # The order of docs/UPGRADING.md: the namenode, then a datanode by one of another name.
        self.enter("systemctl", "restart", "sanderling-namenode")
        self.reads_back(root)
        (first,) = json.loads(self.enter("sanderling", "--json", "node", "ls").stdout)["nodes"]
        self.start_second(root)
        self.enter("sanderling", "node", "decommission", first["name"], "--wait")
        self.enter("systemctl", "stop", "sanderling-datanode")
        self.reads_back(root)
        self.enter("systemctl", "start", "sanderling-datanode")
        for unit in (*UNITS, "second"):
            self.assertTrue(self.runs_the_installed_program(unit), unit)
        refused = self.enter("dpkg", "-i", "/srv/sanderling.deb", code=None)
        self.assertNotEqual(0, refused.returncode, "a downgrade")
        self.assertIn("Nothing was changed", refused.stderr)
        shown = self.enter("dpkg-query", "-W", "-f=${Version} ${Status}", "sanderling")
        self.assertEqual(f"{VERSION} install ok installed", shown.stdout)
        self.reads_back(root)

    def older(self, present: Path) -> Path:
        """Makes a package of an older version from the present one."""
        folder, path = self.place / "older", self.place / "older.deb"
        run("dpkg-deb", "--raw-extract", present, folder)
        for name, line in (("control", "Version: {}\n"), ("preinst", "version={}\n")):
            file = folder / "DEBIAN" / name
            text = file.read_text()
            self.assertIn(line.format(VERSION), text)
            file.write_text(text.replace(line.format(VERSION), line.format(OLDER)))
        self.make_older(folder / "usr/bin/sanderling")
        run("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", folder, path)
        return path

    def start_second(self, root: Path) -> None:
        """Starts a second datanode, for the first one's blocks."""
        (root / "etc/systemd/system/second.service").write_text(
            "[Service]\nType=notify\nUser=sanderling\nExecStart=/usr/bin/sanderling datanode "
            "--dram 64MiB --name second --local-socket none\n")
        self.enter("systemctl", "daemon-reload")
        self.enter("systemctl", "start", "second")
        wait_for("the second datanode",
                 lambda: "second" in self.enter("sanderling", "node", "ls").stdout)

    def reads_back(self, root: Path) -> None:
        """Checks that the file in the cluster has its bytes."""
        self.enter("sanderling", "fs", "get", "--force", "/data", "/srv/back")
        self.assertEqual(DATA, (root / "srv/back").read_bytes())

    def main_pid(self, unit: str) -> str:
        """Returns the number of a unit's server, as that systemd has it."""
        return self.enter("systemctl", "show", "--property=MainPID", "--value", unit).stdout.strip()

    def runs_the_installed_program(self, unit: str) -> bool:
        """Returns whether a unit's server has the program that is installed now."""
        ran = self.enter("cmp", "--silent", f"/proc/{self.main_pid(unit)}/exe",
                         "/usr/bin/sanderling", code=None)
        self.assertLess(ran.returncode, 2, ran.stderr)
        return ran.returncode == 0

    def boot(self, archive: Path) -> Path:
        """Makes the root, installs a package into it and starts its systemd."""
        if not (BASE / "usr/bin/systemctl").exists():
            shutil.rmtree(BASE, ignore_errors=True)
            BASE.parent.mkdir(parents=True, exist_ok=True)
            run("debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv", SUITE, BASE)
        root = self.place / "root"
        run("cp", "-a", BASE, root)
        shutil.copy(archive, root / "srv/sanderling.deb")
        run("chroot", root, "dpkg", "-i", "/srv/sanderling.deb")
        # The terminals are those of the machine.
        for unit in ("getty.target", "getty-static.service", "console-getty.service"):
            (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
        # Namespaces of its own for mounts, processes, names and the network: nothing outside is
        # reached. Its control groups are below its own.
        init = (f"mount --bind {root} {root} && cd {root} && mount -t proc proc proc && "
                "mount -t sysfs -o ro sysfs sys && mount -t tmpfs tmpfs run && "
                "mount --rbind /dev dev && mount -t tmpfs tmpfs sys/fs/cgroup && "
                "mkdir sys/fs/cgroup/unified sys/fs/cgroup/systemd && "
                "mount -t cgroup2 cgroup2 sys/fs/cgroup/unified && "
                "mount -t cgroup -o none,name=systemd,xattr cgroup sys/fs/cgroup/systemd && "
                "ip link set lo up; exec chroot . /lib/systemd/systemd --system")
        log = (self.place / "init.log").open("w")
        self.addCleanup(log.close)
        started = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--uts",
             "--ipc", "--net", "--cgroup", "--kill-child", "sh", "-c", init],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={"PATH": os.environ["PATH"], "container": "unshare"})
        self.addCleanup(self.end, started)
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        self.init = wait_for("systemd's process", lambda: children.read_text().split())[0]
        try:
            wait_for("systemd", lambda: self.enter("systemctl", "is-system-running", code=None)
                     .stdout.strip() in ("running", "degraded"))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{(self.place / 'init.log').read_text()[-3000:]}")
        return root

    def enter(self, *command: str, code: int | None = 0) -> subprocess.CompletedProcess:
        """Runs a command beside that systemd."""
        return run("nsenter", "--target", self.init, "--all", "--root", "--wd", "env", "-i",
                   "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command, code=code)

    def end(self, started: subprocess.Popen) -> None:
        """Ends that systemd with everything below it."""
        started.kill()
        started.wait()


@unittest.skipIf(os.geteuid(), "starts a container: needs root")
class ImageTest(Case):
    """The image, as runc runs it: another user, nothing writable but its volumes."""

    @needs("umoci unshare ip", "umoci util-linux iproute2")
    def test_root_file_system_serves(self):
        bundle = self.unpacked()
        root = bundle / "rootfs"
        config = json.loads((bundle / "config.json").read_text())
        self.assertEqual(65532, config["process"]["user"]["uid"])
        self.assertEqual(["/usr/bin/sanderling", "--help"], config["process"]["args"])
        (root / "etc/hosts").write_text("127.0.0.1 elsewhere\n")
        ran = run("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-euc",
                  uses.IN_IMAGE, "sh", root, env={"PATH": os.environ["PATH"]})
        self.assertIn("the bytes came back", ran.stdout)

    @needs("skopeo", "skopeo")
    def test_layout_is_whole(self):
        shown = json.loads(run("skopeo", "inspect", "--config", f"oci-archive:{self.archive()}"
                               ).stdout)
        labels = shown["config"]["Labels"]
        self.assertEqual(VERSION, labels["org.opencontainers.image.version"])
        self.assertEqual(tree.project()["security"], labels["security"])
        self.assertEqual("65532:65532", shown["config"]["User"])

    def archive(self) -> Path:
        """Returns the image."""
        return package("sanderling-*.oci.tar")

    def unpacked(self) -> Path:
        """Unpacks the image into a bundle for a runtime."""
        archive = self.archive()
        layout = self.place / "layout"
        layout.mkdir()
        run("tar", "-xf", archive, "-C", layout)
        bundle = self.place / "bundle"
        run("umoci", "unpack", "--image", f"{layout}:{VERSION}", bundle)
        return bundle


class JarTest(Case):
    """The jars, from the repository of files, by a project of Maven."""

    @needs("mvn java", "maven default-jdk-headless")
    def test_project_uses_the_client(self):
        for name in jars.names():
            path = DIST / name
            self.assertTrue(path.stat().st_size, name)
            for kind in jars.HASHES:
                self.assertEqual(hashlib.new(kind, path.read_bytes()).hexdigest(),
                                 path.with_name(f"{path.name}.{kind}").read_text(), name)
            if path.name == "maven-metadata.xml":
                self.assertIn(f"<version>{VERSION}</version>", path.read_text(), name)
            if path.suffix == ".jar":
                self.holds_what_its_name_has(path)
        source = self.place / "src/main/java/Use.java"
        source.parent.mkdir(parents=True)
        source.write_text(uses.JAVA)
        (self.place / "pom.xml").write_text(uses.POM.format(version=VERSION, maven=DIST / "maven"))
        # What the registry has may come from the repository of the user; ours only from dist/.
        own = self.place / "repository"
        users = Path.home() / ".m2/repository"
        if users.is_dir():
            shutil.copytree(users, own, copy_function=link, ignore=lambda folder, names:
                            {"sanderling"} & set(names) if folder == str(users / "io") else set())
        classes = self.place / "classpath"
        run("mvn", "--batch-mode", "--quiet", f"-Dmaven.repo.local={own}", "compile",
            "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath",
            f"-Dmdep.outputFile={classes}", cwd=self.place)
        self.assertIn(f"{own}/io/sanderling/sanderling-hadoop", classes.read_text())
        with self.cluster() as address:
            ran = run("java", "-Xmx512m", "-cp", f"target/classes:{classes.read_text().strip()}",
                      "Use", address, cwd=self.place, env=clean() | {"HOME": str(self.place)})
        self.assertIn("4194304 bytes read by the client", ran.stdout)
        self.assertIn("4194304 bytes listed by Hadoop", ran.stdout)

    def holds_what_its_name_has(self, path: Path) -> None:
        """Checks the kinds of files in a jar: classes, sources or documentation."""
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip(), path.name)
            kinds = {Path(name).suffix for name in archive.namelist()}
        if path.name.endswith("-sources.jar"):
            self.assertIn(".java", kinds)
            self.assertNotIn(".so", kinds, "the native library is no source")
        else:
            self.assertIn(".html" if path.name.endswith("-javadoc.jar") else ".class", kinds)

    @needs("java python3", "default-jdk-headless python3")
    def test_spark_shuffles_with_the_jar(self):
        run("scripts/venv.sh", "spark35", cwd=tree.ROOT)
        jar = package(f"maven/io/sanderling/sanderling-spark/{VERSION}/sanderling-spark-{VERSION}"
                      ".jar")
        with self.cluster() as address:
            ran = run(tree.ROOT / ".venv-spark35/bin/python", "-I", "-c", uses.SPARK, jar, address,
                      env=clean() | {"HOME": str(self.place)}, cwd=self.place)
        self.assertIn("97 groups of 10000 rows by SanderlingShuffleManager", ran.stdout)


def link(source: str, target: str) -> None:
    """Links a file to a second place, or copies it where that is another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class CrateTest(Case):
    """The crates, each from its archive."""

    @needs("cargo cc", "build-essential, and cargo from https://rustup.rs")
    def test_examples_run_with_the_archives(self):
        lines = []
        for name in crates.CRATES:
            run("tar", "-xzf", package(f"crates/{name}-{VERSION}.crate"), "-C", self.place)
            folder = self.place / f"{name}-{VERSION}"
            self.assertEqual((tree.ROOT / "LICENSE").read_text(),
                             (folder / "LICENSE").read_text(), name)
            self.assertTrue((folder / "README.md").exists(), name)
            lines.append(f'{name} = {{ path = "{folder}" }}')
        application = self.place / "application"
        examples = self.place / f"sanderling-object-store-{VERSION}/examples"
        shutil.copytree(examples, application / "src/bin")
        (application / "Cargo.toml").write_text(
            '[package]\nname = "application"\nversion = "1.0.0"\nedition = "2024"\n'
            f'[dependencies]\nsanderling-client = "={VERSION}"\n'
            f'sanderling-protocol = "={VERSION}"\nsanderling-object-store = "={VERSION}"\n'
            'futures-util = "0.3"\n'
            'object_store = { version = "0.14", default-features = false, features = ["tokio"] }\n'
            'tokio = { version = "1", features = ["macros", "rt-multi-thread", "time", "net"] }\n'
            "[profile.dev]\ndebug = false\n"
            "[patch.crates-io]\n" + "\n".join(lines) + "\n")
        shutil.copy(tree.ROOT / "Cargo.lock", application)
        env = clean() | {"CARGO_TARGET_DIR": str(tree.ROOT / "target")}
        run("cargo", "build", "--quiet", cwd=application, env=env)
        with self.cluster() as address:
            for name in sorted(path.stem for path in examples.iterdir()):
                run(tree.ROOT / "target/debug" / name, address,
                    env=clean() | {"HOME": str(self.place)})


if __name__ == "__main__":
    unittest.main(verbosity=2)
