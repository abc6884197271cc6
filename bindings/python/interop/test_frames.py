"""pandas, pyarrow.dataset, Polars and DuckDB on tables of TPC-DS in the store."""

from __future__ import annotations

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import leaving

from sanderling import arrow

QUERY = """
    SELECT i_category, count(*) AS sales, sum(ss_net_paid) AS paid
    FROM {sales} JOIN {items} ON ss_item_sk = i_item_sk
    GROUP BY ALL ORDER BY ALL
"""


@pytest.fixture
def address(cluster) -> dict[str, str]:
    return {"address": cluster.address}


def test_pandas_reads_and_writes(tpcds, sales, directory, address):
    frame = pandas.read_parquet(tpcds / "store_sales.parquet")
    url = f"sanderling://{directory}"
    frame.to_parquet(f"{url}/sales.parquet", storage_options=address)
    found = pandas.read_parquet(f"{url}/sales.parquet", storage_options=address)
    pandas.testing.assert_frame_equal(found, frame)
    some = pandas.read_parquet(
        f"{url}/sales.parquet", storage_options=address, columns=["ss_quantity"],
        filters=[("ss_quantity", "==", 7)],
    )
    assert len(some) == (frame["ss_quantity"] == 7).sum() > 0
    items = pandas.read_parquet(tpcds / "item.parquet", columns=["i_item_sk", "i_category"])
    items.to_csv(f"{url}/items.csv.gz", index=False, storage_options=address)
    back = pandas.read_csv(f"{url}/items.csv.gz", storage_options=address)
    assert back["i_item_sk"].equals(items["i_item_sk"].astype("int64"))
    items.to_pickle(f"{url}/items.pickle", storage_options=address)
    pandas.testing.assert_frame_equal(
        pandas.read_pickle(f"{url}/items.pickle", storage_options=address), items
    )


def test_pyarrow_partitions_while_nodes_leave(sales, own_cluster):
    writing = leaving(own_cluster, "write", 3)
    pyarrow.dataset.write_dataset(
        sales, "/sales", format="parquet", partitioning=["ss_store_sk"],
        partitioning_flavor="hive", filesystem=writing, max_rows_per_group=20_000,
    )
    assert writing.given.is_set()
    own_cluster.add()
    reading = leaving(own_cluster, "read", 5)
    found = pyarrow.dataset.dataset(
        "/sales", filesystem=reading, partitioning="hive", format="parquet"
    )
    field = pyarrow.dataset.field
    test = (field("ss_store_sk") == 1) & (field("ss_quantity") > 50)
    columns = ["ss_item_sk", "ss_ticket_number"]
    order = [(name, "ascending") for name in columns]
    wanted = sales.filter(test).select(columns).sort_by(order)
    assert found.to_table(columns, filter=test).sort_by(order).equals(wanted)
    assert reading.given.is_set() or found.count_rows() == sales.num_rows


def test_polars_reads_and_writes(tpcds, filesystem, directory, store):
    frame = polars.read_parquet(tpcds / "store_sales.parquet")
    with filesystem.open(f"{directory}/sales.parquet", "wb") as file:
        frame.write_parquet(file)
    with filesystem.open(f"{directory}/sales.parquet") as file:
        assert polars.read_parquet(file).equals(frame)
    source = pyarrow.dataset.dataset(f"{directory}/sales.parquet", filesystem=filesystem)
    lazy = polars.scan_pyarrow_dataset(source)
    wanted = frame.filter(polars.col("ss_quantity") < 5).select("ss_item_sk", "ss_quantity")
    found = lazy.filter(polars.col("ss_quantity") < 5).select("ss_item_sk", "ss_quantity")
    assert found.collect().equals(wanted)
    arrow.put_table(store, f"{directory}/table", frame)
    assert polars.from_arrow(arrow.get_table(store, f"{directory}/table")).equals(frame)
    reader = arrow.scan(
        store, f"{directory}/table", ["ss_item_sk", "ss_quantity"],
        filter=pc.field("ss_quantity") < 5,
    )
    assert polars.from_arrow(reader).equals(wanted)


def test_duckdb_copies_joins_and_partitions(tpcds, filesystem, directory, store, sales):
    connection = duckdb.connect(config={"threads": 4})
    connection.register_filesystem(filesystem)
    url = f"sanderling://{directory}"
    for name in ("store_sales", "item"):
        connection.execute(
            f"COPY (FROM read_parquet('{tpcds}/{name}.parquet')) TO '{url}/{name}.parquet' "
            "(FORMAT parquet, ROW_GROUP_SIZE 20000)"
        )
    local = QUERY.format(
        sales=f"read_parquet('{tpcds}/store_sales.parquet')",
        items=f"read_parquet('{tpcds}/item.parquet')",
    )
    wanted = connection.execute(local).fetchall()
    there = QUERY.format(
        sales=f"read_parquet('{url}/store_sales.parquet')", items=f"read_parquet('{url}/item.*')"
    )
    assert connection.execute(there).fetchall() == wanted
    arrow.put_table(store, f"{directory}/sales", sales)
    stored = arrow.get_table(store, f"{directory}/sales")  # noqa: F841 - DuckDB finds it by name
    query = QUERY.format(sales="stored", items=f"read_parquet('{url}/item.*')")
    assert connection.execute(query).fetchall() == wanted


def test_duckdb_queries_while_a_node_leaves(tpcds, own_cluster):
    reading = leaving(own_cluster, "read", 4)
    for name in ("store_sales", "item"):
        reading.put_file(str(tpcds / f"{name}.parquet"), f"/{name}.parquet")
    connection = duckdb.connect(config={"threads": 2})
    connection.register_filesystem(reading)
    query = QUERY.format(
        sales="read_parquet('sanderling:///store_sales.parquet')",
        items="read_parquet('sanderling:///item.parquet')",
    )
    local = QUERY.format(
        sales=f"read_parquet('{tpcds}/store_sales.parquet')",
        items=f"read_parquet('{tpcds}/item.parquet')",
    )
    assert connection.execute(query).fetchall() == connection.execute(local).fetchall()
    assert reading.given.is_set()


def test_table_of_arrow_serves_all_of_them(store, directory, sales):
    arrow.put_table(store, f"{directory}/t", sales)
    found = arrow.get_table(store, f"{directory}/t", ["ss_quantity", "ss_net_paid"])
    assert found.equals(sales.select(["ss_quantity", "ss_net_paid"]))
    wanted = sales.select(found.column_names).to_pandas()
    pandas.testing.assert_frame_equal(found.to_pandas(), wanted)
    reader = arrow.scan(store, f"{directory}/t", ["ss_quantity"])
    total = duckdb.sql("SELECT sum(ss_quantity) FROM reader").fetchone()[0]
    assert total == pc.sum(sales["ss_quantity"]).as_py()
    assert isinstance(reader, pa.RecordBatchReader)
