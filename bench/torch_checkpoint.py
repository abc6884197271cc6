#!/usr/bin/env python3
"""Measures checkpoints of torch in Sanderling beside torch's own on tmpfs, in turns.

`make torch-bench` runs it with the Python of scripts/torch_env.sh. Nothing is synced to a disk on
either side: torch's FileSystemWriter gets sync_files=False. `async_save` into Sanderling is timed
until it returns, beside a copy of each tensor in memory, which is what staging has to do.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import sanderling  # noqa: E402
import torch_state  # noqa: E402
from cluster import Cluster  # noqa: E402
from sanderling.torch import StorageReader, StorageWriter  # noqa: E402

MIB = 1 << 20
TENSORS = 64
SMALL = 200
WAYS = ("sanderling", "FileSystemWriter", "fsspec", "async_save", "a copy of each tensor")
# What the others are compared with, and the goals.
BASES = {"save": "FileSystemWriter", "load": "FileSystemWriter", "blocks": "a copy of each tensor"}
GOALS = {("sanderling", "save"): 0.6, ("sanderling", "load"): 0.7, ("async_save", "blocks"): 1.0}


def main() -> None:
    """Runs the rounds and prints the table."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--mib", type=int, default=1024, help="of the state")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"))
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    state = made(options.mib)
    into = {name: torch.ones_like(tensor) for name, tensor in state.items()}
    times: dict[tuple[str, str], list[float]] = {}
    place = Path(tempfile.mkdtemp(prefix="torch-checkpoint-", dir=options.tmpfs))
    try:
        with Cluster(datanodes=2, dram=f"{options.mib * 3 // 2 + 128}MiB") as cluster:
            store = sanderling.connect(cluster.namenode, timeout=60)
            for number in range(options.rounds + 1):
                ways = WAYS if number % 2 else WAYS[::-1]
                for way in ways:
                    took = measured(way, store, place, number, state, into)
                    # The first round warms up.
                    if number:
                        for kind, seconds in took.items():
                            times.setdefault((way, kind), []).append(seconds)
    finally:
        shutil.rmtree(place)
    show(options.mib, times)


def made(mib: int) -> dict[str, torch.Tensor]:
    """Returns a state of so many MiB: large tensors, and small ones beside them."""
    generator = torch.Generator().manual_seed(1)
    each = mib * MIB // TENSORS // 4
    state = {f"large.{n}": torch.rand(each // 1024, 1024, generator=generator)
             for n in range(TENSORS)}
    return state | {f"small.{n}": torch.rand(256, generator=generator) for n in range(SMALL)}


def measured(
    way: str, store: sanderling.Store, place: Path, number: int,
    state: dict[str, torch.Tensor], into: dict[str, torch.Tensor],
) -> dict[str, float]:
    """Returns how many seconds what a way does took."""
    if way == "a copy of each tensor":
        copies: dict[str, torch.Tensor] = {}
        took = timed(lambda: copies.update((name, each.clone()) for name, each in state.items()))
        # They are freed after the clock has stopped.
        return {"blocks": took}
    if way == "async_save":
        return {"blocks": blocked(store, f"/async-{number}", state, into)}
    save, load, delete = calls(way, store, place, number)
    figures = {"save": timed(lambda: save(state)), "load": timed(lambda: load(into))}
    check(state, into)
    delete()
    return figures


def blocked(
    store: sanderling.Store, path: str, state: dict[str, torch.Tensor],
    into: dict[str, torch.Tensor],
) -> float:
    """Returns how long `async_save` blocked; its checkpoint is compared and deleted."""
    began = time.perf_counter()
    saving = dcp.async_save(state, storage_writer=StorageWriter(store, path))
    seconds = time.perf_counter() - began
    saving.result()
    dcp.load(into, storage_reader=StorageReader(store, path))
    check(state, into)
    store.delete(path, recursive=True)
    return seconds


def calls(
    way: str, store: sanderling.Store, place: Path, number: int
) -> tuple[Callable[[dict], None], Callable[[dict], None], Callable[[], object]]:
    """Returns how a way saves, loads and deletes a checkpoint."""
    if way == "sanderling":
        path = f"/checkpoint-{number}"
        return (lambda state: dcp.save(state, storage_writer=StorageWriter(store, path)),
                lambda state: dcp.load(state, storage_reader=StorageReader(store, path)),
                lambda: store.delete(path, recursive=True))
    if way == "fsspec":
        path = f"/fsspec-{number}"
        url = f"sanderling://{store.address}{path}"
        return (lambda state: dcp.save(state, checkpoint_id=url),
                lambda state: dcp.load(state, checkpoint_id=url),
                lambda: store.delete(path, recursive=True))
    folder = place / str(number)
    return (lambda state: dcp.save(
                state, storage_writer=FileSystemWriter(folder, sync_files=False)),
            lambda state: dcp.load(state, storage_reader=FileSystemReader(folder)),
            lambda: shutil.rmtree(folder))


def timed(call: Callable[[], None]) -> float:
    """Returns how many seconds a call took."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def check(state: dict[str, torch.Tensor], into: dict[str, torch.Tensor]) -> None:
    """Ends the measurement if something else was loaded; clears what was."""
    found = torch_state.differences(dict(state), dict(into))
    if found:
        raise SystemExit(f"other bits were loaded of {found[:3]}")
    for tensor in into.values():
        tensor.zero_()


def show(mib: int, times: dict[tuple[str, str], list[float]]) -> None:
    """Prints medians, and ratios within each round with their range."""
    print(f"{mib} MiB in {TENSORS + SMALL} tensors, torch {torch.__version__}\n")
    print("| | seconds | MiB/s | ratio (range of the rounds) | of the time of | goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (way, kind), seconds in sorted(times.items(), key=lambda each: each[0][1], reverse=True):
        base = BASES[kind]
        ratios = sorted(one / other for one, other in zip(seconds, times[base, kind]))
        median = statistics.median(seconds)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        goal = f"{GOALS[way, kind]:.1f}" if (way, kind) in GOALS else ""
        print(f"| {kind}, {way} | {median:.2f} | {mib / median:.0f} | {ratio} | {base} | {goal} |")


if __name__ == "__main__":
    main()
