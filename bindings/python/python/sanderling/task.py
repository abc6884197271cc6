"""For programs that `sanderling task run` runs: where their state is, and when to write it.

    from sanderling import task

    if task.is_restored():
        model.load(task.state_directory() / "model")
    task.on_checkpoint(lambda directory: model.save(directory / "model"))

The runner requests the state by SIGUSR1. The function writes it into the state directory, and the
file `done` there reports that it is complete. If the function raises, `done` is a link to `failed`.
Without a runner nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

__all__ = ["is_restored", "on_checkpoint", "state_directory"]

_DONE = "done"
_FAILED = "failed"


def state_directory() -> Path | None:
    """Returns the directory for the state; `None` if no runner has started this process."""
    directory = os.environ.get("SANDERLING_TASK_STATE")
    return Path(directory) if directory else None


def is_restored() -> bool:
    """Returns whether the state directory has the state of a checkpoint."""
    return os.environ.get("SANDERLING_TASK_RESTORED") == "1"


def on_checkpoint(function: Callable[[Path], object]) -> bool:
    """Calls a function with the state directory whenever a checkpoint is taken.

    Python calls it in the main thread, between two instructions. It writes the whole state, under
    any names but `done`. If it raises, the error is printed, there is no checkpoint, and the
    program goes on: the runner calls it again for the next checkpoint. Call this from the main
    thread. Returns whether there is a runner.
    """
    directory = state_directory()
    if directory is None:
        return False

    is_saving = False

    def save(number: int, frame: FrameType | None) -> None:
        nonlocal is_saving
        if is_saving:
            # A request that comes while the state is written is answered by that state.
            return
        is_saving, is_written = True, False
        try:
            function(directory)
            (directory / _DONE).touch()
            is_written = True
        except Exception:
            print("sanderling: no checkpoint:", file=sys.stderr)
            traceback.print_exc()
        finally:
            is_saving = False
        if not is_written:
            # Last of all: the runner may request the state again at once. A link takes no block of
            # a disk, which may be full. Where there are no links, the runner waits for its timeout.
            with contextlib.suppress(OSError):
                (directory / _DONE).symlink_to(_FAILED)

    signal.signal(signal.SIGUSR1, save)
    return True
