"""Tables in the store: what goes in comes out, of whatever type, whole or in part."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator

import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.compute as pc  # noqa: E402

import sanderling  # noqa: E402
from sanderling import arrow  # noqa: E402
from sanderling.arrow import blocks, description  # noqa: E402

ROWS = 300_000


@pytest.fixture
def directory(store, directory) -> Iterator[str]:
    """A directory that goes with its test: tables are large."""
    yield directory
    store.delete(directory, recursive=True)


@pytest.fixture(scope="session")
def wide() -> pa.Table:
    """A table with many kinds of columns, nulls among them, of several blocks."""
    numbers = pa.array(range(ROWS), pa.int64())
    nulls = pc.equal(pc.bit_wise_and(numbers, 7), 0)
    return pa.table(
        {
            "id": numbers.cast(pa.int32()),
            "low": pc.if_else(nulls, None, numbers),
            "price": numbers.cast(pa.decimal128(21, 2)),
            "text": pc.utf8_lpad(numbers.cast(pa.string()), width=11, padding="x"),
            "key": pc.bit_wise_and(numbers, 3).cast(pa.string()).dictionary_encode(),
            "flag": nulls,
            "day": pc.bit_wise_and(numbers, 1023).cast(pa.int32()).cast(pa.date32()),
        }
    )


def test_table_comes_out_as_it_went_in(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide)
    found = arrow.get_table(store, f"{directory}/t")
    found.validate(full=True)
    assert found.equals(wide, check_metadata=True)
    assert arrow.scan(store, f"{directory}/t").read_all().equals(wide)
    some = arrow.get_table(store, f"{directory}/t", ["text", "id"])
    assert some.equals(wide.select(["text", "id"]))
    table = arrow.open_table(store, f"{directory}/t")
    assert table.num_rows == ROWS and table.schema.equals(wide.schema)
    assert len(table.groups) == len(wide.schema)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": pa.array([], pa.int64())}),
        pa.table({}),
        pa.table({"a": [None, None]}),
        pa.table({"a": [[1, 2], None, []], "b": [{"x": 1}, {"x": None}, None]}),
        pa.table({"a": pa.array([b"", b"\0" * 3, None], pa.large_binary())}),
        pa.table({"a": pa.array(["é", None, "z" * 1000], pa.string_view())}),
        pa.table({"a": pa.array([1.5, float("nan"), None]), "b": [True, None, False]}),
        pa.table({"a": pa.array([datetime.datetime(2026, 1, 1)] * 2, pa.timestamp("ns", "UTC"))}),
        pa.table({"a": pa.array([decimal.Decimal("1.25"), None])}),
        pa.table({"a": pa.array([["x"], ["y", "x"]], pa.list_(pa.string(), -1))}),
        pa.table({"a": pa.array(["x", None, "x"]).dictionary_encode()}),
        pa.table({"a": pa.array([], pa.dictionary(pa.int8(), pa.string()))}),
        pa.table([pa.array([1]), pa.array(["x"])], names=["same", "same"]),
        pa.table({"a": pa.array([1, 2])}).slice(1, 1),
        pa.table({"a": [1]}, metadata={b"k": b"v"}),
        pa.table({"a": pa.chunked_array([[1], [], [2, 3]])}),
    ],
    ids=str,
)
def test_every_kind_of_column_is_kept(store, directory, table):
    arrow.put_table(store, f"{directory}/t", table)
    found = arrow.get_table(store, f"{directory}/t")
    found.validate(full=True)
    assert found.schema.equals(table.schema, check_metadata=True)
    # NaN equals nothing, itself neither.
    assert str(found.to_pylist()) == str(table.to_pylist())
    assert found.num_rows == table.num_rows
    assert arrow.scan(store, f"{directory}/t").read_all().num_rows == table.num_rows


def test_rows_larger_than_a_block_are_kept(store, directory):
    table = pa.table({"a": ["x" * (3 << 20), "y", "z" * (1 << 20)], "b": [1, 2, 3]})
    arrow.put_table(store, f"{directory}/t", table)
    assert arrow.get_table(store, f"{directory}/t").equals(table)


def test_groups_are_stored_together(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide, groups=[["id", "text"], ["day", "low"]])
    table = arrow.open_table(store, f"{directory}/t")
    assert table.groups[:2] == [["id", "text"], ["day", "low"]]
    assert table.read(["low", "text"]).equals(wide.select(["low", "text"]))
    for bad in ([["none"]], [["id"], ["id"]], [[]], [["id", "id"]]):
        with pytest.raises(arrow.TableError):
            arrow.put_table(store, f"{directory}/bad", wide, groups=bad)
    assert not store.exists(f"{directory}/bad")


def test_projection_reads_only_its_groups(cluster, directory, wide):
    with cluster.store() as store:
        arrow.put_table(store, f"{directory}/t", wide)
        before = store.metrics()["read_bytes"]
        arrow.get_table(store, f"{directory}/t", ["id"])
        read = store.metrics()["read_bytes"] - before
        assert ROWS * 4 <= read < ROWS * 4 * 1.2 + 50_000


def filters() -> list[pc.Expression]:
    field = pc.field
    return [
        field("id") < 1000,
        field("id") >= ROWS - 5,
        (field("id") > 150_000) & (field("id") < 150_003),
        field("low") == 77,
        field("low").is_null() & (field("id") < 100),
        ~(field("id") < ROWS - 3),
        (field("text") == "xxxxx150000") | (field("id") == 3),
        field("id").isin([5, 299_999]),
        (field("price") > decimal.Decimal("299990.00")) & field("flag"),
        (field("day") == datetime.date(1970, 1, 6)) & (field("id") > 290_000),
        field("key") == "2",
        field("id") < 0,
    ]


@pytest.mark.parametrize("expression", filters(), ids=str)
def test_filter_lets_pass_what_arrow_would(store, wide, expression):
    if not store.exists("/filtered"):
        arrow.put_table(store, "/filtered", wide, batch_rows=30_000)
    found = arrow.scan(store, "/filtered", ["text", "low"], filter=expression).read_all()
    assert found.equals(wide.filter(expression).select(["text", "low"]))


def test_filter_skips_batches_that_cannot_match(cluster, directory, wide):
    with cluster.store() as store:
        arrow.put_table(store, f"{directory}/t", wide, batch_rows=15_360)

        def read_by(**options) -> float:
            before = store.metrics()["read_bytes"]
            arrow.scan(store, f"{directory}/t", **options).read_all()
            return store.metrics()["read_bytes"] - before

        whole = read_by()
        assert read_by(filter=pc.field("id") == 7) < whole / 5
        assert read_by(filter=pc.field("id") < 0) < whole / 20
        # Nothing of the other columns is read where no row passes.
        assert read_by(filter=(pc.field("flag") & ~pc.field("flag"))) < whole / 20


def test_filters_as_parquet_takes_them(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide)
    found = arrow.scan(store, f"{directory}/t", ["id"], filter=[("id", "<", 3)]).read_all()
    assert found["id"].to_pylist() == [0, 1, 2]


def test_not_a_number_is_not_skipped(store, directory):
    table = pa.table({"a": pa.array([1.0, float("nan"), 3.0])})
    arrow.put_table(store, f"{directory}/t", table)
    found = arrow.scan(store, f"{directory}/t", filter=~(pc.field("a") < 10)).read_all()
    assert found.num_rows == 1


def test_batches_have_no_more_rows_than_asked(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide)
    with arrow.scan(store, f"{directory}/t", ["id"], batch_rows=7_000) as reader:
        sizes = [batch.num_rows for batch in reader]
    assert max(sizes) <= 7_000 and sum(sizes) == ROWS
    with pytest.raises(ValueError):
        arrow.scan(store, f"{directory}/t", batch_rows=0)


def test_scan_can_be_left_in_the_middle(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide, batch_rows=15_360)
    reader = arrow.scan(store, f"{directory}/t")
    assert reader.read_next_batch().num_rows
    reader.close()
    del reader


def test_stream_is_written_as_it_comes(store, directory, wide, monkeypatch):
    monkeypatch.setattr("sanderling.arrow.write.WINDOW_BYTES", 1 << 20)
    plain = wide.drop_columns(["key"])
    seen = []

    def batches():
        for batch in plain.to_batches(max_chunksize=10_000):
            seen.append(batch.num_rows)
            yield batch

    reader = pa.RecordBatchReader.from_batches(plain.schema, batches())
    arrow.put_table(store, f"{directory}/t", reader)
    assert len(seen) == 30
    assert arrow.get_table(store, f"{directory}/t").equals(plain)


def test_pandas_comes_back_with_its_index(store, directory):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "c": pandas.Categorical(["x", "y"])}, index=["r", "s"])
    arrow.put_table(store, f"{directory}/t", frame)
    pandas.testing.assert_frame_equal(arrow.get_table(store, f"{directory}/t").to_pandas(), frame)


def test_any_reader_of_arrow_reads_a_group(store, filesystem, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide.select(["id", "text", "flag"]))
    for path in filesystem.glob(f"{directory}/t/*.arrow"):
        with filesystem.open(path) as file:
            found = pa.ipc.open_stream(file).read_all()
        assert found.equals(wide.select(found.schema.names))


def test_every_message_lies_in_one_block_aligned(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide, groups=[["text", "low", "flag"]])
    for group in arrow.open_table(store, f"{directory}/t")._description.groups:
        end = None
        for place in group.places:
            assert place.offset % blocks.ALIGNMENT == 0
            last = place.offset + place.bytes - 1
            assert place.offset // blocks.BLOCK_BYTES == last // blocks.BLOCK_BYTES
            assert end is None or place.offset == end
            end = place.offset + place.bytes
    found = arrow.get_table(store, f"{directory}/t")
    for column in found.columns[1:4]:
        for chunk in column.chunks:
            # A slice would be elsewhere; the batches are whole.
            assert all(each.address % 64 == 0 for each in chunk.buffers() if each is not None)


def test_damaged_and_foreign_descriptions_are_refused(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide.slice(0, 10))
    name = f"{directory}/t/{description.NAME}"
    good = bytes(store.get(name))
    cases = [b"", b"PAR1", good[:-1], good[:20], good + b"x", good[:100] + b"\xff" + good[101:]]
    for bad in cases:
        store.put(name, bad)
        with pytest.raises(arrow.TableError) as raised:
            arrow.get_table(store, f"{directory}/t")
        assert f"{directory}/t" in str(raised.value)
    newer = description.decode("/t", good)
    later = newer.encode().replace(b'"version": 1', b'"version": 2')
    body = later[24:]
    store.put(name, later[:16] + description._HEAD.pack(len(body), _crc(body)) + body)
    with pytest.raises(arrow.TableError, match="version 2"):
        arrow.get_table(store, f"{directory}/t")


def _crc(data: bytes) -> int:
    import zlib

    return zlib.crc32(data)


def test_foreign_objects_in_place_of_groups_are_refused(store, directory, wide):
    arrow.put_table(store, f"{directory}/t", wide.select(["id", "key"]))
    table = arrow.open_table(store, f"{directory}/t")
    for group in table._description.groups:
        path = f"{directory}/t/{group.object}"
        kept = bytes(store.get(path))
        for bad in (b"short", bytes(len(kept)), kept[::-1]):
            store.put(path, bad)
            with pytest.raises(arrow.TableError):
                arrow.get_table(store, f"{directory}/t")
        store.put(path, kept)
    assert arrow.get_table(store, f"{directory}/t").equals(wide.select(["id", "key"]))


def test_wrong_calls_are_distinguished(store, directory, wide):
    store.put(f"{directory}/file", b"x")
    with pytest.raises(FileNotFoundError):
        arrow.get_table(store, f"{directory}/none")
    for other in (directory, f"{directory}/file"):
        with pytest.raises(arrow.TableError, match="no table"):
            arrow.get_table(store, other)
    with pytest.raises(TypeError):
        arrow.put_table(store, f"{directory}/t", 3)
    inner = pa.table({"a": pa.array([["x"]], pa.list_(pa.dictionary(pa.int8(), pa.string())))})
    with pytest.raises(arrow.TableError, match="dictionaries"):
        arrow.put_table(store, f"{directory}/t", inner)
    assert not store.exists(f"{directory}/t")
    arrow.put_table(store, f"{directory}/t", wide)
    with pytest.raises(arrow.TableError, match="'none'"):
        arrow.get_table(store, f"{directory}/t", ["none"])
    for bad in (pc.field("none") == 1, pc.field("id") == "text", pc.field("id") + 1):
        with pytest.raises(arrow.TableError, match="filter"):
            arrow.scan(store, f"{directory}/t", filter=bad)
    error = arrow.TableError("x")
    assert error.recovery is sanderling.Recovery.FIX and isinstance(error, ValueError)
