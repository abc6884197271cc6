#!/usr/bin/env python3
"""Measures what TLS and tokens cost: the same cluster without and with them, in turn.

    bench/tls.py --program target/release/sanderling --rounds 5 [--nginx /usr/sbin/nginx]

Each round starts a plain cluster and one with a secret, certificates and a token, the other one
first in every second round, and reads and writes 1 MiB by TCP on loopback. A line is the median of
the rounds' figures and of their ratios, with TLS divided by plain. With `--nginx` a server of files
answers the same number of bytes to curl, without and with the same certificate.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fleet import fleet
from server import Server, free_port, listens
from world import ROOT, World, run

GIB = 1 << 30
LARGE = ["--size", "1MiB", "--depth", "2", "--count", "2000", "--warmup", "64"]
LINES = [
    ("read 1 MiB, bytes a second", "read-sequential-async", LARGE, ["bytes_per_second"]),
    ("read 1 MiB, servers' CPU seconds a GiB", "read-sequential-async", LARGE,
     ["cpu", "server_seconds_per_gib"]),
    ("write 1 MiB, bytes a second", "write-async", LARGE, ["bytes_per_second"]),
    ("write 1 MiB, servers' CPU seconds a GiB", "write-async", LARGE,
     ["cpu", "server_seconds_per_gib"]),
    ("get 64 B by name, p50 in us", "get-small", ["--size", "64", "--count", "10000"],
     ["latency_micros", "p50"]),
]
FILES = 2000


def main() -> int:
    """Measures all lines and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    built = ROOT / "target" / "release" / "sanderling"
    parser.add_argument("--program", type=Path, default=built)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nginx", type=Path, help="the program of nginx")
    options = parser.parse_args()
    pairs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="sanderling-tls-") as work:
        program = options.program.resolve()
        world = World(sanderling=program, peer=program, python=program, work=Path(work))
        secured = secure(program, Path(work))
        for round_ in range(options.rounds):
            sides: dict[bool, dict[str, float]] = {}
            for is_tls in (True, False) if round_ % 2 else (False, True):
                with environment(secured if is_tls else {}):
                    sides[is_tls] = measure(world)
                if options.nginx:
                    sides[is_tls] |= nginx(options.nginx, Path(work), is_tls)
            for name, plain in sides[False].items():
                pairs.setdefault(name, []).append((plain, sides[True][name]))
    print("| what | plain | TLS and token | TLS / plain | lowest to highest |")
    print("| --- | --- | --- | --- | --- |")
    for name, found in pairs.items():
        ratios = sorted(tls / plain for plain, tls in found)
        plain, tls = (statistics.median(side) for side in zip(*found, strict=True))
        print(f"| {name} | {plain:.4g} | {tls:.4g} | {statistics.median(ratios):.2f} "
              f"| {ratios[0]:.2f} to {ratios[-1]:.2f} |")
    return 0


def secure(program: Path, work: Path) -> dict[str, str]:
    """Makes a secret, certificates and a token; returns the variables that name them."""
    tls, secret, token = work / "tls", work / "secret", work / "token"
    run([str(program), "token", "secret", "--out", str(secret)])
    run([str(program), "tls", "new", "--out", str(tls)])
    run([str(program), "token", "new", "--secret-file", str(secret), "--role", "admin",
         "--cluster", "any", "--out", str(token)])
    return {
        "SANDERLING_SECRET_FILE": str(secret),
        "SANDERLING_TLS_CA": str(tls / "ca.pem"),
        "SANDERLING_TLS_CERT": str(tls / "node.pem"),
        "SANDERLING_TLS_KEY": str(tls / "node.key"),
        "SANDERLING_TOKEN_FILE": str(token),
    }


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Sets variables for the programs that are started meanwhile."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]


def measure(world: World) -> dict[str, float]:
    """Measures one cluster."""
    found: dict[str, float] = {}
    with fleet(world) as cluster:
        results = {}
        for name, kind, flags, figure in LINES:
            if kind not in results:
                results[kind] = cluster.bench(kind, *flags)
            value = results[kind]
            for key in figure:
                value = value[key]
            found[name] = float(value)
    return found


def nginx(program: Path, work: Path, is_tls: bool) -> dict[str, float]:
    """Measures what a server of files takes for the same bytes, with sendfile where it can."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        place, port = Path(name), free_port()
        (place / "file").write_bytes(os.urandom(1 << 20))
        tls = work / "tls"
        keys = f"ssl_certificate {tls}/node.pem; ssl_certificate_key {tls}/node.key;"
        (place / "conf").write_text(f"""
            daemon off; master_process off; pid {place}/pid; error_log stderr;
            events {{}}
            http {{
                access_log off; sendfile on; keepalive_requests 1000000;
                client_body_temp_path {place}; proxy_temp_path {place};
                fastcgi_temp_path {place}; uwsgi_temp_path {place}; scgi_temp_path {place};
                server {{
                    listen 127.0.0.1:{port} {"ssl" if is_tls else ""}; {keys if is_tls else ""}
                    root {place};
                }}
            }}
        """)
        command = [str(program), "-c", str(place / "conf"), "-p", str(place)]
        with Server("nginx", command, place / "log") as server:
            server.serves(lambda: listens(port))
            scheme = "https" if is_tls else "http"
            before = server.cpu_seconds()
            subprocess.run(
                ["curl", "--silent", "--fail", "--insecure", "--http1.1", "--output", "/dev/null",
                 f"{scheme}://127.0.0.1:{port}/file?[1-{FILES}]"],
                check=True, timeout=120, stdout=subprocess.DEVNULL,
            )
            seconds = server.cpu_seconds() - before
    return {"nginx and curl, 1 MiB, server's CPU seconds a GiB": seconds / (FILES << 20) * GIB}


if __name__ == "__main__":
    sys.exit(main())
