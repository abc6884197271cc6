"""Reduces a run to the figures of its table, and lists what is wrong with it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from sanderling.demo import sampler
from sanderling.demo.cost import PAPER_MACHINES, Cost
from sanderling.demo.meter import Stall, longest_stall, usual_seconds
from sanderling.demo.queries import Answer
from sanderling.demo.run import RunRecord

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Preempted:
    """One machine that was taken away."""

    node: int
    slot: int
    lived_hours: float
    noticed_bytes: int
    moved_bytes: int
    lost_bytes: int
    drained_after_seconds: float | None
    """From the notice until it was seen empty; None when it never was."""
    deferred_seconds: float


@dataclass(frozen=True)
class PreemptedNamenode:
    """One machine of a namenode that was taken away."""

    name: str
    slot: int
    has_led: bool
    """Whether it led when its notice came."""
    lived_hours: float
    left_after_seconds: float | None
    """From the notice until it had left its group and ended; None when it was killed."""
    deferred_seconds: float


@dataclass(frozen=True)
class Summary:
    """The figures of one run."""

    queries_right: int
    queries_total: int
    queries_distinct: int
    writer_objects: int
    writer_objects_wrong: int
    writer_bytes: int
    notices: int
    """Of datanodes, by the namenode's own report."""
    namenodes: int
    namenode_notices: int
    relocated_bytes: int
    lost_bytes: int
    client_errors: int
    stall: Stall | None
    undisturbed_longest_seconds: float
    """The longest call of the run without preemptions, for comparison with the stall."""
    undisturbed_round_seconds: float
    disturbed_round_seconds: float
    others_shares: tuple[float | None, float | None]
    """Part of the processors' time that other programs used, without and under preemptions."""
    cost: Cost
    paper_cost: Cost
    """The same slowdown on the paper's five machines."""
    preempted: list[Preempted]
    preempted_namenodes: list[PreemptedNamenode]
    problems: list[str]
    """Empty when every result is right and nothing was lost."""
    seconds: float

    @property
    def slowdown(self) -> float:
        """Time of the queries under preemptions over their time without them."""
        return self.cost.slowdown

    def as_json(self) -> dict[str, Any]:
        """Returns the figures with stable keys."""
        raw = asdict(self)
        raw["stall_seconds"] = self.stall.seconds if self.stall else 0.0
        raw["slowdown"] = self.slowdown
        for name, cost in (("cost", self.cost), ("paper_cost", self.paper_cost)):
            raw[name] |= {
                "spot_machines": cost.spot_machines,
                "on_demand_dollars": cost.on_demand_dollars,
                "spot_dollars": cost.spot_dollars,
                "saved": cost.saved,
            }
        return {"schema_version": SCHEMA_VERSION, "ok": not self.problems, **raw}


def summarize(record: RunRecord) -> Summary:
    """Computes the figures of a run."""
    assert record.fleet and record.namenodes and record.sampler and record.report and record.fsck
    options, namenodes = record.options, _preempted_namenodes(record)
    calls = record.meter.calls()
    rough_began = record.disturbed.began
    calm = [call for call in calls if record.undisturbed.began <= call.began < rough_began]
    rough = [call for call in calls if call.began >= rough_began]
    answers = record.undisturbed.answers + record.disturbed.answers
    calm_seconds, rough_seconds = _round_seconds(record)
    slowdown = rough_seconds / calm_seconds if calm_seconds else 1.0
    return Summary(
        queries_right=sum(answer.is_right for answer in answers),
        queries_total=len(answers),
        queries_distinct=record.queries,
        writer_objects=record.writers.checked_objects,
        writer_objects_wrong=record.writers.wrong_objects,
        writer_bytes=record.writers.written_bytes,
        notices=record.report.notices,
        namenodes=options.namenodes,
        namenode_notices=len(namenodes),
        relocated_bytes=record.report.moved_bytes + record.report.promoted_bytes,
        lost_bytes=record.report.bytes,
        client_errors=sum(1 for call in calls if call.error),
        stall=longest_stall(usual_seconds(calm), rough),
        undisturbed_longest_seconds=max((call.seconds for call in calm), default=0.0),
        undisturbed_round_seconds=calm_seconds,
        disturbed_round_seconds=rough_seconds,
        others_shares=(record.undisturbed.others_share, record.disturbed.others_share),
        cost=Cost(
            options.datanodes,
            slowdown,
            options.namenodes + options.spares if options.spares else 0,
        ),
        paper_cost=Cost(PAPER_MACHINES - 1, slowdown),
        preempted=_preempted(record),
        preempted_namenodes=namenodes,
        problems=_problems(record, answers, [call.error for call in calls if call.error]),
        seconds=record.seconds,
    )


