"""The fsspec filesystem: by itself, by fsspec's own suite, and under the tools that use it."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from datetime import datetime

import fsspec
import fsspec.tests.abstract as abstract
import pytest

import sanderling
from sanderling.fs import SanderlingFileSystem


@pytest.fixture
def url(cluster, directory) -> str:
    """A directory of the test's own with the namenode in the URL."""
    return f"sanderling://{cluster.address}{directory}"


class SanderlingFixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, cluster):
        return SanderlingFileSystem(address=cluster.address)

    @pytest.fixture
    def fs_path(self, directory):
        return directory

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, SanderlingFixtures):
    """fsspec's own tests of copies."""


class TestGet(abstract.AbstractGetTests, SanderlingFixtures):
    """fsspec's own tests of downloads."""


class TestPut(abstract.AbstractPutTests, SanderlingFixtures):
    """fsspec's own tests of uploads."""


class TestPipe(abstract.AbstractPipeTests, SanderlingFixtures):
    """fsspec's own tests of whole objects."""


class TestOpen(abstract.AbstractOpenTests, SanderlingFixtures):
    """fsspec's own tests of files."""


def test_no_part_of_the_suite_is_left_out():
    modules = [importlib.import_module(f"{abstract.__name__}.{module.name}")
               for module in pkgutil.iter_modules(abstract.__path__)]
    suites = {
        name for module in modules for name in vars(module)
        if name.startswith("Abstract") and name.endswith("Tests")
    }
    here = {base.__name__ for name, kind in globals().items() if name.startswith("Test")
            for base in kind.__mro__}
    assert len(suites) >= 5 and suites <= here


def test_filesystem_is_found_by_its_protocol(cluster, directory, url, monkeypatch):
    with fsspec.open(f"{url}/o", "wb") as file:
        file.write(b"abc")
    options = {"address": cluster.address}
    with fsspec.open(f"sanderling://{directory}/o", **options) as file:
        assert file.read() == b"abc"
    monkeypatch.setenv("SANDERLING_NAMENODE", cluster.address)
    filesystem = fsspec.filesystem("sanderling")
    assert filesystem.cat(f"sanderling://{directory}/o") == b"abc"
    assert filesystem.cat(directory[1:] + "/o") == b"abc"


