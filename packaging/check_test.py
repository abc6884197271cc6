#!/usr/bin/env python3
"""Checks what packages are made from, in seconds and without building one.

`make dist-test` uses the packages themselves. What a missing tool cannot check is skipped, with the
command that installs the tool.
"""

import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import xml.etree.ElementTree as xml
import zipfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "packaging"
sys.path.insert(0, str(HERE))
os.environ["SOURCE_DATE_EPOCH"] = "1790000000"

import archives  # noqa: E402
import crates  # noqa: E402
import debian  # noqa: E402
import dist  # noqa: E402
import image  # noqa: E402
import jars  # noqa: E402
import program  # noqa: E402
import recompress  # noqa: E402
import sbom  # noqa: E402
import tree  # noqa: E402
import wheel_paths  # noqa: E402

PROGRAMS = [Path(os.environ.get("SANDERLING_BIN", "")), ROOT / ".venv/bin/sanderling",
            ROOT / "target/release/sanderling", ROOT / "target/debug/sanderling"]
UNITS = sorted((HERE / "systemd").glob("*.service"))
# What every unit has: it may write nowhere but in its own directories, and gains no rights.
HARDENED = {
    "CapabilityBoundingSet": "", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes",
    "NoNewPrivileges": "yes", "PrivateDevices": "yes", "PrivateTmp": "yes",
    "ProtectControlGroups": "yes", "ProtectHome": "yes", "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes", "ProtectSystem": "strict", "RestrictNamespaces": "yes",
    "RestrictSUIDSGID": "yes", "SystemCallArchitectures": "native", "UMask": "0077",
}
# The score of `systemd-analyze security`, in tenths of points, above which a unit is too open.
EXPOSURE_MAX = 25


def needs(*tools: str):
    """Skips a test where a tool is not installed."""
    missing = [tool for tool in tools if not shutil.which(tool)]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not installed: apt install "
                           "systemd mandoc zsh fish dpkg-dev")


def sanderling() -> str:
    """Returns the program; skips the test where none is built."""
    for path in PROGRAMS:
        if path.is_file():
            return str(path)
    raise unittest.SkipTest("no program is built: make build")


def run(*command: str, **more) -> subprocess.CompletedProcess:
    """Runs a command and returns what it printed."""
    return subprocess.run(command, capture_output=True, text=True, **more)


def settings(unit: Path) -> dict[str, str]:
    """Returns the settings of a unit by name; the last value of each."""
    text = unit.read_text().replace("\\\n", " ")
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


