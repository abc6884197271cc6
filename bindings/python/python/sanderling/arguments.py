"""Arguments of callers, checked before they go to the native half."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypedDict, Unpack

from sanderling import _sanderling
from sanderling.metadata import Job

WHOLE_MAX = (1 << 64) - 1
"""Largest offset, length or id."""

COUNT_MAX = (1 << 32) - 1
"""Largest count of things."""

MILLIS_MAX = 1 << 52
"""Longest time in milliseconds: longer than anything lives, and exact as a float."""

STEP_BYTES = 4 << 20
"""What is read or written between two calls of a progress callback."""

LEASE_SECONDS = 60.0
"""How long a job outlives a program that ended without ending it."""

JobRequest = tuple[
    str,
    int,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    bool,
    bool,
    bool,
    int | None,
    int | None,
]
"""The native arguments, in order: path, lease in milliseconds, quota, limits and hints."""

EVENTS_WAIT = 5.0
"""Seconds that one call waits for an event; the next one follows."""

Progress = Callable[[int], object]
"""Is called with the bytes transferred so far. An error that it raises ends the call, and discards
what was being written."""

Objects = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Names of objects and their bytes: anything with a contiguous buffer."""


def text(path: str | os.PathLike[str]) -> str:
    """Returns a path as text; raises `TypeError` for anything else."""
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"a path is str or os.PathLike[str], not {type(path).__name__}")
    return name


def file_mode(mode: str) -> tuple[str, bool]:
    """Returns what a file is opened for, `r`, `w`, `x` or `a`, and whether it is binary.

    Raises `TypeError` or `ValueError`.
    """
    if not isinstance(mode, str):
        raise TypeError(f"a mode is str, not {type(mode).__name__}")
    is_binary = "b" in mode
    kind = mode.replace("b" if is_binary else "t", "", 1)
    if kind not in ("r", "w", "x", "a"):
        raise ValueError(f"mode {mode!r} is none of rb, wb, xb, ab, r, w, x, a")
    return kind, is_binary


def callback(progress: Progress | None) -> Progress | None:
    """Returns a progress callback, if there is any; raises `TypeError` if it cannot be called."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is called, and {type(progress).__name__} cannot be")
    return progress


def whole(what: str, value: int, most: int = WHOLE_MAX) -> int:
    """Returns a whole number that is not negative; raises `TypeError` or `ValueError`."""
    number = operator.index(value)
    if not 0 <= number <= most:
        raise ValueError(f"{what} is {number}: 0 to {most} is wanted")
    return number


def millis(what: str, seconds: float) -> int:
    """Returns seconds as milliseconds; raises `TypeError` or `ValueError`."""
    try:
        value = float(seconds) * 1000
    except OverflowError:
        value = float("inf")
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


def names(given: Iterable[str]) -> list[str]:
    """Returns names as a list; raises `TypeError` for one text, which is no list of them."""
    if isinstance(given, str):
        raise TypeError(f"several names are wanted, not one text: pass [{given!r}]")
    return list(given)


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


class PutOptions(TypedDict, total=False):
    """How a new object is made: keywords of `put`, `put_many`, `open`, `concat` and others."""

    replace: bool
    """Whether an older object gives way when the new one is complete; else `Exists` is raised.
    True by default."""
    parents: bool
    """Makes missing directories above it."""
    storage_class: str | None
    """Where its bytes go, such as `dram` or `disk:refuse`; `dram:fall-through` by default."""
    ttl: float | None
    """Seconds that it has to live; None to keep it."""
    delete_after_read: bool
    """The first whole `get` deletes it."""
    is_listed: bool
    """Whether its directory's listing shows it; an object that is not listed costs less to make."""
    affinity: str | None
    """An object's path to be near, or a host."""
    kind: str
    """`file`, or `key_value` for an entry of a table."""
    attributes: Mapping[str, str] | None
    """Small texts by their names, 8 KiB together at most, that are kept beside the bytes."""
    if_absent: bool
    """Raises `Exists` if the name is taken when the object is complete, or before."""
    if_object: int | None
    """The id (`Stat.object`) of what it replaces: raises `Changed` if it is another by then."""
    is_inline_allowed: bool
    """Whether a small value may live in the catalog. Without it, a file can be a part of a
    concatenation. True by default."""


def texts(attributes: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns attributes as pairs; raises `TypeError` for what is not text."""
    if not isinstance(attributes, Mapping):
        raise TypeError(f"attributes are a mapping, not {type(attributes).__name__}")
    pairs_of = sorted(attributes.items())
    for each in pairs_of:
        if not all(isinstance(part, str) for part in each):
            raise TypeError(f"an attribute is text by its name, not {each!r}")
    return pairs_of


def options(**given: Unpack[PutOptions]) -> _sanderling.Options:
    """Returns the native half's options. Raises `TypeError`, `ValueError` or `BadRequest`."""
    attributes = given.pop("attributes", None)
    return _options(tuple(texts(attributes)) if attributes else (), **given)


@lru_cache(maxsize=64)
def _options(
    attributes: tuple[tuple[str, str], ...],
    replace: bool = True,
    parents: bool = False,
    storage_class: str | None = None,
    ttl: float | None = None,
    delete_after_read: bool = False,
    is_listed: bool = True,
    affinity: str | None = None,
    kind: str = "file",
    if_absent: bool = False,
    if_object: int | None = None,
    is_inline_allowed: bool = True,
) -> _sanderling.Options:
    """Most objects are made with the same few options: they are checked once."""
    if kind not in ("file", "key_value"):
        raise ValueError(f"kind {kind!r} is none of file, key_value")
    if if_absent and if_object is not None:
        raise ValueError("if_absent and if_object cannot both hold: pass one")
    if if_object == 0:
        raise ValueError("if_object is 0: no object has this id")
    condition = 0 if if_absent else some_whole("if_object", if_object)
    return _sanderling.Options(
        replace,
        parents,
        storage_class,
        some_millis("ttl", ttl),
        delete_after_read,
        is_listed,
        affinity,
        kind == "key_value",
        list(attributes),
        condition,
        is_inline_allowed,
    )


def job_request(
    path: str,
    lifetime: float,
    *,
    quota: int | None,
    names_max: int | None,
    attribute_bytes_max: int | None,
    expected_bytes: int | None = None,
    throughput: int | None = None,
    latency_sensitive: bool = False,
    delete_after_read: bool = False,
    keep_after: bool = False,
    recompute_per_mib: float | None,
    expected_reads: int | None,
) -> JobRequest:
    """Returns the native half's arguments of a job, checked."""
    lease = millis("lifetime", lifetime)
    if lease == 0:
        raise ValueError("lifetime is 0: a job has a lease of at least a millisecond")
    return (
        text(path),
        lease,
        some_whole("quota", quota),
        some_whole("names_max", names_max),
        some_whole("attribute_bytes_max", attribute_bytes_max),
        some_whole("expected_bytes", expected_bytes),
        some_whole("throughput", throughput),
        bool(latency_sensitive),
        bool(delete_after_read),
        bool(keep_after),
        some_millis("recompute_per_mib", recompute_per_mib),
        some_whole("expected_reads", expected_reads, COUNT_MAX),
    )


def job_id(job: int | Job) -> int:
    """Returns a job's id."""
    return job.job if isinstance(job, Job) else whole("the job", job)
