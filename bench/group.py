#!/usr/bin/env python3
"""Measures a group of three namenodes beside one namenode, and what its changes cost callers.

    bench/group.py --parts steady --rounds 5
    bench/group.py --parts noticed,killed,voter,newcomer,two,stopped,schedules
    bench/group.py --show

Everything runs on loopback; the machine should be idle. Each part adds its figures to the file of
`--out`, and the table shows all that are in it. In `steady` one namenode and a group of three are
measured in turn, each in a new cluster; a figure is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
from goal import Goal, Unavailable
from namenodes import Group, Load, Member, Watch, group, pause, resume, socket_bytes
from world import ROOT, World

BEGUN_OBJECTS = 200
VALUE_BATCH = 128
# Upper bounds of the buckets in which stalls are shown, in milliseconds.
BUCKETS = [2, 5, 10, 20, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000, 1500, 5000]

RATIO = "ratio"
GOALS = {
    "lookups": Goal("look-ups a second under a lease, of one namenode's", 0.97),
    "leader_cpu": Goal("leader's CPU of a file, of one namenode's", 1.3, is_limit=True),
    "follower_cpu": Goal("a follower's CPU of a file, of one namenode's", 0.6, is_limit=True),
    "files": Goal("files created and sealed a second, of one namenode's", 0.5),
    "files_rate": Goal("files created and sealed a second by a group", 60_000, unit="files"),
    "alone": Goal("one create alone, p50 beyond one namenode's", 150, is_limit=True, unit="us"),
    "noticed": Goal("longest stall when the leader has a notice", 50, is_limit=True, unit="ms"),
    "noticed_worst": Goal("the worst of them", 150, is_limit=True, unit="ms"),
    "killed": Goal("answers again after the leader is killed", 1000, is_limit=True, unit="ms"),
    "killed_worst": Goal("the worst of them", 1500, is_limit=True, unit="ms"),
    "voter": Goal("a noticed voter out, and a spare in its place", 200, is_limit=True, unit="ms"),
    "newcomer": Goal("a member from nothing", 3, is_limit=True, unit="s"),
    "two": Goal("two of three noticed with 30 s: both replaced", 30, is_limit=True, unit="s"),
    "two_lost": Goal("objects lost, and errors of callers, meanwhile", 0, is_limit=True, unit=""),
}


class Figures:
    """The figures of all parts, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, part: str, figures: dict[str, Any]) -> None:
        """Replaces the figures of a part."""
        self.kept[part] = {"commit": machine.revision(ROOT), "machine": machine.describe({}),
                           **figures}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.kept, indent=1) + "\n")


