"""The main job: its parts, a small run, and runs that must fail."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace

import pytest

from sanderling.demo import meter, options, preemption, queries, report, table
from sanderling.demo.cost import Cost
from sanderling.demo.meter import Call
from sanderling.demo.preemption import Bathtub, Exponential, Recorded, Shape
from sanderling.demo.roles import LEADER, VOTER, Role, Roles

SHAPE = Shape(slots=5, notices=8, seconds=100.0, notice_seconds=4.0, overlap_max=2)


def test_bathtub_has_the_published_shape():
    model = Bathtub()
    assert model.gone_by(0) == 0
    assert model.gone_by(23.999) == pytest.approx(0.83, abs=0.005)
    assert model.gone_by(24) == 1
    chance = random.Random(1)
    lifetimes = [model.hours(chance) for _ in range(20_000)]
    for hours in (0.5, 2, 12, 23):
        share = sum(each <= hours for each in lifetimes) / len(lifetimes)
        assert share == pytest.approx(model.gone_by(hours), abs=0.015)
    at_the_end = sum(each > 23.9999 for each in lifetimes) / len(lifetimes)
    assert at_the_end == pytest.approx(0.17, abs=0.015)


@pytest.mark.parametrize("seed", range(40))
def test_trace_keeps_its_bounds(seed):
    trace = preemption.draw(Bathtub(), seed, SHAPE)
    assert trace == preemption.draw(Bathtub(), seed, SHAPE)
    assert len(trace.preemptions) == SHAPE.notices
    times = [each.at_seconds for each in trace.preemptions]
    assert times == sorted(times)
    for at in times:
        leaving = sum(each <= at < each + SHAPE.notice_seconds - 1e-9 for each in times)
        assert leaving <= SHAPE.overlap_max
    for slot in range(SHAPE.slots):
        own = [each.at_seconds for each in trace.preemptions if each.slot == slot]
        pauses = [later - earlier for earlier, later in zip(own, own[1:], strict=False)]
        assert all(pause >= SHAPE.notice_seconds + SHAPE.replace_seconds - 1e-9 for pause in pauses)
    assert trace.seconds <= SHAPE.seconds + SHAPE.notices * SHAPE.notice_seconds


@pytest.mark.parametrize("seed", range(40))
def test_trace_beside_another_has_its_clock_and_at_least_one_notice(seed):
    trace = preemption.draw(Bathtub(), seed, SHAPE)
    shape = Shape(slots=4, notices=8, seconds=100.0, notice_seconds=4.0, overlap_max=1)
    beside = preemption.draw_beside(trace, Bathtub(), seed, shape)
    assert beside == preemption.draw_beside(trace, Bathtub(), seed, shape)
    assert beside.seconds_per_hour == trace.seconds_per_hour
    assert 1 <= len(beside.preemptions) <= shape.notices
    times = [each.at_seconds for each in beside.preemptions]
    assert all(later - earlier >= 4.0 - 1e-9 for earlier, later in pairwise(times))
    assert 0 <= times[0] and times[-1] <= 96.0 + 1e-9
    assert beside.seconds == pytest.approx(times[-1] + 4.0)
    # So short that no machine would end by itself.
    brief = Shape(slots=4, notices=8, seconds=4.5, notice_seconds=4.0, overlap_max=1)
    only = preemption.draw_beside(trace, Exponential(1e6), seed, brief).preemptions
    assert [each.at_seconds for each in only] == pytest.approx([0.5])


def test_other_lifetimes_are_drawn(tmp_path):
    chance = random.Random(3)
    mean = sum(Exponential(6.0).hours(chance) for _ in range(20_000)) / 20_000
    assert mean == pytest.approx(6.0, rel=0.05)
    path = tmp_path / "lifetimes.csv"
    path.write_text("zone,lifetime_seconds\na,3600\nb,7200\n")
    model = Recorded.read(path)
    assert {model.hours(chance) for _ in range(50)} == {1.0, 2.0}
    path.write_text("lifetime_seconds\n")
    with pytest.raises(ValueError):
        Recorded.read(path)


def test_wrong_results_are_seen():
    wanted = [(1, "a", Decimal("1.50"), 0.1, None), (2, "b", Decimal("2.00"), math.nan, None)]
    assert queries.difference(wanted, list(wanted)) == ""
    near = [(1, "a", Decimal("1.50"), 0.1 * (1 + 1e-12), None), wanted[1]]
    assert queries.difference(wanted, near) == ""
    for row in (
        (1, "a", Decimal("1.51"), 0.1, None),
        (1, "a", Decimal("1.50"), 0.1001, None),
        (1, "A", Decimal("1.50"), 0.1, None),
        (1, "a", Decimal("1.50"), 0.1, 0),
        (1, "a", Decimal("1.50"), 0.1),
    ):
        assert "row 0" in queries.difference(wanted, [row, wanted[1]])
    assert queries.difference(wanted, wanted[:1]) == "1 rows, 2 wanted"


def test_stall_is_what_a_call_took_beyond_the_usual():
    calm = [Call("query", "read", 1, float(at), 0.010, "") for at in range(100)]
    rough = [Call("query", "read", 1, 200.0, 0.2, ""), Call("writer", "write", 1, 201.0, 0.05, "")]
    stall = meter.longest_stall(meter.usual_seconds(calm), rough)
    assert (stall.began, stall.usual_seconds) == (200.0, 0.010)
    assert stall.seconds == pytest.approx(0.19)
    assert meter.longest_stall({}, []) is None


def test_bandwidth_keeps_every_byte():
    calls = [
        Call("query", "read", 1000, 0.1, 1.0, ""),
        Call("query", "read", 500, 1.9, 0.0, ""),
        Call("query", "read", 999, 1.0, 0.1, "failed"),
    ]
    series = meter.bandwidth(calls, 0.0, 3.0, 0.5)
    assert sum(series["query_read"]) * 0.5 == pytest.approx(1500)


def test_cost_agrees_with_the_paper():
    assert Cost(4, 1.0).saved == pytest.approx(0.606, abs=0.0005)
    assert Cost(4, 1.021).saved == pytest.approx(0.598, abs=0.001)


def test_cost_of_a_group_has_spot_machines_alone():
    cost = Cost(5, 1.0, 4)
    assert (cost.spot_machines, cost.on_demand_machines, cost.compared_machines) == (9, 0, 6)
    assert cost.spot_dollars == pytest.approx(9 * 0.188320)
    assert cost.on_demand_dollars == pytest.approx(6 * 0.776944)


def test_roles_are_drawn_without_gaps_and_end_with_the_member():
    roles = Roles(None)
    a, b = "a:1", "b:1"
    roles._seen = [
        (1.0, {a: LEADER, b: VOTER}),
        (2.0, {a: LEADER, b: VOTER}),
        (3.0, {a: VOTER, b: LEADER}),
        (4.0, {b: LEADER}),
        (5.0, {b: LEADER}),
    ]
    assert roles.spans(a) == [Role(a, LEADER, 1.0, 3.0), Role(a, VOTER, 3.0, 3.0)]
    assert roles.spans(b) == [Role(b, VOTER, 1.0, 3.0), Role(b, LEADER, 3.0, 5.0)]
    assert roles.spans("c:1") == []


def test_bad_options_are_refused(capsys):
    for arguments in (
        ["--datanodes", "4"],
        ["--namenodes", "2"],
        ["--queries", "19"],
        ["--overlap", "3"],
        ["--dram", "much"],
        ["--model", "/none.csv"],
        ["--scale", "0"],
    ):
        with pytest.raises(SystemExit) as raised:
            options.parse(arguments)
        assert raised.value.code == 2
    capsys.readouterr()
    assert options.parse(["--dram", "64MiB", "--queries", "20"]).dram_bytes == 64 << 20
    assert table.size(1536) == "1.5 KiB"


def test_page_counts_machines_by_their_kind():
    of_datanodes = SimpleNamespace(notices=2, namenode_notices=0)
    assert report._machines(of_datanodes) == "2 machines"
    of_both = SimpleNamespace(notices=2, namenode_notices=1)
    assert report._machines(of_both) == "3 machines, 2 of datanodes and 1 of namenodes,"


SMALL = ["--scale", "0.02", "--queries", "20", "--seconds", "6", "--baseline-seconds", "1", "-q"]


def run_demo(tmp_path_factory, *arguments: str) -> subprocess.CompletedProcess[str]:
    cache = tmp_path_factory.getbasetemp() / "tpcds"
    command = [sys.executable, "-m", "sanderling", "demo", "--json", "--cache", str(cache)]
    return subprocess.run(
        [*command, *SMALL, *arguments], capture_output=True, text=True, timeout=600, check=False
    )


def test_small_run_is_right(tmp_path, tmp_path_factory):
    done = run_demo(
        tmp_path_factory, "--notices", "3", "--notice-seconds", "5", "--out", str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] and result["problems"] == []
    assert result["queries_right"] == result["queries_total"] >= 40
    assert (result["notices"], result["lost_bytes"], result["client_errors"]) == (3, 0, 0)
    assert result["namenode_notices"] == len(result["preempted_namenodes"]) >= 1
    assert any(each["has_led"] for each in result["preempted_namenodes"])
    assert all(each["left_after_seconds"] is not None for each in result["preempted_namenodes"])
    assert result["relocated_bytes"] > 0
    assert result["writer_objects"] > 0 and result["writer_objects_wrong"] == 0
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r"<!--\w+-->", page)
    links = set(re.findall(r" (?:src|href)\s*=|url\(|@import|https?://[^\"' ]+", page))
    assert links <= {"http://www.w3.org/2000/svg"}
    plots = re.findall(r'<script class=plot type="application/json">(.*?)</script>', page)
    timeline, around = (json.loads(plot) for plot in plots)
    (namenodes,) = [each for each in timeline["panels"] if each.get("title") == "namenodes"]
    drawn = [mark["class"] for mark in namenodes["marks"] if mark["kind"] == "bar"]
    assert {"grey", "grey pale", "grey open"} <= set(drawn)
    machines = [each for each in timeline["panels"] if each is not namenodes]
    marks = [mark for panel in machines for mark in panel["marks"]]
    for shape in ("down", "cross"):
        assert sum(len(mark["points"]) for mark in marks if mark.get("shape") == shape) >= 3, shape
    assert all(panel["marks"] for panel in around["panels"])


def test_run_that_loses_data_fails_and_with_one_namenode_takes_datanodes_alone(
    tmp_path, tmp_path_factory
):
    # A millisecond is no time to move anything: the kill comes first.
    arguments = ["--notices", "2", "--notice-seconds", "0.001", "--out", str(tmp_path)]
    done = run_demo(tmp_path_factory, "--namenodes", "1", *arguments)
    assert done.returncode == 1, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert (result["notices"], result["namenodes"], result["namenode_notices"]) == (2, 1, 0)
    page = (tmp_path / "report.html").read_text()
    assert "problems: see below" in page and "Namenodes taken away" not in page
    assert not result["ok"]
    assert result["lost_bytes"] > 0
    assert any("lost" in problem for problem in result["problems"])
