"""One run of the main job, from the data to the record that the table and the report show."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from sanderling import Cluster, Fsck, LossReport, Store
from sanderling.demo import data
from sanderling.demo.fleet import Fleet
from sanderling.demo.meter import Meter
from sanderling.demo.namenodes import Namenodes
from sanderling.demo.options import Options
from sanderling.demo.preemption import Shape, Trace, draw, draw_beside
from sanderling.demo.processors import others_share, usage
from sanderling.demo.progress import Progress
from sanderling.demo.queries import Answer, Query, Session, prepare
from sanderling.demo.roles import Roles
from sanderling.demo.sampler import Sampler
from sanderling.demo.writers import Counts, Writers
from sanderling.fs import SanderlingFileSystem

ROUND_SECONDS_MAX = 150.0
"""A phase whose first round takes longer ends when its time is over, without the round's rest."""


@dataclass
class Phase:
    """One stretch of the run. Times are of `time.monotonic`."""

    began: float = 0.0
    ended: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    others_share: float | None = None
    """Part of the processors' time that other programs used."""


@dataclass
class RunRecord:
    """Everything that one run measured and checked."""

    options: Options
    trace: Trace
    """Of the datanodes."""
    namenodes_trace: Trace
    dram_bytes: int = 0
    tables: int = 0
    table_bytes: int = 0
    queries: int = 0
    undisturbed: Phase = field(default_factory=Phase)
    disturbed: Phase = field(default_factory=Phase)
    meter: Meter = field(default_factory=Meter)
    sampler: Sampler | None = None
    fleet: Fleet | None = None
    namenodes: Namenodes | None = None
    roles: Roles | None = None
    writers: Counts = field(default_factory=Counts)
    differing_tables: list[str] = field(default_factory=list)
    report: LossReport | None = None
    fsck: Fsck | None = None
    client: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def run(options: Options, progress: Progress) -> RunRecord:
    """Runs all phases."""
    began = time.monotonic()
    trace = _trace(options)
    record = RunRecord(options, trace, _namenodes_trace(options, trace))
    tables = progress.run(
        f"TPC-DS data at scale {options.scale:g}",
        lambda: data.generate(options.scale, options.cache),
    )
    queries = progress.run(
        f"right results of {options.queries} queries, from the local files",
        lambda: prepare(tables, options.queries),
    )
    record.tables, record.queries = len(tables), len(queries)
    record.table_bytes = sum(table.stat().st_size for table in tables)
    record.dram_bytes = options.dram_bytes or _dram(options, record.table_bytes)
    cluster = progress.run(
        f"{_namenodes(options)}, {options.datanodes} datanodes of {record.dram_bytes >> 20} MiB",
        lambda: _cluster(options, record.dram_bytes),
    )
    with cluster:
        _run_on(cluster, record, tables, queries, progress)
    record.seconds = time.monotonic() - began
    return record


def _cluster(options: Options, dram_bytes: int) -> Cluster:
    cluster = Cluster.local(options.datanodes, dram_bytes, namenodes=options.namenodes)
    try:
        for _ in range(options.spares):
            cluster.add_namenode()
    except BaseException:
        cluster.stop()
        raise
    return cluster


def _namenodes(options: Options) -> str:
    return f"{options.namenodes} namenodes and a spare" if options.spares else "one namenode"


def _run_on(
    cluster: Cluster,
    record: RunRecord,
    tables: list[Path],
    queries: list[Query],
    progress: Progress,
) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(cluster.store(observer=record.meter.observer("query")))
        loader = stack.enter_context(cluster.store())
        progress.run("tables into the store", lambda: data.load(loader, tables))
        session = Session(SanderlingFileSystem(store=store), tables)
        # The first reads of a process cost what no later one does; they belong to no phase.
        session.run(queries[0])
        record.sampler = Sampler(stack.enter_context(cluster.store()))
        record.fleet = Fleet(cluster, record.trace, record.options.notice_seconds)
        record.roles = Roles(cluster)
        record.namenodes = Namenodes(cluster, record.namenodes_trace, record.options.notice_seconds)
        observer = record.meter.observer("writer")
        stores = [
            stack.enter_context(cluster.store(observer=observer))
            for _ in range(record.options.writers)
        ]
        writers = Writers(stores, record.options)
        record.sampler.start()
        if record.options.spares:
            record.roles.start()
        writers.start()
        try:
            _phases(record, session, queries, progress)
        finally:
            record.fleet.stop()
            record.namenodes.stop()
            writers.stop()
            record.sampler.stop()
            record.roles.stop()
        record.writers = writers.counts()
        record.client = store.metrics()
        # A new client: the loader has made no call for so long that all namenodes that it has
        # may have been replaced.
        _verify(record, stack.enter_context(cluster.store()), tables, progress)


