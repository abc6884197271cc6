"""What callers pass, checked before it goes to the native half."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from sanderling import _sanderling

WHOLE_MAX = (1 << 63) - 1
"""Largest offset, length or count: what a file has at most."""

COUNT_MAX = (1 << 32) - 1
"""Largest count of things."""

MILLIS_MAX = 1 << 52
"""Longest time in milliseconds: longer than anything lives, and exact as a float."""

Objects = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Names of objects and what they hold: anything with a contiguous buffer."""


def text(path: str | os.PathLike[str]) -> str:
    """Returns a path as text; raises `TypeError` for anything else."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"a path is str or os.PathLike[str], not {type(path).__name__}")
    return name


def whole(what: str, value: int, most: int = WHOLE_MAX) -> int:
    """Returns a whole number that is not negative; raises `TypeError` or `ValueError`."""
    number = operator.index(value)
    if not 0 <= number <= most:
        raise ValueError(f"{what} is {number}: 0 to {most} is wanted")
    return number


def millis(what: str, seconds: float) -> int:
    """Returns seconds as milliseconds; raises `TypeError` or `ValueError`."""
    value = float(seconds) * 1000
    if not 0 <= value <= MILLIS_MAX:
        raise ValueError(f"{what} is {seconds} s: 0 to {MILLIS_MAX // 1000} is wanted")
    return round(value)


def some_millis(what: str, seconds: float | None) -> int | None:
    """Returns seconds, if any, as milliseconds."""
    return None if seconds is None else millis(what, seconds)


def some_whole(what: str, value: int | None, most: int = WHOLE_MAX) -> int | None:
    """Returns a whole number that is not negative, if there is any."""
    return None if value is None else whole(what, value, most)


def pairs(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns ranges, (offset, bytes) each, checked."""
    return [(whole("an offset", offset), whole("a length", length)) for offset, length in ranges]


def named(objects: Objects) -> list[tuple[str, Any]]:
    """Returns objects by their names, checked."""
    items = objects.items() if isinstance(objects, Mapping) else objects
    return [(text(path), data) for path, data in items]


def bytes_of(result: Any) -> int:
    """Returns the bytes of what a read returned."""
    if isinstance(result, list):
        return sum(len(each) for each in result if not isinstance(each, Exception))
    return len(result)


def raise_first(many: Iterable[Any]) -> None:
    """Raises the first error in a list, if there is any."""
    for each in many:
        if isinstance(each, Exception):
            raise each


@lru_cache(maxsize=64)
def options(
    replace: bool,
    parents: bool,
    storage_class: str | None,
    ttl: float | None,
    delete_after_read: bool,
    is_listed: bool,
    affinity: str | None,
    kind: str,
) -> _sanderling.Options:
    """Returns options of new objects. Most have the same few: they are checked once."""
    if kind not in ("file", "key_value"):
        raise ValueError(f"kind {kind!r} is none of file, key_value")
    return _sanderling.Options(
        replace,
        parents,
        storage_class,
        some_millis("ttl", ttl),
        delete_after_read,
        is_listed,
        affinity,
        kind == "key_value",
    )
