"""The store for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import sanderling
import sanderling.aio
from sanderling.errors import BadRequest, Closed

Program = Callable[[sanderling.aio.AsyncStore, str], Awaitable[Any]]

WITHIN_SECONDS = 60.0


@pytest.fixture
def run(cluster, directory):
    """Runs a program with an asynchronous store and a directory of its own."""

    def run_program(program: Program) -> Any:
        async def main() -> Any:
            async with sanderling.aio.connect(cluster.address) as store:
                return await asyncio.wait_for(program(store, directory), WITHIN_SECONDS)

        return asyncio.run(main())

    return run_program


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    while not (value := await condition()):
        await asyncio.sleep(0.01)
    return value


def test_names_and_results_are_those_of_the_store(run, store):
    async def program(remote, directory):
        path = f"{directory}/a"
        stat = await remote.put(path, b"0123456789")
        assert stat == await remote.stat(path) == store.stat(path)
        assert await remote.get(path) == b"0123456789"
        assert await remote.get_range(path, 2, 3) == b"234"
        assert await remote.get_ranges(path, [(0, 1), (9, 1)]) == [b"0", b"9"]
        many = {f"{directory}/{name}": name.encode() for name in "xyz"}
        assert len(await remote.put_many(many)) == 3
        assert await remote.get_many(many) == [b"x", b"y", b"z"]
        await remote.rename(path, f"{directory}/b")
        assert not await remote.exists(path)
        assert [entry.name for entry in await remote.list(directory)] == ["b", "x", "y", "z"]
        await remote.mkdir(f"{directory}/below/it", parents=True)
        walked = [path async for path, _ in remote.walk(directory)]
        assert walked == [directory, f"{directory}/below", f"{directory}/below/it"]
        assert (await remote.delete(directory, recursive=True)).objects >= 4
        assert await remote.nodes() and (await remote.fsck()).problems == []

    run(program)
    here, there = (
        {name for name in dir(kind) if not name.startswith("_")}
        for kind in (sanderling.aio.AsyncStore, sanderling.Store)
    )
    assert here == there


def test_errors_are_those_of_the_store(run):
    async def program(remote, directory):
        with pytest.raises(sanderling.NotFound) as caught:
            await remote.get(f"{directory}/nothing")
        assert caught.value.recovery == sanderling.Recovery.FIX
        with pytest.raises(BadRequest):
            await remote.get("not absolute")
        with pytest.raises(ValueError):
            await remote.get_range(f"{directory}/a", -1, 1)
        with pytest.raises(TypeError):
            await remote.put(f"{directory}/a", "text")
        with pytest.raises(sanderling.NotFound):
            await remote.get_many([f"{directory}/nothing"])
        errors = await remote.get_many([f"{directory}/nothing"], return_errors=True)
        assert isinstance(errors[0], sanderling.NotFound)

    run(program)


def test_thousands_of_calls_are_under_way_without_a_thread_each(run):
    async def program(remote, directory):
        threads = threading.active_count()
        names = [f"{directory}/{number}" for number in range(3000)]
        await asyncio.gather(*(remote.put(name, name.encode()) for name in names))
        found = await asyncio.gather(*(remote.get(name) for name in names))
        assert found == [name.encode() for name in names]
        assert threading.active_count() == threads

    run(program)


def test_loop_goes_on_while_a_call_waits(run):
    async def program(remote, _):
        sequence = (await remote.events())[-1].sequence
        waiting = asyncio.create_task(remote.events(sequence + 1_000_000, wait=5.0))
        assert await remote.nodes()
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(program)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 10, 50])
def test_cancelled_put_leaves_the_object_before_it_or_its_own(run, turns):
    old, new = b"old" * 100, bytes(4 << 20)

    async def program(remote, directory):
        path = f"{directory}/a"
        await remote.put(path, old)
        task = asyncio.create_task(remote.put(path, new))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert bytes(await remote.get(path)) in (old, new)
        # No client holds the name.
        await remote.put(path, b"after")
        assert await remote.get(path) == b"after"
        assert [entry.name for entry in await remote.list(directory)] == ["a"]

    run(program)


def test_cancelled_call_lets_go_of_its_buffer(run):
    async def program(remote, directory):
        data = bytearray(8 << 20)
        task = asyncio.create_task(remote.put(f"{directory}/a", data))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

        async def is_free():
            try:
                data.append(0)
            except BufferError:
                return False
            return True

        await until(is_free)

    run(program)


def test_calls_wait_their_turn_and_can_be_cancelled_there(run):
    async def program(remote, directory):
        await remote.put(f"{directory}/a", b"bytes")
        tasks = [asyncio.create_task(remote.get(f"{directory}/a")) for _ in range(5000)]
        await asyncio.sleep(0)
        for task in tasks[2000:]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(each == b"bytes" for each in done[:2000])
        assert await remote.get(f"{directory}/a") == b"bytes"

    run(program)


def test_files_are_written_and_read(run):
    async def program(remote, directory):
        path = f"{directory}/a"
        data = bytes(range(256)) * 8192
        async with remote.open(path, "wb") as file:
            for start in range(0, len(data), 100_000):
                await file.write(data[start : start + 100_000])
            assert not await remote.exists(path) and file.tell() == len(data)
        assert file.stat == await remote.stat(path)
        async with remote.open(path) as file:
            assert await file.read(10) == data[:10] and file.tell() == 10
            assert await file.read() == data[10:]
            assert await file.read() == b""
            into = bytearray(1000)
            assert file.seek(-500, 2) == len(data) - 500
            assert await file.readinto(into) == 500 and into[:500] == data[-500:]
            assert await file.read_ranges([(0, 2), (5, 1)]) == [data[:2], data[5:6]]
            assert await file.view(7, 3) == data[7:10]
            file.seek(0)
            assert b"".join([bytes(piece) async for piece in file]) == data
        with pytest.raises(Closed):
            await file.read()
        writer = await remote.open(path, "ab")
        await writer.write(b"more")
        await writer.close()
        assert (await remote.stat(path)).bytes == len(data) + 4

    run(program)


def test_error_in_a_file_block_commits_nothing(run):
    async def program(remote, directory):
        with pytest.raises(ZeroDivisionError):
            async with remote.open(f"{directory}/a", "wb") as file:
                await file.write(bytes(2 << 20))
                1 / 0
        assert not await remote.exists(f"{directory}/a")
        await remote.put(f"{directory}/a", b"free")

    run(program)


def test_cancelled_write_gives_the_file_up(run):
    async def program(remote, directory):
        writer = await remote.open(f"{directory}/a", "wb")
        task = asyncio.create_task(writer.write(bytes(16 << 20)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(Closed, match="cancelled"):
            await writer.close()
        assert not await remote.exists(f"{directory}/a")
        await remote.put(f"{directory}/a", b"free")

    run(program)


async def cancelled_after_its_end(remote: sanderling.aio.AsyncStore, call: Any) -> None:
    """Cancels a call whose answer is there, before the loop has taken it."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    # The pipe is readable when the call has ended, and the loop does not run meanwhile.
    assert select.select([remote._calls.queue.fileno()], [], [], WITHIN_SECONDS)[0]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_committed_apart", [False, True])
