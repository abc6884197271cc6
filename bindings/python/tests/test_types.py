"""What the package declares of its types, held against the package and a program that uses it."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import sanderling
import sanderling.aio

RIGHT = """
from typing import assert_type

import sanderling
import sanderling.aio


def program(store: sanderling.Store, stat: sanderling.Stat) -> None:
    assert_type(store.put("/a", bytearray(3), ttl=1.5), sanderling.Stat)
    assert_type(store.put_many({"/a": b"1"}), list[sanderling.Stat])
    assert_type(
        store.put_many([("/a", b"1")], return_errors=True), list[sanderling.Stat | Exception]
    )
    assert_type(store.get("/a"), sanderling.Buffer)
    assert_type(store.get_many(["/a"]), list[sanderling.Buffer])
    assert_type(
        store.get_many(("/a",), return_errors=True), list[sanderling.Buffer | Exception]
    )
    assert_type(store.get_ranges("/a", [(0, 1)]), list[sanderling.Buffer])
    assert_type(memoryview(store.get("/a")).nbytes, int)
    assert_type(store.nodes(), list[sanderling.Node])
    assert_type(stat.expires_in, float | None)


async def asynchronous() -> None:
    async with sanderling.aio.connect() as store:
        assert_type(store, sanderling.aio.AsyncStore)
        assert_type(await store.put("/a", b"1"), sanderling.Stat)
        assert_type(await store.get("/a"), sanderling.Buffer)
        assert_type(await store.get_many(["/a"]), list[sanderling.Buffer])
        async for path, entries in store.walk():
            assert_type(entries, list[sanderling.Entry])
"""

WRONG = """
import sanderling


def program(store: sanderling.Store) -> None:
    store.get_many(["/a"])[0].append(1)
    store.put(1, b"bytes")
    store.put_many({"/a": b"1"}, replaces=True)
"""

# What is checked elsewhere, or needs packages that have no types.
NOT_CHECKED = ["demo", "fs*.py", "arrow*", "flight*", "torch", "__main__.py", "__pycache__", "*.so"]


def mypy(directory: Path) -> subprocess.CompletedProcess[str]:
    """Checks every file in a directory, as strictly as can be."""
    flags = ["--strict", "--no-incremental", "--cache-dir=/dev/null", "."]
    command = [sys.executable, "-m", "mypy", *flags]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def test_package_keeps_its_own_types(tmp_path):
    # Beside the installed packages, mypy takes all of them for the program.
    home = Path(sanderling.__file__).parent
    shutil.copytree(home, tmp_path / "sanderling", ignore=shutil.ignore_patterns(*NOT_CHECKED))
    ran = mypy(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_program_has_the_types_that_the_package_promises(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(RIGHT)
    ran = mypy(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    program.write_text(WRONG)
    ran = mypy(tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.count("error:") >= 2, ran.stdout


def test_native_half_has_what_its_stub_declares():
    classes = "Buffer Client CompletionQueue Credentials LeaseRenewer Options Reader Stream"
    classes = [*classes.split(), "Writer"]
    stub = (Path(sanderling.__file__).parent / "_sanderling.pyi").read_text()
    native = sys.modules["sanderling._sanderling"]
    for name in classes:
        body = stub.split(f"\nclass {name}")[1].split("\nclass ")[0]
        defs = {line.split("def ")[1].split("(")[0] for line in body.splitlines() if "def " in line}
        there = {each for each in dir(getattr(native, name)) if not each.startswith("_")}
        public = {each for each in defs if not each.startswith("_")}
        assert public == there, f"{name}: {public ^ there}"


def test_everything_public_has_a_docstring():
    for module in (sanderling, sanderling.aio, sanderling.errors):
        names = getattr(module, "__all__", [name for name in dir(module) if name[0].isupper()])
        for name in names:
            thing = getattr(module, name)
            if name == "__version__" or inspect.ismodule(thing):
                continue
            assert inspect.getdoc(thing), f"{module.__name__}.{name}"
            for member, value in vars(thing).items() if inspect.isclass(thing) else ():
                value = getattr(value, "__func__", value)
                if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"