class UnitTest(unittest.TestCase):
    """The units of systemd."""

    @needs("systemd-analyze")
    def test_units_are_valid(self):
        with tempfile.TemporaryDirectory() as place:
            root = Path(place)
            for unit in UNITS:
                target = root / "lib/systemd/system" / unit.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(unit, target)
            for name in ("sysinit", "basic", "shutdown", "network-online", "multi-user"):
                (root / f"lib/systemd/system/{name}.target").write_text("[Unit]\n")
            fake = root / "usr/bin/sanderling"
            fake.parent.mkdir(parents=True)
            fake.write_text("#!/bin/sh\n")
            fake.chmod(0o755)
            broken = root / "lib/systemd/system/broken.service"
            names = [unit.name for unit in UNITS]
            ran = run("systemd-analyze", "verify", "--man=no", "--root", place, *names)
            printed = (ran.stdout + ran.stderr).splitlines()
            found = [line for line in printed if "sanderling" in line]
            self.assertEqual([], found)
            # The check finds what is wrong.
            broken.write_text("[Service]\nExecStart=/usr/bin/none\nProtectSytem=strict\n")
            ran = run("systemd-analyze", "verify", "--man=no", "--root", place, "broken.service")
            self.assertIn("ProtectSytem", ran.stdout + ran.stderr)

    def test_units_are_hardened(self):
        self.assertEqual(3, len(UNITS))
        for unit in UNITS:
            found = settings(unit)
            for name, value in HARDENED.items():
                self.assertEqual(value, found.get(name), f"{unit.name}: {name}")

    @needs("systemd-analyze")
    def test_exposure_is_small(self):
        for unit in UNITS:
            ran = run("systemd-analyze", "security", "--offline=true",
                      f"--threshold={EXPOSURE_MAX}", "--no-pager", str(unit))
            self.assertEqual(0, ran.returncode, ran.stdout[-600:] + ran.stderr)

    def test_stop_leaves_the_drain_its_time(self):
        found = settings(HERE / "systemd/sanderling-datanode.service")
        deadline = int(re.search(r"--sigterm-deadline (\d+)s", found["ExecStart"])[1])
        self.assertEqual("SIGTERM", found["KillSignal"])
        self.assertGreaterEqual(int(found["TimeoutStopSec"]), deadline + 10)

    def test_flags_of_units_and_settings_exist(self):
        for server, words in {"namenode": ["namenode"], "datanode": ["datanode"],
                              "gateway": ["gateway", "s3"]}.items():
            helped = run(sanderling(), *words, "--help").stdout
            unit = settings(HERE / f"systemd/sanderling-{server}.service")["ExecStart"]
            given = (HERE / f"etc/{server}.env").read_text()
            variable = f"{server.upper()}_FLAGS"
            self.assertIn(f"${variable}", unit)
            self.assertRegex(given, rf'(?m)^{variable}="')
            for flag in re.findall(r"--[a-z][a-z-]+", unit + " ".join(
                    line for line in given.splitlines() if not line.startswith("#"))):
                self.assertIn(flag, helped, server)


