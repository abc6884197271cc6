#!/usr/bin/env python3
"""Uses each package of dist-arm/ on an emulated aarch64 machine, beside this machine's kernel.

Needs the packages (`make dist-arm`), qemu, and what each test names. A test whose tool is missing
is skipped with the reason; a package that is missing fails its test.
"""

import contextlib
import os
import shlex
import shutil
import sys
import unittest
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("DIST", str(HERE.parent / "dist-arm"))

import aarch64_tools  # noqa: E402
import dist_test  # noqa: E402
from aarch64 import CLIENT_TESTS, MACHINE, build_tests  # noqa: E402
from dist_test import VERSION, needs, package, run  # noqa: E402
from tree import ROOT  # noqa: E402


class Case(dist_test.Case):
    """A test with a directory of its own and an emulator."""

    def setUp(self):
        super().setUp()
        try:
            aarch64_tools.emulator()
        except aarch64_tools.MissingError as error:
            self.skipTest(str(error))

    def emulated(self, name: str, *words: str | Path, kind: str = "root") -> Path:
        """Writes a script that runs a program of aarch64 with its first arguments.

        The kernel may not support such programs, so what the program starts is the script.
        """
        script = self.place / name
        command = shlex.join(str(word) for word in (*aarch64_tools.emulator(kind), *words))
        script.write_text(f"#!/bin/sh\nexport SANDERLING_EXE={shlex.quote(str(script))}\n"
                          f'exec {command} "$@"\n')
        script.chmod(0o755)
        return script

    def is_of_the_machine(self, *built: Path) -> None:
        """Checks what is linked: the machine, the oldest glibc, and no path of this one."""
        self.assertTrue(built)
        for path in built:
            self.assertIn("AArch64", run("readelf", "--file-header", path).stdout)
            found = {tuple(map(int, word.removeprefix("GLIBC_").split(".")))
                     for word in run("readelf", "--version-info", path).stdout.split()
                     if word.startswith("GLIBC_2")}
            self.assertLessEqual(max(found)[:2], (2, 28))
            for name in (str(Path.home()).encode() + b"/", str(ROOT).encode()):
                self.assertNotIn(name, path.read_bytes())

    def program(self) -> Path:
        """Unpacks the archive; returns the program, as this machine can start it."""
        run("tar", "-xzf", package(f"sanderling-*-{MACHINE}.tar.gz"), "-C", self.place)
        (built,) = self.place.glob("*/bin/sanderling")
        return self.emulated("sanderling", built)


class TarballTest(Case):
    """The archive of the program."""

    def test_serves_and_drains(self):
        program = self.program()
        self.assertEqual(f"sanderling {VERSION}", run(program, "--version").stdout.strip())
        self.use(program)

    @needs("readelf", "binutils")
    def test_is_of_aarch64_and_needs_glibc_2_28_at_most(self):
        self.program()
        (built,) = self.place.glob("*/bin/sanderling")
        self.is_of_the_machine(built)


class ClientTest(Case):
    """The Rust client: its tests' servers and clients are of that machine."""

    def test_tests_of_the_client_pass(self):
        try:
            programs = build_tests(CLIENT_TESTS)
        except aarch64_tools.MissingError as error:
            self.skipTest(str(error))
        self.assertEqual(sorted(CLIENT_TESTS), sorted(programs))
        for name, built in programs.items():
            with self.subTest(name):
                modules = [f"{module}::" for module in CLIENT_TESTS[name]]
                ran = run(self.emulated(name, built), "--test-threads", "2", *modules,
                          cwd=ROOT / "crates/client", env=dist_test.clean())
                print(f"{name}: {ran.stdout.strip().splitlines()[-1]}", flush=True)


