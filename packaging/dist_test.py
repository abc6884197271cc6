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
        with subprocess.Popen([program, "namenode", "--listen", "127.0.0.1:0", "--http", "none",
                               "--dir", self.place / "journal",
                               "--ready-file", self.place / "ready"]) as older:
            try:
                wait_for("the namenode", (self.place / "ready").exists)
                ran = run(folder / "install.sh", prefix, env=clean())
                self.assertIn("servers that run keep their program", ran.stdout)
                address = json.loads((self.place / "ready").read_text())["address"]
                run(program, "--namenode", address, "fs", "ls", "/", env=clean())
            finally:
                older.terminate()
                self.assertEqual(0, older.wait(30))
        self.use(program)

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

    def empty_environment(self) -> dict[str, str]:
        """Makes an empty virtual environment; returns the variables of commands in it.

        Directories are of this test's own; apart from that and the ports, commands are a page's.
        """
        run(sys.executable, "-m", "venv", self.place / "venv")
        return clean() | {"PATH": f"{self.place / 'venv/bin'}:{os.environ['PATH']}",
                          "HOME": str(self.place), "XDG_RUNTIME_DIR": str(self.place),
                          "SANDERLING_LOCAL_DIR": str(self.place / "local")}

    def install(self, env: dict[str, str]) -> None:
        """Installs the wheel."""
        wheel = package("sanderling-*-manylinux_2_28_x86_64.whl")
        run("sh", "-euc", f"pip install --quiet --no-index {wheel}", env=env)

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
        root = self.boot()
        self.enter("systemctl", "start", "sanderling-namenode", "sanderling-datanode")
        for unit in ("sanderling-namenode", "sanderling-datanode"):
            self.assertEqual("active", self.enter("systemctl", "is-active", unit).stdout.strip())
        (root / "srv/data").write_bytes(DATA)
        self.enter("sanderling", "fs", "put", "/srv/data", "/data")
        # A second datanode, for the first one's blocks.
        (root / "etc/systemd/system/second.service").write_text(
            "[Service]\nType=notify\nUser=sanderling\nExecStart=/usr/bin/sanderling datanode "
            "--dram 64MiB --name second --local-socket none\n")
        self.enter("systemctl", "daemon-reload")
        self.enter("systemctl", "start", "second")
        wait_for("the second datanode",
                 lambda: "second" in self.enter("sanderling", "node", "ls").stdout)
        self.enter("systemctl", "stop", "sanderling-datanode")
        shown = self.enter("systemctl", "show", "--property=Result,ExecMainStatus",
                           "sanderling-datanode").stdout
        self.assertIn("Result=success", shown)
        self.assertIn("ExecMainStatus=0", shown)
        self.enter("sanderling", "fs", "get", "/data", "/srv/back")
        self.assertEqual(DATA, (root / "srv/back").read_bytes())
        # The namenode may write nowhere else, and runs as a user of its own.
        pid = self.enter("systemctl", "show", "--property=MainPID", "--value",
                         "sanderling-namenode").stdout.strip()
        status = self.enter("cat", f"/proc/{pid}/status").stdout
        self.assertIn("NoNewPrivs:\t1", status)
        self.assertIn("CapEff:\t0000000000000000", status)
        for name in ("docs/DAY-TWO.md", "deploy/prometheus/rules.yml"):
            self.assertTrue((root / "usr/share/doc/sanderling" / name).stat().st_size, name)
        self.cites_pages_below(Path("/usr"), self.enter("sanderling", *DOCTOR, "/srv", code=1)
                               .stdout, root)
        self.upgrade(root, pid)
        self.enter("dpkg", "--purge", "sanderling")
        self.assertFalse((root / "var/lib/sanderling").exists())

    def upgrade(self, root: Path, pid: str) -> None:
        """Installs the package once more over the running servers: they go on, and it is told."""
        ran = self.enter("dpkg", "-i", "/srv/sanderling.deb")
        self.assertIn("sanderling-namenode.service runs the program of", ran.stdout)
        now = self.enter("systemctl", "show", "--property=MainPID", "--value",
                         "sanderling-namenode").stdout.strip()
        self.assertEqual(pid, now)
        self.enter("systemctl", "restart", "sanderling-namenode")
        self.enter("sanderling", "fs", "stat", "/data")

    def boot(self) -> Path:
        """Makes the root, installs the package into it and starts its systemd."""
        if not (BASE / "usr/bin/systemctl").exists():
            shutil.rmtree(BASE, ignore_errors=True)
            BASE.parent.mkdir(parents=True, exist_ok=True)
            run("debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv", SUITE, BASE)
        root = self.place / "root"
        run("cp", "-a", BASE, root)
        shutil.copy(package("sanderling_*_amd64.deb"), root / "srv/sanderling.deb")
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
                  IN_IMAGE, "sh", root, env={"PATH": os.environ["PATH"]})
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
        source.write_text(USE_JAVA)
        (self.place / "pom.xml").write_text(USE_POM.format(version=VERSION, maven=DIST / "maven"))
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
            ran = run(tree.ROOT / ".venv-spark35/bin/python", "-I", "-c", USE_SPARK, jar, address,
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


# Runs servers and clients with nothing but the image, in its root, which is read-only but for its
# volumes, as its user. Names are resolved by the libraries in it.
IN_IMAGE = """
root=$1
state=$root/var/lib/sanderling
mount --bind $root $root
mount -o remount,bind,ro $root
mount -t tmpfs -o mode=1777 tmpfs $root/tmp
mount -t tmpfs -o mode=0700,uid=65532,gid=65532 tmpfs $root/var/lib/sanderling
mount -t proc proc $root/proc
ip link set lo up
sanderling() { chroot --userspec=65532:65532 $root /usr/bin/sanderling "$@"; }
wait_for() { for _ in $(seq 600); do [ -e $state/$1 ] && return; sleep 0.1; done; exit 1; }
ready=/var/lib/sanderling/ready
sanderling namenode --dir /var/lib/sanderling/namenode --http none --ready-file $ready-1 &
wait_for ready-1
sanderling datanode --namenode elsewhere:7600 --http none --dram 64MiB --ready-file $ready-2 &
wait_for ready-2
sanderling --namenode elsewhere:7600 fs put /usr/bin/sanderling /program
sanderling --namenode elsewhere:7600 fs get /program /var/lib/sanderling/back
cmp $root/usr/bin/sanderling $state/back
! touch $root/etc/written 2> $state/refused
echo the bytes came back
"""
USE_JAVA = """
import io.sanderling.client.*;
import java.net.URI;
import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class Use {
    public static void main(String[] words) throws Exception {
        try (SanderlingClient client =
                SanderlingClient.connect(words[0], ClientOptions.create())) {
            client.put("/jar", ByteBuffer.wrap(new byte[4 << 20]),
                PutOptions.create().withReplace(true));
            try (Buffer buffer = client.get("/jar")) {
                System.out.println(buffer.bytes().remaining() + " bytes read by the client");
            }
        }
        try (FileSystem files = FileSystem.get(
                URI.create("sanderling://" + words[0]), new Configuration())) {
            System.out.println(
                files.getFileStatus(new Path("/jar")).getLen() + " bytes listed by Hadoop");
        }
    }
}
"""
USE_SPARK = """
import sys
from pyspark.sql import SparkSession
jar, address = sys.argv[1:]
manager = "org.apache.spark.shuffle.sanderling.SanderlingShuffleManager"
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
    .config("spark.driver.extraClassPath", jar).config("spark.executor.extraClassPath", jar)
    .config("spark.shuffle.manager", manager).config("spark.sanderling.address", address)
    .config("spark.sql.shuffle.partitions", "4").getOrCreate()
)
groups = spark.range(10000).selectExpr("id % 97 AS key").groupBy("key").count().collect()
used = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get().shuffleManager()
print(len(groups), "groups of", sum(row["count"] for row in groups), "rows by",
      used.getClass().getSimpleName())
spark.stop()
"""
USE_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>application</groupId>
  <artifactId>application</artifactId>
  <version>1</version>
  <properties>
    <!-- The compiler plugin of Maven 3.8 and older reads these two, later ones the release. -->
    <maven.compiler.source>8</maven.compiler.source>
    <maven.compiler.target>8</maven.compiler.target>
    <maven.compiler.release>8</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <repositories>
    <repository>
      <id>dist</id>
      <url>file://{maven}</url>
    </repository>
  </repositories>
  <dependencies>
    <dependency>
      <groupId>io.sanderling</groupId>
      <artifactId>sanderling-client</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>io.sanderling</groupId>
      <artifactId>sanderling-hadoop</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId>
      <artifactId>hadoop-client-api</artifactId>
      <version>3.5.0</version>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId>
      <artifactId>hadoop-client-runtime</artifactId>
      <version>3.5.0</version>
    </dependency>
  </dependencies>
</project>
"""

if __name__ == "__main__":
    unittest.main(verbosity=2)
