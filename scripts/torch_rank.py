#!/usr/bin/env python3
"""One rank of a program that saves or loads a checkpoint; scripts/torch_test.py starts them."""

import argparse
import datetime
import itertools
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import torch_state
from sanderling.torch import StorageReader, StorageWriter, latest

# How long a rank waits for another one that is gone.
RANK_SECONDS = 60
SIZES = (23, 1 << 16)
# How long a save after SIGTERM waits for the store: a test keeps that away for a moment.
DURABLE_SECONDS = 60


def main() -> None:
    """Does what the command line names, with the other ranks."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("what", choices=["save", "async", "load", "train"])
    arguments.add_argument("--rank", type=int, required=True)
    arguments.add_argument("--ranks", type=int, required=True)
    arguments.add_argument("--meet", type=Path, required=True, help="a file that all ranks share")
    arguments.add_argument("--address", required=True)
    arguments.add_argument("--path", required=True)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--overwrite", action="store_true")
    arguments.add_argument("--newest", action="store_true",
                           help="loads the newest checkpoint in the directory of the first rank")
    arguments.add_argument("--stay", type=Path, help="makes this file in the save, and stays there")
    arguments.add_argument("--trains", type=Path, help="makes this file after the first step")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{options.meet}", rank=options.rank,
                            world_size=options.ranks,
                            timeout=datetime.timedelta(seconds=RANK_SECONDS))
    if options.what == "train":
        train(options)
    elif options.what == "load":
        load(options, tensors(options.seed))
    else:
        save(options, tensors(options.seed))
    dist.barrier()
    dist.destroy_process_group()


def tensors(seed: int) -> dict[str, torch.Tensor]:
    """Returns what all ranks together have."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch_state.bits(generator, SIZES, dtype) for name, dtype in
            (("rows", torch.float32), ("columns", torch.bfloat16), ("copied", torch.int64))}


def shared(whole: dict[str, torch.Tensor], ranks: int) -> dict[str, Any]:
    """Returns this rank's part of it: by rows, by columns, and a copy."""
    mesh = init_device_mesh("cpu", (ranks,))
    places = {"rows": Shard(0), "columns": Shard(1), "copied": Replicate()}
    return {name: distribute_tensor(tensor, mesh, [places[name]], src_data_rank=None)
            for name, tensor in whole.items()}


class Staying(DefaultSavePlanner):
    """Stays in the middle of a save until the process is killed."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def resolve_data(self, write_item: Any) -> Any:
        self.mark.touch()
        while True:
            time.sleep(1)


def save(options: argparse.Namespace, whole: dict[str, torch.Tensor]) -> None:
    """Saves this rank's part."""
    state = shared(whole, options.ranks) | {f"own {options.rank}": torch.tensor(options.rank)}
    writer = StorageWriter(options.address, options.path, overwrite=options.overwrite)
    planner = Staying(options.stay) if options.stay else None
    if options.what == "save":
        dcp.save(state, storage_writer=writer, planner=planner)
        return
    future = dcp.async_save(state, storage_writer=writer, planner=planner)
    for name in whole:
        # What was staged is saved, whatever becomes of the state meanwhile.
        state[name].to_local().view(torch.uint8).zero_()
    future.result()


def train(options: argparse.Namespace) -> None:
    """Has another state with each step, until a rank gets SIGTERM: then all of them save theirs."""
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    for step in itertools.count(1):
        whole = tensors(step)
        flag = torch.tensor(int(leave.is_set()))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        if flag:
            break
        options.trains.touch()
    writer = StorageWriter(options.address, f"{options.path}/step-{step}", wait_durable=True,
                           durable_timeout=DURABLE_SECONDS)
    dcp.save(shared(whole, options.ranks), storage_writer=writer)


def load(options: argparse.Namespace, whole: dict[str, torch.Tensor]) -> None:
    """Loads this rank's part, with another number of ranks than at the save, and compares it."""
    zeros = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
    state = shared(zeros, options.ranks)
    path = newest(options) if options.newest else options.path
    dcp.load(state, storage_reader=StorageReader(options.address, path))
    expected = shared(whole, options.ranks)
    for name, tensor in expected.items():
        found = torch_state.differences(tensor.to_local(), state[name].to_local(), name)
        assert not found, f"rank {options.rank} has other bits of {found}"


def newest(options: argparse.Namespace) -> Any:
    """Returns the checkpoint that the first rank finds, to all ranks."""
    found = [latest(options.address, options.path) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found)
    return found[0]


if __name__ == "__main__":
    main()
