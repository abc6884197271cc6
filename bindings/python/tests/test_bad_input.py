"""Whatever is passed, at whatever moment: an error of a documented kind, or what was requested.

Never a panic, a hang, or the end of the process.
"""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

import sanderling
import sanderling.aio
from sanderling.errors import Closed, SanderlingError

# What it remembers between runs belongs to what was built.
set_hypothesis_home_dir(Path(__file__).parents[3] / "target" / "hypothesis")

DOCUMENTED = (SanderlingError, TypeError, ValueError)

WITHIN_SECONDS = 60.0

relaxed = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def released() -> memoryview:
    view = memoryview(bytearray(100))
    view.release()
    return view


class Fails:
    """Fails whatever is called on it."""

    def __fspath__(self):
        raise ValueError("no path")

    def __index__(self):
        raise TypeError("no number")

    def __float__(self):
        raise TypeError("no number")

    def __iter__(self):
        raise TypeError("nothing in it")


# Surrogates and NULs too.
texts = st.text(st.characters(exclude_categories=()), max_size=40)
paths = st.one_of(
    texts,
    texts.map(lambda text: f"/{text}"),
    st.lists(texts, max_size=4).map("/".join),
    st.sampled_from(["/", "//", "/.", "/..", "/a/", "/a//b", "/" + "x" * 5000, "/x" * 3000, ""]),
)
numbers = st.one_of(
    st.integers(),
    st.sampled_from([-1, 0, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400]),
    st.floats(),
)
buffers = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(["released", "strided", "objects", "fortran", "empty", "writable", "huge"]),
)
things = st.one_of(
    st.none(), st.booleans(), numbers, texts, st.binary(max_size=5), st.just([]), st.just({}),
    st.lists(numbers, max_size=3), st.tuples(numbers, numbers), st.builds(Fails),
)


def buffer_of(what):
    made = {
        "released": released,
        "strided": lambda: numpy.zeros(100, dtype=numpy.uint8)[::2],
        "objects": lambda: numpy.array([object()] * 20),
        "fortran": lambda: numpy.zeros((4, 5), order="F"),
        "empty": lambda: numpy.zeros((0, 3)),
        "writable": lambda: bytearray(100),
        "huge": lambda: memoryview(bytes(70_000)),
    }
    return made[what]() if isinstance(what, str) else what


any_thing = st.one_of(things, paths, buffers.map(buffer_of))
ranges = st.one_of(any_thing, st.lists(st.tuples(numbers, numbers), max_size=4))

# What a method takes: by place, and by name.
CALLS = {
    "put": ([paths, any_thing], {}),
    "put_many": ([st.one_of(any_thing, st.dictionaries(paths, any_thing, max_size=3))], {}),
    "get": ([any_thing], {"progress": any_thing}),
    "get_many": ([st.one_of(any_thing, st.lists(any_thing, max_size=3))], {}),
    "get_range": ([paths, numbers, numbers], {}),
    "get_ranges": ([paths, ranges], {}),
    "get_into": ([paths, any_thing, any_thing], {}),
    "open": ([paths, any_thing], {"autocommit": any_thing, "progress": any_thing}),
    "stat": ([any_thing], {}),
    "exists": ([any_thing], {}),
    "list": ([any_thing], {"attributes": any_thing}),
    "delete": ([paths], {"recursive": any_thing, "if_object": any_thing}),
    "rename": ([any_thing, any_thing], {"replace": any_thing}),
    "mkdir": ([paths], {"parents": any_thing, "kind": any_thing}),
    "make_durable": ([paths, any_thing], {"parents": any_thing, "backlog_max": any_thing}),
    "durability": ([any_thing], {}),
    # Nothing is durable here, so it never waits.
    "wait_durable": ([any_thing], {"timeout": any_thing}),
    "set_ttl": ([paths, any_thing], {}),
    "set_attributes": ([paths, any_thing], {"if_object": any_thing}),
    "concat": ([any_thing, paths], {}),
    "usage": ([any_thing], {}),
    "multifile": ([any_thing], {"create": any_thing}),
    "table": ([any_thing], {"create": any_thing}),
    "register_job": (
        [any_thing],
        {
            "lease": any_thing,
            "quota_bytes": any_thing,
            "names_max": any_thing,
            "attribute_bytes_max": any_thing,
        },
    ),
    "job_account": ([any_thing], {}),
    "renew_job": ([any_thing], {}),
    "end_job": ([any_thing], {}),
    "events": ([any_thing], {"limit": any_thing}),
    "follow": ([numbers], {}),
    "notice": ([texts.map(lambda text: f"none-{text}"), any_thing], {"reason": any_thing}),
    "decommission": ([texts.map(lambda text: f"none-{text}")], {"reason": any_thing}),
    "cancel": ([texts.map(lambda text: f"none-{text}")], {}),
    "nodes": ([], {"all": any_thing}),
}
OPTIONS = list(sanderling.PutOptions.__annotations__)


