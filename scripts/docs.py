#!/usr/bin/env python3
"""Builds the documentation site, looks for broken links in it, or serves it.

Pages are those of docs/, the repository's CONTRIBUTING.md and CHANGELOG.md, pages made from the
Python package's docstrings, and rustdoc. Nothing is fetched: the site works from a file system.
Runs in the environment that `scripts/venv.sh docs` makes.
"""

import argparse
import functools
import http.server
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import docs_api

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
STAGED = ROOT / "target" / "docs"
SOURCE = STAGED / "source"
SITE = ROOT / "target" / "site"
CRATES = ["sanderling-protocol", "sanderling-client", "sanderling-object-store"]
# Pages from outside docs/, and how the site calls them.
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": None, "CHANGELOG.md": None}
# Files that pages link and that are no pages: they are shown as they are.
SOURCES = {".py", ".rs", ".toml", ".sh", ".csv", ".txt", ".json", ""}
PORT = 8000


def main() -> int:
    """Does what is requested and returns the exit code."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("command", choices=["build", "check", "serve"])
    arguments.add_argument("--no-rust", action="store_true", help="leave rustdoc out")
    options = arguments.parse_args()
    if options.command == "build":
        build(with_rust=not options.no_rust)
    if options.command == "serve":
        return serve()
    problems = check()
    for problem in problems:
        print(problem)
    pages = len(list(SITE.rglob("*.html")))
    print(f"{SITE / 'index.html'}: {pages} pages, {len(problems)} problems")
    return 1 if problems else 0


def build(with_rust: bool) -> None:
    """Stages the pages and builds the site. Warnings are errors."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(DOCS, SOURCE)
    config = tomllib.loads((SOURCE / "zensical.toml").read_text())
    (SOURCE / "zensical.toml").unlink()
    for name, called in OUTSIDE.items():
        if called is None or not (SOURCE / called).exists():
            (SOURCE / (called or name)).write_text((ROOT / name).read_text())
    for page in sorted(SOURCE.rglob("*.md")):
        page.write_text(relinked(page.relative_to(SOURCE).as_posix(), page.read_text()))
    made = docs_api.write(ROOT / "bindings" / "python" / "python", SOURCE)
    nav = settled(config["project"]["nav"], made, with_rust)
    listed = set(pages_of(nav))
    for page in SOURCE.rglob("*.md"):
        if page.relative_to(SOURCE).as_posix() not in listed:
            raise SystemExit(f"{page.relative_to(SOURCE)} is not in the nav of docs/zensical.toml")
    if with_rust:
        add_rust()
    config["project"] |= {"nav": nav, "docs_dir": "source", "site_dir": "site"}
    (STAGED / "zensical.toml").write_text(as_toml(config))
    zensical = Path(sys.executable).with_name("zensical")
    run([str(zensical), "build", "--strict", "--clean", "-f", "zensical.toml"], STAGED)
    shutil.move(STAGED / "site", SITE)


def run(command: list[str], directory: Path) -> None:
    """Runs a command; ends with its output when it fails or warns."""
    strict = os.environ | {"RUSTDOCFLAGS": "-D warnings"}
    result = subprocess.run(command, cwd=directory, env=strict, capture_output=True, text=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout + result.stderr)
    if result.returncode or re.search(r"warning", text, re.IGNORECASE):
        text = text.split("Traceback")[0]
        raise SystemExit(f"{' '.join(command)}: exit code {result.returncode}\n{text}")


def add_rust() -> None:
    """Puts rustdoc beside the pages."""
    crates = [word for crate in CRATES for word in ("--package", crate)]
    shutil.rmtree(ROOT / "target" / "doc", ignore_errors=True)
    run(["cargo", "doc", "--quiet", "--locked", "--no-deps", *crates], ROOT)
    shutil.copytree(ROOT / "target" / "doc", SOURCE / "rust")


