#!/usr/bin/env python3
"""Checks the texts of the commits since the check began: `area: statement`, and a body.

    scripts/history.py [COMMIT]

A subject has at most 72 columns, names its area first, makes one statement and ends without a
full stop. A body has the reason. Prints what is wrong, one line each, and ends with 1; with 0 if
nothing is; with 77 if git or the first commit is not there, as in a source archive.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Earlier commits are published and stay as they are.
SINCE = "ac6f060780add7dc"
# After this commit, no subject joins two statements with ", and" either.
JOINED_UNTIL = "8ca575c92baeccbb"
COLUMNS_MAX = 72
# The exit code of a check that could not be made.
SKIPPED = 77
AREA = re.compile(r"[a-z0-9][a-z0-9_.+/-]*(, [a-z0-9][a-z0-9_.+/-]*)*: \S")


def problems(text: str, may_join: bool = False) -> list[str]:
    """Returns what is wrong with a commit's text."""
    subject, _, rest = text.strip().partition("\n")
    found = []
    if len(subject) > COLUMNS_MAX:
        found.append(f"the subject has {len(subject)} columns, {COLUMNS_MAX} are allowed")
    if not AREA.match(subject):
        found.append("the subject does not begin with `area: `, in small letters")
    if ";" in subject or (", and " in subject and not may_join):
        found.append("the subject makes two statements: make two commits")
    if subject.endswith("."):
        found.append("the subject ends with a full stop")
    if rest and not rest.startswith("\n"):
        found.append("the second line is not empty")
    if not rest.strip():
        found.append("there is no body that says why")
    return found


def commits(since: str) -> list[tuple[str, str]] | None:
    """Returns hash and text of each commit after one, merges apart; None if that is not there."""
    command = ["git", "log", "--no-merges", "--format=%h%x00%B%x01", f"{since}..HEAD"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if listed.returncode:
        return None
    entries = (entry.strip() for entry in listed.stdout.split("\x01"))
    return [(name, text) for name, _, text in (entry.partition("\0") for entry in entries) if name]


def main() -> int:
    """Checks and returns the exit code."""
    since = sys.argv[1] if len(sys.argv) > 1 else SINCE
    listed = commits(since)
    if listed is None:
        print(f"history: not checked, because git or commit {since} is not there")
        return SKIPPED
    later = {name for name, _ in commits(JOINED_UNTIL) or []}
    found = [f"{name}: {problem}" for name, text in listed
             for problem in problems(text, may_join=name not in later)]
    print("\n".join(found) or f"{len(listed)} commits since {since} are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
