"""Runs the examples of a page: its Python and shell blocks, in the order in which they stand.

A page is run against a cluster of its own: the one that it starts with `sanderling local start`, or
else one that is started for it. Its examples name 127.0.0.1:7600 and :7601; the tests' cluster is
elsewhere, so these are replaced. HTML comments, which no reader sees, steer what is run:

    <!-- not run: the reason -->    the next block is left out
    <!-- run python                 what a reader would have: is run here and not shown
    data = b"rows"
    -->
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sanderling

ROOT = Path(__file__).resolve().parents[3]
# Longest time for one shell block, in seconds: a notice of 30 s may be waited for.
BLOCK_SECONDS = 180

_PARTS = re.compile(
    r"^<!-- not run: (?P<reason>[^\n]+?) -->\n"
    r"|^<!-- run (?P<hidden>python|sh)\n(?P<hidden_text>.*?)^-->\n"
    r"|^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)\n",
    re.MULTILINE | re.DOTALL,
)
_SHELLS = {"sh", "bash", "console"}


@dataclass(frozen=True)
class Block:
    """One example, and where it begins."""

    line: int
    language: str
    text: str
    reason: str | None = None
    """Why it is not run."""


def blocks(page: str) -> Iterator[Block]:
    """Returns the examples of a page's text, hidden ones included."""
    reason = None
    for part in _PARTS.finditer(page):
        line = page.count("\n", 0, part.start()) + 2
        if part["reason"]:
            reason = part["reason"]
        elif part["hidden"]:
            yield Block(line, part["hidden"], part["hidden_text"])
        else:
            language = "sh" if part["language"] in _SHELLS else part["language"]
            if language in ("sh", "python"):
                text = _commands(part["text"]) if part["language"] == "console" else part["text"]
                yield Block(line, language, text, reason)
            reason = None


def _commands(text: str) -> str:
    """Returns what is typed in a block that shows a session."""
    lines = [line[2:] for line in text.splitlines() if line.startswith(("$ ", "> "))]
    return "\n".join(lines) + "\n"


class Runner:
    """Runs blocks one after the other; names that Python blocks make live on."""

    def __init__(self, page: Path, directory: Path) -> None:
        self.page = page
        self.directory = directory
        self.names: dict[str, Any] = {"__name__": page.stem}
        self.port = _free_ports()
        self.shell = self._shell_environment()

    def _shell_environment(self) -> dict[str, str]:
        tools = self.directory / ".tools"
        tools.mkdir()
        command = tools / "sanderling"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sanderling "$@"\n')
        command.chmod(0o755)
        return os.environ | {
            "PATH": f"{tools}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
            "SANDERLING_NAMENODE": f"127.0.0.1:{self.port}",
            "SANDERLING_CONFIG_HOME": str(self.directory / ".config"),
            "SANDERLING_LOCAL_DIR": str(self.directory / ".local"),
            "NO_COLOR": "1",
        }

    def run(self) -> int:
        """Runs the page and returns how many blocks were run."""
        found = list(blocks(self.page.read_text()))
        starts = any(word in block.text for block in found
                     for word in ("sanderling local start", "sanderling tour"))
        if starts:
            try:
                return self._run_all(found)
            finally:
                self._run_shell("sanderling local stop", check=False)
        with sanderling.Cluster.local(datanodes=3, dram_bytes=64 << 20) as cluster:
            self.port = int(cluster.address.rpartition(":")[2])
            self.shell["SANDERLING_NAMENODE"] = cluster.address
            return self._run_all(found)

    def _run_all(self, found: list[Block]) -> int:
        wanted = [block for block in found if block.reason is None]
        for block in wanted:
            try:
                self._run_block(block)
            except Exception as error:
                raise AssertionError(f"{self.page}:{block.line}: {error!r}") from error
        return len(wanted)

    def _run_block(self, block: Block) -> None:
        text = self._placed(block.text)
        if block.language == "sh":
            self._run_shell(text)
            return
        # Lines are counted as on the page, for tracebacks.
        text = "\n" * (block.line - 1) + text
        code = compile(text, str(self.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ran = eval(code, self.names)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(ran)

    def _placed(self, text: str) -> str:
        """Replaces the addresses of the examples by those of this run."""
        text = text.replace(
            "sanderling local start",
            f"sanderling local start --port {self.port} --http-port {self.port + 1} --dram 64MiB",
        )
        text = text.replace(
            "sanderling tour", f"sanderling tour --port {self.port} --data 24MiB --rate 8MiB"
        )
        return text.replace(":7600", f":{self.port}").replace(":7601", f":{self.port + 1}")

    def _run_shell(self, text: str, check: bool = True) -> None:
        result = subprocess.run(
            ["bash", "-eu", "-c", text],
            cwd=self.directory,
            env=self.shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_SECONDS,
        )
        if check and result.returncode:
            raise RuntimeError(f"exit code {result.returncode} of {text!r}: {result.stdout}")


def _free_ports() -> int:
    """Returns the first of two ports in a row that no process uses."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return int(port)
