"""The plots of the report, as its page reads them: axes, panels and marks."""

from __future__ import annotations

import html
import json
import math
from statistics import fmean
from typing import Any

from sanderling._sanderling import figure
from sanderling.demo import sampler, table
from sanderling.demo.fleet import Incarnation
from sanderling.demo.meter import bandwidth
from sanderling.demo.namenodes import Member
from sanderling.demo.roles import LEADER, SPARE, VOTER
from sanderling.demo.run import RunRecord
from sanderling.demo.sampler import Sample
from sanderling.demo.summary import Summary

Mark = dict[str, Any]
Points = list[tuple[float, float]]

STEP_SECONDS = 0.125
"""Width of one step of the bandwidth: twice the time between two samples of the nodes."""

SMOOTH_SECONDS = 1.0
"""What a moving mean is taken over."""

BEFORE_SECONDS, AFTER_SECONDS = 3.0, 4.0
"""What the second plot shows before a notice, and after its deadline."""

RATIO_MAX = 8.0

MIB = 1 << 20

ROW_HEIGHT = 22
"""Of each place of the namenodes."""

ROLES = {LEADER: "grey", VOTER: "grey pale", SPARE: "grey open"}
"""The class of the bar of a namenode in each role."""

COLOURS = {
    "held": "bytes held by a machine",
    "held-next": "by its replacement",
    "amber": "notice, and relocation",
    "red": "SIGKILL, a wrong result, the longest stall",
    "blue": "read by queries",
    "green": "written and read by the writers",
}


GROUP_COLOURS = {
    "grey": "namenode: leads (solid), votes (pale), spare (dashed)",
    "amber": "notice, relocation, and a namenode that has left",
}
"""What they mean where several namenodes are."""


