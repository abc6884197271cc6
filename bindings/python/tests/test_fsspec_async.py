"""The asynchronous half of the fsspec filesystem."""

from __future__ import annotations

import asyncio

import pytest
from fsspec.callbacks import Callback

from sanderling.errors import Closed
from sanderling.fs import SanderlingFileSystem


def run(cluster, body):
    """Runs `body(filesystem)` in an event loop of its own."""

    async def main():
        filesystem = SanderlingFileSystem(address=cluster.address, asynchronous=True)
        await body(filesystem)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_objects_are_written_listed_read_and_removed(cluster, directory, tmp_path):
    async def body(fs):
        data = bytes(range(256)) * 8000
        await fs._pipe({f"{directory}/a": data, f"{directory}/b": b"b"})
        await fs._pipe_file(f"{directory}/c/d", b"d", ttl=600.0)
        with pytest.raises(FileExistsError):
            await fs._pipe_file(f"{directory}/b", b"x", mode="create")
        found = await fs._ls(directory, detail=False)
        assert found == [f"{directory}/{name}" for name in "abc"]
        assert (await fs._info(f"{directory}/a"))["size"] == len(data)
        assert await fs._cat_file(f"{directory}/a", start=-5) == data[-5:]
        assert await fs._cat([f"{directory}/a", f"{directory}/b"]) == {
            f"{directory}/a": data, f"{directory}/b": b"b"
        }
        paths = [f"{directory}/a", f"{directory}/none", f"{directory}/b"]
        first, second, third = await fs._cat_ranges(paths, [1, 0, 0], [3, 1, 1])
        assert (first, third) == (data[1:3], b"b") and isinstance(second, FileNotFoundError)
        await fs._cp_file(f"{directory}/a", f"{directory}/e")
        await fs._mv_file(f"{directory}/e", f"{directory}/f")
        assert await fs._exists(f"{directory}/f") and not await fs._exists(f"{directory}/e")
        files = [f"{directory}/{name}" for name in ("a", "b", "c/d", "f")]
        assert await fs._find(directory) == files
        assert await fs._glob(f"{directory}/*/d") == [f"{directory}/c/d"]
        callback = Callback()
        await fs._get_file(f"{directory}/a", str(tmp_path / "a"), callback=callback)
        assert callback.value == len(data)
        await fs._put(str(tmp_path / "a"), f"{directory}/g")
        assert await fs._size(f"{directory}/g") == len(data)
        await fs._rm(f"{directory}/c", recursive=True)
        await fs._rm_file(f"{directory}/b")
        assert await fs._isdir(directory) and not await fs._isfile(f"{directory}/b")
        await fs._makedirs(f"{directory}/x/y")
        await fs._rmdir(f"{directory}/x/y")
        with pytest.raises(FileNotFoundError):
            await fs._info(f"{directory}/x/y")

    run(cluster, body)


def test_calls_of_one_loop_are_under_way_together(cluster, directory):
    async def body(fs):
        paths = [f"{directory}/{index}" for index in range(512)]
        await asyncio.gather(*(fs._pipe_file(path, path.encode()) for path in paths))
        found = await asyncio.gather(*(fs._cat_file(path) for path in paths))
        assert found == [path.encode() for path in paths]

    run(cluster, body)


def test_one_filesystem_serves_loop_after_loop(cluster, directory):
    fs = SanderlingFileSystem(address=cluster.address, asynchronous=True)
    for turn in range(3):
        data = b"%d" % turn
        asyncio.run(fs._pipe_file(f"{directory}/o", data))
        assert asyncio.run(fs._cat_file(f"{directory}/o", 0, 9)) == data
    assert len(fs._of_loops) <= 2


def test_unreachable_store_is_tried_again(cluster, directory):
    fs = SanderlingFileSystem(address=cluster.address, asynchronous=True)
    address, fs.store.address = fs.store.address, "127.0.0.1:1"

    async def main():
        with pytest.raises(OSError):
            await fs._info(directory)
        fs.store.address = address
        assert (await fs._info(directory))["type"] == "directory"

    fs._shown["timeout"] = 1.0
    asyncio.run(main())


def test_awaited_file_commits_only_when_all_was_well(cluster, directory):
    async def body(fs):
        async with await fs.open_async(f"{directory}/o", "wb") as file:
            await file.write(b"0123456789")
        async with await fs.open_async(f"{directory}/o") as file:
            assert await file.seek(4) == 4
            assert await file.read(3) == b"456" and file.tell() == 7
        assert file.closed
        with pytest.raises(RuntimeError):
            async with await fs.open_async(f"{directory}/half", "wb") as file:
                await file.write(b"0")
                raise RuntimeError("the task failed")
        assert not await fs._exists(f"{directory}/half")

    run(cluster, body)


async def cancelled(call):
    """Cancels a call that has begun: its thread ends it nevertheless."""
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelled_call_of_an_awaited_file_gives_it_up(cluster, directory):
    async def body(fs):
        path, data = f"{directory}/o", bytes(range(256)) * 8192
        await fs._pipe_file(path, data)
        file = await fs.open_async(path, "wb")
        await cancelled(file.write(data))
        for use in (lambda: file.write(data), file.flush, file.close):
            with pytest.raises(Closed, match="cancelled"):
                await use()
        with pytest.raises(Closed, match="cancelled"):
            async with await fs.open_async(path, "ab") as file:
                await cancelled(file.write(data))
        assert await fs._cat_file(path) == data
        async with await fs.open_async(path) as file:
            await cancelled(file.read(1 << 20))
            with pytest.raises(Closed, match="cancelled"):
                await file.read(1 << 20)
        assert file.closed

    run(cluster, body)


def test_moves_are_renames(cluster, directory):
    async def body(fs):
        await fs._pipe({f"{directory}/d/{name}": name.encode() for name in "ab"})
        before = (await fs._info(f"{directory}/d/a"))["object"]
        await fs._mv(f"{directory}/d/*", f"{directory}/e/")
        assert (await fs._info(f"{directory}/e/a"))["object"] == before
        assert await fs._find(directory) == [f"{directory}/e/{name}" for name in "ab"]

    run(cluster, body)


def test_synchronous_calls_work_inside_a_running_loop(cluster, directory):
    async def main():
        fs = SanderlingFileSystem(address=cluster.address)
        fs.pipe_file(f"{directory}/o", b"x")
        assert fs.cat_file(f"{directory}/o") == b"x"
        assert await fs._cat_file(f"{directory}/o") == b"x"

    asyncio.run(main())