class MetadataTest(unittest.TestCase):
    """Links and addresses."""

    about = tree.project()

    def test_rust_crates(self):
        common = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        for key in ("homepage", "repository", "documentation"):
            self.assertEqual(self.about[key], common[key])
        self.assertEqual(self.about["licence"], common["license"])
        shown = json.loads(run("cargo", "metadata", "--no-deps", "--format-version", "1",
                               "--locked", cwd=ROOT).stdout)
        packages = {package["name"]: package for package in shown["packages"]}
        for name in crates.CRATES:
            package = packages[name]
            for key in ("homepage", "repository", "documentation"):
                self.assertEqual(self.about[key], package[key], name)
            self.assertTrue(package["description"] and package["license"] and package["readme"])
            self.assertEqual({"issues": self.about["issues"], "security": self.about["security"]},
                             package["metadata"]["contact"], name)
            licence = Path(package["manifest_path"]).with_name("LICENSE")
            self.assertEqual((ROOT / "LICENSE").read_text(), licence.read_text(), name)
            own = [needed["name"] for needed in package["dependencies"]
                   if needed.get("path") and needed["kind"] is None]
            self.assertLessEqual(set(own), set(crates.CRATES), f"{name} needs a crate that is not "
                                 "packed: add it to packaging/crates.py")
        # Its source is in another crate's directory: an archive would not compile.
        self.assertEqual([], packages["sanderling-object-store-013"]["publish"])
        self.assertNotIn("sanderling-object-store-013", crates.CRATES)

    def test_python_package(self):
        shown = tomllib.loads((ROOT / "bindings/python/pyproject.toml").read_text())["project"]
        self.assertEqual({
            "Homepage": self.about["homepage"], "Source": self.about["repository"],
            "Documentation": self.about["documentation"], "Issues": self.about["issues"],
            "Security": f"mailto:{self.about['security']}",
        }, shown["urls"])
        self.assertEqual([{"name": self.about["maintainer"], "email": self.about["email"]}],
                         shown["authors"])

    def test_poms(self):
        space = {"m": "http://maven.apache.org/POM/4.0.0"}
        pom = xml.parse(ROOT / "jvm/pom.xml").getroot()
        for path, value in {
            "url": self.about["homepage"], "scm/url": self.about["repository"],
            "scm/connection": f"scm:git:{self.about['repository']}",
            "issueManagement/url": self.about["issues"],
            "mailingLists/mailingList/post": f"mailto:{self.about['security']}",
            "developers/developer/email": self.about["email"],
            "licenses/license/name": self.about["licence"],
        }.items():
            found = pom.find("/".join(f"m:{word}" for word in path.split("/")), space)
            self.assertEqual(value, getattr(found, "text", None), path)
        for module in pom.findall("m:modules/m:module", space):
            own = xml.parse(ROOT / "jvm" / module.text / "pom.xml").getroot()
            for name in ("name", "description"):
                self.assertIsNotNone(own.find(f"m:{name}", space), f"{module.text}: {name}")

    def test_bill_of_materials(self):
        with tempfile.TemporaryDirectory() as place:
            first, second = Path(place, "1.json"), Path(place, "2.json")
            for out in (first, second):
                sbom.write(out, "sanderling", "sanderling-cli", "application")
            self.assertEqual(first.read_bytes(), second.read_bytes())
            bill = json.loads(first.read_text())
        names = {part["name"] for part in bill["components"]}
        self.assertLessEqual({"tokio", "rustls", "clap"}, names)
        self.assertNotIn("proptest", names)
        for part in bill["components"]:
            self.assertRegex(part["hashes"][0]["content"], "^[0-9a-f]{64}$", part["name"])
            self.assertTrue(part["licenses"][0]["expression"], part["name"])
        links = {link["type"] for link in bill["metadata"]["component"]["externalReferences"]}
        self.assertLessEqual({"website", "vcs", "issue-tracker", "security-contact"}, links)

    def test_wheel_does_not_show_where_it_was_built(self):
        bill, record = "s-1.dist-info/sboms/s.json", "s-1.dist-info/RECORD"
        with tempfile.TemporaryDirectory() as place:
            wheels = []
            for name in ("one", "another"):
                root = Path(place, name)
                wheels.append(Path(place, f"{name}.whl"))
                with zipfile.ZipFile(wheels[-1], "w") as archive:
                    for entry, text in {
                        "s/__init__.py": "", bill: f'"path+file://{root}/crates/core#1"',
                        record: f"s/__init__.py,sha256=x,0\n{bill},sha256=y,9\n{record},,\n",
                    }.items():
                        archive.writestr(zipfile.ZipInfo(entry), text)
                wheel_paths.relocate(wheels[-1], root)
            self.assertEqual(wheels[0].read_bytes(), wheels[1].read_bytes())
            with zipfile.ZipFile(wheels[0]) as archive:
                content, lines = archive.read(bill), archive.read(record).decode().splitlines()
        self.assertEqual(b'"path+file:///sanderling/crates/core#1"', content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        self.assertEqual(["s/__init__.py,sha256=x,0", f"{bill},sha256={digest},{len(content)}",
                          f"{record},,"], lines)


class ProgramTest(unittest.TestCase):
    """What is made by the program."""

    @needs("mandoc")
    def test_manual_pages_render(self):
        with tempfile.TemporaryDirectory() as place:
            ran = run(sanderling(), "man", place)
            self.assertEqual(0, ran.returncode, ran.stderr)
            pages = sorted(Path(place).iterdir())
            self.assertGreater(len(pages), 40)
            ran = run("mandoc", "-T", "lint", "-W", "error", *map(str, pages))
            self.assertEqual("", ran.stdout)
            shown = run("mandoc", "-T", "utf8", str(Path(place, "sanderling-fs-put.1"))).stdout
            self.assertIn("SYNOPSIS", re.sub(r".\x08", "", shown))

    @needs("bash", "zsh", "fish")
    def test_completions_parse(self):
        for shell in ("bash", "zsh", "fish"):
            script = run(sanderling(), "completions", shell).stdout
            ran = run(shell, "-n", "/dev/stdin", input=script)
            self.assertEqual((0, ""), (ran.returncode, ran.stderr), shell)


    def test_server_notifies_systemd_when_it_serves(self):
        with tempfile.TemporaryDirectory() as place, socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(f"{place}/notify")
            notices.settimeout(60)
            command = [sanderling(), "namenode", "--listen", "127.0.0.1:0", "--http", "none",
                       "--dir", f"{place}/journal"]
            with subprocess.Popen(command, env=os.environ | {"NOTIFY_SOCKET": f"{place}/notify"},
                                  stderr=subprocess.DEVNULL) as server:
                try:
                    self.assertIn(b"READY=1", notices.recv(4096))
                finally:
                    server.terminate()
            self.assertEqual(0, server.returncode)


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


class PageTest(unittest.TestCase):
    """The pages of the packages, and where the program and the packages cite them."""

    def setUp(self):
        self.place = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.place)
        program.place_pages(self.place)

    def test_operator_has_pages_rules_and_dashboards(self):
        for name in ("docs/DAY-TWO.md", "docs/OPERATING.md", "docs/MONITORING.md",
                     "docs/UPGRADING.md", "docs/SECURITY.md", "docs/CLI.md",
                     "docs/CONFIGURATION.md", "docs/mechanisms/relocation.md", "README.md",
                     "LICENSE", "deploy/prometheus/rules.yml", "deploy/grafana/fleet.json"):
            self.assertEqual((ROOT / name).read_bytes(), (self.place / name).read_bytes(), name)
            self.assertEqual(0o644, stat.S_IMODE((self.place / name).stat().st_mode))
        self.assertFalse((self.place / "docs/site").exists())

    def test_pages_that_the_program_cites_are_there(self):
        cited = set()
        for source in (*(ROOT / "crates/doctor/src").glob("*.rs"),
                       ROOT / "crates/config/src/command.rs"):
            code = "\n".join(line for line in source.read_text().splitlines()
                             if not line.lstrip().startswith("//"))
            cited |= set(re.findall(r"\b(docs/[A-Z][A-Z-]*\.md)(?:#([\w-]+))?", code))
        self.assertGreater(len(cited), 20)
        self.assertIn(("docs/CONFIGURATION.md", ""), cited)
        for page, anchor in cited:
            self.assertTrue((self.place / page).is_file(), page)
            self.assertIn(anchor, {"", *anchors(self.place / page)}, page)

    def test_files_that_the_packages_cite_are_there(self):
        files = [HERE / "install.sh", *(HERE / "maintainer-scripts").iterdir(),
                 *(HERE / "etc").iterdir()]
        cited = {name for file in files
                 for name in re.findall(r"share/doc/sanderling/([\w/-]+\.md)", file.read_text())}
        self.assertLessEqual({"docs/UPGRADING.md", "docs/SECURITY.md"}, cited)
        for name in cited:
            self.assertTrue((self.place / name).is_file(), name)