@pytest.mark.parametrize("what", ["a block", "a small write", "a flush"])
def test_write_that_ended_before_it_was_cancelled_gives_the_file_up(
    run, what, is_committed_apart
):
    async def program(remote, directory):
        path = f"{directory}/a"
        await remote.put(path, b"old")
        writer = await remote.open(path, "wb", autocommit=not is_committed_apart)
        if what == "a block":
            call = writer.write(bytes(1 << 20))
        else:
            await writer.write(bytes(200_000))
            call = writer.write(bytes(100_000)) if what == "a small write" else writer.flush()
        await cancelled_after_its_end(remote, call)
        for use in (lambda: writer.write(b"x"), writer.flush, writer.close, writer.commit):
            with pytest.raises(Closed, match="cancelled"):
                await use()
        assert await remote.get(path) == b"old"
        await writer.abort()
        async with remote.open(path, "ab") as again:
            await again.write(b" and more")
        assert await remote.get(path) == b"old and more"

    run(program)


def test_cancelled_write_inside_its_block_commits_nothing(run):
    async def program(remote, directory):
        path = f"{directory}/a"
        with pytest.raises(Closed, match="cancelled"):
            async with remote.open(path, "wb") as file:
                await cancelled_after_its_end(remote, file.write(bytes(1 << 20)))
        assert not await remote.exists(path)

    run(program)


def test_cancelled_close_does_not_end_well_when_it_is_repeated(run):
    async def program(remote, directory):
        path, data = f"{directory}/a", bytes(1 << 20)
        writer = await remote.open(path, "wb")
        await writer.write(data)
        await cancelled_after_its_end(remote, writer.close())
        with pytest.raises(Closed, match="cancelled"):
            await writer.close()
        # It was sealed before.
        assert await remote.get(path) == data

    run(program)


def test_close_ends_the_calls_under_way(cluster):
    async def main():
        store = await sanderling.aio.connect(cluster.address)
        waiting = asyncio.create_task(store.events(1 << 40, wait=50.0))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(Closed):
            await asyncio.wait_for(waiting, WITHIN_SECONDS)
        with pytest.raises(Closed):
            await store.get("/a")
        await store.close()

    asyncio.run(main())


def test_store_belongs_to_its_loop(cluster):
    async def opened():
        return await sanderling.aio.connect(cluster.address)

    store = asyncio.run(opened())

    async def used():
        with pytest.raises(RuntimeError, match="loop"):
            await store.get("/a")
        await store.close()

    asyncio.run(used())