def draw_call(data):
    name = data.draw(st.sampled_from(sorted(CALLS)))
    placed, named = CALLS[name]
    arguments = [data.draw(each) for each in placed]
    keywords = {key: data.draw(value) for key, value in named.items() if data.draw(st.booleans())}
    if name in ("put", "put_many", "open", "concat"):
        for key in data.draw(st.lists(st.sampled_from(OPTIONS), max_size=2)):
            keywords[key] = data.draw(any_thing)
    if name == "follow":
        # Without it the events that come are waited for, for ever.
        keywords["timeout"] = 0.0
    return name, arguments, keywords


def finished(result):
    """Ends what a call began."""
    if hasattr(result, "abort"):
        result.abort()
    elif hasattr(result, "close"):
        result.close()
    elif hasattr(result, "__next__"):
        list(result)


@relaxed
@given(data=st.data())
def test_any_arguments_end_in_a_documented_error(store, data):
    name, arguments, keywords = draw_call(data)
    try:
        finished(getattr(store, name)(*arguments, **keywords))
    except DOCUMENTED:
        pass


@pytest.fixture(scope="module")
def loop_store(cluster):
    """A loop, and a store in it, for all examples."""
    loop = asyncio.new_event_loop()

    async def connected():
        return await sanderling.aio.connect(cluster.address)

    store = loop.run_until_complete(connected())
    yield loop, store
    loop.run_until_complete(store.close())
    loop.close()


@relaxed
@given(data=st.data())
def test_any_awaited_arguments_end_in_a_documented_error(loop_store, data):
    loop, store = loop_store
    calls = [draw_call(data) for _ in range(3)]

    async def one(name, arguments, keywords):
        try:
            result = getattr(store, name)(*arguments, **keywords)
            if hasattr(result, "__anext__"):
                async for _ in result:
                    pass
            else:
                result = await result
                if hasattr(result, "abort"):
                    await result.abort()
        except DOCUMENTED:
            pass

    async def together():
        await asyncio.wait_for(asyncio.gather(*(one(*call) for call in calls)), WITHIN_SECONDS)

    loop.run_until_complete(together())


@relaxed
@given(path=paths, content=st.binary(max_size=100))
def test_a_path_is_refused_or_holds_what_was_put(store, path, content):
    try:
        store.put(path, content, parents=True)
    except DOCUMENTED:
        return
    assert store.get(path) == content
    store.delete(path)


@relaxed
@given(data=st.data())
def test_any_use_of_a_file_ends_in_a_documented_error(store, directory, data):
    path, content = f"{directory}/a", bytes(range(100))
    store.put(path, content)
    mode = data.draw(st.sampled_from(["rb", "wb", "ab"]))
    file = store.open(path, mode)
    names = ["read", "readinto", "seek", "view", "read_ranges", "write", "truncate", "readline",
             "set_attribute", "commit", "abort", "close", "flush", "tell", "readlines"]
    for _ in range(data.draw(st.integers(1, 6))):
        name = data.draw(st.sampled_from(names))
        arguments = data.draw(st.lists(any_thing, max_size=2))
        try:
            getattr(file, name)(*arguments)
        except (*DOCUMENTED, AttributeError, OSError):
            # io.UnsupportedOperation is an OSError and a ValueError; a reader has no `commit`.
            pass
        except OverflowError:
            # Lines are read by Python's own io.IOBase, which counts them up to 2^63 everywhere.
            assert name in ["readline", "readlines"]
    finished(file)


@pytest.mark.parametrize("buffer", ["released", "strided", "objects", "fortran"])
def test_memory_that_is_not_bytes_in_a_row_is_refused(store, directory, buffer):
    with pytest.raises((ValueError, TypeError)):
        store.put(f"{directory}/a", buffer_of(buffer))
    with pytest.raises((ValueError, TypeError)):
        store.put_many({f"{directory}/b": b"fine", f"{directory}/a": buffer_of(buffer)})
    with pytest.raises((ValueError, TypeError)):
        store.get_into(f"{directory}/a", buffer_of(buffer))
    assert store.list(directory) == []


def test_everything_after_close_is_refused(cluster, directory):
    store = cluster.store()
    store.put(f"{directory}/a", b"bytes")
    reader, writer = store.open(f"{directory}/a"), store.open(f"{directory}/b", "wb")
    table, bag = store.table(f"{directory}/table"), store.multifile(f"{directory}/bag")
    store.close()
    given = {"get_many": [["/a"]], "put_many": [{"/a": b""}], "rename": ["/a", "/b"],
             "get_range": ["/a", 0, 1], "get_ranges": ["/a", []], "concat": [["/a"], "/b"],
             "set_ttl": ["/a", 1], "set_attributes": ["/a", {}], "notice": ["1", 1],
             "decommission": ["1"], "cancel": ["1"], "renew_job": [1], "end_job": [1],
             "job_account": [1], "put": ["/a", b""], "get_into": ["/a", bytearray(1)],
             "make_durable": ["/a", "archive"]}
    simple = ["get", "open", "stat", "exists", "list", "delete", "mkdir", "multifile", "table",
              "job", "register_job", "usage", "durability", "wait_durable"]
    given |= {name: ["/a"] for name in simple}
    given |= {name: [] for name in ["jobs", "nodes", "events", "follow", "report", "fsck",
                                    "metrics"]}
    public = {name for name in dir(store) if not name.startswith("_")}
    assert set(given) == public - {"address", "close", "walk", "token"}
    for name, arguments in given.items():
        with pytest.raises(Closed):
            getattr(store, name)(*arguments)
    token = functools.partial(store.token, "/", rights=["read"], expires=1)
    for use in (token, lambda: table["a"], bag.parts, lambda: list(store.walk())):
        with pytest.raises(Closed):
            use()
    # What was open has its own connection to the client.
    assert reader.read() == b"bytes"
    reader.close()
    writer.write(b"written")
    writer.close()
    for use in (reader.read, reader.view, lambda: writer.write(b""), writer.set_attribute):
        with pytest.raises((Closed, TypeError)):
            use()
    with cluster.store() as again:
        assert again.get(f"{directory}/b") == b"written"


