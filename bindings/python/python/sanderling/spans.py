"""The export of spans to an OpenTelemetry collector, one for the whole process."""

from __future__ import annotations

import atexit
import os
import warnings

from sanderling import _sanderling

_ended_by: set[int] = set()


def export(collector: str | None) -> None:
    """Exports the spans of this process to a collector, or to the one in SANDERLING_OTLP, if any.

    Raises `ValueError` when it cannot be used, or another one has been given before.
    """
    collector = os.environ.get("SANDERLING_OTLP") if collector is None else collector
    if not collector:
        return
    _sanderling.export_spans(collector)
    if os.getpid() not in _ended_by:
        # Of the process in which a program ends: a forked child registers once more.
        _ended_by.add(os.getpid())
        atexit.register(_end, os.getpid())


def _end(process: int) -> None:
    """Sends the last spans when the program ends, and reports those that were not taken."""
    if process == os.getpid() and (lost := _sanderling.end_export()) is not None:
        collector, spans = lost
        text = f"{collector} did not take {spans} spans of this program: does a collector listen?"
        warnings.warn(text, RuntimeWarning, stacklevel=1)
