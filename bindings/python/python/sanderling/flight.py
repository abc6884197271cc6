"""Arrow Flight in front of the store's tables: `python -m sanderling.flight --namenode HOST:PORT`.

A path of a descriptor is a table's: `FlightDescriptor.for_path("sales")` is `/sales`. A command is
JSON with `path` and, if wanted, `columns` and `filter` (as `pyarrow.parquet` takes filters).
"""

from __future__ import annotations

import argparse
import hmac
import ipaddress
import json
import socket
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

from sanderling.extras import missing

try:
    import pyarrow as pa
    import pyarrow.flight as flight
except ModuleNotFoundError as error:
    raise missing(__name__, "arrow", error) from None

from sanderling.arrow import open_table, put_table
from sanderling.arrow.description import NAME
from sanderling.errors import Recovery, SanderlingError, TimedOut
from sanderling.connection import connect
from sanderling.store import Store

ENDPOINTS_MAX = 8
"""Parts of a table that a client may fetch side by side."""

ENDPOINT_ROWS_MIN = 15 << 13
"""Fewer rows are not worth a call of their own."""

TABLES_MAX = 10_000
"""Tables in one listing."""


def _with_flight_errors(call: Callable[..., Any]) -> Callable[..., Any]:
    """Raises Flight's own errors instead of the store's."""

    @wraps(call)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except Exception as error:
            raise _of_flight(error) from None

    return wrapped


def _of_flight(error: Exception) -> flight.FlightError:
    """Returns the error in Flight's words. Others would reach the client with a stack trace."""
    if isinstance(error, flight.FlightError):
        return error
    text = f"{getattr(error, 'kind', type(error).__name__)}: {error}"
    if isinstance(error, TimedOut):
        return flight.FlightTimedOutError(text)
    waits = (Recovery.RETRY_AFTER, Recovery.REFRESH)
    if isinstance(error, SanderlingError) and error.recovery in waits:
        return flight.FlightUnavailableError(text)
    return flight.FlightServerError(text)


class TableServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves tables: ListFlights, GetFlightInfo, GetSchema, DoGet and DoPut."""

    def __init__(self, store: Store, location: str, **options: Any) -> None:
        super().__init__(location, **options)
        self._store = store

    @_with_flight_errors
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """Lists the tables below a path, `/` if the criteria have none."""
        path = _path([criteria.decode()]) if criteria else "/"
        return iter([self._info(each, flight.FlightDescriptor.for_path(*_parts(each)), {})
                     for each in self._tables(path)])

    @_with_flight_errors
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Returns the parts of a table, each with its endpoint and its ticket."""
        asked = _asked(descriptor)
        return self._info(asked["path"], descriptor, asked)

    @_with_flight_errors
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Returns the schema of a table, of the requested columns alone."""
        asked = _asked(descriptor)
        return flight.SchemaResult(self._schema(open_table(self._store, asked["path"]), asked))

    @_with_flight_errors
    def do_get(self, context: Any, ticket: Any) -> Any:
        """Streams the rows of a ticket of GetFlightInfo, or of a command as a ticket."""
        asked = _checked(_json(ticket.ticket))
        table = open_table(self._store, asked["path"])
        version = asked.get("version")
        if version is not None and version != table.version:
            raise flight.FlightUnavailableError(
                f"{asked['path']} was replaced since its ticket was made: ask for its info again"
            )
        reader = table.scan(asked.get("columns"), asked.get("filter"), rows=asked.get("rows"))
        return flight.GeneratorStream(reader.schema, _batches(reader))

    @_with_flight_errors
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Writes a table, or replaces it when the stream has ended well."""
        put_table(self._store, _asked(descriptor)["path"], reader.to_reader())

    def _info(self, path: str, descriptor: Any, asked: dict[str, Any]) -> Any:
        table = open_table(self._store, path)
        schema = self._schema(table, asked)
        step = max(-(-table.num_rows // ENDPOINTS_MAX), ENDPOINT_ROWS_MIN)
        starts = range(0, max(table.num_rows, 1), step)
        endpoints = []
        for start in starts:
            rows = [start, min(start + step, table.num_rows)]
            ticket = {**asked, "path": path, "version": table.version, "rows": rows}
            # Without a location: where the info came from.
            endpoints.append(flight.FlightEndpoint(json.dumps(ticket).encode(), []))
        rows_known = -1 if asked.get("filter") else table.num_rows
        return flight.FlightInfo(schema, descriptor, endpoints, rows_known, -1)

    def _schema(self, table: Any, asked: dict[str, Any]) -> pa.Schema:
        columns = asked.get("columns")
        if columns is None:
            return table.schema
        return table.scan(columns, rows=[0, 0]).schema

    def _tables(self, top: str) -> list[str]:
        found: list[str] = []
        for path, entries in self._store.walk(top):
            if any(each.name == NAME for each in entries):
                found.append(path)
            if len(found) == TABLES_MAX:
                break
        return found


def _batches(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_next_batch()
        except StopIteration:
            return
        except Exception as error:
            raise _of_flight(error) from None


def _asked(descriptor: Any) -> dict[str, Any]:
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return {"path": _path([part.decode() for part in descriptor.path])}
    return _checked(_json(descriptor.command))


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise flight.FlightServerError(f"a command is JSON with a path: {error}") from None


_KINDS: dict[str, Callable[[Any], bool]] = {
    "path": lambda value: isinstance(value, str),
    "columns": lambda value: isinstance(value, list) and all(isinstance(i, str) for i in value),
    "filter": lambda value: isinstance(value, list),
    "rows": lambda value: (
        isinstance(value, list) and len(value) == 2 and all(type(each) is int for each in value)
    ),
    "version": lambda value: isinstance(value, int),
}


def _checked(asked: Any) -> dict[str, Any]:
    if not isinstance(asked, dict) or "path" not in asked:
        raise flight.FlightServerError("a command is a JSON object with a path")
    for name, value in asked.items():
        if name not in _KINDS or (value is not None and not _KINDS[name](value)):
            raise flight.FlightServerError(f"a command has no {name!r} that is {value!r}")
    return {**asked, "path": _path([asked["path"]])}


def _path(parts: list[str]) -> str:
    return "/" + "/".join(parts).strip("/")


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")


class _Bearer(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Admits clients that show the token."""

    def __init__(self, token: bytes) -> None:
        super().__init__()
        self._token = token

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> None:
        for name, values in headers.items():
            for value in values if name.lower() == "authorization" else []:
                shown = value if isinstance(value, bytes) else value.encode()
                if hmac.compare_digest(shown, b"Bearer " + self._token):
                    return
        raise flight.FlightUnauthenticatedError("no token, or another one than this server's")


def main(arguments: list[str] | None = None) -> int:
    """Serves until it is interrupted, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sanderling.flight", description="Serves the store's tables by Arrow Flight."
    )
    parser.add_argument("--namenode", help="HOST:PORT [default: as of every command]")
    parser.add_argument("--listen", default="127.0.0.1:7605", help="HOST:PORT (%(default)s)")
    parser.add_argument("--token-file", type=Path, help="callers show what this file holds")
    parser.add_argument("--tls-cert", type=Path, help="certificate, PEM")
    parser.add_argument("--tls-key", type=Path, help="its key, PEM")
    parser.add_argument("--ready-file", type=Path, help="written when the server is ready")
    options = parser.parse_args(arguments)
    try:
        host, port = _address(options.listen)
        token = options.token_file.read_bytes().strip() if options.token_file else b""
        if options.token_file and not token:
            raise ValueError(f"{options.token_file} is empty")
        if bool(options.tls_cert) != bool(options.tls_key):
            raise ValueError("--tls-cert and --tls-key go together")
        pair = [(options.tls_cert.read_bytes(), options.tls_key.read_bytes())] if (
            options.tls_cert) else None
        if not _is_loopback(host) and not (token and pair):
            raise ValueError(
                f"{host} can be reached from elsewhere: pass --token-file, --tls-cert and --tls-key"
            )
        store = connect(options.namenode)
    except (OSError, ValueError) as error:
        print(f"python -m sanderling.flight: {error}", file=sys.stderr)
        return 2
    scheme = "grpc+tls" if pair else "grpc"
    middleware = {"token": _Bearer(token)} if token else None
    server = TableServer(
        store, f"{scheme}://{host}:{port}", tls_certificates=pair, middleware=middleware
    )
    if options.ready_file:
        options.ready_file.write_text(json.dumps({"address": f"{host}:{server.port}"}))
    print(f"serving tables at {scheme}://{host}:{server.port}", file=sys.stderr)
    try:
        server.serve()
    except KeyboardInterrupt:
        server.shutdown()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no HOST:PORT")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    """Returns whether all addresses of a host are this machine's own."""
    found = socket.getaddrinfo(host.strip("[]"), None)
    return all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)


if __name__ == "__main__":
    sys.exit(main())