class Pictures:
    """The plots of one run."""

    def __init__(self, record: RunRecord, summary: Summary) -> None:
        assert record.fleet and record.sampler
        self._record, self._summary = record, summary
        self._start, self._end = record.undisturbed.began, record.disturbed.ended
        self._samples = sampler.by_node(record.sampler.samples)
        series = bandwidth(record.meter.calls(), self._start, self._end, STEP_SECONDS)
        count = int((self._end - self._start) / STEP_SECONDS) + 1
        read, *writers = (
            series.get(name, [0.0] * count)
            for name in ("query_read", "writer_write", "writer_read")
        )
        self._read = _smooth(read)
        self._writers = _smooth([sum(both) for both in zip(*writers, strict=True)])
        calm = read[: int((record.disturbed.began - self._start) / STEP_SECONDS)]
        self._usual_read = fmean(calm) / MIB if calm else 0.0

    def legend(self) -> str:
        """Returns what the colours mean."""
        colours = COLOURS | (GROUP_COLOURS if self._record.options.spares else {})
        items = (f'<li><i class="{colour}"></i>{what}</li>' for colour, what in colours.items())
        return f"<ul class=legend>{''.join(items)}</ul>"

    def timeline(self) -> str:
        """Returns the run over time: machines, bandwidth, relocation, queries."""
        record = self._record
        assert record.fleet and record.sampler
        x = {"ends": [0, self._end - self._start], "count": 10, "unit": {"after": " s"}}
        rough = record.disturbed.began - self._start
        shades = [
            _shade(self._at(each.noticed), self._at(each.killed))
            for each in record.fleet.noticed()
            if each.noticed and each.killed
        ]
        moves = sampler.relocation(record.sampler.samples, self._start, self._end, STEP_SECONDS)
        return _figure(
            "fleet, bandwidth and queries over time",
            x,
            [
                *self._machines(),
                *self._namenodes(),
                _rates(
                    "bandwidth of the clients, MiB/s (moving means over a second)",
                    150,
                    [
                        _curve("blue", self._steps(self._read), "queries", area=True),
                        _curve("green", self._steps(self._writers), "writers"),
                    ],
                ),
                _rates(
                    "relocation, MiB/s",
                    80,
                    [_curve("amber", self._steps(moves), "relocation", area=True)],
                ),
                self._answers(),
            ],
            [*shades, _upright(rough, "preemptions from here on")],
        )

    def around(self) -> str:
        """Returns all notices laid over each other; nothing where none has its whole window."""
        record = self._record
        assert record.fleet
        notice = record.options.notice_seconds
        windows = [
            each
            for each in record.fleet.noticed()
            if each.noticed and each.noticed + notice + AFTER_SECONDS <= self._end
        ]
        if not windows:
            return ""
        count = int((BEFORE_SECONDS + notice + AFTER_SECONDS) / STEP_SECONDS)
        reads, moves = [], []
        for each in windows:
            began = (each.noticed or 0.0) - BEFORE_SECONDS
            first = max(int((began - self._start) / STEP_SECONDS), 0)
            reads.append(self._read[first : first + count])
            until = began + count * STEP_SECONDS
            samples = self._samples.get(each.node, [])
            moved = [0.0] * count
            if samples:
                moved = sampler.relocation(samples, began, until, STEP_SECONDS)[:count]
            moves.append(moved)
        usual = {
            "kind": "line",
            "class": "curve blue dashed",
            "y": [self._usual_read, self._usual_read],
        }
        x = {
            "ends": [-BEFORE_SECONDS, notice + AFTER_SECONDS],
            "count": 12,
            "unit": {"after": " s"},
        }
        over = [_shade(0.0, notice), _upright(0.0, "notice"), _upright(notice, "SIGKILL")]
        panels = [
            _rates("queries read, MiB/s", 150, [*_laid(reads, "blue"), usual]),
            _rates("relocation, MiB/s", 80, _laid(moves, "amber")),
        ]
        return _figure("bandwidth around a notice", x, panels, over)

    def _at(self, moment: float | None) -> float:
        return round((moment or self._end) - self._start, 3)

    def _steps(self, values: list[float]) -> Points:
        end = self._end - self._start
        return [
            (round(min((index + 0.5) * STEP_SECONDS, end), 3), round(value / MIB, 2))
            for index, value in enumerate(values)
        ]

    def _machines(self) -> list[dict[str, Any]]:
        assert self._record.fleet
        places: dict[int, list[Incarnation]] = {}
        for each in self._record.fleet.incarnations:
            places.setdefault(each.slot, []).append(each)
        held = {each.node: self._held(each) for own in places.values() for each in own}
        most = max((value for points in held.values() for _, value in points), default=1.0) or 1.0
        panels = []
        for slot, own in sorted(places.items()):
            name = f"machine {slot + 1}"
            marks: list[Mark] = []
            for index, each in enumerate(own):
                colour = "held-next solid" if index % 2 else "held solid"
                marks.append(_curve(colour, held[each.node], name, area=True))
                if each.noticed is not None:
                    marks += self._leaves(each, most)
            y = {"ends": [0, most * 1.05], "at": [[most / 2, name]], "grid": False}
            panels.append({"height": 46, "y": y, "marks": marks})
        return [{**panels[0], "title": "bytes held"}, *panels[1:]]

    def _namenodes(self) -> list[dict[str, Any]]:
        """Returns one panel with a row for each place, empty while no process has the place."""
        record = self._record
        assert record.namenodes
        if not record.options.spares:
            return []
        places = sorted({each.slot for each in record.namenodes.members})
        marks: list[Mark] = []
        for each in record.namenodes.members:
            # Rows are counted from below, places from above.
            base = len(places) - 1 - each.slot
            marks += self._roles(each, base)
            if each.noticed is not None:
                marks += self._namenode_leaves(each, base)
        at = [[len(places) - 0.5 - slot, f"namenode {slot + 1}"] for slot in places]
        y = {"ends": [0, len(places)], "at": at, "grid": False}
        height = ROW_HEIGHT * len(places)
        return [{"height": height, "title": "namenodes", "y": y, "marks": marks}]

    def _roles(self, each: Member, base: int) -> list[Mark]:
        assert self._record.roles
        until = min(each.ended or self._end, self._end)
        marks = []
        for span in self._record.roles.spans(each.address):
            began, ended = max(span.began, self._start), min(span.ended, until)
            if began >= ended:
                continue
            x = [self._at(began), self._at(ended)]
            title = f"{each.name}, {span.role}: from {x[0]:.1f} s to {x[1]:.1f} s"
            y = [base + 0.2, base + 0.8]
            marks.append({"kind": "bar", "class": ROLES[span.role], "x": x, "y": y, "title": title})
        return marks

    def _namenode_leaves(self, each: Member, base: int) -> list[Mark]:
        noticed = self._at(each.noticed)
        title = f"{each.name}: notice at {noticed:.1f} s"
        title += ", it led" if each.has_led else ""
        marks = [_dots("amber", [(noticed, base + 0.8, title)], shape="down")]
        if each.ended is not None and each.noticed is not None:
            after = table.seconds(each.ended - each.noticed)
            title += f", {'left by itself' if each.has_left else 'killed'} after {after}"
            colour = "amber" if each.has_left else "red"
            end = [(self._at(each.ended), base + 0.5, title)]
            marks.append(_dots(colour, end, shape="cross"))
        return marks

    def _held(self, each: Incarnation) -> Points:
        until = min(each.killed or self._end, self._end)
        return [
            (self._at(sample.at), round(sample.held_bytes / MIB, 2))
            for sample in self._samples.get(each.node, [])
            if self._start <= sample.at <= until
        ]

    def _leaves(self, each: Incarnation, most: float) -> list[Mark]:
        gone = next((one for one in self._summary.preempted if one.node == each.node), None)
        noticed = self._at(each.noticed)
        seconds = gone.drained_after_seconds if gone else None
        empty = noticed + (self._record.options.notice_seconds if seconds is None else seconds)
        held = table.size(each.noticed_bytes)
        title = f"node {each.node}: notice at {noticed:.1f} s, {held} held"
        if gone:
            title += f", {table.size(gone.moved_bytes)} moved, {table.size(gone.lost_bytes)} lost"
        if seconds is not None:
            title += f", empty after {table.seconds(seconds)}"
        bar = {"kind": "bar", "class": "amber pale", "x": [noticed, empty], "title": title}
        marks = [bar, _dots("amber", [(noticed, most, title)], shape="down")]
        if each.killed is not None:
            killed = [(self._at(each.killed), most / 4, title)]
            marks.append(_dots("red", killed, shape="cross"))
        return marks

    def _answers(self) -> dict[str, Any]:
        answers = self._record.undisturbed.answers + self._record.disturbed.answers
        times: dict[int, list[float]] = {}
        for answer in answers:
            times.setdefault(answer.query, []).append(answer.seconds)
        right, wrong = [], []
        for answer in answers:
            mean = fmean(times[answer.query])
            middle = self._at(answer.began + answer.seconds / 2)
            verdict = "right" if answer.is_right else "WRONG"
            title = (
                f"query {answer.query}, {verdict}: {table.seconds(answer.seconds)}, "
                f"mean {table.seconds(mean)}"
            )
            dot = (middle, round(answer.seconds / max(mean, 1e-9), 3), title)
            (right if answer.is_right else wrong).append(dot)
        marks = [_dots("blue pale", right, r=2.6), _dots("red", wrong, r=5)]
        stall = self._summary.stall
        if stall:
            took = table.seconds(stall.took_seconds)
            title = f"longest stall: a {stall.client}'s {stall.kind}, {took}"
            marks.append(_dots("red", [(self._at(stall.began), 1 / 4, title)], shape="up"))
        at = [[2.0**power, f"{2.0**power:g}×"] for power in range(-2, 4)]
        return {
            "height": 120,
            "title": "time of each query over its mean of the whole run",
            "y": {"ends": [1 / 4, RATIO_MAX], "log": True, "at": at},
            "marks": marks,
        }


