"""Errors of the store: one class per kind that a program treats on its own.

Every error has in `recovery` what the caller does next, and in `kind` the exact name that the
wire, the command line and the logs use.
"""

from __future__ import annotations

import errno
from enum import StrEnum


class Recovery(StrEnum):
    """What a caller does next after an error."""

    REFRESH = "refresh"
    """Drop what was remembered about the object and try again."""
    RETRY_AFTER = "retry_after"
    """Try the same again after `retry_after` seconds."""
    RECOMPUTE = "recompute"
    """The bytes are gone: compute them again. Retrying does not help."""
    REPORT = "report"
    """Neither the caller nor the cluster can mend this: report it to an operator."""
    FIX = "fix"
    """The request itself is wrong: correct it."""


class SanderlingError(Exception):
    """Base of all errors that the store raises."""

    kind: str = "SanderlingError"
    """The error's name. Classes whose errors this package itself finds have their own here."""
    recovery: Recovery = Recovery.REPORT
    retry_after: float | None = None
    """Seconds to wait before the same is tried again; only with `Recovery.RETRY_AFTER`."""
    path: str | None = None
    """The object's path, where the error is about one."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else self.kind


class NotFound(SanderlingError, FileNotFoundError):
    """No object has this name."""

    kind = "NotFound"
    recovery = Recovery.FIX


class NoSuchKey(NotFound, KeyError):
    """A table has no such key."""

    key: str
    """The key."""


class Exists(SanderlingError, FileExistsError):
    """An object of this name exists."""

    kind = "Exists"
    recovery = Recovery.FIX


class Changed(SanderlingError, FileExistsError):
    """Another object has the name than the one that was to be replaced or changed."""


class NotADirectory(SanderlingError, NotADirectoryError):
    """The object holds no others."""

    kind = "NotADirectory"
    recovery = Recovery.FIX


class IsADirectory(SanderlingError, IsADirectoryError):
    """The object is a directory where a file is wanted."""

    kind = "IsADirectory"
    recovery = Recovery.FIX


class NotEmpty(SanderlingError, OSError):
    """The directory holds something and the deletion was not recursive."""


class BadRequest(SanderlingError, ValueError):
    """The request is wrong: its path, range, storage class or values. `kind` has the exact name."""

    kind = "BadRequest"
    recovery = Recovery.FIX


class Full(SanderlingError, OSError):
    """No node has room beside the reserve, or the job has used its quota up."""


class SecondWriter(SanderlingError, OSError):
    """Another writer holds the object."""


class WriterLost(SanderlingError, OSError):
    """The writer's right to the object has ended: what it wrote since the last flush is gone."""


class DataUnavailable(SanderlingError, OSError):
    """Bytes of the object are lost and declared so."""

    object: int
    """The object's id."""
    ranges: list[tuple[int, int]]
    """What is lost of it: (offset, bytes)."""


class NotAllowed(SanderlingError, PermissionError):
    """The token is missing, has ended, or does not allow this. `kind` has the exact name."""


class TimedOut(SanderlingError, TimeoutError):
    """The call's deadline passed."""


class Unreachable(SanderlingError, ConnectionError):
    """The namenode or a datanode cannot be reached."""


class UnknownNode(SanderlingError, LookupError):
    """No node answers to this name, id or address."""


class Closed(SanderlingError, ValueError):
    """The store or the file was closed before."""

    kind = "Closed"
    recovery = Recovery.FIX


_CLASSES: dict[str, type[SanderlingError]] = {
    "NotFound": NotFound,
    "ObjectGone": NotFound,
    "Exists": Exists,
    "Changed": Changed,
    "NotADirectory": NotADirectory,
    "IsADirectory": IsADirectory,
    "NotEmpty": NotEmpty,
    "BadPath": BadRequest,
    "BadAddress": BadRequest,
    "BadRequest": BadRequest,
    "WrongKind": BadRequest,
    "IntoItself": BadRequest,
    "CrossesJob": BadRequest,
    "UnknownStorageClass": BadRequest,
    "OutOfRange": BadRequest,
    "TooLarge": BadRequest,
    "DeadlinePassed": BadRequest,
    "UnknownJob": BadRequest,
    "Full": Full,
    "ReserveKept": Full,
    "NodeFull": Full,
    "QuotaPassed": Full,
    "JobLimitPassed": Full,
    "SecondWriter": SecondWriter,
    "LeaseEnded": WriterLost,
    "Sealed": WriterLost,
    "DataUnavailable": DataUnavailable,
    "Unauthenticated": NotAllowed,
    "Forbidden": NotAllowed,
    "Credentials": NotAllowed,
    "TimedOut": TimedOut,
    "Unreachable": Unreachable,
    "UnknownNode": UnknownNode,
    "Closed": Closed,
    "WriterClosed": Closed,
}

_ERRNO = {
    NotFound: errno.ENOENT,
    Exists: errno.EEXIST,
    Changed: errno.EEXIST,
    NotADirectory: errno.ENOTDIR,
    IsADirectory: errno.EISDIR,
    NotEmpty: errno.ENOTEMPTY,
    Full: errno.ENOSPC,
    SecondWriter: errno.EBUSY,
    WriterLost: errno.ESTALE,
    DataUnavailable: errno.EIO,
    NotAllowed: errno.EACCES,
    TimedOut: errno.ETIMEDOUT,
    Unreachable: errno.EHOSTUNREACH,
}


def from_native(
    kind: str,
    message: str,
    recovery: str,
    retry_after: float | None,
    path: str | None,
    unavailable: tuple[int, list[tuple[int, int]]] | None,
) -> SanderlingError:
    """Makes the error that the native half raises."""
    error = _CLASSES.get(kind, SanderlingError)(message)
    error.kind = kind
    error.recovery = Recovery(recovery)
    error.retry_after = retry_after
    error.path = path
    if isinstance(error, DataUnavailable) and unavailable is not None:
        error.object, error.ranges = unavailable
    if isinstance(error, OSError):
        error.errno = _ERRNO.get(type(error))
    return error
