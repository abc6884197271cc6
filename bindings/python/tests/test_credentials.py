"""A cluster that authenticates its callers."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys

import pytest
from cluster_fixtures import until

import sanderling
import sanderling.aio
from sanderling.errors import BadRequest, NotAllowed

VARIABLES = ["TOKEN", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_NAME", "SECRET_FILE"]


@pytest.fixture
def administrator(tmp_path, monkeypatch):
    """The environment of an administrator: a secret, certificates and a token."""

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "sanderling", *words]
        subprocess.run(command, check=True, capture_output=True)

    for name in VARIABLES:
        monkeypatch.delenv(f"SANDERLING_{name}", raising=False)
    secret, tls, token = tmp_path / "secret", tmp_path / "tls", tmp_path / "admin.token"
    run("token", "secret", "--out", str(secret))
    run("tls", "new", "--out", str(tls))
    files = {"TLS_CA": "ca.pem", "TLS_CERT": "node.pem", "TLS_KEY": "node.key"}
    for name, file in files.items():
        monkeypatch.setenv(f"SANDERLING_{name}", str(tls / file))
    monkeypatch.setenv("SANDERLING_SECRET_FILE", str(secret))
    # The cluster that it is for is not there yet.
    words = ["--role", "admin", "--expires", "1h", "--cluster", "any", "--out", str(token)]
    run("token", "new", *words)
    monkeypatch.setenv("SANDERLING_TOKEN_FILE", str(token))


@pytest.fixture
def secure(administrator):
    """A cluster with a secret and TLS, in the environment of its administrator."""
    with sanderling.Cluster.local(datanodes=1, dram_bytes=64 << 20) as cluster:
        yield cluster


def test_tokens_bound_what_a_program_may_do(secure, tmp_path, monkeypatch):
    data = bytes(2 << 20)
    with secure.store() as store, store.job("/jobs/one", lifetime=60) as job:
        store.put("/secret", b"admin's")
        job.put("a", data)
        narrow = job.token(rights=["read"], expires=60)
        monkeypatch.delenv("SANDERLING_TOKEN_FILE")

        with sanderling.connect(secure.address, token=narrow) as task:
            assert task.get("/jobs/one/a") == data
            for refused in (
                lambda: task.get("/secret"),
                lambda: task.put("/jobs/one/b", b"1"),
                lambda: task.token("/", rights=["read"], expires=60),
            ):
                with pytest.raises(NotAllowed) as caught:
                    refused()
                assert isinstance(caught.value, PermissionError) and narrow not in str(caught.value)

        async def awaited() -> None:
            async with sanderling.aio.connect(secure.address, token=narrow) as task:
                assert await task.get("/jobs/one/a") == data
                with pytest.raises(NotAllowed):
                    await task.get("/secret")

        asyncio.run(awaited())
        file = tmp_path / "narrow.token"
        file.write_text(narrow)
        with sanderling.connect(secure.address, token_file=file) as task:
            assert task.stat("/jobs/one/a").bytes == len(data)


def test_filesystem_shows_its_token(secure, tmp_path, monkeypatch):
    fs = pytest.importorskip("sanderling.fs")
    with secure.store() as store, store.job("/jobs/one", lifetime=60) as job:
        job.put("a", b"rows")
        store.put("/secret", b"admin's")
        file, authority = tmp_path / "narrow.token", tmp_path / "tls" / "ca.pem"
        file.write_text(job.token(rights=["read"], expires=60))
        monkeypatch.delenv("SANDERLING_TOKEN_FILE")
        monkeypatch.delenv("SANDERLING_TLS_CA")
        narrow = fs.SanderlingFileSystem(
            address=secure.address, token_file=str(file), tls_ca=str(authority)
        )
        assert narrow.cat_file("/jobs/one/a") == b"rows"
        assert asyncio.run(narrow._cat_file("/jobs/one/a")) == b"rows"
        assert pickle.loads(pickle.dumps(narrow)).cat_file("/jobs/one/a") == b"rows"
        for refused in (
            lambda: narrow.cat_file("/secret"),
            lambda: narrow.pipe_file("/jobs/one/a", b"other"),
            lambda: asyncio.run(narrow._info("/secret")),
        ):
            with pytest.raises(PermissionError):
                refused()
        assert file.read_text() not in narrow.to_json()


def test_caller_without_its_token_or_authority_is_not_served(secure, tmp_path, monkeypatch):
    monkeypatch.delenv("SANDERLING_TOKEN_FILE")
    with pytest.raises(NotAllowed):
        sanderling.connect(secure.address)
    with pytest.raises(NotAllowed):
        sanderling.connect(secure.address, token="none at all")
    with pytest.raises(ValueError, match="no such file|No such file"):
        sanderling.connect(secure.address, token_file=tmp_path / "nothing")
    with pytest.raises(ValueError):
        sanderling.connect(secure.address, token="a", token_file="b")
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ValueError):
        sanderling.connect(secure.address, tls_ca=tmp_path / "empty.pem")


def test_cluster_without_authentication_makes_no_tokens(store):
    with pytest.raises(BadRequest):
        store.token("/", rights=["read"], expires=60)
    with pytest.raises(TypeError):
        store.token("/", rights="read", expires=60)


def test_group_of_namenodes_with_tokens_and_tls_goes_on_without_its_leader(administrator):
    with sanderling.Cluster.local(1, 64 << 20, namenodes=3) as cluster:
        with cluster.store(timeout=30) as store:
            store.put("/before", b"1")
            leader = cluster.leader()
            cluster.kill_namenode(leader)
            store.put("/after", b"2")
            cluster.restart_namenode(leader)
            assert store.get("/before") + store.get("/after") == b"12"


def test_namenode_with_tokens_and_tls_takes_a_notice_of_an_administrator(
    administrator, tmp_path, monkeypatch
):
    with sanderling.Cluster.local(1, 64 << 20, namenodes=3) as cluster:
        with cluster.store(timeout=30) as store:
            store.put("/before", b"1")
            noticed = cluster.leader()
            for name in ("TOKEN_FILE", "TLS_CA"):
                with monkeypatch.context() as patch:
                    patch.delenv(f"SANDERLING_{name}")
                    with pytest.raises(sanderling.ClusterError, match="does not take its notice"):
                        cluster.notice_namenode(noticed, 60)
            for name in ("TOKEN_FILE", "TLS_CA"):
                with monkeypatch.context() as patch:
                    patch.setenv(f"SANDERLING_{name}", str(tmp_path / "none"))
                    with pytest.raises(ValueError, match="No such file|no certificates"):
                        cluster.notice_namenode(noticed, 60)
            cluster.add_namenode()
            assert not cluster.namenodes[noticed].is_gone
            cluster.notice_namenode(noticed, 60)
            until("it is gone", lambda: cluster.namenodes[noticed].is_gone)
            store.put("/after", b"2")
            assert store.get("/before") + store.get("/after") == b"12"