def steady(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Measures one namenode and a group of three in turn, without a change of the members."""
    rounds = []
    for number in range(options.rounds):
        note(f"steady: round {number + 1} of {options.rounds}")
        sides: dict[int, dict[str, float]] = {}
        for voters in (1, 3) if number % 2 == 0 else (3, 1):
            with group(world, voters) as made:
                sides[voters] = one_side(made, options)
        rounds.append({"one": sides[1], "group": sides[3]})
    return {"rounds": rounds}


def one_side(made: Group, options: argparse.Namespace) -> dict[str, float]:
    """Measures what a cluster carries."""
    leader = made.leader()
    others = [member for member in made.members if member is not leader]
    looked = made.bench("lookup-many", "--batch", "128", "--paths", "100000", "--depth", "4",
                        "--duration", f"{options.seconds:g}s")
    got = made.bench("get-file", "--count", "10000")
    alone = made.bench("create-file", "--count", "5000", "--warmup", "500")
    before = {member.server.pid: cpu(member) for member in made.members}
    traffic = {member.server.pid: socket_bytes(member.server.pid) for member in others}
    filled = made.bench("create-seal", "--files", str(options.files), "--batch", "128")
    until_applied(made)
    each = {member.server.pid: (cpu(member) - before[member.server.pid]) * 1e6 / options.files
            for member in made.members}
    figures = {
        "lookups_per_second": looked["items_per_second"],
        "lookup_alone_p50_us": got["latency_micros"]["p50"],
        "create_alone_p50_us": alone["latency_micros"]["p50"],
        "create_alone_p99_us": alone["latency_micros"]["p99"],
        "files_per_second": filled["files_per_second"],
        "leader_cpu_us": each[leader.server.pid],
        "leader_bytes": machine.resident_bytes(leader.server.pid)["all"],
    }
    if others:
        figures["follower_cpu_us"] = statistics.mean(each[one.server.pid] for one in others)
        figures["follower_bytes"] = statistics.mean(
            machine.resident_bytes(one.server.pid)["all"] for one in others)
        moved = [(socket_bytes(pid), was) for pid, was in traffic.items()]
        for at, name in enumerate(["sent", "received"]):
            of_file = statistics.mean(now[at] - was[at] for now, was in moved) / options.files
            figures[f"follower_{name}_bytes_of_file"] = of_file
    return figures


def cpu(member: Member) -> float:
    """Returns the processor time of a member."""
    return machine.cpu_seconds(member.server.pid)


def until_applied(made: Group) -> None:
    """Waits until every member has applied what the leader has."""
    if len(made.members) == 1:
        return
    applied = made.leader().page()["applied"]
    for member in made.members:
        machine.until("it has applied everything",
                      lambda it=member: it.page().get("applied", 0) >= applied)


def begun(made: Group, load_seconds: float) -> Load:
    """Starts a load, and waits until its calls succeed."""
    leader = made.leader()
    before = leader.metric("sanderling_namenode_objects")
    load = Load(made, load_seconds)
    machine.until("calls succeed", lambda: leader.metric("sanderling_namenode_objects")
                  > before + BEGUN_OBJECTS)
    return load


def stall_millis(measured: dict[str, Any]) -> float:
    """Returns the longest time that a call of a load took."""
    return measured["latency_micros"]["max"] / 1000


def undisturbed(made: Group) -> float:
    """Returns the longest call of a load while nothing happens to the group."""
    return stall_millis(begun(made, 2).end())


def noticed(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Gives the leader a notice under load, again and again; a spare takes its place."""
    stalls, left, errors = [], [], 0
    with group(world, 3, 1) as made:
        quiet = undisturbed(made)
        for number in range(options.notices):
            note(f"noticed: {number + 1} of {options.notices}")
            leader = made.leader()
            load = begun(made, 2)
            at = time.monotonic()
            leader.notice(60)
            leader.server.process.wait(60)
            left.append((time.monotonic() - at) * 1000)
            stalls.append(ended(load))
            errors += stalls[-1] is None
            made.forget_ended()
            made.add()
            made.until_steady(3, 1)
    known = [stall for stall in stalls if stall is not None]
    return {"stalls_ms": known, "errors": errors, "left_ms": left, "undisturbed_ms": quiet}


def ended(load: Load) -> float | None:
    """Returns the longest stall of a load, or `None` when a caller got an error."""
    try:
        return stall_millis(load.end())
    except Unavailable as error:
        note(str(error))
        return None


def killed(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Kills the leader under load, again and again, and starts it again."""
    return struck(world, options.kills, Group.kill, Group.restart)


def stopped(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Stops the leader's process under load until the load ends, again and again."""
    return struck(world, options.stops, lambda _, leader: pause(leader),
                  lambda _, leader: resume(leader))


def struck(world: World, times: int, strike: Callable[[Group, Member], None],
           mend: Callable[[Group, Member], None]) -> dict[str, Any]:
    """Does something to the leader under load, and undoes it once the load has ended."""
    stalls, errors = [], 0
    with group(world, 3) as made:
        for number in range(times):
            note(f"{number + 1} of {times}")
            leader = made.leader()
            load = begun(made, 3)
            strike(made, leader)
            try:
                stalls.append(ended(load))
            finally:
                mend(made, leader)
            errors += stalls[-1] is None
            made.until_steady(3)
    return {"stalls_ms": [stall for stall in stalls if stall is not None], "errors": errors}


def voter(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Gives a voter that does not lead a notice, until a spare votes in its place."""
    taken = []
    with group(world, 3, 1) as made:
        for number in range(options.notices):
            note(f"voter: {number + 1} of {options.notices}")
            leader, noticed_one = made.leader(), made.followers()[0]
            replaced = Watch(lambda: is_replaced(leader, noticed_one))
            at = time.monotonic()
            noticed_one.notice(60)
            taken.append((replaced.wait("the spare votes") - at) * 1000)
            noticed_one.server.process.wait(60)
            made.forget_ended()
            made.add()
            made.until_steady(3, 1)
    return {"taken_ms": taken}


def is_replaced(leader: Member, gone: Member) -> bool:
    """Returns whether three others vote, by what the leader reports."""
    rows = leader.page().get("members", [])
    votes = [row["address"] for row in rows if row["is_voter"]]
    return len(votes) == 3 and gone.address not in votes


def newcomer(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Starts a namenode that joins a group with a full catalog, until it has everything."""
    taken, snapshots = [], []
    with group(world, 1) as made:
        fill(made, options.objects)
        for number in range(options.joins):
            note(f"newcomer: {number + 1} of {options.joins}")
            at = time.monotonic()
            member = made.add()
            leader = made.members[0]
            Watch(lambda it=member: has_everything(leader, it)).wait("it has everything")
            taken.append(time.monotonic() - at)
            log = re.sub(r"\x1b\[[0-9;]*m", "", leader.server.log.read_text())
            found = re.findall(r"received a snapshot.* bytes=(\d+) millis=(\d+)", log)
            snapshots.append({"bytes": int(found[-1][0]), "millis": int(found[-1][1])})
        memory = [machine.resident_bytes(member.server.pid)["all"] for member in made.members]
    return {"objects": options.objects, "taken_s": taken, "snapshots": snapshots,
            "resident_bytes": memory}


def has_everything(leader: Member, member: Member) -> bool:
    """Returns whether a member answers and is not behind, by what the leader reports."""
    rows = leader.page().get("members", [])
    row = next((row for row in rows if row["address"] == member.address), None)
    return row is not None and row["behind_entries"] == 0 and bool(row["is_active"])


def fill(made: Group, objects: int) -> None:
    """Puts so many values of 64 bytes into the catalog."""
    note(f"fill the catalog with {objects} objects")
    made.bench("create-many", "--batch", str(VALUE_BATCH), "--depth", "4", "--warmup", "0",
               "--count", str(-(-objects // VALUE_BATCH)), "--path", "/filled", "--keep")


def two(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Gives the leader and a voter notices of 30 s within a second; spares start only then."""
    with group(world, 1) as made:
        fill(made, options.objects)
        for _ in range(2):
            made.add()
        made.until_steady(3)
        leader, other = made.leader(), made.followers()[0]
        before = leader.metric("sanderling_namenode_objects")
        load = begun(made, 40)
        at = time.monotonic()
        leader.notice(30)
        other.notice(29.5)
        for _ in range(2):
            made.add()
        gone = []
        for member in (leader, other):
            limit = at + 30 - time.monotonic()
            try:
                member.server.process.wait(max(limit, 0.01))
            except subprocess.TimeoutExpired:
                made.kill(member)
            gone.append(time.monotonic() - at)
        is_late = max(gone) >= 30
        stall = ended(load)
        made.forget_ended()
        made.until_steady(3)
        # The load has deleted what it made.
        lost = before - made.leader().metric("sanderling_namenode_objects")
    return {"objects": options.objects, "replaced_s": gone, "is_late": is_late, "stall_ms": stall,
            "errors": int(stall is None), "lost": max(lost, 0)}


def schedules(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Runs simulated groups, and returns how many a minute."""
    words = [str(world.sanderling), "sim", "--groups", "--seed", "1", "--seeds",
             str(options.seeds), "-q"]
    at = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    seconds = time.monotonic() - at
    return {"seeds": options.seeds, "seconds": seconds, "per_minute": options.seeds * 60 / seconds}


PARTS: dict[str, Callable[[World, argparse.Namespace], dict[str, Any]]] = {
    "steady": steady, "noticed": noticed, "killed": killed, "stopped": stopped, "voter": voter,
    "newcomer": newcomer, "two": two, "schedules": schedules,
}


def note(text: str) -> None:
    """Prints progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Measures the parts and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built, help="the program to measure")
    parser.add_argument("--parts", default=",".join(PARTS), help="only these, as steady,killed")
    parser.add_argument("--out", type=Path, default=ROOT / "target" / "bench" / "group.json")
    parser.add_argument("--show", action="store_true", help="measure nothing, print the table")
    parser.add_argument("--rounds", type=int, default=5, help="of steady")
    parser.add_argument("--seconds", type=float, default=3.0, help="of look-ups in a round")
    parser.add_argument("--files", type=int, default=200_000, help="of a round")
    parser.add_argument("--notices", type=int, default=20, help="of noticed, and of voter")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--objects", type=int, default=1_000_000, help="of newcomer, and of two")
    parser.add_argument("--joins", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=200, help="of schedules")
    options = parser.parse_args()
    figures = Figures(options.out)
    for part in [] if options.show else options.parts.split(","):
        with tempfile.TemporaryDirectory(prefix="sanderling-group-") as work:
            program = options.program.resolve()
            world = World(sanderling=program, peer=program, python=program, work=Path(work))
            figures.keep(part, PARTS[part](world, options))
    show(figures.kept)
    return 0


def judged(kept: dict[str, Any]) -> dict[str, list[float]]:
    """Returns the values of each goal that was measured."""
    values: dict[str, list[float]] = {}
    for one in kept.get("steady", {}).get("rounds", []):
        single, three = one["one"], one["group"]
        for name, value in {
            "lookups": three["lookups_per_second"] / single["lookups_per_second"],
            "leader_cpu": three["leader_cpu_us"] / single["leader_cpu_us"],
            "follower_cpu": three["follower_cpu_us"] / single["leader_cpu_us"],
            "files": three["files_per_second"] / single["files_per_second"],
            "files_rate": three["files_per_second"],
            "alone": three["create_alone_p50_us"] - single["create_alone_p50_us"],
        }.items():
            values.setdefault(name, []).append(value)
    for part in ("noticed", "killed"):
        if stalls := kept.get(part, {}).get("stalls_ms"):
            values[part], values[f"{part}_worst"] = stalls, [max(stalls)]
    for part, key in (("voter", "taken_ms"), ("newcomer", "taken_s"), ("two", "replaced_s")):
        if part in kept:
            values[part] = kept[part][key]
    if "two" in kept:
        values["two"] = [max(kept["two"]["replaced_s"])]
        values["two_lost"] = [kept["two"]["lost"] + kept["two"]["errors"]]
    return values


def show(kept: dict[str, Any]) -> None:
    """Prints the goals, and what has none."""
    print("| what | goal | median | lowest to highest | reached |")
    print("| --- | --- | ---: | ---: | --- |")
    for name, values in judged(kept).items():
        goal, middle = GOALS[name], statistics.median(values)
        sign = "<=" if goal.is_limit else ">="
        unit = "" if goal.unit == RATIO else f" {goal.unit}"
        reached = "yes" if goal.is_reached(middle) else "no"
        print(f"| {goal.name} | {sign} {goal.target:g}{unit} | {number(middle)}{unit} "
              f"| {number(min(values))} to {number(max(values))} | {reached} |")
    print()
    for part in ("noticed", "killed", "stopped"):
        if stalls := kept.get(part, {}).get("stalls_ms"):
            errors = kept[part]["errors"]
            print(f"{part}: {len(stalls)} stalls, median {statistics.median(stalls):.0f} ms, "
                  f"longest {max(stalls):.0f} ms, {errors} with errors: {histogram(stalls)}")
    others(kept)


def others(kept: dict[str, Any]) -> None:
    """Prints the figures that have no goal."""
    rounds = kept.get("steady", {}).get("rounds", [])
    for side in ("one", "group") if rounds else ():
        for key in rounds[0][side]:
            middle = statistics.median(one[side][key] for one in rounds)
            print(f"steady, {side}: {key} {number(middle)}")
    if "noticed" in kept:
        print(f"noticed: without a notice the longest call took "
              f"{kept['noticed']['undisturbed_ms']:.1f} ms; the process had ended "
              f"{statistics.median(kept['noticed']['left_ms']):.0f} ms after its notice")
    for part in ("newcomer", "two", "schedules"):
        if part in kept:
            figures = {key: value for key, value in kept[part].items()
                       if key not in ("commit", "machine")}
            print(f"{part}: {json.dumps(figures)}")


def number(value: float) -> str:
    """Writes a number with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def histogram(stalls: list[float]) -> str:
    """Writes how many stalls were in each bucket that is not empty."""
    lower, parts = 0, []
    for upper in BUCKETS:
        inside = sum(lower < stall <= upper for stall in stalls)
        if inside:
            parts.append(f"{lower}-{upper} ms {inside}")
        lower = upper
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