def _phases(record: RunRecord, session: Session, queries: list[Query], progress: Progress) -> None:
    options, fleet, namenodes = record.options, record.fleet, record.namenodes
    assert fleet and namenodes
    calm, rough = record.undisturbed, record.disturbed

    def calm_is_over() -> bool:
        return time.monotonic() - calm.began >= options.baseline_seconds

    progress.run(
        "without preemptions",
        lambda: _answer(calm, fleet.cluster, session, queries, calm_is_over),
        lambda: _status(calm, record),
    )
    def rough_is_over() -> bool:
        return fleet.is_over() and namenodes.is_over()

    def rough_status() -> str:
        notices = f"{len(fleet.noticed())} notices"
        if options.spares:
            notices += f" of datanodes, {len(namenodes.noticed())} of namenodes"
        return f"{_status(rough, record)}, {notices}"

    fleet.start()
    namenodes.start()
    preemptions = len(record.trace.preemptions) + len(record.namenodes_trace.preemptions)
    progress.run(
        f"under {preemptions} preemptions",
        lambda: _answer(rough, fleet.cluster, session, queries, rough_is_over),
        rough_status,
    )


def _answer(
    phase: Phase,
    cluster: Cluster,
    session: Session,
    queries: list[Query],
    is_over: Callable[[], bool],
) -> None:
    """Runs rounds of all queries until the phase is over, and at least one whole round."""
    before = usage(cluster)
    phase.began = time.monotonic()
    late = ROUND_SECONDS_MAX
    for query in cycle(queries):
        phase.answers.append(session.run(query))
        elapsed = time.monotonic() - phase.began
        if is_over() and (len(phase.answers) >= len(queries) or elapsed > late):
            break
    phase.ended = time.monotonic()
    phase.others_share = others_share(before, usage(cluster), phase.ended - phase.began)


def _verify(record: RunRecord, plain: Store, tables: list[Path], progress: Progress) -> None:
    def verify() -> None:
        record.differing_tables = data.differing(plain, tables)
        record.report = plain.report()
        record.fsck = plain.fsck()

    progress.run("every table read back and compared, byte by byte", verify)


def _status(phase: Phase, record: RunRecord) -> str:
    right = sum(1 for answer in phase.answers if answer.is_right)
    _, errors = record.meter.now()
    return f"{right}/{len(phase.answers)} queries right, {errors} errors"


def _trace(options: Options) -> Trace:
    shape = Shape(
        slots=options.datanodes,
        notices=options.notices,
        seconds=options.seconds,
        notice_seconds=options.notice_seconds,
        overlap_max=options.overlap_max,
    )
    return draw(options.model, options.seed, shape)


def _namenodes_trace(options: Options, trace: Trace) -> Trace:
    if not options.spares:
        return Trace((), trace.seconds_per_hour, 0.0)
    shape = Shape(
        slots=options.namenodes + options.spares,
        notices=options.notices,
        seconds=options.seconds,
        notice_seconds=options.notice_seconds,
        overlap_max=options.spares,
    )
    return draw_beside(trace, options.model, options.seed, shape)


def _dram(options: Options, table_bytes: int) -> int:
    """Returns a datanode's memory: all data fits with the machines that leave and one more gone.

    A fifth more is for blocks' last units and for moves that are reserved twice.
    """
    data_bytes = table_bytes + options.writers * (options.live_bytes + (8 << 20))
    nodes = max(options.datanodes - options.overlap_max - 1, 2)
    unit = 16 << 20
    return -(-round(data_bytes * 1.2 / nodes) // unit) * unit
