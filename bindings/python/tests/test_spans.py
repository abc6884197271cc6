"""The export of a program's spans, with those of the servers, to a collector on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import sanderling

PUT_AND_GET = """
with sanderling.connect(address, otlp=url) as store:
    store.put("/x", bytes(2 << 20))
    assert len(store.get("/x")) == 2 << 20
    try:
        store.get("/none")
    except sanderling.errors.NotFound:
        pass
"""
ASYNC = """
import asyncio

async def main():
    async with sanderling.aio.connect(address, otlp=url) as store:
        await store.put("/y", bytes(2 << 20))
        assert len(await store.get("/y")) == 2 << 20

asyncio.run(main())
"""
FORKED = """
store = sanderling.connect(address, otlp=url)
store.put("/parent", bytes(2 << 20))
child = os.fork()
if child == 0:
    with sanderling.connect(address, otlp=url) as own:
        own.put("/child", bytes(2 << 20))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it receives, with the service and the process that they are from."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.spans: list[dict] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def until(self, what, seconds: float = 60.0):
        """Waits until a function of the spans returns something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := what(list(self.spans)):
                return found
            time.sleep(0.05)
        raise AssertionError(sorted({(it["service"], it["name"]) for it in self.spans}))


class _Request(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for resource in body["resourceSpans"]:
            values = {it["key"]: it["value"] for it in resource["resource"]["attributes"]}
            service = values["service.name"]["stringValue"]
            process = int(values["process.pid"]["intValue"])
            for span in resource["scopeSpans"][0]["spans"]:
                self.server.spans.append(span | {"service": service, "process": process})
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector():
    server = Collector()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def traced(collector, monkeypatch):
    """A cluster whose servers record spans."""
    monkeypatch.setenv("SANDERLING_OTLP", collector.url)
    with sanderling.Cluster.local(datanodes=1, dram_bytes=64 << 20) as cluster:
        monkeypatch.delenv("SANDERLING_OTLP")
        yield cluster


def program(text: str, address: str, url: str | None, **environment: str):
    """Runs a program of its own: a process has one collector."""
    start = f"import os, sys\nimport sanderling, sanderling.aio\n{address=}\n{url=}\n"
    env = {key: value for key, value in os.environ.items() if key != "SANDERLING_OTLP"}
    command = [sys.executable, "-c", start + text]
    return subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env=env | environment)


def is_whole(spans: list[dict], root: str, meta: str) -> bool:
    """Returns whether a call of the program has a request and the namenode's answer below it."""
    def below(parent: dict, name: str, service: str) -> list[dict]:
        return [it for it in spans if it.get("parentSpanId") == parent["spanId"]
                and it["traceId"] == parent["traceId"] and it["name"].startswith(name)
                and it["service"] == service]

    roots = [it for it in spans if it["service"] == "sanderling-python" and it["name"] == root
             and "parentSpanId" not in it]
    return any(below(call, meta, "sanderling-namenode")
               for first in roots for call in below(first, meta, "sanderling-python"))


@pytest.mark.parametrize("text", [PUT_AND_GET, ASYNC])
def test_call_and_its_requests_are_one_trace_across_processes(traced, collector, text):
    ran = program(text, traced.address, collector.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    collector.until(lambda spans: is_whole(spans, "put", "create")
                    and is_whole(spans, "get", "lookup"))


def test_failed_call_has_its_error(traced, collector):
    # The collector of the environment, too.
    text = PUT_AND_GET.replace(", otlp=url", "")
    ran = program(text, traced.address, None, SANDERLING_OTLP=collector.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    failed = collector.until(lambda spans: [it for it in spans if it["name"] == "get"
                                            and it.get("status", {}).get("code") == 2])
    assert "/none" in failed[0]["status"]["message"]


def test_forked_child_exports_its_own_spans(traced, collector):
    ran = program(FORKED, traced.address, collector.url)
    assert (ran.returncode, ran.stderr) == (0, "")

    def of_two(spans: list[dict]) -> bool:
        puts = [it for it in spans if it["service"] == "sanderling-python" and it["name"] == "put"]
        assert len({it["spanId"] for it in puts}) == len(puts), "a span was exported twice"
        return len({it["process"] for it in puts}) == 2

    collector.until(of_two)


def test_collector_that_is_absent_or_hangs_harms_no_call_and_is_reported(traced):
    with socket.create_server(("127.0.0.1", 0)) as absent:
        closed = absent.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        for port in (closed, hanging.getsockname()[1]):
            url = f"http://127.0.0.1:{port}"
            began = time.monotonic()
            ran = program(PUT_AND_GET, traced.address, url)
            assert ran.returncode == 0, ran.stderr
            assert time.monotonic() - began < 60
            if port == closed:
                assert f"{url}/v1/traces did not take" in ran.stderr


def test_wrong_or_second_collector_is_refused(traced, collector):
    refused = """
import pytest
for wrong in ("localhost:4318", "https://127.0.0.1", "http://"):
    with pytest.raises(ValueError, match="is no collector of OTLP"):
        sanderling.connect(address, otlp=wrong)
sanderling.connect(address, otlp=url).close()
sanderling.connect(address, otlp=url + "/v1/traces").close()
with pytest.raises(ValueError, match="it has one collector"):
    sanderling.connect(address, otlp="http://127.0.0.1:1")
"""
    ran = program(refused, traced.address, collector.url)
    assert (ran.returncode, ran.stderr) == (0, "")