def _figure(about: str, x: dict[str, Any], panels: list[Any], over: list[Mark]) -> str:
    spec = {"about": about, "x": x, "panels": panels, "over": over}
    return figure(json.dumps(spec, separators=(",", ":")))


def _rates(title: str, height: int, marks: list[Mark]) -> dict[str, Any]:
    points = [point for mark in marks for point in mark.get("points", [])]
    most = max([1.0, *(value for _, value in points), *(mark.get("y", [0])[0] for mark in marks)])
    y = {"ends": [0, most * 1.05], "count": 4 if height > 100 else 2}
    return {"title": title, "height": height, "y": y, "marks": marks}


def _curve(colour: str, points: Points, name: str = "", area: bool = False) -> Mark:
    unit = " MiB" if colour.startswith("held") else " MiB/s"
    mark = {"kind": "curve", "class": colour, "points": points, "area": area}
    return mark | ({"name": name, "unit": unit} if name else {})


def _dots(colour: str, points: list[tuple[float, float, str]], **more: Any) -> Mark:
    return {"kind": "dots", "class": colour, "points": points, **more}


def _shade(start: float, end: float) -> Mark:
    return {"kind": "bar", "class": "shade", "x": [start, end]}


def _upright(at: float, text: str) -> Mark:
    return {"kind": "line", "class": "mark", "x": [at, at], "text": text}


def _laid(windows: list[list[float]], colour: str) -> list[Mark]:
    """Returns a thin curve for each window and a thick one for their mean."""

    def points(values: list[float]) -> Points:
        return [
            (round(-BEFORE_SECONDS + (index + 0.5) * STEP_SECONDS, 3), round(value / MIB, 2))
            for index, value in enumerate(values)
        ]

    mean = [fmean(column) for column in zip(*windows, strict=False)]
    thin = [_curve(f"{colour} thin", points(values)) for values in windows]
    return [*thin, _curve(f"{colour} thick", points(mean))]


def _smooth(values: list[float]) -> list[float]:
    half = max(1, math.floor(SMOOTH_SECONDS / STEP_SECONDS / 2 + 0.5))
    return [
        fmean(values[max(0, index - half) : index + half + 1]) for index in range(len(values))
    ]
