#!/usr/bin/env python3
"""Tests checkpoints of torch against a running cluster: `make torch-test`."""

import operator
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException, DefaultLoadPlanner, DefaultSavePlanner

import bucket_server
import sanderling
import torch_state
from cluster import ROOT, Cluster, until
from sanderling.errors import TimedOut
from sanderling.store import Store
from sanderling.torch import StorageReader, StorageWriter, latest, layout
from sanderling.torch.places import Stores, newest_beside

# A rank that waits for one that is gone ends by itself.
RANKS_SECONDS = 240.0


class AtItem(DefaultSavePlanner):
    """Does something in the middle of a save."""

    def __init__(self, count: int, then: Callable[[], Any]) -> None:
        super().__init__()
        self.left = count
        self.then = then

    def resolve_data(self, write_item: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.then()
        return super().resolve_data(write_item)


class LateWriter(StorageWriter):
    """Does something between the data and the metadata of a save."""

    before: Callable[[], Any]

    def finish(self, metadata: Any, results: Any) -> None:
        self.before()
        super().finish(metadata, results)


class AtTensor(DefaultLoadPlanner):
    """Does something in the middle of a load."""

    def __init__(self, count: int, then: Callable[[], Any]) -> None:
        super().__init__()
        self.left = count
        self.then = then

    def resolve_tensor(self, read_item: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.then()
        return super().resolve_tensor(read_item)


class TorchTest(unittest.TestCase):
    """A cluster, and a directory, for each test."""

    node_flags: tuple[str, ...] = ()

    def setUp(self) -> None:
        warnings.simplefilter("ignore")
        own = tempfile.TemporaryDirectory(prefix="sanderling-torch-")
        self.addCleanup(own.cleanup)
        self.own = Path(own.name)
        self.cluster = self.started()
        self.store = sanderling.connect(self.cluster.namenode)

    def started(self) -> Cluster:
        """Starts a cluster that ends with the test."""
        cluster = Cluster(datanodes=3, dram="192MiB", node_flags=self.node_flags)
        self.addCleanup(cluster.stop)
        return cluster

    def save(self, path: str, seed: int = 1, **more: Any) -> dict[str, Any]:
        """Saves a state and returns it."""
        state = torch_state.state(seed)
        planner = more.pop("planner", None)
        dcp.save(state, storage_writer=StorageWriter(self.store, path, **more), planner=planner)
        return state

    def assert_has(self, path: str, seed: int, where: Any = None, planner: Any = None) -> None:
        """Checks that a checkpoint is the state of a seed, bit by bit."""
        state = torch_state.state(seed)
        found = torch_state.blank(state)
        dcp.load(found, storage_reader=StorageReader(where or self.store, path), planner=planner)
        self.assertEqual(torch_state.differences(state, found), [])

    def names(self, path: str) -> list[str]:
        """Returns the names in a directory."""
        return [entry.name for entry in self.store.list(path)]

    def make_durable(self) -> None:
        """Makes /out durable as soon as a datanode reports its store."""

        def is_made() -> bool:
            words = ["fs", "mkdir", "/out", "--durable", "archive"]
            ran = self.cluster.run(*words, passes=(0, 1))
            reason = b"no datanode has a store"
            self.assertTrue(ran.returncode == 0 or reason in ran.stderr, ran.stderr)
            return ran.returncode == 0

        until("/out is durable", is_made)

    def lose(self, path: str) -> None:
        """Exchanges all datanodes, and waits until objects of a directory have lost bytes."""
        for number in range(3):
            self.cluster.kill(f"n{number}")
        for number in range(3):
            self.cluster.start_datanode(f"m{number}")
        until("the bytes are declared lost",
              lambda: any(entry.lost_bytes for entry in self.store.list(path)))


class LayoutTest(unittest.TestCase):
    def test_spans_of_a_part_are_its_elements(self) -> None:
        before = layout.RUN_BYTES_MIN, layout.RUNS_MAX
        try:
            for seed in range(3000):
                self.check_part(random.Random(seed))
        finally:
            layout.RUN_BYTES_MIN, layout.RUNS_MAX = before

    def check_part(self, drawn: random.Random) -> None:
        """Compares what the spans of a part of a drawn tensor hold with the part."""
        layout.RUN_BYTES_MIN = drawn.choice([1, 8, 32, 16 << 10])
        layout.RUNS_MAX = drawn.choice([2, 4096])
        sizes = tuple(drawn.randrange(1, 6) for _ in range(drawn.randrange(5)))
        offsets = tuple(drawn.randrange(size) for size in sizes)
        lengths = tuple(drawn.randrange(drawn.random() >= 0.1, size - offset + 1)
                        for size, offset in zip(sizes, offsets))
        whole = torch.arange(layout.product(sizes), dtype=torch.float32).reshape(sizes)
        content = b"before!" + bytes(layout.view(whole))
        piece = layout.Piece("name", 7, whole.nbytes, sizes, whole.dtype)
        spans = layout.spans(piece, offsets, lengths)
        found = b"".join(content[at:at + length] for at, length in spans.ranges)
        beside = torch.empty(len(found) // 4)
        layout.view(beside)[:] = found
        part = beside.as_strided(lengths, spans.strides or layout.row_strides(lengths))
        expected = whole
        for at, (offset, length) in enumerate(zip(offsets, lengths)):
            expected = expected.narrow(at, offset, length)
        self.assertTrue(torch.equal(part, expected), (sizes, offsets, lengths, spans))


class StateTest(TorchTest):
    def test_state_is_loaded_bit_by_bit(self) -> None:
        self.save("/out/1")
        self.assert_has("/out/1", 1)
        self.assert_has("/out/1", 1, where=self.cluster.namenode)

    def test_state_goes_into_tensors_of_other_strides_and_types(self) -> None:
        saved = {"a": torch.randn(40, 30), "b": torch.arange(100), "c": torch.randn(5, 6, 7)}
        dcp.save(saved, storage_writer=StorageWriter(self.store, "/out"))
        found = {"a": torch.zeros(30, 40).t(), "b": torch.zeros(100), "c": torch.zeros(5, 6, 7)}
        dcp.load(found, storage_reader=StorageReader(self.store, "/out"))
        self.assertTrue(torch.equal(found["a"], saved["a"]))
        self.assertTrue(torch.equal(found["b"], saved["b"].float()))
        self.assertTrue(torch.equal(found["c"], saved["c"]))

    def test_module_and_optimizer_go_on(self) -> None:
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 3))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(8, 30)).sum().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        dcp.save(state, storage_writer=StorageWriter(self.store, "/out"))
        other = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.Linear(40, 3))
        found = {"model": other.state_dict(), "optimizer": torch_state.blank(state["optimizer"])}
        dcp.load(found, storage_reader=StorageReader(self.store, "/out"))
        self.assertEqual(torch_state.differences(state, found), [])
        self.assertTrue(torch.equal(model(torch.ones(30)), other(torch.ones(30))))

    def test_asynchronous_save_has_the_state_of_its_call(self) -> None:
        state = torch_state.state(3)
        future = dcp.async_save(state, storage_writer=StorageWriter(self.store, "/out"))
        state["large"].view(torch.uint8).zero_()
        future.result()
        self.assert_has("/out", 3)

    def test_saves_of_one_writer_at_once_are_checkpoints_of_their_own(self) -> None:
        begun, may_go_on = threading.Event(), threading.Event()

        def stay() -> None:
            begun.set()
            may_go_on.wait(RANKS_SECONDS)

        for place, first_id in ("/named", "/named/step-100"), ("/given", None):
            begun.clear()
            may_go_on.clear()
            writer = StorageWriter(self.store, None if first_id else f"{place}/step-100")
            first = dcp.async_save(torch_state.state(1), checkpoint_id=first_id,
                                   storage_writer=writer, planner=AtItem(5, stay))
            try:
                self.assertTrue(begun.wait(RANKS_SECONDS))
                dcp.async_save(torch_state.state(2), checkpoint_id=f"{place}/step-200",
                               storage_writer=writer).result()
            finally:
                may_go_on.set()
            first.result()
            for seed in (1, 2):
                path = f"{place}/step-{seed}00"
                self.assert_has(path, seed)
                self.assertEqual(len(self.names(path)), 2)

    def test_checkpoint_id_is_a_path_or_a_url(self) -> None:
        state = torch_state.state(4)
        url = f"sanderling://{self.cluster.namenode}/named/2"
        dcp.save(state, checkpoint_id="/named/1", storage_writer=StorageWriter(self.store))
        dcp.save(state, checkpoint_id=url, storage_writer=StorageWriter())
        for path in ("/named/1", "/named/2"):
            self.assert_has(path, 4)
        found = torch_state.blank(state)
        dcp.load(found, checkpoint_id=url, storage_reader=StorageReader())
        self.assertEqual(torch_state.differences(state, found), [])

    def test_torchs_own_writer_reaches_the_store_by_fsspec(self) -> None:
        state = torch_state.state(5)
        url = f"sanderling://{self.cluster.namenode}/plain"
        dcp.save(state, checkpoint_id=url)
        found = torch_state.blank(state)
        dcp.load(found, checkpoint_id=url)
        self.assertEqual(torch_state.differences(state, found), [])
        with self.assertRaisesRegex(CheckpointException, "no checkpoint of this format"):
            self.assert_has("/plain", 5)

    def test_what_cannot_be_saved_is_refused_by_name(self) -> None:
        sparse = {"matrix": torch.eye(3).to_sparse()}
        with self.assertRaisesRegex(CheckpointException, "matrix is torch.sparse_coo"):
            dcp.save(sparse, storage_writer=StorageWriter(self.store, "/out"))
        with self.assertRaisesRegex(ValueError, "use_collectives=True"):
            dcp.save({"a": torch.ones(1)}, use_collectives=False,
                     storage_writer=StorageWriter(self.store, "/out"))
        self.assertIsNone(latest(self.store, "/"))
        with self.assertRaisesRegex(CheckpointException, "no save there was completed"):
            self.assert_has("/out", 1)

    def test_tensors_of_another_shape_are_refused(self) -> None:
        dcp.save({"a": torch.ones(3, 4)}, storage_writer=StorageWriter(self.store, "/out"))
        with self.assertRaises((CheckpointException, ValueError)):
            dcp.load({"a": torch.ones(3, 5)}, storage_reader=StorageReader(self.store, "/out"))

    def test_writer_travels_to_another_process(self) -> None:
        writer = pickle.loads(pickle.dumps(StorageWriter(self.store, "/out")))
        dcp.save(torch_state.state(6), storage_writer=writer)
        self.assert_has("/out", 6)