def test_address_without_a_server_is_unreachable():
    async def main():
        with pytest.raises(sanderling.Unreachable):
            await sanderling.aio.connect("127.0.0.1:1", timeout=5.0)

    asyncio.run(main())


def test_dropped_store_warns_and_goes(cluster):
    async def main():
        store = await sanderling.aio.connect(cluster.address)
        with pytest.warns(ResourceWarning):
            del store
            gc.collect()
        async with sanderling.aio.connect(cluster.address) as other:
            assert await other.nodes()

    asyncio.run(main())


def test_two_loops_in_two_threads(cluster, directory):
    failures = []

    async def program(name):
        async with sanderling.aio.connect(cluster.address) as store:
            for number in range(50):
                await store.put(f"{directory}/{name}-{number}", name.encode())
                assert await store.get(f"{directory}/{name}-{number}") == name.encode()

    def thread(name):
        try:
            asyncio.run(program(name))
        except BaseException as error:  # noqa: BLE001 - reported to the test
            failures.append(error)

    threads = [threading.Thread(target=thread, args=[name]) for name in ("one", "two")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WITHIN_SECONDS)
    assert not failures and not any(each.is_alive() for each in threads)


def test_parts_tables_and_jobs(run):
    async def program(remote, directory):
        bag = await remote.multifile(f"{directory}/bag")

        async def write(name):
            async with bag.part(name) as part:
                await part.write(name.encode() * 100_000)

        await asyncio.gather(*(write(name) for name in "abc"))
        assert [part.name for part in await bag.parts()] == ["a", "b", "c"]
        whole = b"".join([bytes(piece) async for piece in bag.stream()])
        assert whole == b"a" * 100_000 + b"b" * 100_000 + b"c" * 100_000
        with pytest.raises(sanderling.Exists):
            await bag.part("a")

        table = await remote.table(f"{directory}/table")
        await table.put("one", b"1")
        await table.put_many({"two": b"2"})
        assert await table.get("one") == b"1" and await table.contains("two")
        assert {key: bytes(value) async for key, value in table.items()} == {
            "one": b"1",
            "two": b"2",
        }
        await table.remove("one")
        with pytest.raises(KeyError):
            await table.get("one")
        with pytest.raises(KeyError):
            await table.remove("one")

        async with remote.job(f"{directory}/job", lifetime=30) as job:
            await job.put("deep/a", b"1")
            assert await job.get("deep/a") == b"1" and job.is_alive
        assert not await remote.exists(f"{directory}/job")

        async with remote.job(f"{directory}/job", names_max=2, attribute_bytes_max=8) as job:
            await job.put("a", b"1", attributes={"kind": "text"})
            with pytest.raises(sanderling.Full) as raised:
                await job.put("b", b"1")
            assert raised.value.kind == "JobLimitPassed"
            assert await job.account() == sanderling.JobAccount(2, 8, 2, 8)
        job = await remote.register_job(f"{directory}/job", names_max=1)
        with pytest.raises(sanderling.Full):
            await remote.put(f"{directory}/job/a", b"1")
        assert (await remote.job_account(job)).names_max == 1
        await remote.end_job(job)

    run(program)


def test_conditions_attributes_and_buffers(run):
    async def program(remote, directory):
        path, data = f"{directory}/a", bytes(range(256)) * 40_000
        first = await remote.put(path, data, if_absent=True, attributes={"one": "1"})
        with pytest.raises(sanderling.Exists):
            await remote.put(path, data, if_absent=True)
        into = bytearray(len(data))
        assert await remote.get_into(path, into) == len(data) and into == data
        assert (await remote.set_attributes(path, {"two": "2"})).attributes == {"two": "2"}
        assert (await remote.list(directory, attributes=True))[0].attributes == {"two": "2"}
        await remote.put(path, b"new", if_object=first.object)
        with pytest.raises(sanderling.Changed):
            await remote.put(path, b"newer", if_object=first.object)
        for name in "xy":
            await remote.put(f"{directory}/{name}", name.encode(), is_inline_allowed=False)
        await remote.concat([f"{directory}/x", f"{directory}/y"], path)
        assert await remote.get(path) == b"xy"

    run(program)


def test_progress_is_reported_and_may_end_the_call(run):
    async def program(remote, directory):
        path, data, seen = f"{directory}/a", bytes(9 << 20), []
        await remote.put(path, data, progress=seen.append)
        assert seen[-1] == len(data) and len(seen) >= 3
        seen.clear()
        assert await remote.get(path, progress=seen.append) == data
        assert seen[-1] == len(data) and len(seen) >= 3

        def fail(_):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await remote.put(path, b"new" * 1_000_000, progress=fail)
        assert (await remote.stat(path)).bytes == len(data)

    run(program)


def test_events_are_followed(run):
    async def program(remote, _):
        seen = [event.sequence async for event in remote.follow(0, timeout=0.0)]
        assert seen and seen == list(range(1, len(seen) + 1))

        async def wait():
            async for _ in remote.follow():
                pass

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(program)
