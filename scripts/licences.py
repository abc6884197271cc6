#!/usr/bin/env python3
"""Checks the licences of everything that is linked, and writes their texts.

`check` compares the licence and the source of every package in Cargo.lock with deny.toml, as
cargo-deny does where it is installed. `write` puts the texts of what a package is linked with into
a file: the wheel and the jars carry it. `look` finds that file in wheels and jars and compares it.
Needs Python 3.11, cargo, and the packages that cargo has fetched.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "THIRD-PARTY.txt"
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
TEXTS = re.compile(r"^(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?$", re.IGNORECASE)
# What each kind of archive is linked from, and where the texts are in it.
ARCHIVES = {
    ".whl": ("sanderling-python", re.compile(rf"^[^/]+\.dist-info/licenses/{NAME}$")),
    ".jar": ("sanderling-jni", re.compile(rf"^META-INF/{NAME}$")),
}
# The text of the licence, for packages that name it and carry no text.
MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this
software and associated documentation files (the "Software"), to deal in the Software without
restriction, including without limitation the rights to use, copy, modify, merge, publish,
distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""
PLATFORM = "x86_64-unknown-linux-gnu"


def metadata(*more: str) -> dict:
    """Returns cargo's metadata of the packages in Cargo.lock."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", *more]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Returns whether an expression of SPDX licences can be met with those that are allowed."""
    words = re.findall(r"[()]|[^\s()/]+|/", expression.replace("/", " OR "))
    place = 0

    def one() -> bool:
        nonlocal place
        word = words[place]
        place += 1
        if word == "(":
            met = any_of()
            place += 1
            return met
        if words[place:place + 1] == ["WITH"]:
            word = " ".join([word, "WITH", words[place + 1]])
            place += 2
        return word in allowed

    def all_of() -> bool:
        nonlocal place
        met = one()
        while words[place:place + 1] == ["AND"]:
            place += 1
            met = one() and met
        return met

    def any_of() -> bool:
        nonlocal place
        met = all_of()
        while words[place:place + 1] == ["OR"]:
            place += 1
            met = all_of() or met
        return met

    return bool(words) and any_of() and place == len(words)


def problems(packages: list[dict], allowed: set[str]) -> list[str]:
    """Returns what deny.toml does not let pass."""
    found = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if not is_allowed(package["license"] or "", allowed):
            found.append(f"{name}: its licence is {package['license']}")
        if package["source"] not in (None, REGISTRY):
            found.append(f"{name}: it comes from {package['source']}")
        for needed in package["dependencies"]:
            if package["source"] is None and needed["req"] == "*" and not needed.get("path"):
                found.append(f"{name}: any version of {needed['name']} would do")
    return found


def linked(root: str, *features: str) -> list[dict]:
    """Returns the packages that a package is linked with, itself and our own ones left out.

    `cargo metadata` would count what other members of the workspace need: features are theirs, too.
    """
    command = ["cargo", "tree", "--locked", "--package", root, "--target", PLATFORM, "--edges",
               "normal,no-proc-macro", "--prefix", "none", "--format", "{p}", *features]
    tree = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # NAME vVERSION, and where it is from, if that is not the registry.
    reached = {tuple(line.split()[:2]) for line in tree.splitlines()}
    packages = metadata("--filter-platform", PLATFORM)["packages"]
    found = [package for package in packages
             if package["source"] and (package["name"], f"v{package['version']}") in reached]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def texts(package: dict) -> list[str]:
    """Returns the licences and notices that a package carries."""
    place = Path(package["manifest_path"]).parent
    files = [path for path in place.iterdir() if path.is_file() and TEXTS.match(path.name)]
    files += [path for path in place.glob("LICENSES/*") if path.is_file()]
    return [path.read_text(errors="replace").strip() for path in sorted(files)]


def standard_library() -> list[str]:
    """Returns the texts of Rust's standard library, as the toolchain has them."""
    place = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True,
                           check=True).stdout.strip()
    found = [Path(place, "share/doc/rust", name) for name in ("COPYRIGHT", "LICENSE-MIT")]
    return [path.read_text(errors="replace").strip() for path in found if path.exists()]


def write(root: str, out: Path) -> None:
    """Writes the list of packages and the texts, each text once."""
    packages = linked(root)
    lines = [f"What {root} is linked with, and under which licences. Their texts follow.", ""]
    users: dict[str, list[str]] = {}
    for text in standard_library():
        users.setdefault(text, []).append("the Rust standard library")
    lines.append("the Rust standard library: MIT OR Apache-2.0")
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}: {package['license']}")
        own = texts(package)
        if not own:
            authors = ", ".join(package["authors"]) or "its authors"
            lines.append(f"    {package['repository']}, copyright of {authors}")
            is_mit = is_allowed(package["license"], {"MIT"})
            own = [MIT if is_mit else (ROOT / "LICENSE").read_text().strip()]
        for text in own:
            users.setdefault(text, []).append(name)
    for text, names in users.items():
        lines += ["", "=" * 78, *names, "=" * 78, "", text]
    out.parent.mkdir(parents=True, exist_ok=True)
    content = "\n".join(lines) + "\n"
    # An unchanged file keeps its time: nothing is packed again for its sake.
    if not out.exists() or out.read_text() != content:
        out.write_text(content)


def look(archive: Path) -> list[str]:
    """Returns what is missing in a wheel or a jar."""
    root, place = ARCHIVES[archive.suffix]
    with zipfile.ZipFile(archive) as content:
        names = [name for name in content.namelist() if place.match(name)]
        if not names:
            return [f"{archive.name} has no {NAME}"]
        text = content.read(names[0]).decode()
    wanted = [f"{package['name']} {package['version']}: " for package in linked(root)]
    missing = [name for name in wanted if f"\n{name}" not in text]
    if "Permission is hereby granted" not in text or "Apache License" not in text:
        missing.append("the texts")
    return [f"{archive.name}: {NAME} lacks {name}" for name in missing]


def main() -> int:
    """Runs the command line; returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = arguments.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check")
    writing = verbs.add_parser("write")
    writing.add_argument("package")
    writing.add_argument("out", type=Path)
    verbs.add_parser("look").add_argument("archives", type=Path, nargs="+")
    options = arguments.parse_args()
    found = []
    if options.verb == "check":
        packages = metadata()["packages"]
        rules = tomllib.loads((ROOT / "deny.toml").read_text())
        found = problems(packages, set(rules["licenses"]["allow"]))
        if not found:
            print(f"{len(packages)} packages, all under licences of deny.toml")
    elif options.verb == "write":
        write(options.package, options.out)
    else:
        found = [line for archive in options.archives for line in look(archive)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