class ReplaceTest(TorchTest):
    def test_checkpoint_is_replaced_only_with_leave(self) -> None:
        self.save("/out", 1)
        with self.assertRaisesRegex(CheckpointException, "overwrite=True") as raised:
            self.save("/out", 2)
        self.assertIsInstance(raised.exception.failures[0][0], sanderling.errors.Exists)
        self.assertEqual(len(self.names("/out")), 2, "nothing was written")
        self.assert_has("/out", 1)
        self.save("/out", 3, overwrite=True)
        self.assert_has("/out", 3)
        self.assertEqual(len(self.names("/out")), 2, "the replaced checkpoint is deleted")

    def test_of_two_saves_at_once_one_fails(self) -> None:
        for overwrite in (False, True):
            path = f"/out/{overwrite}"
            if overwrite:
                self.save(path, 1)
            between = AtItem(5, lambda: self.save(path, 2, overwrite=overwrite))
            with self.assertRaises(CheckpointException):
                self.save(path, 3, planner=between, overwrite=overwrite)
            self.assert_has(path, 2)

    def test_of_two_saves_that_end_at_once_one_fails(self) -> None:
        for overwrite in (False, True):
            path = f"/out/{overwrite}"
            if overwrite:
                self.save(path, 1)
            writer = LateWriter(self.store, path, overwrite=overwrite)
            writer.before = lambda: self.save(path, 2, overwrite=overwrite)
            with self.assertRaisesRegex(CheckpointException, "Changed|Exists"):
                dcp.save(torch_state.state(3), storage_writer=writer)
            self.assert_has(path, 2)

    def test_interrupted_save_is_no_checkpoint_and_can_be_repeated(self) -> None:
        self.save("/out/1", 1)

        def fail() -> None:
            raise KeyboardInterrupt

        with self.assertRaises(CheckpointException):
            self.save("/out/2", 2, planner=AtItem(20, fail))
        self.assertEqual(latest(self.store, "/out"), "/out/1")
        self.save("/out/2", 2)
        self.assertEqual(latest(self.store, "/out"), "/out/2")
        self.assert_has("/out/2", 2)

    def test_latest_is_the_checkpoint_that_was_completed_last(self) -> None:
        self.assertIsNone(latest(self.store, "/none"))
        for path in ("/out/9", "/out/10", "/out/8"):
            dcp.save({"a": torch.ones(3)}, storage_writer=StorageWriter(self.store, path))
        self.store.put("/out/notes", b"no directory")
        self.store.mkdir("/out/11")
        self.assertEqual(latest(self.store, "/out"), "/out/8")

    def test_latest_does_not_follow_a_clock_that_jumped(self) -> None:
        now = time.time_ns()
        with mock.patch("time.time_ns", return_value=2 * now):
            self.save("/out/1", 1)
        self.save("/out/2", 2)
        self.assertEqual(latest(self.store, "/out"), "/out/2")
        with mock.patch("time.time_ns", return_value=now // 2):
            self.save("/out/3", 3)
        self.assertEqual(latest(self.store, "/out"), "/out/3")

    def test_checkpoint_that_cannot_be_read_hides_no_other_one_from_a_save(self) -> None:
        # Directories are looked at from the one that was made last on.
        self.store.mkdir("/out/step-2", parents=True)
        self.save("/out/step-1", 1)
        now = time.time_ns()
        with mock.patch("time.time_ns", return_value=2 * now):
            self.save("/out/step-2", 2)
        read, failed = Store.get_into, []

        def get_into(store: Store, path: str, *more: Any) -> int:
            if path == "/out/step-1/.metadata":
                failed.append(path)
                raise TimedOut("it does not answer")
            return read(store, path, *more)

        with mock.patch.object(Store, "get_into", get_into):
            self.save("/out/step-3", 3)
        self.assertTrue(failed)
        self.assertEqual(latest(self.store, "/out"), "/out/step-3")

    def test_look_at_other_checkpoints_ends_in_time_whatever_hangs(self) -> None:
        self.save("/out/step-1", 1)
        stores = Stores(sanderling.connect(self.cluster.namenode, timeout=120))
        self.assertGreater(newest_beside(stores, "/out/step-2"), 0)
        self.cluster.pause("namenode")
        try:
            began = time.monotonic()
            self.assertEqual(newest_beside(stores, "/out/step-2"), 0)
            self.assertLess(time.monotonic() - began, 30)
        finally:
            self.cluster.resume("namenode")


class PreemptionTest(TorchTest):
    def give_notice(self, name: str) -> None:
        """Gives a datanode its notice; its process is killed when nothing is left on it."""
        self.cluster.notice(name)

    def test_node_leaves_during_a_save(self) -> None:
        self.save("/out", 1, planner=AtItem(30, lambda: self.give_notice("n0")))
        self.assert_has("/out", 1)

    def test_node_leaves_during_a_load(self) -> None:
        self.save("/out", 2)
        self.assert_has("/out", 2, planner=AtTensor(5, lambda: self.give_notice("n1")))

    def test_object_whose_node_is_killed_during_the_save_is_written_again(self) -> None:
        killed: list[str] = []

        def kill() -> None:
            if not killed:
                killed.append("n0")
                for name in ("n0", "n1"):
                    self.cluster.kill(name)

        # Two of three nodes go, so that one of them has a part of what was written.
        self.save("/out", 4, planner=AtItem(700, kill))
        self.assertTrue(killed)
        self.assert_has("/out", 4)

    def test_object_that_lost_bytes_before_the_end_of_its_save_makes_no_checkpoint(self) -> None:
        writer = LateWriter(self.store, "/out/1")
        writer.before = lambda: self.lose("/out/1")
        with self.assertRaisesRegex(CheckpointException, "DataUnavailable.* has lost"):
            dcp.save(torch_state.state(1), storage_writer=writer)
        self.assertIsNone(latest(self.store, "/out"))
        self.assertEqual(self.names("/out/1"), [], "what cannot be read is deleted")
        self.save("/out/1", 2)
        self.assert_has("/out/1", 2)

    def test_object_that_is_deleted_during_its_save_makes_no_checkpoint(self) -> None:
        writer = LateWriter(self.store, "/out/1")
        writer.before = lambda: [self.store.delete(f"/out/1/{name}")
                                 for name in self.names("/out/1")]
        with self.assertRaisesRegex(CheckpointException, "is not there"):
            dcp.save(torch_state.state(1), storage_writer=writer)
        self.assertIsNone(latest(self.store, "/out"))


class WithArchive(TorchTest):
    """A durable directory, whose store is a directory."""

    def setUp(self) -> None:
        archive = tempfile.TemporaryDirectory(prefix="sanderling-archive-")
        self.addCleanup(archive.cleanup)
        self.archive = Path(archive.name) / "store"
        self.archive.mkdir()
        self.away = Path(archive.name) / "away"
        self.node_flags = ("--durable", f"archive=file://{self.archive}")
        super().setUp()
        self.make_durable()


class DurableTest(WithArchive):
    def test_checkpoint_outlives_the_cluster(self) -> None:
        self.save("/out/step-1", 1, wait_durable=True)
        # The copy is whole when the save returns: nothing waits for anything else.
        self.cluster.stop()
        url = f"file://{self.archive}"
        self.assertEqual(latest(url, "/"), "/step-1")
        self.assert_has("/step-1", 1, where=url)

    def test_latest_copy_is_the_checkpoint_that_was_completed_last(self) -> None:
        for path in ("/out/9", "/out/10", "/out/8"):
            dcp.save({"a": torch.ones(3)}, storage_writer=StorageWriter(self.store, path))
        self.store.wait_durable("/out", timeout=60)
        (self.archive / "11").mkdir()
        self.assertEqual(latest(f"file://{self.archive}", "/"), "/8")

    def test_latest_of_an_adopted_store_is_the_checkpoint_that_was_completed_last(self) -> None:
        # The adoption finds the later one first.
        for path in ("/out/step-900", "/out/step-1000"):
            dcp.save({"a": torch.ones(3)}, storage_writer=StorageWriter(self.store, path))
        self.store.wait_durable("/out", timeout=60)
        self.cluster.stop()
        self.cluster = self.started()
        self.store = sanderling.connect(self.cluster.namenode)
        self.cluster.cli("fs", "mkdir", "/in", "--durable", "archive", "--adopt")
        self.assertEqual(latest(self.store, "/in"), "/in/step-1000")
        found = {"a": torch.zeros(3)}
        dcp.load(found, storage_reader=StorageReader(self.store, "/in/step-1000"))
        self.assertTrue(torch.equal(found["a"], torch.ones(3)))

    def test_object_that_is_lost_before_its_copy_stops_no_later_checkpoint(self) -> None:
        self.archive.rename(self.away)
        writer = LateWriter(self.store, "/out/step-1")
        writer.before = lambda: self.lose("/out/step-1")
        with self.assertRaisesRegex(CheckpointException, "has lost"):
            dcp.save(torch_state.state(1), storage_writer=writer)
        self.away.rename(self.archive)
        self.save("/out/step-2", 2, wait_durable=True, durable_timeout=60)
        self.cluster.stop()
        url = f"file://{self.archive}"
        self.assertEqual(latest(url, "/"), "/step-2")
        self.assert_has("/step-2", 2, where=url)

    def test_lost_object_of_an_interrupted_save_stops_no_later_one_there(self) -> None:
        def fail() -> None:
            raise KeyboardInterrupt

        self.archive.rename(self.away)
        writer = LateWriter(self.store, "/out/step-1")
        writer.before = fail
        with self.assertRaises(CheckpointException):
            dcp.save(torch_state.state(1), storage_writer=writer)
        self.lose("/out/step-1")
        self.away.rename(self.archive)
        self.save("/out/step-1", 2, wait_durable=True, durable_timeout=60)
        self.assert_has("/step-1", 2, where=f"file://{self.archive}")

    def test_save_whose_store_is_away_fails_in_time_and_is_copied_later(self) -> None:
        self.archive.rename(self.away)
        with self.assertRaises(CheckpointException) as raised:
            self.save("/out/step-1", 1, wait_durable=True, durable_timeout=3)
        self.assertIsInstance(raised.exception.failures[0][0], TimeoutError)
        self.assertNotIsInstance(raised.exception, Exception)
        self.assertEqual(latest(self.store, "/out"), "/out/step-1")
        self.assert_has("/out/step-1", 1)
        self.away.rename(self.archive)
        self.store.wait_durable("/out", timeout=60)
        self.assert_has("/step-1", 1, where=f"file://{self.archive}")

    def test_copy_that_is_cut_is_refused(self) -> None:
        self.save("/out/step-1", 1, wait_durable=True)
        (place,) = (self.archive / "step-1").glob("rank-*")
        with open(place, "r+b") as file:
            file.truncate(place.stat().st_size - 5)
        with self.assertRaisesRegex(CheckpointException, "bytes too early"):
            self.assert_has("/step-1", 1, where=f"file://{self.archive}")

    def test_checkpoint_is_replaced_once_the_store_has_it(self) -> None:
        self.save("/out/last", 1, wait_durable=True)
        self.save("/out/last", 2, wait_durable=True, overwrite=True)
        self.store.wait_durable("/out", timeout=60)
        self.cluster.stop()
        self.assert_has("/last", 2, where=f"file://{self.archive}")
        self.assertEqual(len(list((self.archive / "last").iterdir())), 2)

    def test_waiting_without_a_durable_directory_is_refused(self) -> None:
        with self.assertRaisesRegex(CheckpointException, "no durable directory"):
            self.save("/elsewhere", 1, wait_durable=True)


class WithRanks(TorchTest):
    """Programs of several ranks."""

    def ranks(self, what: str, count: int, path: str, *words: str,
              of: dict[int, tuple[str, ...]] | None = None) -> list[subprocess.Popen[str]]:
        """Starts all ranks of a program."""
        meet = tempfile.mktemp(dir=self.own)
        started = []
        for rank in range(count):
            command = [sys.executable, str(ROOT / "scripts/torch_rank.py"), what,
                       "--rank", str(rank), "--ranks", str(count), "--meet", meet,
                       "--address", self.cluster.namenode, "--path", path, *words,
                       *(of or {}).get(rank, ())]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(self.end, process)
            started.append(process)
        return started

    def end(self, process: subprocess.Popen[str]) -> None:
        """Kills what a test left."""
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()

    def succeed(self, what: str, count: int, path: str, *words: str) -> None:
        """Runs all ranks of a program, each of which must succeed."""
        for process in self.ranks(what, count, path, *words):
            _, errors = process.communicate(timeout=RANKS_SECONDS)
            self.assertEqual(process.returncode, 0, errors[-3000:])

    def until_run(self, what: str, ranks: list[subprocess.Popen[str]],
                  condition: Callable[[], Any]) -> None:
        """Waits until a condition holds, while all ranks run."""

        def holds() -> Any:
            for process in ranks:
                if process.poll() is not None:
                    self.fail(process.communicate()[1][-3000:])
            return condition()

        until(what, holds, seconds=RANKS_SECONDS)


class RanksTest(WithRanks):
    def test_ranks_save_and_others_load(self) -> None:
        for save, load in ((4, 2), (2, 4), (4, 3)):
            path = f"/out/{save}-{load}"
            self.succeed("save", save, path)
            self.assertEqual(len(self.names(path)), save + 1)
            self.succeed("load", load, path)

    def test_ranks_save_asynchronously(self) -> None:
        self.succeed("async", 2, "/out")
        self.succeed("load", 4, "/out")

    def test_first_rank_decides_which_checkpoint_all_ranks_load(self) -> None:
        for seed in (1, 2):
            self.succeed("save", 2, f"/out/{seed}", "--seed", str(seed))
        # What the other rank would find is another checkpoint.
        self.succeed("save", 2, "/other/1")
        ranks = self.ranks("load", 2, "/out", "--seed", "2", "--newest",
                           of={1: ("--path", "/other")})
        for process in ranks:
            _, errors = process.communicate(timeout=RANKS_SECONDS)
            self.assertEqual(process.returncode, 0, errors[-3000:])

    def test_refusal_of_the_coordinator_ends_all_ranks(self) -> None:
        self.succeed("save", 2, "/out")
        for process in self.ranks("save", 2, "/out", "--seed", "2"):
            _, errors = process.communicate(timeout=RANKS_SECONDS)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("overwrite=True", errors)
        self.succeed("load", 2, "/out")
        self.succeed("save", 4, "/out", "--seed", "2", "--overwrite")
        self.succeed("load", 2, "/out", "--seed", "2")

    def test_rank_killed_in_a_save_leaves_no_checkpoint_and_no_rank_that_hangs(self) -> None:
        self.succeed("save", 2, "/out/1")
        for victim in (0, 1):
            mark = self.own / f"in-save-{victim}"
            ranks = self.ranks("save", 2, "/out/2", "--seed", "2",
                               of={victim: ("--stay", str(mark))})
            self.until_run("the rank is in its save", ranks, mark.exists)
            ranks[victim].send_signal(signal.SIGKILL)
            ranks[victim].communicate()
            _, errors = ranks[1 - victim].communicate(timeout=RANKS_SECONDS)
            self.assertNotEqual(ranks[1 - victim].returncode, 0, errors[-3000:])
            self.assertEqual(latest(self.store, "/out"), "/out/1")
            self.assertNotIn(".metadata", self.names("/out/2"))
        self.succeed("load", 2, "/out/1")
        self.succeed("save", 2, "/out/2", "--seed", "2")
        self.assertEqual(latest(self.store, "/out"), "/out/2")
        self.succeed("load", 2, "/out/2", "--seed", "2")
        self.assertEqual(len(self.names("/out/2")), 3, "nothing of the killed saves is left")


class NoticeTest(WithArchive, WithRanks):
    def test_ranks_that_get_sigterm_save_and_wait(self) -> None:
        marks = [self.own / f"trains-{rank}" for rank in range(2)]
        ranks = self.ranks("train", 2, "/out",
                           of={rank: ("--trains", str(mark)) for rank, mark in enumerate(marks)})
        self.until_run("all ranks train", ranks, lambda: all(mark.exists() for mark in marks))
        self.archive.rename(self.away)
        # The coordinator gets it last: the ranks agree on the step at which they save.
        for process in reversed(ranks):
            process.send_signal(signal.SIGTERM)
        self.until_run("the checkpoint is closed", ranks, lambda: latest(self.store, "/out"))
        self.away.rename(self.archive)
        for process in ranks:
            _, errors = process.communicate(timeout=RANKS_SECONDS)
            self.assertEqual(process.returncode, 0, errors[-3000:])
        # Its copy is whole when the ranks have ended: nothing waits for anything else.
        self.cluster.stop()
        url = f"file://{self.archive}"
        path = latest(url, "/")
        assert path is not None
        self.succeed("load", 2, path, "--address", url, "--seed", path.removeprefix("/step-"))


# The client of buckets: each package, and a part that it requires in few versions.
CLIENT_PARTS = (("s3fs", "fsspec"), ("s3fs", "aiobotocore"), ("aiobotocore", "botocore"))
RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
             "==": operator.eq}


def numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def misfit() -> str | None:
    """Returns why the installed client of buckets cannot work, if its packages do not fit."""
    for package, part in CLIENT_PARTS:
        found = metadata.version(part)
        for required in metadata.requires(package) or []:
            named = re.fullmatch(rf"{part}([<>=,.\d]*)", required.replace(" ", ""))
            bounds = re.findall(r"(<=|>=|==|<|>)([.\d]+)", named[1]) if named else []
            if any(not RELATIONS[word](numbers(found), numbers(bound)) for word, bound in bounds):
                own = metadata.version(package)
                return (f"{package} {own} requires {required}, and {part} {found} is there: "
                        "scripts/venv.sh s3fs, which has versions that fit each other")
    return None


class MisfitTest(unittest.TestCase):
    def test_packages_that_do_not_fit_each_other_are_named(self) -> None:
        versions = {"s3fs": "2026.9.0", "fsspec": "2026.9.0", "aiobotocore": "2.25.2",
                    "botocore": "1.43.117"}
        required = {
            "s3fs": ["aiobotocore<4.0.0,>=2.19.0", "fsspec<2026.9.1,>=2026.9.0"],
            "aiobotocore": ["aiohttp<4.0.0,>=3.9.2", "botocore<1.40.71,>=1.40.46",
                            'botocore<1; extra == "none"'],
        }
        with mock.patch.multiple(metadata, version=versions.__getitem__,
                                 requires=required.__getitem__):
            reason = misfit() or ""
            self.assertIn("aiobotocore 2.25.2 requires botocore<1.40.71,>=1.40.46", reason)
            self.assertIn("botocore 1.43.117 is there", reason)
            versions["botocore"] = "1.40.70"
            self.assertIsNone(misfit())
            versions["fsspec"] = "2026.9.1"
            self.assertIn("s3fs 2026.9.0 requires fsspec", misfit() or "")


