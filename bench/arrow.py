#!/usr/bin/env python3
"""Reads TPC-DS store_sales from tables in Sanderling, and from Parquet and Feather files in memory.

Run it with the environment that has the package: .venv/bin/python bench/arrow.py. All formats are
read by pyarrow in this process, in turns, at least five rounds; files lie in /dev/shm. What a
reader delivers is added up word by word, so that every value is touched, by the same loop for all;
`memory` is that loop over the same table in plain memory: what the machine can do.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet
from machine import GIB, MIB, cpu_seconds, describe

import sanderling
from sanderling import arrow

COLUMNS = ["ss_item_sk", "ss_quantity", "ss_net_paid"]
ROUNDS_MIN = 5
"""Fewer would mean nothing on a machine shared with others."""


@dataclass
class Samples:
    """What the rounds of one read gave."""

    seconds: list[float] = field(default_factory=list)
    client_seconds: list[float] = field(default_factory=list)
    server_seconds: list[float] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def document(self) -> dict[str, Any]:
        """Returns the figures: medians with their least and greatest."""
        size = self.bytes / GIB
        cpu = [a + b for a, b in zip(self.client_seconds, self.server_seconds, strict=True)]
        return {
            "rows": self.rows,
            "bytes": self.bytes,
            "seconds": spread(self.seconds),
            "rows_per_second": spread([self.rows / each for each in self.seconds]),
            "gib_per_second": spread([size / each for each in self.seconds]),
            "cpu_seconds_per_gib": spread([each / size for each in cpu]) if size else None,
        }


def spread(values: list[float]) -> dict[str, float]:
    """Returns the median, the least and the greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


class Remote(sanderling.Cluster):
    """A cluster whose memory clients cannot map: its datanodes stand for other machines."""

    def _spawn(self, role: str, name: str, arguments: list[str]) -> Any:
        if role == "datanode":
            arguments = [*arguments, "--egress-limit", "1TiB"]
        return super()._spawn(role, name, arguments)


