#!/usr/bin/env python3
"""Makes the synchronous halves of modules that are written once, for asyncio.

`python3 bindings/python/synchronous.py` writes them; with `--check` it fails when one is out of
date. A module of `sanderling.aio` becomes one of `sanderling` without its `async` and `await`. What
differs in more than that is written twice, under the same names: `connection`, `containers`,
`files`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "python" / "sanderling"

MODULES = ["objects", "store"]

RULES = [
    # What is made by awaiting is made by the call.
    (r"^from sanderling\.aio\.entered import .*\n", ""),
    (r"\bEntered\[(\w+)\]", r"\1"),
    (r"\bEntered\((.*)\)$", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsync(Reader|Writer)\b", r"Object\1"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bsanderling\.aio\b", "sanderling"),
    (r", for asyncio\.", "."),
]


def synchronous(name: str) -> str:
    """Returns the synchronous half of a module."""
    text = (PACKAGE / "aio" / f"{name}.py").read_text()
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return f"# Made by bindings/python/synchronous.py from aio/{name}.py: change that.\n{text}"


def main() -> int:
    """Writes or checks all of them."""
    texts = {PACKAGE / f"{name}.py": synchronous(name) for name in MODULES}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path} is out of date: python3 bindings/python/synchronous.py")
        else:
            path.write_text(texts[path])
    return int("--check" in sys.argv and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