class JarTest(unittest.TestCase):
    """The repository of jars."""

    def test_repository_has_no_tests_and_every_hash(self):
        with tempfile.TemporaryDirectory() as place:
            repository = Path(place, "maven")
            names = jars.names()
            self.assertEqual(3 * 5 + 2, len(names))
            client = f"maven/io/sanderling/sanderling-client/{tree.version()}/sanderling-client-"
            for name in (*names, f"{client}{tree.version()}-tests.jar",
                         f"{client}{tree.version()}-tests.jar.sha1"):
                Path(place, name).parent.mkdir(parents=True, exist_ok=True)
                Path(place, name).write_text("<lastUpdated>20260101000000</lastUpdated>")
            jars.settle(repository, datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC))
            there = {path.relative_to(place).as_posix() for path in repository.rglob("*")
                     if path.is_file()}
            hashes = {f"{name}.{kind}" for name in names for kind in jars.HASHES}
            self.assertEqual({*names, *hashes}, there)
            data = next(name for name in names if name.endswith("maven-metadata.xml"))
            self.assertIn(">20260921141320<", Path(place, data).read_text())


class ScriptTest(unittest.TestCase):
    """The scripts that run where a package is installed."""

    def test_scripts_parse(self):
        for script in [HERE / "install.sh", *(HERE / "maintainer-scripts").iterdir()]:
            self.assertEqual(0, run("sh", "-n", str(script)).returncode, script)

    @needs("dpkg")
    def test_preinst_refuses_a_downgrade_over_a_journal(self):
        with tempfile.TemporaryDirectory() as place:
            journal = Path(place, "namenode")
            text = (HERE / "maintainer-scripts/preinst").read_text()
            text = text.replace("@VERSION@", "0.1.0").replace(
                "/var/lib/sanderling/namenode", str(journal))
            script = Path(place, "preinst")
            script.write_text(text)

            def code(*words: str, **more: str) -> int:
                return run("sh", str(script), *words, env=os.environ | more).returncode

            self.assertEqual(0, code("upgrade", "0.2.0"), "there is no journal")
            journal.mkdir()
            (journal / "journal-0").touch()
            self.assertEqual(1, code("upgrade", "0.2.0"))
            self.assertEqual(0, code("upgrade", "0.0.9"))
            self.assertEqual(0, code("install"))
            self.assertEqual(0, code("upgrade", "0.2.0", SANDERLING_ALLOW_DOWNGRADE="1"))

    def test_install_replaces_a_program_that_runs(self):
        with tempfile.TemporaryDirectory() as place:
            source, prefix = Path(place, "source"), Path(place, "prefix")
            (source / "bin").mkdir(parents=True)
            (source / "share/doc").mkdir(parents=True)
            (source / "share/doc/README.md").write_text("new")
            (prefix / "bin").mkdir(parents=True)
            shutil.copy(HERE / "install.sh", source)
            shutil.copy(shutil.which("sleep"), prefix / "bin/sanderling")
            new = source / "bin/sanderling"
            new.write_text("#!/bin/sh\necho sanderling 2\n")
            new.chmod(0o755)
            with subprocess.Popen([prefix / "bin/sanderling", "600"]) as running:
                try:
                    ran = run(str(source / "install.sh"), str(prefix))
                    self.assertEqual(0, ran.returncode, ran.stderr)
                    self.assertIsNone(running.poll())
                finally:
                    running.kill()
            self.assertEqual("sanderling 2\n", run(str(prefix / "bin/sanderling")).stdout)
            self.assertEqual("new", (prefix / "share/doc/README.md").read_text())
            refused = run(str(source / "install.sh"), "relative")
            self.assertEqual(2, refused.returncode)

    def test_control_file_is_whole(self):
        with tempfile.TemporaryDirectory() as place:
            text = debian.control_text(Path(place))
        about = tree.project()
        for value in (about["homepage"], about["issues"], about["security"], about["email"]):
            self.assertIn(value, text)
        long = [line for line in text.splitlines() if line.startswith((" ", "Description"))]
        self.assertTrue(all(len(line) <= 80 for line in long), text)
        self.assertNotIn("\n\n", text)


