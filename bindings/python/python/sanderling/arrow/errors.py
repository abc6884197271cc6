"""Errors of tables."""

from __future__ import annotations

from sanderling.errors import Recovery, SanderlingError


class TableError(SanderlingError, ValueError):
    """What was found is no table of this version, or cannot become one."""

    kind = "TableError"
    recovery = Recovery.FIX