def settled(nav: list[Any], made: list[dict[str, str]], with_rust: bool) -> list[Any]:
    """Returns the nav with the pages made from code, and without those that are not there."""
    entries: list[Any] = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            inside = made if title == "Python" else settled(target, made, with_rust)
            if inside:
                entries.append({title: inside})
        elif target.startswith("rust/"):
            if with_rust:
                entries.append(entry)
        elif (SOURCE / target).exists():
            entries.append(entry)
        else:
            raise SystemExit(f"docs/zensical.toml names {target}, which is not there")
    return entries


def pages_of(nav: list[Any]) -> list[str]:
    """Returns all targets in a nav."""
    targets: list[str] = []
    for entry in nav:
        for target in entry.values():
            targets += [target] if isinstance(target, str) else pages_of(target)
    return targets


def relinked(page: str, text: str) -> str:
    """Turns links to files outside docs/ into links to their copies in the site."""

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        if not target or "://" in target:
            return match[0]
        from_repository = "docs" if not is_outside(page) else ""
        base = posixpath.join(from_repository, posixpath.dirname(page))
        path = posixpath.normpath(posixpath.join(base, target))
        return f"]({site_link(page, path)}{'#' + anchor if anchor else ''})"

    lines, is_code = [], False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        lines.append(line if is_code else re.sub(r"\]\(([^)\s]+)\)", link, line))
    return "\n".join(lines) + "\n"


def is_outside(page: str) -> bool:
    """Returns whether a staged page comes from outside docs/."""
    return page in OUTSIDE or not (DOCS / page).exists()


def site_link(page: str, path: str) -> str:
    """Returns the link from a page to a file of the repository."""
    if path.startswith("docs/"):
        staged = path.removeprefix("docs/")
    elif path in OUTSIDE:
        staged = OUTSIDE[path] or path
    else:
        staged = f"source/{path}.txt"
        original, copy = ROOT / path, SOURCE / staged
        if original.is_file() and original.suffix in SOURCES:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(original, copy)
    return posixpath.relpath(staged, posixpath.dirname(page) or ".")


def as_toml(value: Any) -> str:
    """Writes the configuration; its values are texts, truths, lists and tables."""
    return "\n".join(f"{key} = {inline(inner)}" for key, inner in value.items()) + "\n"


def inline(value: Any) -> str:
    """Writes one value on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{inline(key)} = {inline(it)}" for key, it in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


class Page(HTMLParser):
    """What a page of the site links, loads and can be entered at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attributes}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") != "canonical" and "href" in values:
            self.loads.append(values["href"])
        if tag in ("script", "img", "iframe", "source") and "src" in values:
            self.loads.append(values["src"])


def check() -> list[str]:
    """Returns every link that leads nowhere, and everything that would be fetched."""
    if not SITE.exists():
        return [f"{SITE} is not there: make docs"]
    read = functools.cache(lambda path: Page(path.read_text(errors="replace")))
    problems = []
    for path in sorted(SITE.rglob("*.html")):
        name = path.relative_to(SITE).as_posix()
        if name.startswith("rust/") or name == "404.html":
            continue
        page = read(path)
        for load in page.loads:
            if urlsplit(load).scheme in ("http", "https") or load.startswith("//"):
                problems.append(f"{name}: {load} would be fetched")
        for link in page.links + page.loads:
            problem = broken(path, link, read)
            if problem:
                problems.append(f"{name}: {problem}")
    return sorted(set(problems))


def broken(path: Path, link: str, read: Any) -> str | None:
    """Returns what is wrong with a link of a page."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target = target / "index.html"
    if not target.exists():
        return f"{link} leads nowhere"
    anchor = unquote(parts.fragment)
    is_page = target.suffix == ".html" and "rust" not in target.relative_to(SITE).parts
    if anchor and is_page and not anchor.startswith("__") and anchor not in read(target).anchors:
        return f"{link}: no such heading"
    return None


def serve() -> int:
    """Serves the site on loopback until Ctrl-C."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler) as server:
        print(f"http://127.0.0.1:{PORT}/ (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
