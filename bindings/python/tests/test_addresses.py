"""Which cluster is connected to: URLs, contexts, and addresses that are wrong."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import sanderling
import sanderling.aio
from sanderling import _sanderling
from sanderling.credentials import resolve
from sanderling.fs import SanderlingFileSystem

TABLE = Path(__file__).parents[3] / "conformance" / "addresses.tsv"

CASES = [
    line.split("\t")
    for line in TABLE.read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.fixture
def contexts(tmp_path, monkeypatch):
    """Runs `sanderling context` on a file of the test's own."""
    for name in ("NAMENODE", "CONTEXT", "TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_NAME"):
        monkeypatch.delenv(f"SANDERLING_{name}", raising=False)
    monkeypatch.setenv("SANDERLING_CONFIG_HOME", str(tmp_path))

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "sanderling", "context", *words]
        subprocess.run(command, check=True, capture_output=True)

    return run


@pytest.mark.parametrize("case", CASES, ids=[" ".join(case[:2]) for case in CASES])
def test_addresses_are_those_of_the_table(case, contexts):
    kind, given, *wanted = case

    def found() -> list[str]:
        if kind == "address":
            return [resolve(given).address]
        address = SanderlingFileSystem._get_kwargs_from_urls(given).get("address", "-")
        path = _sanderling.split_url(given)[1]
        assert SanderlingFileSystem._strip_protocol(given) == "/" + path.strip("/")
        return [address, path]

    if wanted[0].startswith("!"):
        with pytest.raises(ValueError) as raised:
            found()
        assert wanted[0][1:] in str(raised.value)
    else:
        assert found() == wanted


def test_one_of_several_namenodes_suffices(contexts, cluster, directory):
    addresses = f"127.0.0.1:1,{cluster.address}"
    with sanderling.connect(addresses) as store:
        store.put(f"{directory}/a", b"1")
        assert bytes(store.get(f"{directory}/a")) == b"1"
    filesystem = SanderlingFileSystem(address=addresses)
    assert filesystem.cat_file(f"sanderling://{addresses}{directory}/a") == b"1"
    with pytest.raises(ValueError, match="address 2 of 2"):
        sanderling.connect(f"{cluster.address},b:x")


def test_current_context_is_the_default(contexts, cluster, directory):
    assert resolve().address == "127.0.0.1:7600"
    contexts("add", "here", "--namenode", cluster.address)
    contexts("add", "gone", "--namenode", "127.0.0.1:1")
    with sanderling.connect(context="here") as store:
        assert store.address == cluster.address
    contexts("use", "here")
    with sanderling.connect() as store:
        store.put(f"{directory}/a", b"1")

    async def awaited() -> bytes:
        async with sanderling.aio.connect() as store:
            return bytes(await store.get(f"{directory}/a"))

    assert asyncio.run(awaited()) == b"1"
    filesystem = SanderlingFileSystem(context="here")
    assert filesystem.cat_file(f"sanderling://{directory}/a") == b"1"
    pickled = pickle.dumps(filesystem)
    contexts("rm", "here")
    assert pickle.loads(pickled).cat_file(f"{directory}/a") == b"1"
    with pytest.raises(ValueError, match="no context 'here'|no context \"here\""):
        sanderling.connect(context="here")
    with pytest.raises(ValueError, match="given together"):
        sanderling.connect(cluster.address, context="gone")


def test_open_file_of_contexts_is_refused(contexts, tmp_path):
    contexts("add", "here", "--namenode", "127.0.0.1:1")
    file = tmp_path / "contexts.toml"
    os.chmod(file, 0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        sanderling.connect()


def test_wrong_addresses_are_understood(cluster, monkeypatch):
    with pytest.raises(ValueError, match="is a URL of http"):
        sanderling.connect(f"http://{cluster.address}")
    datanode = cluster.nodes()[0].address
    with pytest.raises(sanderling.SanderlingError, match="that of a datanode") as raised:
        sanderling.connect(datanode, timeout=5)
    assert raised.value.kind == "BadAddress" and isinstance(raised.value, ValueError)
    with pytest.raises(sanderling.Unreachable, match="lookup"):
        sanderling.connect("no-such-host.invalid", timeout=5)
