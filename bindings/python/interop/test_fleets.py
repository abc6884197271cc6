"""Dask and Ray Data, whose workers are processes of their own, on tables of TPC-DS in the store."""

from __future__ import annotations

import os

import dask
import dask.dataframe
import pandas
import pytest

from sanderling.fs import SanderlingFileSystem


@pytest.fixture
def totals(tpcds) -> pandas.Series:
    columns = ["ss_store_sk", "ss_quantity"]
    frame = pandas.read_parquet(tpcds / "store_sales.parquet", columns=columns)
    return frame.groupby("ss_store_sk")["ss_quantity"].sum().sort_index()


def dask_round_trip(address: str, directory: str, tpcds, totals) -> None:
    options = {"address": address}
    url = f"sanderling://{directory}"
    source = dask.dataframe.read_parquet(
        str(tpcds / "store_sales.parquet"), columns=["ss_store_sk", "ss_quantity"]
    ).repartition(npartitions=4)
    source.to_parquet(f"{url}/sales", storage_options=options)
    found = dask.dataframe.read_parquet(
        f"{url}/sales", storage_options=options, filters=[("ss_quantity", ">", 0)]
    )
    assert found.npartitions >= 1
    sums = found.groupby("ss_store_sk")["ss_quantity"].sum().compute().sort_index()
    assert sums.astype("int64").to_dict() == totals.astype("int64").to_dict()


def test_dask_in_one_process(cluster, directory, tpcds, totals):
    with dask.config.set(scheduler="synchronous"):
        dask_round_trip(cluster.address, directory, tpcds, totals)


def test_dask_workers_while_a_node_leaves(own_cluster, tpcds, totals):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers,
        Client(workers),
    ):
        own_cluster.notice(own_cluster.nodes()[0], deadline_seconds=30)
        dask_round_trip(own_cluster.address, "/dask", tpcds, totals)


@pytest.fixture
def ray():
    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    import ray

    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=128 << 20, log_to_driver=False,
        configure_logging=False,
    )
    yield ray
    ray.shutdown()


def test_ray_data_reads_and_writes_while_a_node_leaves(ray, own_cluster, tpcds, totals):
    filesystem = SanderlingFileSystem(address=own_cluster.address)
    filesystem.put_file(str(tpcds / "store_sales.parquet"), "/in/store_sales.parquet")
    own_cluster.notice(own_cluster.nodes()[0], deadline_seconds=30)
    sales = ray.data.read_parquet("/in", filesystem=filesystem)
    sales = sales.select_columns(["ss_store_sk", "ss_quantity"])
    sales.repartition(3).write_parquet("/out", filesystem=filesystem)
    back = ray.data.read_parquet("/out", filesystem=filesystem)
    assert back.count() == sales.count()
    frame = back.to_pandas()
    sums = frame.groupby("ss_store_sk")["ss_quantity"].sum().sort_index()
    assert sums.astype("int64").to_dict() == totals.astype("int64").to_dict()
