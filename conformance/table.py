"""Reads the table of cases and runs it against one interface; semantics.toml shows how a case and a
step look. The runners in bindings/python/tests and scripts use it. It needs nothing but Python.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

HERE = Path(__file__).resolve().parent
SEMANTICS = HERE / "semantics.toml"
"""The table."""
WRONG = HERE / "wrong.toml"
"""Cases that are wrong: a runner in which one of them passes checks nothing."""

ATTEMPTS = 200
"""How often an awaited step is tried, with a pause after each."""

WRONG_CASES_MIN = 5

RUN = 1 << 16
"""Bytes of the pattern that are reckoned one by one."""

Fields = dict[str, str]
Got = bytes | list[str] | Fields | str | None
"""What an interface answers: bytes, names, fields, a word; nothing when it was done."""


class Refused(Exception):
    """An error by its name in docs/ERRORS.md."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass
class Step:
    """One step of a case: a verb, its words and its options, all decoded."""

    text: str
    verb: str
    words: list[str]
    options: dict[str, str]
    answer: str | None
    is_awaited: bool

    def has(self, name: str) -> bool:
        """Whether an option is yes."""
        return self.options.get(name) == "yes"

    def attributes(self) -> dict[str, str]:
        """The attributes among the options."""
        named = self.options.items()
        return {name.removeprefix("attr."): text for name, text in named if name[:5] == "attr."}

    def data(self, place: int = 1) -> bytes:
        """The bytes that a word stands for."""
        word = self.words[place]
        found = pattern(word)
        return word.encode() if found is None else found

    def number(self, name: str) -> int | None:
        """A number among the options."""
        return int(self.options[name]) if name in self.options else None

    def seconds(self, name: str) -> float | None:
        """A time among the options."""
        return seconds(self.options[name]) if name in self.options else None

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges of `get P 0 4` or `ranges P 0:4 9:2`."""
        if self.verb == "get":
            return [(int(self.words[1]), int(self.words[2]))]
        pairs = [word.split(":") for word in self.words[1:]]
        return [(int(offset), int(length)) for offset, length in pairs]


class Interface(Protocol):
    """What can take steps. It raises `Refused`."""

    async def begin(self, root: str) -> None:
        """Makes an empty directory for a case and forgets the names of the one before."""

    async def call(self, step: Step) -> Got:
        """Takes one step."""

    async def pause(self) -> None:
        """Waits between two attempts at an awaited step."""


@dataclass
class Report:
    """What a run found."""

    name: str
    floor: int
    ran: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"conformance: {self.name}: {self.ran} cases, {len(self.failures)} failed"

    def check(self) -> None:
        """Fails unless every case passed and there were enough of them."""
        assert not self.failures, "\n".join(self.failures)
        assert self.floor > 0, f"[floors] has no {self.name}"
        assert self.ran >= self.floor, f"{self.ran} of {self.floor} cases ran"

    def check_all_fail(self) -> None:
        """Fails unless every case failed."""
        assert self.ran >= WRONG_CASES_MIN, f"{self.ran} wrong cases ran"
        assert len(self.failures) == self.ran, self.failures


async def run(table: Path, name: str, interface: Interface) -> Report:
    """Runs all cases of a table that name the interface."""
    document = tomllib.loads(table.read_text())
    report = Report(name, document["floors"].get(name, 0))
    for case in document["case"]:
        named = case["interfaces"]
        if name not in (document["sets"][named] if isinstance(named, str) else named):
            continue
        root = f"/conformance-{name}/{case['name']}"
        given, steps = ([parse(line, root) for line in case.get(key, [])]
                        for key in ("given", "steps"))
        assert any(step.answer for step in steps), f"{case['name']}: no answer"
        await interface.begin(root)
        report.ran += 1
        for step in [*given, *steps]:
            why = await attempt(step, interface.call, interface.pause)
            if why is not None:
                report.failures.append(f"{case['name']}: `{step.text}`: got {why}")
                break
    return report


async def attempt(
    step: Step, call: Callable[[Step], Awaitable[Got]], pause: Callable[[], Awaitable[None]]
) -> str | None:
    """Takes a step, an awaited one until its answer comes; returns what came instead."""
    for left in reversed(range(ATTEMPTS if step.is_awaited else 1)):
        got: Got | Refused
        try:
            got = await call(step)
        except Refused as error:
            got = error
        if is_right(step.answer, got):
            return None
        if left:
            await pause()
    return shown(got)


def is_right(wanted: str | None, got: Got | Refused) -> bool:
    """Returns whether an answer is the one that is wanted."""
    if isinstance(got, Refused):
        return wanted == f"!{got.name}"
    if wanted is None:
        return True
    if isinstance(got, bytes):
        text = re.fullmatch(r'"(.*)"', wanted)
        return got == (decoded(text[1]).encode() if text else pattern(wanted))
    if isinstance(got, list):
        return wanted == f"[{' '.join(got)}]"
    if isinstance(got, dict):
        pairs = [pair.partition("=") for pair in wanted.split(" ")]
        return all(sign and got.get(name) == decoded(value) for name, sign, value in pairs)
    return wanted == ("done" if got is None else got)


def shown(got: Got | Refused) -> str:
    """Returns an answer as a failure shows it."""
    if isinstance(got, Refused):
        return f"!{got.name}"
    return f"{len(got)} bytes {got[:40]!r}" if isinstance(got, bytes) else repr(got)


def parse(line: str, root: str) -> Step:
    """Makes a step of `verb word option=value => answer`."""
    rest = line.removeprefix("until ")
    call, sign, answer = rest.partition(" => ")
    verb, *words = call.split(" ")
    step = Step(line, verb, [], {}, answer if sign else None, rest != line)
    for word in words:
        name, sign, value = word.partition("=")
        if sign and "a" <= name[:1] <= "z":
            step.options[decoded(name)] = decoded(value)
        elif word[:1] == "!":
            step.words.append(decoded(word[1:]))
        elif word[:1] == "/":
            step.words.append(root if word == "/" else root + decoded(word))
        else:
            step.words.append(decoded(word))
    return step


def decoded(word: str) -> str:
    """Decodes `%20` and `{ab*3}`."""
    text = re.sub(r"\{(.*?)\*(\d+)\}", lambda found: found[1] * int(found[2]), word)
    plain = re.sub(rb"%([0-9a-fA-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return plain.decode()


def pattern(word: str) -> bytes | None:
    """Returns the bytes of `@N` or `@N[from:to]`."""
    found = re.fullmatch(r"@(\d+)(?:\[(\d+):(\d+)\])?", word)
    if not found:
        return None
    whole = run_of(int(found[1]))
    return whole if found[2] is None else whole[int(found[2]) : int(found[3])]


@lru_cache
def run_of(count: int) -> bytes:
    """Returns the pattern: at each place, `31 place + place / 256 + 13 (place / 65536)`."""
    first = bytes((at * 31 + (at >> 8)) & 0xFF for at in range(min(count, RUN)))
    runs = [first]
    while len(runs) * RUN < count:
        shift = 13 * len(runs)
        runs.append(first.translate(bytes((byte + shift) & 0xFF for byte in range(256))))
    return b"".join(runs)[:count]


def seconds(text: str) -> float | None:
    """Returns `30s` or `200ms` in seconds, and None of `none`."""
    if text == "none":
        return None
    return int(text[:-2]) / 1000 if text.endswith("ms") else float(text.removesuffix("s"))


def word_of(is_so: bool) -> str:
    """Returns `yes` or `no`."""
    return "yes" if is_so else "no"


def fields(**values: Any) -> Fields:
    """Returns fields as texts."""
    return {
        name: word_of(value) if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }
