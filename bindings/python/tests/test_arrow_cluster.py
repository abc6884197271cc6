"""Tables while things happen: leases, replacement, notices, loss, many writers."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.compute as pc  # noqa: E402

import sanderling  # noqa: E402
from cluster_fixtures import until  # noqa: E402
from late_answers import LateAnswers  # noqa: E402
from sanderling import arrow  # noqa: E402
from sanderling.arrow import description  # noqa: E402


REQUESTS_MAX = 30
"""More than the requests that one writer of a table sends about its description."""


@pytest.fixture
def directory(store, directory) -> Iterator[str]:
    """A directory that goes with its test: tables are large."""
    yield directory
    store.delete(directory, recursive=True)


def numbers(rows: int, start: int = 0) -> pa.Table:
    """Two columns of numbers and one of text; 20 bytes a row."""
    values = pa.array(range(start, start + rows), pa.int64())
    text = pc.utf8_lpad(values.cast(pa.string()), width=8, padding="0")
    return pa.table({"id": values, "double": pc.multiply(values, 2), "text": text})


def arenas() -> list[tuple[int, int]]:
    """Returns where this process has mapped memory of datanodes."""
    found = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "memfd:" in line and "sanderling" in line:
                start, end = line.split()[0].split("-")
                found.append((int(start, 16), int(end, 16)))
    return found


def test_values_lie_in_the_datanodes_memory(store, directory):
    arrow.put_table(store, f"{directory}/t", numbers(400_000))
    arrow.get_table(store, f"{directory}/t")
    until("the client maps the arenas", arenas)

    def mapped() -> pa.Table | None:
        held = pa.total_allocated_bytes()
        found = arrow.get_table(store, f"{directory}/t")
        grown = pa.total_allocated_bytes() - held
        places = arenas()
        buffers = [
            each
            for column in found.columns for chunk in column.chunks for each in chunk.buffers()
            if each is not None and each.size >= 64 << 10
        ]
        inside = [
            any(start <= each.address < end for start, end in places) for each in buffers
        ]
        return found if len(inside) >= 9 and all(inside) and grown < 64 << 10 else None

    found = until("every buffer lies in an arena, and Arrow allocates nothing", mapped)
    assert found.equals(numbers(400_000))


def test_mapped_values_outlive_the_table(store, directory):
    arrow.put_table(store, f"{directory}/t", numbers(200_000))
    found = arrow.get_table(store, f"{directory}/t")
    store.delete(f"{directory}/t", recursive=True)
    for turn in range(4):
        store.put(f"{directory}/other-{turn}", bytes(4 << 20))
    assert found.equals(numbers(200_000))


def test_table_is_replaced_at_once_and_readers_keep_theirs(store, directory):
    old, new = numbers(300_000), numbers(300_000, start=7)
    arrow.put_table(store, f"{directory}/t", old)
    opened = arrow.open_table(store, f"{directory}/t")
    reader = arrow.scan(store, f"{directory}/t")
    first = reader.read_next_batch()
    arrow.put_table(store, f"{directory}/t", new)
    assert arrow.get_table(store, f"{directory}/t").equals(new)
    rest = reader.read_all()
    assert pa.concat_tables([pa.Table.from_batches([first]), rest]).equals(old)
    assert opened.read().equals(old)
    arrow.put_table(store, f"{directory}/t", old, keep_seconds=0)
    until("what was replaced goes", lambda: len(store.list(f"{directory}/t")) <= 7)


def test_table_is_there_at_every_moment_while_it_is_replaced(store, directory):
    # Its description is longer than what the namenode keeps itself.
    tables = [pa.table({f"c{at}": [value] * 3000 for at in range(40)}) for value in range(2)]
    arrow.put_table(store, f"{directory}/t", tables[0])
    stop = threading.Event()

    def replace():
        turn = 0
        while not stop.is_set():
            turn += 1
            arrow.put_table(store, f"{directory}/t", tables[turn % 2], keep_seconds=1)

    writers = [threading.Thread(target=replace) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(300):
            assert arrow.open_table(store, f"{directory}/t").num_rows == 3000
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def test_writer_that_fails_leaves_the_older_table(store, directory):
    arrow.put_table(store, f"{directory}/t", numbers(1000))

    def failing():
        yield numbers(200_000).to_batches()[0]
        raise RuntimeError("the source failed")

    reader = pa.RecordBatchReader.from_batches(numbers(0).schema, failing())
    with pytest.raises(RuntimeError):
        arrow.put_table(store, f"{directory}/t", reader)
    assert arrow.get_table(store, f"{directory}/t").equals(numbers(1000))
    assert {each.name for each in store.list(f"{directory}/t")} == (
        arrow.open_table(store, f"{directory}/t")._description.objects() | {description.NAME}
    )


def relays(cluster, is_lost: bool) -> Iterator[LateAnswers]:
    """Yields relays that fail at each request of a writer from the first one on that names the
    description: until the writer sends fewer."""
    is_reached = True
    for nth in range(1, REQUESTS_MAX):
        if not is_reached:
            return
        relay = LateAnswers(cluster.address, description.NAME.encode(), nth, is_lost=is_lost)
        try:
            yield relay
            is_reached = relay.is_reached
        finally:
            relay.close()
    pytest.fail(f"a writer sends more than {REQUESTS_MAX} requests about the description")


def test_table_is_whole_whenever_answers_to_its_writer_stop(cluster, store, directory):
    path, outcomes = f"{directory}/t", []
    tables = [numbers(1000), numbers(1000, start=7)]
    arrow.put_table(store, path, tables[0])
    for relay in relays(cluster, is_lost=False):
        old = arrow.get_table(store, path)
        new = tables[1] if old.equals(tables[0]) else tables[0]
        with sanderling.connect(relay.address, timeout=4) as late:
            try:
                arrow.put_table(late, path, new)
            except sanderling.TimedOut:
                assert relay.is_reached
            relay.release()
        found = arrow.get_table(store, path)
        assert found.equals(old) or found.equals(new)
        outcomes.append((relay.is_reached, found.equals(new)))
    # Among them were an answer before the publication, and that of the publication itself.
    assert {(True, False), (True, True), (False, True)} == set(outcomes)


def test_table_is_published_whichever_answer_is_lost(cluster, store, directory):
    path = f"{directory}/t"
    arrow.put_table(store, path, numbers(1000))
    for turn, relay in enumerate(relays(cluster, is_lost=True)):
        replaced = arrow.open_table(store, path)
        with sanderling.connect(relay.address) as late:
            stat = arrow.put_table(late, path, numbers(1000, start=turn + 1))
        assert store.stat(f"{path}/{description.NAME}").object == stat.object
        assert arrow.get_table(store, path).equals(numbers(1000, start=turn + 1))
        # The replaced table goes, as after any other replacement.
        for name in replaced._description.objects():
            assert store.stat(f"{path}/{name}").expires_in is not None


def test_refused_publication_leaves_the_older_table_alone(store, directory):
    path = f"{directory}/t"
    arrow.put_table(store, path, numbers(1000))
    kept = {each.name for each in store.list(path)}
    with pytest.raises(sanderling.errors.BadRequest):
        arrow.put_table(store, path, numbers(10), attributes={"large": "x" * (64 << 10)})
    assert {each.name for each in store.list(path)} == kept
    assert arrow.get_table(store, path).equals(numbers(1000))


def test_writers_at_once_leave_one_whole_table(store, directory):
    tables = [numbers(50_000, start=index) for index in range(4)]
    writers = [
        threading.Thread(target=arrow.put_table, args=(store, f"{directory}/t", table))
        for table in tables
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert any(arrow.get_table(store, f"{directory}/t").equals(table) for table in tables)
    # Each retired the one that it replaced.
    kept = arrow.open_table(store, f"{directory}/t")._description.objects() | {description.NAME}
    others = [each for each in store.list(f"{directory}/t") if each.name not in kept]
    assert all(store.stat(f"{directory}/t/{each.name}").expires_in for each in others)


def test_scan_goes_on_while_nodes_leave(own_cluster):
    table = numbers(600_000)
    with own_cluster.store() as store:
        arrow.put_table(store, "/t", table, batch_rows=30_720)
        with arrow.scan(store, "/t") as reader:
            parts = [reader.read_next_batch()]
            noticed = own_cluster.nodes()[0]
            own_cluster.notice(noticed, deadline_seconds=30)
            parts += [reader.read_next_batch() for _ in range(3)]
            until("the node is empty", lambda: own_cluster.nodes()[0].policy != "draining")
            parts += list(reader)
        assert pa.Table.from_batches(parts).equals(table)
        assert arrow.get_table(store, "/t").equals(table)


def test_table_is_written_while_a_node_leaves(own_cluster):
    table = numbers(600_000)
    noticed = threading.Event()

    def batches():
        for number, batch in enumerate(table.to_batches(max_chunksize=60_000)):
            if number == 3:
                own_cluster.notice(own_cluster.nodes()[0], deadline_seconds=30)
                noticed.set()
            yield batch

    with own_cluster.store() as store:
        reader = pa.RecordBatchReader.from_batches(table.schema, batches())
        arrow.put_table(store, "/t", reader)
        assert noticed.is_set() and arrow.get_table(store, "/t").equals(table)


def test_lost_bytes_are_reported(own_cluster):
    with own_cluster.store() as store:
        arrow.put_table(store, "/t", numbers(600_000))
        for node in own_cluster.nodes():
            own_cluster.kill(node)
        with pytest.raises(sanderling.SanderlingError) as raised:
            arrow.get_table(store, "/t")
        assert not isinstance(raised.value, arrow.TableError)
        with pytest.raises(sanderling.SanderlingError):
            arrow.scan(store, "/t").read_all()


def test_table_whose_description_is_lost_is_replaced(own_cluster):
    table = numbers(1000)
    with own_cluster.store() as store:
        arrow.put_table(store, "/t", numbers(600_000))
        for node in own_cluster.nodes():
            own_cluster.kill(node)
        lost = f"/t/{description.NAME}"
        until("the description is lost", lambda: store.stat(lost).lost_bytes)
        with pytest.raises(sanderling.DataUnavailable):
            arrow.get_table(store, "/t")
        own_cluster.add()
        arrow.put_table(store, "/t", table)
        assert arrow.get_table(store, "/t").equals(table)


def test_table_put_while_a_lost_one_is_replaced_is_replaced_by_its_name(own_cluster, monkeypatch):
    first, second = numbers(1000), numbers(1000, start=5)
    with own_cluster.store() as store:
        arrow.put_table(store, "/t", numbers(10))
        for node in own_cluster.nodes():
            own_cluster.kill(node)
        lost = f"/t/{description.NAME}"
        until("the description is lost", lambda: store.stat(lost).lost_bytes)
        own_cluster.add()
        find, done = description.find, []

        def find_late(*arguments):
            found = find(*arguments)
            if not done:
                # Another writer replaces what this one has just found lost.
                done.append(found[1])
                arrow.put_table(store, "/t", first)
            return found

        monkeypatch.setattr(description, "find", find_late)
        arrow.put_table(store, "/t", second, keep_seconds=0.1)
        assert isinstance(done[0], sanderling.DataUnavailable)
        assert arrow.get_table(store, "/t").equals(second)
        # The first one's objects expire: it was known which table was replaced.
        ours = set(description.decode("/t", description.read(store, "/t")[1]).objects())
        until("the first table is gone", lambda: left(store) == ours)


def left(store) -> set[str]:
    """Returns the objects of the tables in a directory that have all of their bytes."""
    entries = [entry for entry in store.list("/t") if not entry.lost_bytes]
    return {entry.name for entry in entries if entry.name.endswith(".arrow")}


def test_attributes_are_kept_with_the_table(store, directory):
    arrow.put_table(store, f"{directory}/t", numbers(10), attributes={"made-by": "a test"})
    stat = store.stat(f"{directory}/t/{description.NAME}")
    assert stat.attributes == {"made-by": "a test"}


def test_leases_end_with_the_table(store, directory):
    arrow.put_table(store, f"{directory}/t", numbers(400_000))
    for _ in range(10):
        # Ten times the table is more than what leases may hold together.
        assert arrow.get_table(store, f"{directory}/t").num_rows == 400_000
        gc.collect()