def main() -> int:
    """Measures and prints a table, or one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-DS scale factor")
    parser.add_argument("--rounds", type=int, default=ROUNDS_MIN)
    parser.add_argument("--cache", type=Path, default=Path("target/tpcds"), help="for the data")
    parser.add_argument("--remote", action="store_true", help="over TCP, as from other machines")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rounds < ROUNDS_MIN:
        parser.error(f"{ROUNDS_MIN} rounds at least")
    table = sales(options.cache, options.scale)
    files = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="sanderling-arrow-"))
    kind = Remote if options.remote else sanderling.Cluster
    # One connection holds leases on a quarter of a node's memory at most; more would be copied.
    dram = max(6 * table.nbytes, 256 * MIB)
    try:
        with kind.local(datanodes=1, dram_bytes=dram) as cluster, cluster.store() as store:
            written = write(files, store, table)
            found = measure(reads(files, store, table), cluster, options.rounds, table)
    finally:
        shutil.rmtree(files, ignore_errors=True)
    document = {
        "schema": 1,
        "scale": options.scale,
        "remote": options.remote,
        "rounds": options.rounds,
        "table": {"rows": table.num_rows, "bytes": table.nbytes},
        "written": written,
        "machine": describe({"pyarrow": pa.__version__}),
        "memcpy_gib_per_second": memcpy(),
        "reads": {what: {by: each.document() for by, each in of.items()}
                  for what, of in found.items()},
        "ratios": {what: ratios(of) for what, of in found.items()},
    }
    print(json.dumps(document) if options.json else text(document))
    return 0


def sales(cache: Path, scale: float) -> pa.Table:
    """Returns store_sales, made by tpcgen-cli if it is not there."""
    path = cache / f"sf{scale:g}" / "store_sales.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        tool = Path(sysconfig.get_path("scripts")) / "tpcgen-cli"
        command = [str(tool), "tpcds", "parquet", "--scale-factor", f"{scale:g}"]
        command += ["--tables=store_sales", "--output-dir", str(path.parent)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return pa.parquet.read_table(path).combine_chunks()


def write(files: Path, store: sanderling.Store, table: pa.Table) -> dict[str, dict[str, float]]:
    """Writes the table in every format; returns how long each took and what it takes."""
    feather = pa.feather.write_feather
    writers: dict[str, Callable[[], Any]] = {
        "sanderling": lambda: arrow.put_table(store, "/sales", table),
        "parquet": lambda: pa.parquet.write_table(table, files / "sales.parquet"),
        "feather": lambda: feather(table, files / "sales.feather", compression="uncompressed"),
        "feather-lz4": lambda: feather(table, files / "sales.lz4", compression="lz4"),
    }
    written = {}
    for by, writer in writers.items():
        began = time.perf_counter()
        writer()
        written[by] = {"seconds": time.perf_counter() - began}
    names = {"parquet": "sales.parquet", "feather": "sales.feather", "feather-lz4": "sales.lz4"}
    for by, name in names.items():
        written[by]["bytes"] = (files / name).stat().st_size
    written["sanderling"]["bytes"] = store.usage("/sales").bytes
    return written


Reads = dict[str, dict[str, Callable[[], pa.Table | pa.RecordBatchReader]]]


def reads(files: Path, store: sanderling.Store, table: pa.Table) -> Reads:
    """Returns what is read, by library."""
    parquet, lz4 = files / "sales.parquet", files / "sales.lz4"
    plain = files / "sales.feather"
    feather = pa.feather.read_table
    ticket = pc.field("ss_ticket_number")
    last = pc.max(table["ss_ticket_number"]).as_py()
    # One in a hundred, all over the table; and one in a hundred, side by side.
    scattered, together = pc.field("ss_quantity") == 50, ticket > last - last // 100

    def filtered(filter: Any) -> dict[str, Callable[[], pa.Table]]:
        def of(path: Path) -> Callable[[], pa.Table]:
            form = "parquet" if path == parquet else "feather"
            return lambda: pa.dataset.dataset(path, format=form).to_table(filter=filter)

        return {
            "memory": lambda: table.filter(filter),
            "sanderling": lambda: arrow.scan(store, "/sales", filter=filter).read_all(),
            "parquet": of(parquet),
            "feather": of(plain),
            "feather-lz4": of(lz4),
        }

    return {
        "full scan": {
            "memory": lambda: table,
            "sanderling": lambda: arrow.get_table(store, "/sales"),
            "sanderling-stream": lambda: arrow.scan(store, "/sales"),
            "parquet": lambda: pa.parquet.read_table(parquet),
            "feather": lambda: feather(plain, memory_map=True),
            "feather-lz4": lambda: feather(lz4, memory_map=True),
        },
        "3 columns": {
            "memory": lambda: table.select(COLUMNS),
            "sanderling": lambda: arrow.get_table(store, "/sales", COLUMNS),
            "parquet": lambda: pa.parquet.read_table(parquet, columns=COLUMNS),
            "feather": lambda: feather(plain, COLUMNS, memory_map=True),
            "feather-lz4": lambda: feather(lz4, COLUMNS, memory_map=True),
        },
        "1 % scattered": filtered(scattered),
        "1 % together": filtered(together),
    }


def measure(
    what: Reads, cluster: sanderling.Cluster, rounds: int, whole: pa.Table
) -> dict[str, dict[str, Samples]]:
    """Reads in turns, after one round that is not counted. Of a filter, rows and bytes are those
    that it looks through."""
    pids = [cluster.namenode_pid, *cluster.pids.values()]
    found = {name: {by: Samples() for by in readers} for name, readers in what.items()}
    for turn in range(rounds + 1):
        for name, readers in what.items():
            sums = set()
            for by, reader in readers.items():
                samples = found[name][by]
                servers = sum(cpu_seconds(pid) for pid in pids)
                client, began = time.process_time(), time.perf_counter()
                table = reader()
                if isinstance(table, pa.RecordBatchReader):
                    rows = 0
                    for batch in table:
                        touched(pa.Table.from_batches([batch]))
                        rows += batch.num_rows
                    table = whole.slice(0, rows)
                else:
                    touched(table)
                seconds = time.perf_counter() - began
                sums.add((table.num_rows, pc.sum(table["ss_quantity"]).as_py()))
                if turn:
                    samples.seconds.append(seconds)
                    samples.client_seconds.append(time.process_time() - client)
                    samples.server_seconds.append(sum(cpu_seconds(pid) for pid in pids) - servers)
                found_in = whole if "%" in name else table
                samples.rows, samples.bytes = found_in.num_rows, found_in.nbytes
                del table
            if len(sums) != 1:
                raise SystemExit(f"{name}: the readers do not agree: {sums}")
    return found


def touched(table: pa.Table) -> int:
    """Adds up every word of every value and bitmap, so that all go through the processor.

    For columns of fixed width, which those of store_sales are. Of a slice, only what is its own.
    """
    total = 0
    for column in table.columns:
        bits = column.type.bit_width
        for chunk in column.chunks:
            for buffer, width in zip(chunk.buffers(), (1, bits), strict=True):
                if buffer is not None:
                    start = chunk.offset * width // 64
                    stop = (chunk.offset + len(chunk)) * width // 64
                    words = numpy.frombuffer(buffer, numpy.uint64, buffer.size // 8)
                    total += int(words[start:stop].sum())
    return total


def memcpy() -> float:
    """Returns GiB per second of copies, each byte counted once."""
    source, target = numpy.ones(256 * MIB, numpy.uint8), numpy.zeros(256 * MIB, numpy.uint8)
    best = 0.0
    for _ in range(ROUNDS_MIN):
        began = time.perf_counter()
        numpy.copyto(target, source)
        best = max(best, source.nbytes / GIB / (time.perf_counter() - began))
    return best


def ratios(of: dict[str, Samples]) -> dict[str, dict[str, float]]:
    """Returns how many times as fast Sanderling was as each other, round by round."""
    ours = of["sanderling"].seconds
    return {
        by: spread([other / own for own, other in zip(ours, each.seconds, strict=True)])
        for by, each in of.items()
        if by != "sanderling"
    }


def text(document: dict[str, Any]) -> str:
    """Returns the table that is printed."""
    size, rows = document["table"]["bytes"], document["table"]["rows"]
    lines = [f"store_sales, scale {document['scale']:g}: {rows:,} rows, {size / MIB:.0f} MiB"]
    lines[0] += " over TCP" if document["remote"] else " on the same host"
    lines.append(f"memcpy {document['memcpy_gib_per_second']:.1f} GiB/s")
    for by, each in document["written"].items():
        lines.append(f"written {by:18} {each['seconds']:.2f} s, {each['bytes'] / MIB:.0f} MiB")
    head = f"{'read':15} {'by':18} {'Mrows/s':>22} {'GiB/s':>6} {'CPU s/GiB':>9}  ours is x as fast"
    lines.append(head)
    for what, of in document["reads"].items():
        for by, each in of.items():
            speed = each["rows_per_second"]
            span = "{median:.1f} ({min:.1f}-{max:.1f})".format(
                **{name: value / 1e6 for name, value in speed.items()}
            )
            cpu = each["cpu_seconds_per_gib"]["median"] if each["cpu_seconds_per_gib"] else 0.0
            gib = each["gib_per_second"]["median"]
            line = f"{what:15} {by:18} {span:>22} {gib:6.2f} {cpu:9.2f}"
            if by in document["ratios"][what]:
                ratio = document["ratios"][what][by]
                line += "  {median:.2f} ({min:.2f}-{max:.2f})".format(**ratio)
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