class WheelTest(Case):
    """The Python package, by a Python of that machine."""

    def test_moves_an_object_off_a_draining_datanode(self):
        wheel = package("sanderling-*-manylinux_2_28_aarch64.whl")
        packages = self.place / "packages"
        # This machine's pip checks that the wheel is one of that machine.
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
            "--target", packages, "--only-binary", ":all:", "--platform",
            "manylinux_2_28_aarch64", "--python-version", "3.11", wheel, env=dist_test.clean())
        self.is_of_the_machine(*packages.rglob("_sanderling*.so"))
        root = aarch64_tools.machine_root("python")
        (python,) = root.glob("usr/bin/python3.??")
        script = self.place / "use.py"
        script.write_text(USE_PYTHON)
        emulated = self.emulated("python", python, "-B", kind="python")
        env = dist_test.clean() | {"PYTHONPATH": str(packages), "EMULATED": str(emulated),
                                   "HOME": str(self.place), "XDG_RUNTIME_DIR": str(self.place)}
        ran = run(emulated, script, env=env, cwd=self.place)
        self.assertIn("4194304 bytes on aarch64", ran.stdout)


class JarTest(Case):
    """The jar of the client, by a JVM of each machine."""

    @needs("javac", "default-jdk-headless")
    def test_client_of_one_jar_works_on_both_machines(self):
        jar = package(f"maven/io/sanderling/sanderling-client/{VERSION}/sanderling-client-{VERSION}"
                      ".jar")
        with zipfile.ZipFile(jar) as archive:
            name = f"native/{MACHINE}/libsanderling_jni.so"
            self.is_of_the_machine(Path(archive.extract(name, self.place)))
        source = self.place / "Use.java"
        source.write_text(USE_JAVA)
        run("javac", "--release", "11", "-cp", jar, source)
        root = aarch64_tools.machine_root("java")
        (java,) = root.glob("usr/lib/jvm/default-java/bin/java")
        jvms = {"amd64": [shutil.which("java")], "aarch64": [self.emulated(
            "java", java, "-XX:+UseSerialGC", kind="java")]}
        with self.cluster() as address:
            for machine, words in jvms.items():
                ran = run(*words, "-Xmx256m", f"-Djava.io.tmpdir={self.place}", "-cp",
                          f"{self.place}:{jar}", "Use", address, env=dist_test.clean()
                          | {"HOME": str(self.place)})
                self.assertIn(f"4194304 bytes on {machine}", ran.stdout)

    @contextlib.contextmanager
    def cluster(self):
        """Serves a cluster with the program of that machine; its value is the address."""
        program = self.program()
        env = dist_test.clean() | {"XDG_RUNTIME_DIR": str(self.place), "HOME": str(self.place)}
        local = ("--dir", self.place / "local")
        started = run(program, "local", "start", "--datanodes", "2", "--dram", "64MiB",
                      "--port", "0", "--http-port", "0", *local, env=env)
        try:
            yield started.stdout.strip()
        finally:
            run(program, "local", "stop", *local, env=env)


USE_PYTHON = """
import os
import platform
import sys

import sanderling

# The kernel may not support programs of this machine: the servers are started by the script.
sys.executable = os.environ["EMULATED"]
with sanderling.Cluster.local(datanodes=2, dram_bytes=64 << 20) as cluster:
    store = sanderling.connect(cluster.address, timeout=60)
    data = bytes(range(256)) * 16384
    store.put("/data", data)
    cluster.notice(cluster.nodes()[0], deadline_seconds=60)
    drained = next(it for it in store.follow(0, timeout=120) if it.kind == "node_drained")
    assert store.get("/data") == data
    assert drained.fields["moved_bytes"] > 0
    print(len(data), "bytes on", platform.machine())
"""
USE_JAVA = """
import io.sanderling.client.*;
import java.nio.ByteBuffer;

public class Use {
    public static void main(String[] words) throws Exception {
        ClientOptions options = ClientOptions.create().withTimeoutMillis(60_000);
        try (SanderlingClient client = SanderlingClient.connect(words[0], options)) {
            client.put("/jar", ByteBuffer.wrap(new byte[4 << 20]),
                PutOptions.create().withReplace(true));
            try (Buffer buffer = client.get("/jar")) {
                System.out.println(buffer.bytes().remaining() + " bytes on "
                    + System.getProperty("os.arch"));
            }
        }
    }
}
"""


if __name__ == "__main__":
    unittest.main(verbosity=2)