class ToolTest(unittest.TestCase):
    """What `make dist` needs of the machine."""

    def test_missing_tools_are_refused_before_anything_is_built(self):
        with tempfile.TemporaryDirectory() as place:
            Path(place, "python3").symlink_to(sys.executable)
            command = [f"{place}/python3", str(HERE / "dist.py"), "jars", "crates"]
            ran = run(*command, env={"PATH": place, "DIST": f"{place}/dist"})
            self.assertEqual(2, ran.returncode, ran.stdout + ran.stderr)
            for name in ("maven", "default-jdk-headless", "build-essential", "rustup.rs"):
                self.assertIn(name, ran.stderr)
            self.assertNotIn("umoci", ran.stderr)
            self.assertFalse(Path(place, "dist").exists())

    def test_missing_roots_of_trust_are_refused_before_anything_is_built(self):
        with mock.patch.object(image, "CERTIFICATES", Path("/none")):
            (line,) = [line for line in dist.missing(["tarball", "image"]) if "/none" in line]
            self.assertIn("install ca-certificates", line)
            self.assertFalse([line for line in dist.missing(["tarball"]) if "/none" in line])

    def test_crates_of_an_earlier_run_are_forgotten(self):
        with tempfile.TemporaryDirectory() as place:
            home, target = Path(place) / "home", Path(place) / "target"
            name = f"sanderling-core-{tree.version()}"
            gone = [home / "registry/src/-1a" / name, home / "registry/cache/-1a" / f"{name}.crate",
                    target / "debug/.fingerprint/sanderling-core-1a"]
            kept = [home / "registry/src/index.example-1a" / name,
                    home / "registry/src/-1a/bytes-1.0.0", target / "debug/.fingerprint/bytes-1a"]
            for path in (*gone, *kept):
                path.mkdir(parents=True)
            crates.forget(home, target)
            self.assertEqual([path for path in gone if path.exists()], [])
            self.assertEqual([path for path in kept if not path.exists()], [])

    def test_tests_of_the_client_that_run_on_aarch64_are_there(self):
        text = (HERE / "aarch64.py").read_text()
        found = re.search(r"^CLIENT_TESTS = (\{.*\})$", text, re.MULTILINE)
        client = ROOT / "crates/client"
        manifest = tomllib.loads((client / "Cargo.toml").read_text())
        programs = {test["name"]: client / test["path"] for test in manifest["test"]}
        for name, modules in ast.literal_eval(found[1]).items():
            for module in modules:
                self.assertRegex(programs[name].read_text(), rf"(?m)^mod {module};$")

    def test_packages_for_aarch64_are_skipped_with_the_reason(self):
        with tempfile.TemporaryDirectory() as place:
            Path(place, "python3").symlink_to(sys.executable)
            # The machine has Rust, without the standard library of aarch64, and no apt.
            for name, text in (("cargo", "exit 9"), ("rustc", "echo /none"),
                               ("aarch64-linux-gnu-strip", "exit 9"), ("mvn", "exit 9")):
                Path(place, name).write_text(f"#!/bin/sh\n{text}\n")
                Path(place, name).chmod(0o755)
            for kind, reason in (("jars", "javac is missing: install default-jdk-headless"),
                                 ("tarball", "qemu-aarch64 is missing"),
                                 ("wheel", "the packages come from Debian")):
                command = [f"{place}/python3", str(HERE / "aarch64.py"), kind]
                ran = run(*command, env={"PATH": place, "DIST": f"{place}/dist",
                                         "AARCH64_RUST": f"{place}/rust"})
                self.assertEqual(77, ran.returncode, ran.stdout + ran.stderr)
                self.assertIn("SKIPPED", ran.stderr)
                self.assertIn(reason, ran.stderr)
            self.assertFalse(Path(place, "dist").exists())

    def test_page_names_every_tool(self):
        page = (ROOT / "docs/PACKAGES.md").read_text()
        for package, _ in dist.TOOLS.values():
            self.assertIn(package.split(",")[0], page)


