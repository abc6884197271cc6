"""The interface for Arrow Flight, by pyarrow's own client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

pa = pytest.importorskip("pyarrow")
flight = pytest.importorskip("pyarrow.flight")

import pyarrow.compute as pc  # noqa: E402

from cluster_fixtures import until  # noqa: E402
from sanderling import arrow  # noqa: E402

TABLE = pa.table({"id": range(300_000), "text": [f"{each % 1000}" for each in range(300_000)]})


def opened(cluster, tmp_path, *options: str) -> tuple[subprocess.Popen[bytes], str]:
    """Starts the interface and returns its process and address."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "sanderling.flight", "--namenode", cluster.address]
    command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until("the server is ready", lambda: ready.exists() and ready.read_text())
    return process, json.loads(ready.read_text())["address"]


@pytest.fixture(scope="module")
def client(cluster, tmp_path_factory) -> Iterator[flight.FlightClient]:
    process, address = opened(cluster, tmp_path_factory.mktemp("flight"))
    with flight.connect(f"grpc://{address}") as client:
        yield client
    process.terminate()
    process.wait(60)


@pytest.fixture
def table(store, directory) -> Iterator[str]:
    """A table that is there."""
    arrow.put_table(store, f"{directory}/t", TABLE)
    yield f"{directory}/t"
    store.delete(directory, recursive=True)


def fetched(client: flight.FlightClient, info: flight.FlightInfo) -> pa.Table:
    return pa.concat_tables([client.do_get(each.ticket).read_all() for each in info.endpoints])


def command(**asked) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps(asked))


def test_table_is_fetched_part_by_part(client, table):
    info = client.get_flight_info(flight.FlightDescriptor.for_path(*table[1:].split("/")))
    assert info.schema.equals(TABLE.schema) and info.total_records == TABLE.num_rows
    assert len(info.endpoints) > 1
    assert fetched(client, info).equals(TABLE)


def test_columns_and_filters_are_the_servers_work(client, table):
    asked = command(path=table, columns=["text"], filter=[["id", "<", 5]])
    info = client.get_flight_info(asked)
    assert info.schema.names == ["text"]
    assert fetched(client, info)["text"].to_pylist() == ["0", "1", "2", "3", "4"]
    assert client.get_schema(asked).schema.names == ["text"]


def test_table_is_put_and_listed(client, store, table):
    path = f"{table}-put"
    writer, _ = client.do_put(flight.FlightDescriptor.for_path(path), TABLE.schema)
    with writer:
        writer.write_table(TABLE, max_chunksize=50_000)
    assert arrow.get_table(store, path).equals(TABLE)
    parent = path.rpartition("/")[0]
    found = client.list_flights(parent.encode())
    listed = {b"/".join(each.descriptor.path).decode() for each in found}
    assert listed == {table[1:], path[1:]}


def test_replaced_table_refuses_old_tickets(client, store, table):
    info = client.get_flight_info(flight.FlightDescriptor.for_path(table))
    arrow.put_table(store, table, TABLE.slice(1))
    with pytest.raises(flight.FlightUnavailableError, match="replaced"):
        client.do_get(info.endpoints[0].ticket).read_all()


def test_bad_calls_have_flights_own_errors(client, table):
    with pytest.raises(flight.FlightServerError, match="NotFound"):
        client.get_flight_info(flight.FlightDescriptor.for_path("none"))
    bad = [
        command(path=table, columns=["none"]),
        command(path=table, rows=3),
        command(path=table, other=1),
        command(columns=["id"]),
        flight.FlightDescriptor.for_command(b"\xff"),
        flight.FlightDescriptor.for_command(b"[]"),
        flight.FlightDescriptor.for_path("/", "bad\0name"),
    ]
    for descriptor in bad:
        with pytest.raises(flight.FlightServerError) as raised:
            client.get_flight_info(descriptor)
        assert "Traceback" not in str(raised.value)
    with pytest.raises(flight.FlightServerError, match="filter"):
        ticket = flight.Ticket(json.dumps({"path": table, "filter": [["none", "<", 5]]}))
        client.do_get(ticket).read_all()


def test_token_is_asked_for(cluster, tmp_path, table):
    (tmp_path / "token").write_text("secret\n")
    process, address = opened(cluster, tmp_path, "--token-file", str(tmp_path / "token"))
    try:
        with flight.connect(f"grpc://{address}") as client:
            descriptor = flight.FlightDescriptor.for_path(table)
            for shown in ([], [(b"authorization", b"Bearer other")]):
                options = flight.FlightCallOptions(headers=shown)
                with pytest.raises(flight.FlightUnauthenticatedError) as raised:
                    client.get_flight_info(descriptor, options)
                assert "secret" not in str(raised.value)
            options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer secret")])
            assert client.get_flight_info(descriptor, options).total_records == TABLE.num_rows
    finally:
        process.terminate()
        process.wait(60)


def test_interface_speaks_tls(cluster, tmp_path, table):
    made = [sys.executable, "-m", "sanderling", "tls", "new", "--out", str(tmp_path / "tls")]
    subprocess.run(made, check=True, timeout=60, capture_output=True)
    cert, key = tmp_path / "tls" / "node.pem", tmp_path / "tls" / "node.key"
    process, address = opened(cluster, tmp_path, "--tls-cert", str(cert), "--tls-key", str(key))
    try:
        authority = (tmp_path / "tls" / "ca.pem").read_bytes()
        with flight.connect(
            f"grpc+tls://{address}", tls_root_certs=authority, override_hostname="sanderling"
        ) as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_path(table))
            assert info.total_records == TABLE.num_rows
        with flight.connect(f"grpc+tls://{address}") as other, pytest.raises(flight.FlightError):
            other.get_flight_info(flight.FlightDescriptor.for_path(table))
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize(
    "options", [["--listen", "0.0.0.0:0"], ["--listen", "nowhere"], ["--tls-cert", "/none"]]
)
def test_interface_does_not_open_unsafely(cluster, options):
    command = [sys.executable, "-m", "sanderling.flight", "--namenode", cluster.address, *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr and ran.stderr.count("\n") == 1


def test_sums_agree_over_all_endpoints(client, table):
    info = client.get_flight_info(command(path=table, columns=["id"]))
    assert pc.sum(fetched(client, info)["id"]).as_py() == sum(range(300_000))