def test_ranges_of_many_objects_come_in_order(filesystem, directory):
    data = bytes(range(256)) * 5000
    filesystem.pipe({f"{directory}/a": data, f"{directory}/b": data[::-1]})
    paths = [f"{directory}/{name}" for name in ("a", "b", "a", "none")]
    found = filesystem.cat_ranges(paths, [0, 10, -4, 0], [5, 20, None, 1])
    assert found[:3] == [data[:5], data[::-1][10:20], data[-4:]]
    assert isinstance(found[3], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        filesystem.cat_ranges(paths, 0, 1, on_error="raise")
    assert filesystem.cat_file(f"{directory}/a", start=-10, end=-3) == data[-10:-3]


def test_metadata_and_times_are_returned(filesystem, directory):
    filesystem.pipe_file(f"{directory}/sub/o", b"12345")
    info = filesystem.info(f"{directory}/sub/o")
    assert (info["name"], info["size"], info["type"]) == (f"{directory}/sub/o", 5, "file")
    assert isinstance(filesystem.created(f"{directory}/sub/o"), datetime)
    assert filesystem.modified(f"{directory}/sub/o") >= filesystem.created(f"{directory}/sub/o")
    assert filesystem.isdir(f"{directory}/sub") and not filesystem.isdir(f"{directory}/sub/o")
    assert filesystem.find(directory) == [f"{directory}/sub/o"]
    assert filesystem.glob(f"{directory}/*/o") == [f"{directory}/sub/o"]
    assert filesystem.du(directory) == 5
    key = filesystem.ukey(f"{directory}/sub/o")
    filesystem.pipe_file(f"{directory}/sub/o", b"67890")
    assert filesystem.ukey(f"{directory}/sub/o") != key


def test_names_move_and_go(filesystem, directory):
    filesystem.pipe_file(f"{directory}/a/o", b"x")
    filesystem.mv(f"{directory}/a/o", f"{directory}/b/o")
    filesystem.mv(f"{directory}/b", f"{directory}/c", recursive=True)
    assert filesystem.cat(f"{directory}/c/o") == b"x"
    with pytest.raises(OSError):
        filesystem.rm(f"{directory}/c")
    with pytest.raises(FileExistsError):
        filesystem.mkdir(f"{directory}/c")
    filesystem.rm(f"{directory}/c", recursive=True)
    filesystem.rmdir(f"{directory}/a")
    assert filesystem.ls(directory) == []


def test_filesystem_travels_to_another_process(filesystem, directory):
    filesystem.pipe_file(f"{directory}/o", b"x")
    assert pickle.loads(pickle.dumps(filesystem)).cat(f"{directory}/o") == b"x"
    own = SanderlingFileSystem(store=filesystem.store)
    assert own is not SanderlingFileSystem(store=filesystem.store)
    assert pickle.loads(pickle.dumps(own)).cat(f"{directory}/o") == b"x"
    assert SanderlingFileSystem.from_json(filesystem.to_json()) is filesystem
    file = fsspec.open(f"sanderling://{directory}/o", address=filesystem.store.address)
    with pickle.loads(pickle.dumps(file)) as opened:
        assert opened.read() == b"x"


def test_pandas_writes_and_reads_parquet(url):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": range(10_000), "name": [f"n{i}" for i in range(10_000)]})
    frame.to_parquet(f"{url}/frame.parquet")
    pandas.testing.assert_frame_equal(pandas.read_parquet(f"{url}/frame.parquet"), frame)
    frame.to_csv(f"{url}/frame.csv", index=False)
    pandas.testing.assert_frame_equal(
        pandas.read_csv(f"{url}/frame.csv", dtype={"name": frame["name"].dtype}), frame
    )


def test_pyarrow_writes_and_reads_a_partitioned_dataset(filesystem, directory):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.dataset
    import pyarrow.parquet

    rows = arrow.table({"part": [i % 3 for i in range(9_000)], "value": list(range(9_000))})
    arrow.parquet.write_to_dataset(
        rows, f"{directory}/rows", partition_cols=["part"], filesystem=filesystem
    )
    dataset = arrow.dataset.dataset(
        f"{directory}/rows", filesystem=filesystem, partitioning="hive", format="parquet"
    )
    found = dataset.to_table(filter=arrow.dataset.field("part") == 1)
    assert sorted(found["value"].to_pylist()) == list(range(1, 9_000, 3))
    arrow.parquet.write_table(rows, f"{directory}/one.parquet", filesystem=filesystem)
    assert arrow.parquet.read_table(f"{directory}/one.parquet", filesystem=filesystem) == rows


def test_duckdb_writes_and_reads_parquet(filesystem, directory):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(config={"threads": 4})
    connection.register_filesystem(filesystem)
    url = f"sanderling://{directory}"
    connection.execute(
        f"COPY (SELECT i AS id, i % 7 AS k FROM range(300000) t(i)) TO '{url}/t.parquet' "
        "(FORMAT parquet, ROW_GROUP_SIZE 20000)"
    )
    query = (
        f"SELECT k, count(*), sum(id) FROM read_parquet('{url}/*.parquet') GROUP BY k ORDER BY k"
    )
    wanted = connection.execute(
        "SELECT i % 7 AS k, count(*), sum(i) FROM range(300000) t(i) GROUP BY k ORDER BY k"
    ).fetchall()
    assert connection.execute(query).fetchall() == wanted


def test_lost_bytes_reach_the_tool_as_an_error(own_cluster):
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    store = own_cluster.store()
    filesystem = SanderlingFileSystem(store=store)
    rows = arrow.table({"value": list(range(1_000_000))})
    arrow.parquet.write_table(rows, "/t.parquet", filesystem=filesystem)
    for node in own_cluster.nodes():
        own_cluster.kill(node)
    with pytest.raises(sanderling.SanderlingError):
        arrow.parquet.read_table("/t.parquet", filesystem=filesystem)