def _round_seconds(record: RunRecord) -> tuple[float, float]:
    """Returns the time of one round of the queries, without and under preemptions.

    Each query counts with its mean, so that a phase that ends within a round is not favoured.
    """
    calm, rough = _means(record.undisturbed.answers), _means(record.disturbed.answers)
    both = calm.keys() & rough.keys()
    return sum(calm[query] for query in both), sum(rough[query] for query in both)


def _means(answers: list[Answer]) -> dict[int, float]:
    times: dict[int, list[float]] = defaultdict(list)
    for answer in answers:
        times[answer.query].append(answer.seconds)
    return {query: statistics.fmean(each) for query, each in times.items()}


def _preempted(record: RunRecord) -> list[Preempted]:
    assert record.fleet and record.sampler
    samples = record.sampler.samples
    rows = []
    for each in record.fleet.noticed():
        noticed = each.noticed or 0.0
        drained = sampler.drained_at(samples, each.node, noticed)
        rows.append(
            Preempted(
                node=each.node,
                slot=each.slot,
                lived_hours=each.lived_hours or 0.0,
                noticed_bytes=each.noticed_bytes,
                moved_bytes=sampler.moved_bytes(samples, each.node),
                lost_bytes=sampler.lost_bytes(samples, each.node),
                drained_after_seconds=None if drained is None else drained - noticed,
                deferred_seconds=each.deferred_seconds,
            )
        )
    return rows


def _preempted_namenodes(record: RunRecord) -> list[PreemptedNamenode]:
    assert record.namenodes
    return [
        PreemptedNamenode(
            name=each.name,
            slot=each.slot,
            has_led=each.has_led,
            lived_hours=each.lived_hours or 0.0,
            left_after_seconds=(each.ended or 0.0) - (each.noticed or 0.0)
            if each.has_left
            else None,
            deferred_seconds=each.deferred_seconds,
        )
        for each in record.namenodes.noticed()
    ]


def _problems(record: RunRecord, answers: list[Answer], errors: list[str]) -> list[str]:
    assert record.fleet and record.namenodes and record.report and record.fsck
    problems = [f"query {each.query}: {each.problem}" for each in answers if not each.is_right]
    problems += [f"client: {error}" for error in errors]
    problems += [f"writer: {problem}" for problem in record.writers.problems]
    problems += [f"fleet: {problem}" for problem in record.fleet.problems]
    problems += record.namenodes.problems
    problems += [f"table {problem}" for problem in record.differing_tables]
    problems += [f"catalog: {problem}" for problem in record.fsck.problems]
    if record.report.bytes or record.report.blocks:
        problems.append(f"{record.report.bytes} bytes in {record.report.blocks} blocks were lost")
    wanted = len(record.trace.preemptions)
    if record.report.notices != wanted:
        problems.append(f"{record.report.notices} notices were given, {wanted} were to be")
    given, wanted = len(record.namenodes.noticed()), len(record.namenodes_trace.preemptions)
    if given != wanted:
        problems.append(f"{given} namenodes got notices, {wanted} were to get some")
    return problems
