"""Writes mutants into a copy of the repository and builds it."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "mutants"
# The variable that selects a mutant at run time; without it, the code is the original.
VARIABLE = "CHOSEN_MUTANT"
SELECTOR = f'''
/// Selects a mutant.
pub mod mutant {{
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();

    /// Returns whether the mutant of this number is selected.
    pub fn is(number: u32) -> bool {{
        let read = || std::env::var("{VARIABLE}").ok().and_then(|text| text.parse().ok());
        *CHOSEN.get_or_init(|| read().unwrap_or(0)) == number
    }}
}}
'''
# The lowest crate that all others link.
LOWEST = "crates/protocol/src/lib.rs"
CONST = re.compile(r"\bconst\s+(?=(async\s+|unsafe\s+)*fn\b)")
TOKEN = re.compile(
    r"""(?P<skip>//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"
    |b?'(?:\\[^u]|\\u\{[0-9a-fA-F_]+\}|[^'\\])')|(?P<fn>\bfn\b)|(?P<open>[(\[])|(?P<close>[)\]])
    |(?P<brace>\{)|(?P<word>\w+)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text between two positions is replaced."""

    number: int
    name: str
    file: str
    package: str
    span: tuple[int, int, int, int]
    # The function in which it is; a constant is in none.
    function: tuple[int, int, int, int] | None
    replacement: str

    @classmethod
    def of(cls, number: int, listed: dict) -> "Mutant":
        """Returns a mutant as cargo-mutants lists it."""
        function = listed["function"]
        return cls(number, listed["name"], listed["file"], listed["package"],
                   corners(listed["span"]), corners(function["span"]) if function else None,
                   listed["replacement"])


def corners(span: dict) -> tuple[int, int, int, int]:
    """Returns the lines and columns of a span, each counted from 1."""
    start, end = span["start"], span["end"]
    return (start["line"], start["column"], end["line"], end["column"])


def offsets(text: str, span: tuple[int, int, int, int]) -> tuple[int, int]:
    """Returns where a span starts and ends in a text, in characters."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return (starts[span[0] - 1] + span[1] - 1, starts[span[2] - 1] + span[3] - 1)


def body(function: str) -> int:
    """Returns where the braces of a function open, attributes and documentation before it."""
    depth, is_signature = 0, False
    for token in TOKEN.finditer(function):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        elif token["fn"] and depth == 0:
            is_signature = True
        elif token["brace"] and is_signature and depth == 0:
            return token.start()
    raise ValueError(f"no body: {function[:200]}")


def mutated(text: str, mutant: Mutant, start: int, end: int) -> str:
    """Returns the text between two offsets, with the mutant's change."""
    first, last = offsets(text, mutant.span)
    # A space, because what is deleted may stand between two words.
    return text[start:first] + (mutant.replacement or " ") + text[last:end]


def dispatched(
    text: str, mutants: list[Mutant], selector: str
) -> tuple[str, dict[int, list[Mutant]]]:
    """Returns a file in which each mutant is a branch of its function, and whose its lines are.

    A line of a mutant's branch is the mutant's; a line of the original's is of all of the function.
    """
    functions: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in mutants:
        functions.setdefault(offsets(text, mutant.function), []).append(mutant)
    new, owners, position = "", {}, 0

    def put(part: str, whose: list[Mutant]) -> None:
        nonlocal new
        first = new.count("\n") + 1
        new += part
        for line in range(first, new.count("\n") + 2) if whose else []:
            owners[line] = whose

    for (start, end), some in sorted(functions.items()):
        opened = start + body(text[start:end])
        put(text[position:start] + CONST.sub("", text[start:opened]), [])
        put("{\n", [])
        for mutant in some:
            put(f"if {selector}({mutant.number}) {{\n", [])
            put(mutated(text, mutant, opened + 1, end - 1), [mutant])
            put("\n} else ", [])
        put("{\n", [])
        put(text[opened + 1:end - 1], some)
        put("\n}\n}", [])
        position = end
    put(text[position:], [])
    return new, owners


class Tree:
    """A copy of the repository that mutants are written into."""

    def __init__(self) -> None:
        self.path = OUT / "tree"
        self.originals: dict[str, str] = {}
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = {name for name in names.split("\0") if name and (ROOT / name).is_file()}
        for old in self.path.rglob("*") if self.path.exists() else []:
            if old.is_file() and str(old.relative_to(self.path)) not in names:
                old.unlink()
        for name in sorted(names):
            self.write(name, (ROOT / name).read_bytes())

    def write(self, name: str, content: bytes) -> None:
        """Writes a file unless it is so already: what is not touched is not built again."""
        path = self.path / name
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        shutil.copymode(ROOT / name, path)

    def original(self, name: str) -> str:
        """Returns a file of the repository, with the selector in the lowest crate."""
        return (ROOT / name).read_text() + (SELECTOR if name == LOWEST else "")

    def dispatch(self, mutants: list[Mutant]) -> tuple[list[Mutant], dict[Mutant, str]]:
        """Writes all mutants into the tree.

        Returns those that must be built alone, and those that do not compile with the reason.
        """
        files = {mutant.file for mutant in mutants} | {LOWEST}
        alone = [mutant for mutant in mutants if mutant.function is None or nested(mutant, mutants)]
        unviable: dict[Mutant, str] = {}
        while True:
            owners = {}
            for file in sorted(files):
                some = [mutant for mutant in mutants
                        if mutant.file == file and mutant not in alone and mutant not in unviable]
                own = file.startswith("crates/protocol/")
                selector = "crate::mutant::is" if own else "sanderling_protocol::mutant::is"
                text, owners[file] = dispatched(self.original(file), some, selector)
                self.write(file, text.encode())
            errors = self.errors(sorted({mutant.package for mutant in mutants}))
            if not errors:
                return alone, unviable
            self.blame(errors, owners, alone, unviable)

    def blame(
        self, errors: list[dict], owners: dict[str, dict[int, list[Mutant]]],
        alone: list[Mutant], unviable: dict[Mutant, str],
    ) -> None:
        """Takes out the mutants because of which the compiler failed."""
        before = len(alone) + len(unviable)
        all_known = {mutant for lines in owners.values() for some in lines.values()
                     for mutant in some}
        for error in errors:
            found = self.whose(error, owners)
            if (error.get("code") or {}).get("code") == "E0015":
                called = re.search(r"`([^`]+)`", error["message"])
                name = called[1].split("::")[-1] if called else ""
                found = [mutant for mutant in all_known if re.search(rf"\b{name}\b", mutant.name)]
            for mutant in found:
                text = (ROOT / mutant.file).read_text()
                start, end = offsets(text, mutant.function)
                signature = text[start:start + body(text[start:end])]
                is_own = len(found) == 1 and not CONST.search(signature)
                if mutant in alone or mutant in unviable:
                    continue
                if is_own and not re.search(r"->.*\bimpl\b", signature, re.DOTALL):
                    unviable[mutant] = error["message"]
                else:
                    alone.append(mutant)
        if len(alone) + len(unviable) == before:
            sys.exit("\n".join(error["rendered"] for error in errors))

    def whose(self, error: dict, owners: dict[str, dict[int, list[Mutant]]]) -> list[Mutant]:
        """Returns the mutants in whose lines an error is."""
        for span in error["spans"]:
            lines = owners.get(span["file_name"], {})
            if span["is_primary"] and span["line_start"] in lines:
                return lines[span["line_start"]]
        return []

    def apply(self, mutant: Mutant) -> str | None:
        """Writes one mutant in place of the original code; returns why it does not compile."""
        for file in [LOWEST, *self.originals, mutant.file]:
            self.originals[file] = self.original(file)
            self.write(file, self.originals[file].encode())
        text = self.original(mutant.file)
        self.write(mutant.file, mutated(text, mutant, 0, len(text)).encode())
        errors = self.errors([mutant.package])
        return errors[0]["message"] if errors else None

    def errors(self, packages: list[str]) -> list[dict]:
        """Returns the compiler's errors in these crates."""
        # Not `check`: the tests link these libraries, so nothing is compiled twice.
        messages = self.cargo("build", "--lib", "--keep-going", *packages_of(packages))
        found = [message["message"] for message in messages
                 if message["reason"] == "compiler-message"]
        return [found for found in found
                if found["level"] == "error" and found["spans"]]

    def tests(self, packages: list[str]) -> list[tuple[str, Path, Path]]:
        """Builds the tests of these crates; returns their names, binaries and directories."""
        found = []
        messages = self.cargo("test", "--no-run", *packages_of(packages))
        if not any(message.get("success") for message in messages):
            sys.exit("the tests do not compile: "
                     + "\n".join(message["message"]["rendered"] for message in messages
                                 if message["reason"] == "compiler-message"
                                 and message["message"]["level"] == "error"))
        for message in messages:
            if message["reason"] == "compiler-artifact" and message["profile"]["test"] \
                    and message["executable"]:
                directory = Path(message["manifest_path"]).parent
                is_unit = "lib" in message["target"]["kind"]
                name = f"{directory.name} {'unit' if is_unit else message['target']['name']}"
                found.append((name, Path(message["executable"]), directory))
        order = [package.removeprefix("sanderling-") for package in packages]
        return sorted(found, key=lambda test: (
            order.index(test[2].name), not test[0].endswith(" unit"), test[0]))

    def cargo(self, command: str, *arguments: str) -> list[dict]:
        """Runs cargo in the tree and returns its messages."""
        words = ["nice", "-n", "10", "cargo", command, "--locked", "--message-format=json",
                 *arguments]
        environment = {**os.environ, "CARGO_INCREMENTAL": "0",
                       "CARGO_TARGET_DIR": str(OUT / "build")}
        done = subprocess.run(words, cwd=self.path, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if not messages:
            sys.exit(done.stderr)
        return messages


def nested(mutant: Mutant, mutants: list[Mutant]) -> bool:
    """Returns whether its function is inside one that has a mutant, too."""
    first, last = mutant.function[:2], mutant.function[2:]
    return any(
        other.function and other.file == mutant.file and other.function != mutant.function
        and other.function[:2] <= first and last <= other.function[2:]
        for other in mutants
    )


def packages_of(packages: list[str]) -> list[str]:
    """Returns the arguments that name these crates, with all that they may have."""
    features = ["--features=sanderling-core/replica"] if "sanderling-core" in packages else []
    return [*(f"--package={package}" for package in packages), *features]
