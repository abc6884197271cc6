"""The command `sanderling`, also as `python -m sanderling`."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """Runs the command line; `demo` is Python's own, everything else is the native command's."""
    if sys.argv[1:2] == ["demo"]:
        from sanderling.demo.__main__ import main as demo

        return demo(sys.argv[2:])
    from sanderling import _sanderling

    # What the command starts again is the interpreter with this module, not the bare interpreter.
    os.environ.setdefault("SANDERLING_EXE", "\x1f".join((sys.executable, "-m", "sanderling")))
    os.environ.setdefault("SANDERLING_PYTHON", sys.executable)
    # Python's handler would wait for bytecode to run again, which a server never lets happen.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _sanderling.main(["sanderling", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