class BucketTest(TorchTest):
    """A durable directory, whose store is a bucket of an S3 server."""

    STORE = f"s3://{bucket_server.BUCKET}/results/run-7"

    def setUp(self) -> None:
        if not bucket_server.is_installed():
            self.skipTest("moto, the S3 server, is not there: scripts/venv.sh s3")
        try:
            reason = misfit()
        except metadata.PackageNotFoundError as error:
            reason = str(error)
        if reason:
            self.skipTest(f"fsspec reads buckets with s3fs: {reason}")
        place = tempfile.TemporaryDirectory(prefix="sanderling-bucket-")
        self.addCleanup(place.cleanup)
        self.server = bucket_server.BucketServer(Path(place.name) / "server.log")
        self.addCleanup(self.server.stop)
        self.node_flags = ("--durable", f"archive={self.STORE}")
        # For the datanodes, which write the copy, and for this process, which reads it.
        environment = mock.patch.dict(os.environ, self.server.environment)
        environment.start()
        self.addCleanup(environment.stop)
        super().setUp()
        self.make_durable()

    def started(self) -> Cluster:
        """Starts a cluster whose datanodes find the S3 server."""
        cluster = BucketCluster(datanodes=2, dram="192MiB", node_flags=self.node_flags)
        self.addCleanup(cluster.stop)
        return cluster

    def test_checkpoint_is_loaded_from_its_bucket_without_a_cluster(self) -> None:
        for step in (1, 2):
            self.save(f"/out/step-{step}", step, wait_durable=True, durable_timeout=60)
        self.cluster.stop()
        self.assertEqual(latest(self.STORE, "/"), "/step-2")
        for step in (1, 2):
            self.assert_has(f"/step-{step}", step, where=self.STORE)


class BucketCluster(Cluster):
    """A cluster with the caller's variables of the S3 server, which tests else do without."""

    def environment(self) -> dict[str, str]:
        """Returns the environment of the servers and commands."""
        found = {name: os.environ[name] for name in bucket_server.VARIABLES}
        return super().environment() | found


if __name__ == "__main__":
    unittest.main(verbosity=2)