def test_forked_child_must_connect_again(cluster, directory):
    store = cluster.store()
    writer = store.open(f"{directory}/a", "wb")
    writer.write(bytes(2 << 20))
    view = store.put(f"{directory}/b", bytes(2 << 20)) and store.get(f"{directory}/b")
    job = store.job(f"{directory}/job", lifetime=30)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for use in (lambda: store.get("/a"), lambda: writer.write(b"1"), writer.close):
                try:
                    use()
                except RuntimeError as error:
                    assert "connect again" in str(error)
            job._renewer.stop()
            with sanderling.connect(cluster.address) as own:
                own.put(f"{directory}/child", b"child")
                assert own.get(f"{directory}/child") == b"child"
            del writer, job
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.write(b"more")
    writer.close()
    assert store.stat(f"{directory}/a").bytes == (2 << 20) + 4
    assert store.get(f"{directory}/child") == b"child" and len(view) == 2 << 20
    assert job.is_alive
    job.end()
    store.close()


def test_threads_share_everything(store, directory):
    store.put(f"{directory}/a", bytes(3 << 20))
    reader, writer = store.open(f"{directory}/a"), store.open(f"{directory}/b", "wb")
    failures = []

    def use(number):
        try:
            for _ in range(20):
                store.put(f"{directory}/{number}", bytes(100_000))
                assert len(store.get(f"{directory}/{number}")) == 100_000
                assert len(reader.view(number, 1 << 20)) == 1 << 20
                try:
                    writer.write(bytes(300_000))
                except Closed:
                    # Another thread is writing.
                    pass
        except BaseException as error:  # noqa: BLE001 - reported to the test
            failures.append(error)

    threads = [threading.Thread(target=use, args=[number]) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WITHIN_SECONDS)
    assert not failures and not any(each.is_alive() for each in threads)
    writer.abort()


ENDS = {
    "open writers and readers": """
writer = store.open(path, "wb"); writer.write(bytes(5 << 20))
store.put(path + "-b", bytes(5 << 20)); kept = store.get(path + "-b"); view = memoryview(kept)
reader = store.open(path + "-b"); job = store.job(path + "-job")
""",
    "a thread that waits": """
threading.Thread(target=lambda: list(store.follow(10**12)), daemon=True).start()
time.sleep(0.3)
""",
    "a thread that wakes while modules go": """
threading.Thread(target=lambda: list(store.follow(10**12)), daemon=True).start()
time.sleep(0.3)
class Slow:
    def __del__(self, sleep=time.sleep): sleep(1)
sys.slow = Slow()
""",
    "threads that write": """
def write():
    while True:
        store.put(path, bytes(1 << 20))
for _ in range(4):
    threading.Thread(target=write, daemon=True).start()
time.sleep(0.3)
""",
    "tasks under way": """
async def main():
    store = await sanderling.aio.connect(address)
    for _ in range(200):
        asyncio.ensure_future(store.put(path, bytes(100_000)))
    waiting = asyncio.ensure_future(store.events(10**12, wait=100))
    writer = await store.open(path + "-w", "wb")
    await writer.write(bytes(3 << 20))
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
""",
    "tasks of a loop that is closed": """
async def main():
    store = await sanderling.aio.connect(address)
    tasks = [asyncio.ensure_future(store.get("/")) for _ in range(100)]
    raise SystemExit(0)
asyncio.run(main())
""",
    "an exit inside a callback": """
store.put(path, bytes(20 << 20), progress=lambda _: sys.exit(0))
""",
    "a fork with everything open": """
writer = store.open(path, "wb"); writer.write(bytes(3 << 20)); job = store.job(path + "-job")
if os.fork() == 0:
    sys.exit(0)
os.wait()
writer.close()
""",
}


@pytest.mark.parametrize("what", ENDS)
def test_interpreter_ends_in_order_with(what, store, directory):
    program = f"""
import asyncio, os, sys, threading, time, warnings
warnings.simplefilter("ignore")
import sanderling, sanderling.aio
address, path = "{store.address}", "{directory}/a"
store = sanderling.connect(address)
{ENDS[what]}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "panic" not in done.stderr and "Fatal" not in done.stderr, done.stderr