class ArchiveTest(unittest.TestCase):
    """Archives are equal byte for byte."""

    def test_archive_depends_on_content_alone(self):
        with tempfile.TemporaryDirectory() as place:
            made = []
            for number, names in enumerate([("b", "a"), ("a", "b")]):
                folder = Path(place, str(number))
                folder.mkdir()
                for name in names:
                    (folder / name).write_text(name)
                    os.utime(folder / name, (number, number))
                out = Path(place, f"{number}.tar.gz")
                archives.pack(folder, out, "x/", {"x/b": 7})
                made.append(out.read_bytes())
            self.assertEqual(made[0], made[1])
            with tarfile.open(out) as archive:
                self.assertEqual([("x/a", 0, 1790000000), ("x/b", 7, 1790000000)],
                                 [(it.name, it.uid, it.mtime) for it in archive])

    def test_comparison_finds_what_differs(self):
        with tempfile.TemporaryDirectory() as place:
            first, second = Path(place, "1"), Path(place, "2")
            for folder, text in ((first, "1"), (second, "2")):
                (folder / "deep").mkdir(parents=True)
                (folder / "deep/same").write_text("same")
                (folder / "other").write_text(text)
            (second / "more").write_text("more")
            (first / "less").write_text("less")
            expected = {"deep/same": True, "more": False, "other": False}
            self.assertEqual(expected, dist.differences(first, second, is_whole=False))
            expected = {"deep/same": True, "less": False, "more": False, "other": False}
            self.assertEqual(expected, dist.differences(first, second, is_whole=True))

    def test_comparison_shows_the_programs_in_archives(self):
        with tempfile.TemporaryDirectory() as place:
            folders = Path(place, "1"), Path(place, "2")
            for folder, text in zip(folders, ("one", "two"), strict=True):
                source = Path(place, f"source-{folder.name}", "bin")
                source.mkdir(parents=True)
                (source / "sanderling").write_text("program")
                (source / "text").write_text(text)
                (source / "same").write_text("same")
                folder.mkdir()
                archives.pack(source.parent, folder / "a.tar.gz", "a/")
                for name, library in (("b.jar", "library"), ("c.whl", text)):
                    with zipfile.ZipFile(folder / name, "w") as archive:
                        archive.writestr(zipfile.ZipInfo("native/lib.so"), library)
                        archive.writestr(zipfile.ZipInfo("plain"), "plain")
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown):
                code = dist.compare(*folders, is_whole=True)
            self.assertEqual(1, code)
            self.assertEqual([
                "differs a.tar.gz", "equal       a/bin/sanderling", "differs     a/bin/text",
                "equal   b.jar", "equal       native/lib.so",
                "differs c.whl", "differs     native/lib.so", "1 of 3 files are equal",
            ], shown.getvalue().splitlines())
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(0, dist.compare(folders[0], folders[0], is_whole=True))

    def test_durations_name_every_kind_and_the_load(self):
        shown = dist.durations({"tarball": (12.4, 20.6), "all": (13, 21)}, 0.25).splitlines()
        self.assertEqual(["tarball", "12", "21"], shown[1].split())
        self.assertEqual(["all", "13", "21"], shown[2].split())
        self.assertIn("0.25", shown[3])

    def test_recompressed_archive_has_the_same_entries(self):
        def compress(content: bytes) -> bytes:
            packer = zlib.compressobj(9, wbits=-15)
            return packer.compress(content) + packer.flush()

        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "a.whl")
            with zipfile.ZipFile(path, "w") as archive:
                for name, mode, content in (("b/program", 0o755, b"x" * 5000), ("ä", 0o644, b""),
                                            ("a/text", 0o600, b"text")):
                    info = zipfile.ZipInfo(name, (2026, 9, 21, 14, 13, 58))
                    info.external_attr = (stat.S_IFREG | mode) << 16
                    archive.writestr(info, content)

            def entries() -> list[tuple]:
                with zipfile.ZipFile(path) as archive:
                    self.assertIsNone(archive.testzip())
                    return [(it.filename, it.date_time, it.external_attr, it.create_system,
                             archive.read(it)) for it in archive.infolist()]

            before, size = entries(), path.stat().st_size
            recompress.recompress(path, compress)
            self.assertEqual(before, entries())
            self.assertLess(path.stat().st_size, size)
            if shutil.which("unzip"):
                ran = run("unzip", "-tq", str(path))
                self.assertEqual(0, ran.returncode, ran.stdout + ran.stderr)

    def test_sums_are_those_of_sha256sum(self):
        with tempfile.TemporaryDirectory() as place:
            Path(place, "deep").mkdir()
            Path(place, "deep/a").write_text("a")
            Path(place, "b").write_text("b")
            self.assertEqual(2, archives.write_sums(Path(place)))
            ran = run("sha256sum", "--check", "SHA256SUMS", cwd=place)
            self.assertEqual(0, ran.returncode, ran.stdout)
            Path(place, "b").write_text("c")
            self.assertEqual(1, run("sha256sum", "--check", "SHA256SUMS", cwd=place).returncode)


if __name__ == "__main__":
    unittest.main(verbosity=2)
