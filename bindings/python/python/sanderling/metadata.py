"""Metadata of objects, nodes, jobs and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sanderling._sanderling import ObjectMetadata


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, timezone.utc)


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1000


@dataclass(frozen=True, slots=True)
class Stat:
    """Metadata of an object."""

    path: str
    object: int
    kind: str
    """`file`, `directory`, `multifile`, `table` or `key_value`."""
    bytes: int
    lost_bytes: int
    is_sealed: bool
    is_listed: bool
    delete_after_read: bool
    storage_class: str
    created_at: datetime
    modified_at: datetime
    expires_in: float | None
    """Seconds left by its time to live; None to keep it."""
    blocks: int
    entries: int
    job: int | None
    attributes: dict[str, str] = field(default_factory=dict, hash=False)
    """What an application keeps beside the bytes."""

    @classmethod
    def of(cls, metadata: ObjectMetadata) -> Stat:
        """Decodes the tuple that the native half returns, in the order of schema.txt."""
        created, modified = _moment(metadata[9]), _moment(metadata[10])
        left = _seconds(metadata[11])
        return cls(*metadata[:9], created, modified, left, *metadata[12:])

    @property
    def is_container(self) -> bool:
        """Whether the object holds others rather than bytes."""
        return self.kind in CONTAINERS


CONTAINERS = frozenset({"directory", "multifile", "table"})
"""Kinds of objects that hold others."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a listing."""

    name: str
    kind: str
    object: int
    bytes: int
    lost_bytes: int
    is_sealed: bool
    modified_at: datetime
    attributes: dict[str, str] = field(default_factory=dict, hash=False)
    """What an application keeps beside the bytes; empty in a listing without attributes."""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Entry:
        """Decodes an entry of the native half's listing, whose time is in microseconds."""
        return cls(**{**raw, "modified_at": _moment(raw["modified_at"])})

    @property
    def is_container(self) -> bool:
        """Whether the object holds others rather than bytes."""
        return self.kind in CONTAINERS


class Deleted(NamedTuple):
    """What a deletion removed."""

    objects: int
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The manager's forecast of a drain."""

    left_bytes: int
    bytes_per_second: int
    finish_in: float | None
    """Seconds until the last byte has left; `None` before anything was measured."""
    skipped_bytes: int
    """Bytes that stay because they expire by themselves before the deadline."""
    late_bytes: int
    """Bytes that will not have left by the deadline at this rate."""
    unplaced_bytes: int
    """Bytes for which no node has room."""
    targets: int

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Forecast:
        """Decodes the native half's JSON, whose times are in milliseconds."""
        return cls(**{**raw, "finish_in": _seconds(raw["finish_in"])})


@dataclass(frozen=True, slots=True)
class Drain:
    """The progress of a drain."""

    left_blocks: int
    left_bytes: int
    moved_blocks: int
    moved_bytes: int
    lost_blocks: int
    lost_bytes: int
    elapsed: float
    """Seconds since it began."""
    finish_in: float | None
    """Seconds until it should end at the rate so far."""
    is_fenced: bool
    promoted_blocks: int
    """Blocks whose copy elsewhere became their home: no byte had to move."""
    promoted_bytes: int
    forecast: Forecast | None

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Drain:
        """Decodes the native half's JSON, whose times are in milliseconds."""
        times = {name: _seconds(raw[name]) for name in ("elapsed", "finish_in")}
        forecast = Forecast.of(raw["forecast"]) if raw["forecast"] else None
        return cls(**{**raw, **times, "forecast": forecast})


@dataclass(frozen=True, slots=True)
class Node:
    """One incarnation of a datanode."""

    id: int
    name: str
    address: str
    http_address: str
    host: str
    policy: str
    """`active`, `draining`, `decommissioning`, `drained` or `gone`."""
    availability: str
    """`up`, `suspect` or `down`."""
    capacity_bytes: int
    used_bytes: int
    blocks: int
    home_bytes: int
    """Bytes of the blocks whose home it is."""
    exposure_bytes: int
    """Those of them that are nowhere else."""
    budget_bytes: int
    """Bytes that it can send within its shortest notice."""
    copy_bytes: int
    """Bytes of copies that it holds of other nodes' blocks."""
    is_at_risk: bool
    """Whether its cloud recommends to leave it."""
    expected_life: float | None
    """Expected seconds until its notice; `None` without a preemption model."""
    deadline_in: float | None
    """Seconds left until the notice's deadline."""
    reason: str
    drain: Drain | None
    heartbeat_age: float
    """Seconds since its last heartbeat."""
    age: float
    """Seconds since it registered."""
    load: dict[str, int] = field(repr=False)
    """Figures of its last heartbeat: `read_bytes_total`, `pushed_bytes_total`, ..."""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Node:
        """Decodes the native half's JSON: adds up the tiers, and converts milliseconds."""
        return cls(
            id=raw["id"],
            name=raw["name"],
            address=raw["address"],
            http_address=raw["http_address"],
            host=raw["host"],
            policy=raw["policy"],
            availability=raw["availability"],
            capacity_bytes=sum(tier["capacity_bytes"] for tier in raw["tiers"]),
            used_bytes=sum(tier["used_bytes"] for tier in raw["tiers"]),
            blocks=raw["blocks"],
            home_bytes=raw["home_bytes"],
            exposure_bytes=raw["exposure_bytes"],
            budget_bytes=raw["budget_bytes"],
            copy_bytes=raw["copy_bytes"],
            is_at_risk=raw["is_at_risk"],
            expected_life=_seconds(raw["expected_life"]),
            deadline_in=_seconds(raw["deadline_in"]),
            reason=raw["reason"],
            drain=Drain.of(raw["drain"]) if raw["drain"] else None,
            heartbeat_age=raw["heartbeat_age"] / 1000,
            age=raw["age"] / 1000,
            load=raw["load"],
        )


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the cluster."""

    sequence: int
    """Its place in the order; without gaps."""
    at: datetime
    kind: str
    """`node_noticed`, `blocks_moved`, `node_gone`, `blocks_lost`, ..."""
    fields: dict[str, Any]

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Event:
        """Decodes the native half's JSON: its kind is the one key of `kind`."""
        kind, fields = next(iter(raw["kind"].items()))
        return cls(raw["sequence"], _moment(raw["at"]), kind, fields)


