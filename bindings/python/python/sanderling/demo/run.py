"""One run of the main job, from the data to the facts that the table and the report show."""

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
class Facts:
    """Everything that one run found out."""

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


def run(options: Options, progress: Progress) -> Facts:
    """Runs all phases."""
    began = time.monotonic()
    trace = _trace(options)
    facts = Facts(options, trace, _namenodes_trace(options, trace))
    tables = progress.run(
        f"TPC-DS data at scale {options.scale:g}",
        lambda: data.generate(options.scale, options.cache),
    )
    queries = progress.run(
        f"right results of {options.queries} queries, from the local files",
        lambda: prepare(tables, options.queries),
    )
    facts.tables, facts.queries = len(tables), len(queries)
    facts.table_bytes = sum(table.stat().st_size for table in tables)
    facts.dram_bytes = options.dram_bytes or _dram(options, facts.table_bytes)
    cluster = progress.run(
        f"{_namenodes(options)}, {options.datanodes} datanodes of {facts.dram_bytes >> 20} MiB",
        lambda: _cluster(options, facts.dram_bytes),
    )
    with cluster:
        _run_on(cluster, facts, tables, queries, progress)
    facts.seconds = time.monotonic() - began
    return facts


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
    cluster: Cluster, facts: Facts, tables: list[Path], queries: list[Query], progress: Progress
) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(cluster.store(observer=facts.meter.observer("query")))
        loader = stack.enter_context(cluster.store())
        progress.run("tables into the store", lambda: data.load(loader, tables))
        session = Session(SanderlingFileSystem(store=store), tables)
        # The first reads of a process cost what no later one does; they belong to no phase.
        session.run(queries[0])
        facts.sampler = Sampler(stack.enter_context(cluster.store()))
        facts.fleet = Fleet(cluster, facts.trace, facts.options.notice_seconds)
        facts.roles = Roles(cluster)
        facts.namenodes = Namenodes(cluster, facts.namenodes_trace, facts.options.notice_seconds)
        observer = facts.meter.observer("writer")
        stores = [
            stack.enter_context(cluster.store(observer=observer))
            for _ in range(facts.options.writers)
        ]
        writers = Writers(stores, facts.options)
        facts.sampler.start()
        if facts.options.spares:
            facts.roles.start()
        writers.start()
        try:
            _phases(facts, session, queries, progress)
        finally:
            facts.fleet.stop()
            facts.namenodes.stop()
            writers.stop()
            facts.sampler.stop()
            facts.roles.stop()
        facts.writers = writers.counts()
        facts.client = store.metrics()
        # A new client: the loader has made no call for so long that all namenodes that it knows
        # may have been replaced.
        _verify(facts, stack.enter_context(cluster.store()), tables, progress)


def _phases(facts: Facts, session: Session, queries: list[Query], progress: Progress) -> None:
    options, fleet, namenodes = facts.options, facts.fleet, facts.namenodes
    assert fleet and namenodes
    calm, rough = facts.undisturbed, facts.disturbed

    def calm_is_over() -> bool:
        return time.monotonic() - calm.began >= options.baseline_seconds

    progress.run(
        "without preemptions",
        lambda: _answer(calm, fleet.cluster, session, queries, calm_is_over),
        lambda: _status(calm, facts),
    )
    def rough_is_over() -> bool:
        return fleet.is_over() and namenodes.is_over()

    def rough_status() -> str:
        notices = f"{len(fleet.noticed())} notices"
        if options.spares:
            notices += f" of datanodes, {len(namenodes.noticed())} of namenodes"
        return f"{_status(rough, facts)}, {notices}"

    fleet.start()
    namenodes.start()
    preemptions = len(facts.trace.preemptions) + len(facts.namenodes_trace.preemptions)
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


def _verify(facts: Facts, plain: Store, tables: list[Path], progress: Progress) -> None:
    def verify() -> None:
        facts.differing_tables = data.differing(plain, tables)
        facts.report = plain.report()
        facts.fsck = plain.fsck()

    progress.run("every table read back and compared, byte by byte", verify)


def _status(phase: Phase, facts: Facts) -> str:
    right = sum(1 for answer in phase.answers if answer.is_right)
    _, errors = facts.meter.now()
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