@dataclass(frozen=True, slots=True)
class Loss:
    """Lost bytes of one object, from one cause."""

    at: datetime
    node: int
    why: str
    object: int
    path: str
    job: int | None
    blocks: list[int]
    """Those of its blocks that are lost."""
    ranges: list[tuple[int, int]]
    """(offset, bytes)."""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Loss:
        """Decodes the native half's JSON, whose time is in microseconds."""
        ranges = [(each["offset"], each["bytes"]) for each in raw["ranges"]]
        return cls(**{**raw, "at": _moment(raw["at"]), "ranges": ranges})


@dataclass(frozen=True, slots=True)
class LossReport:
    """Everything that was ever declared lost."""

    blocks: int
    bytes: int
    objects: int
    moved_bytes: int
    promoted_bytes: int
    """Bytes whose copy became their home, and which were not moved."""
    copied_bytes: int
    """Bytes copied ahead of notices."""
    rebalanced_bytes: int
    notices: int
    losses: list[Loss]
    is_truncated: bool

    @classmethod
    def of(cls, raw: dict[str, Any]) -> LossReport:
        """Decodes the native half's JSON, each loss by `Loss.of`."""
        return cls(**{**raw, "losses": [Loss.of(each) for each in raw["losses"]]})


@dataclass(frozen=True, slots=True)
class Usage:
    """What a subtree holds."""

    files: int
    directories: int
    bytes: int
    lost_bytes: int


@dataclass(frozen=True, slots=True)
class Fsck:
    """What a check of the catalog found."""

    files: int
    directories: int
    blocks: int
    bytes: int
    open_blocks: int
    lost_blocks: int
    lost_bytes: int
    copied_blocks: int
    lost_objects: list[str]
    problems: list[str]
    """Contradictions in the catalog: each is a bug."""


@dataclass(frozen=True, slots=True)
class Job:
    """The owner of a subtree with a lifetime."""

    job: int
    path: str
    created_at: datetime
    lease: float
    """Seconds."""
    remaining: float
    """Seconds left of the lease."""
    quota_bytes: int | None
    used_bytes: int
    hints: dict[str, Any]

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Job:
        """Decodes the native half's JSON: durations in milliseconds, time in microseconds."""
        times = {name: raw[name] / 1000 for name in ("lease", "remaining")}
        return cls(**{**raw, **times, "created_at": _moment(raw["created_at"])})


@dataclass(frozen=True, slots=True)
class Durability:
    """How far an object or a directory is copied to its store."""

    directory: str
    """The durable directory at or above it."""
    store: str
    """The name of its store."""
    key: str
    """Its name in the store; empty for the directory itself."""
    is_durable: bool
    """Whether the store has everything that is sealed at or below it."""
    backlog_changes: int
    """Changes of the directory that wait for the store."""
    backlog_bytes: int
    """Bytes of the objects among them."""
    backlog_age: float | None
    """Seconds since the oldest of them was made; `None` if none waits."""
    stalled: str
    """Why the oldest could not be made when it was tried last; empty if it could."""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Durability:
        """Decodes the client's JSON, whose age is in milliseconds."""
        age = raw["backlog_age"]
        return cls(
            raw["directory"],
            raw["store"],
            raw["key"],
            raw["is_durable"],
            raw["backlog_changes"],
            raw["backlog_bytes"],
            None if age is None else age / 1000,
            raw["stalled"],
        )


@dataclass(frozen=True, slots=True)
class JobAccount:
    """What a job holds beside bytes, and may hold."""

    names: int
    """Directories and objects, the root of the subtree among them."""
    attribute_bytes: int
    """Bytes of the attributes of all of them, names and texts."""
    names_max: int | None
    """`None` without a limit."""
    attribute_bytes_max: int | None
