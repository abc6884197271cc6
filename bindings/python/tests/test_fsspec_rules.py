"""What the fsspec filesystem promises: caches, transactions, errors, names."""

from __future__ import annotations

import gc
import gzip
import multiprocessing
import signal
import subprocess
import sys
import threading

import fsspec
import pytest
from fsspec.callbacks import Callback

import sanderling
from sanderling.fs import SanderlingFileSystem
from sanderling.fs_transaction import HIDDEN, HIDDEN_SECONDS


@pytest.fixture
def caching(cluster) -> SanderlingFileSystem:
    """A filesystem that believes its listings for ever, or until it writes."""
    return SanderlingFileSystem(
        address=cluster.address, use_listings_cache=True, listings_expiry_time=None
    )


def names(filesystem, directory: str) -> list[str]:
    return [name.removeprefix(f"{directory}/") for name in filesystem.ls(directory, detail=False)]


def test_listings_are_not_cached_unless_asked(filesystem, store, directory):
    assert filesystem.ls(directory) == []
    store.put(f"{directory}/o", b"x")
    assert names(filesystem, directory) == ["o"]
    filesystem.ls(directory).clear()
    assert names(filesystem, directory) == ["o"]


def test_cached_listing_ends_with_refresh_invalidation_and_own_writes(caching, store, directory):
    assert caching.ls(directory) == []
    store.put(f"{directory}/a", b"x")
    assert caching.ls(directory) == []
    assert names(caching, directory) == [] and caching.exists(f"{directory}/a")
    assert [each["name"] for each in caching.ls(directory, refresh=True)] == [f"{directory}/a"]
    store.put(f"{directory}/b", b"x")
    caching.invalidate_cache(f"{directory}/b")
    assert names(caching, directory) == ["a", "b"]
    caching.pipe_file(f"{directory}/c/d", b"x")
    assert names(caching, directory) == ["a", "b", "c"]
    caching.mv(f"{directory}/c", f"{directory}/e", recursive=True)
    assert names(caching, directory) == ["a", "b", "e"]
    caching.rm(f"{directory}/e", recursive=True)
    assert names(caching, directory) == ["a", "b"]
    store.put(f"{directory}/f", b"x")
    caching.invalidate_cache()
    assert names(caching, directory) == ["a", "b", "f"]


def test_cached_listing_of_an_open_file_ends_with_its_close(caching, directory):
    path = f"{directory}/o"
    with caching.open(path, "wb") as file:
        file.write(b"x" * 10)
        assert names(caching, directory) == []
    assert [(each["name"], each["size"]) for each in caching.ls(directory)] == [(path, 10)]
    with caching.open(path, "ab") as file:
        file.write(b"y")
        assert [each["size"] for each in caching.ls(directory)] == [10]
    assert [each["size"] for each in caching.ls(directory)] == [11]
    file = caching.open(f"{directory}/new", "xb")
    assert names(caching, directory) == ["new", "o"]
    file.discard()
    assert names(caching, directory) == ["o"]
    with caching.open(f"{directory}/z", "w", compression="gzip") as file:
        assert names(caching, directory) == ["o"]
    assert names(caching, directory) == ["o", "z"]
    with pytest.raises(FileExistsError):
        caching.pipe({f"{directory}/p": b"1", path: b"2"}, mode="create")
    assert names(caching, directory) == ["o", "p", "z"]
    file = caching.open(f"{directory}/late", "wb", autocommit=False)
    file.close()
    assert names(caching, directory) == ["o", "p", "z"]
    file.commit()
    assert names(caching, directory) == ["late", "o", "p", "z"]
    with caching.transaction:
        caching.pipe_file(f"{directory}/q", b"x")
        assert names(caching, directory) == ["late", "o", "p", "z"]
    assert names(caching, directory) == ["late", "o", "p", "q", "z"]


def test_cached_listing_expires(cluster, store, directory):
    caching = SanderlingFileSystem(
        address=cluster.address, use_listings_cache=True, listings_expiry_time=0.0
    )
    assert caching.ls(directory) == []
    store.put(f"{directory}/a", b"x")
    assert names(caching, directory) == ["a"]


def test_reader_keeps_the_object_it_opened(filesystem, directory):
    old, new = b"o" * (3 << 20), b"n" * (3 << 20)
    filesystem.pipe_file(f"{directory}/o", old)
    with filesystem.open(f"{directory}/o") as reader:
        head = reader.read(1 << 20)
        filesystem.pipe_file(f"{directory}/o", new)
        try:
            rest = reader.read()
        except sanderling.SanderlingError:
            rest = b""  # Reported: the object that was opened is gone.
        assert set(head + rest) == {ord("o")}
    assert filesystem.cat_file(f"{directory}/o", 1, 9) == b"n" * 8


def test_whole_reads_are_never_half_old_half_new(filesystem, directory):
    path = f"{directory}/o"
    contents = [bytes([each]) * (2 << 20) for each in b"ab"]
    filesystem.pipe_file(path, contents[0])
    stop = threading.Event()

    def replace():
        turn = 0
        while not stop.is_set():
            turn += 1
            filesystem.pipe_file(path, contents[turn % 2])

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        for _ in range(20):
            assert filesystem.cat_file(path) in contents
            first, last = filesystem.cat_ranges([path, path], [0, -4], [4, None])
            if not isinstance(first, Exception) and not isinstance(last, Exception):
                assert first == last
    finally:
        stop.set()
        writer.join()


def test_files_of_a_transaction_appear_together(filesystem, store, directory, tmp_path):
    filesystem.pipe_file(f"{directory}/old", b"before")
    (tmp_path / "local").write_bytes(b"uploaded")
    with filesystem.transaction:
        with filesystem.open(f"{directory}/sub/a", "wb") as file:
            file.write(b"a" * (2 << 20))
        with filesystem.open(f"{directory}/text", "w") as file:
            file.write("line\n")
        filesystem.pipe_file(f"{directory}/old", b"after")
        filesystem.pipe({f"{directory}/p": b"1", f"{directory}/q": b"2"})
        filesystem.put_file(str(tmp_path / "local"), f"{directory}/up")
        filesystem.cp_file(f"{directory}/old", f"{directory}/copy")
        with filesystem.open(f"{directory}/old", "ab") as file:
            file.write(b" and more")
        with pytest.raises(RuntimeError), filesystem.open(f"{directory}/given-up", "wb") as file:
            file.write(b"half")
            raise RuntimeError("this file's writer failed")
        seen = [name for name in names(filesystem, directory) if not name.startswith(HIDDEN)]
        assert set(seen) <= {"old", "sub"}
        assert not filesystem.exists(f"{directory}/sub/a")
        assert filesystem.cat_file(f"{directory}/old") == b"before"
    assert names(filesystem, directory) == ["copy", "old", "p", "q", "sub", "text", "up"]
    assert filesystem.size(f"{directory}/sub/a") == 2 << 20
    assert filesystem.cat_file(f"{directory}/old") == b"before and more"
    assert filesystem.cat_file(f"{directory}/copy") == b"before"
    assert filesystem.cat_file(f"{directory}/up") == b"uploaded"


def test_rolled_back_transaction_leaves_nothing(filesystem, directory):
    filesystem.pipe_file(f"{directory}/old", b"before")
    with pytest.raises(RuntimeError), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/old", b"after")
        filesystem.pipe_file(f"{directory}/new", b"x" * (2 << 20))
        raise RuntimeError("the task failed")
    assert names(filesystem, directory) == ["old"]
    assert filesystem.cat_file(f"{directory}/old") == b"before"
    filesystem.pipe_file(f"{directory}/new", b"x")
    assert filesystem.cat_file(f"{directory}/new") == b"x"


def test_transaction_that_cannot_commit_all_commits_none(filesystem, store, directory):
    with pytest.raises(FileExistsError), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/a", b"a")
        filesystem.pipe_file(f"{directory}/b", b"b", mode="create")
        store.put(f"{directory}/b", b"somebody else's")
    assert names(filesystem, directory) == ["b"]
    with pytest.raises(FileExistsError), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/b", b"b", mode="create")


def test_conditions_hold_in_a_transaction(filesystem, store, directory):
    path = f"{directory}/o"
    filesystem.pipe_file(path, b"old")
    with pytest.raises(sanderling.Exists), filesystem.transaction:
        filesystem.pipe_file(path, b"new", if_absent=True)
    with pytest.raises(sanderling.Exists), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/first", b"1")
        filesystem.pipe_file(f"{directory}/later", b"2", if_absent=True)
        store.put(f"{directory}/later", b"another writer's")
    with pytest.raises(sanderling.Exists), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/first", b"1")
        filesystem.pipe_file(f"{directory}/first", b"2", if_absent=True)
    with pytest.raises(NotImplementedError, match="if_object"), filesystem.transaction:
        filesystem.pipe_file(path, b"new", if_object=store.stat(path).object)
    assert names(filesystem, directory) == ["later", "o"]
    assert filesystem.cat_file(path) == b"old"
    assert filesystem.cat_file(f"{directory}/later") == b"another writer's"
    with filesystem.transaction:
        filesystem.pipe_file(f"{directory}/new", b"1", if_absent=True, if_object=None)
    assert filesystem.cat_file(f"{directory}/new") == b"1"


def test_condition_is_checked_by_the_rename_too(filesystem, store, directory, monkeypatch):
    def late(path, ttl, set_ttl=filesystem.store.set_ttl):
        set_ttl(path, ttl)
        store.put(f"{directory}/o", b"another writer's")

    # It comes after the checks and before the rename.
    monkeypatch.setattr(filesystem.store, "set_ttl", late)
    with pytest.raises(sanderling.Exists), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/o", b"mine", if_absent=True)
    assert names(filesystem, directory) == ["o"]
    assert filesystem.cat_file(f"{directory}/o") == b"another writer's"


def test_rename_that_fails_after_others_leaves_the_first_files_alone(
    filesystem, directory, monkeypatch
):
    def failing(source, target, rename=filesystem.store.rename, **options):
        if target.endswith("/second"):
            raise sanderling.TimedOut("no answer")
        rename(source, target, **options)

    monkeypatch.setattr(filesystem.store, "rename", failing)
    with pytest.raises(TimeoutError), filesystem.transaction:
        for name in ("third", "first", "second", "third"):
            filesystem.pipe_file(f"{directory}/{name}", name.encode())
    assert names(filesystem, directory) == ["first"]


def test_last_file_of_a_name_is_the_one_that_a_transaction_commits(
    filesystem, store, directory, monkeypatch
):
    def late(path, ttl, set_ttl=filesystem.store.set_ttl):
        set_ttl(path, ttl)
        store.put(f"{directory}/new", b"another writer's")

    with filesystem.transaction:
        filesystem.pipe_file(f"{directory}/o", b"1", mode="create")
        filesystem.pipe_file(f"{directory}/o", b"2")
    assert names(filesystem, directory) == ["o"]
    assert filesystem.cat_file(f"{directory}/o") == b"2"
    # The condition of an earlier one holds at the rename of the last one, too.
    monkeypatch.setattr(filesystem.store, "set_ttl", late)
    with pytest.raises(sanderling.Exists), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/new", b"1", mode="create")
        filesystem.pipe_file(f"{directory}/new", b"2")
    assert names(filesystem, directory) == ["new", "o"]
    assert filesystem.cat_file(f"{directory}/new") == b"another writer's"


def test_transaction_with_a_directory_for_a_target_commits_nothing(filesystem, store, directory):
    store.put(f"{directory}/two/inside", b"x", parents=True)
    with pytest.raises(IsADirectoryError), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/one", b"1")
        filesystem.pipe_file(f"{directory}/two", b"2")
        filesystem.pipe_file(f"{directory}/three", b"3")
    assert names(filesystem, directory) == ["two"]


def test_append_of_a_transaction_loses_no_append_of_another_writer(filesystem, store, directory):
    path = f"{directory}/log"
    filesystem.pipe_file(path, b"1\n")
    with pytest.raises(sanderling.Changed), filesystem.transaction:
        filesystem.pipe_file(f"{directory}/beside", b"x")
        with filesystem.open(path, "ab") as file:
            file.write(b"2\n")
        with store.open(path, "ab") as other:
            other.write(b"another writer's\n")
    with pytest.raises(sanderling.Changed), filesystem.transaction:
        with filesystem.open(path, "ab") as file:
            file.write(b"2\n")
        store.put(path, b"1\nanother writer's\n")
    with pytest.raises(sanderling.Exists), filesystem.transaction:
        with filesystem.open(f"{directory}/new", "ab") as file:
            file.write(b"2\n")
        store.put(f"{directory}/new", b"another writer's\n")
    assert names(filesystem, directory) == ["log", "new"]
    assert filesystem.cat_file(path) == b"1\nanother writer's\n"
    assert filesystem.cat_file(f"{directory}/new") == b"another writer's\n"


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_transaction_refuses_a_wrapped_file_that_is_still_open(filesystem, directory, compression):
    # Its last bytes are in the wrapper's buffer.
    with pytest.raises(ValueError, match="still open"), filesystem.transaction:
        file = filesystem.open(f"{directory}/o", "w", compression=compression)
        file.write("half")
    assert names(filesystem, directory) == []
    del file


def test_killed_commit_leaves_files_with_a_time_to_live(filesystem, store, directory):
    program = f"""
import os, signal
from sanderling.fs import SanderlingFileSystem

fs = SanderlingFileSystem(address={store.address!r})
rename = fs.store.rename

def killed(source, target, **options):
    if target.endswith("/second"):
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target, **options)

fs.store.rename = killed
with fs.transaction:
    for name in ("first", "second", "third", "fourth"):
        fs.pipe_file({directory!r} + "/" + name, b"x")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    found = {each.name: store.stat(f"{directory}/{each.name}") for each in store.list(directory)}
    assert found.pop("first").expires_in is None
    assert len(found) == 3 and all(name.startswith(HIDDEN) for name in found)
    # The one that was about to be renamed has none any more.
    expiring = [stat.expires_in for stat in found.values() if stat.expires_in is not None]
    assert len(expiring) == 2 and max(expiring) <= HIDDEN_SECONDS


def test_committed_files_keep_the_time_to_live_that_they_were_given(filesystem, store, directory):
    with filesystem.transaction:
        filesystem.pipe_file(f"{directory}/kept", b"x")
        filesystem.pipe_file(f"{directory}/ending", b"x", ttl=600.0)
    assert store.stat(f"{directory}/kept").expires_in is None
    assert 0 < store.stat(f"{directory}/ending").expires_in <= 600


def test_text_and_compressed_files_commit_only_when_all_was_well(filesystem, directory):
    with pytest.raises(RuntimeError), filesystem.open(f"{directory}/t", "w") as file:
        file.write("half")
        raise RuntimeError("the task failed")
    assert not filesystem.exists(f"{directory}/t")
    with filesystem.open(f"{directory}/t", "w", encoding="latin-1", newline="") as file:
        file.write("grün\n")
    assert filesystem.read_text(f"{directory}/t", encoding="latin-1") == "grün\n"
    with fsspec.open(
        f"sanderling://{directory}/z.gz", "wb", compression="infer",
        address=filesystem.store.address,
    ) as file:
        file.write(b"z" * 100_000)
    assert gzip.decompress(filesystem.cat_file(f"{directory}/z.gz")) == b"z" * 100_000
    with filesystem.open(f"{directory}/y.gz", "wb", compression="gzip") as file:
        file.write(b"y" * 100_000)
    with filesystem.open(f"{directory}/y.gz", compression="infer") as file:
        assert file.read() == b"y" * 100_000


@pytest.mark.parametrize(
    ("mode", "compression"),
    [("w", None), ("wb", None), ("wb", "gzip"), ("wb", "bz2"), ("wb", "xz"), ("w", "gzip")],
)
def test_dropped_file_leaves_the_older_one(filesystem, directory, mode, compression):
    path, half = f"{directory}/o", "half" if mode == "w" else b"half"
    filesystem.pipe_file(path, b"old")
    file = filesystem.open(path, mode, compression=compression)
    file.write(half)
    with pytest.warns(ResourceWarning):
        del file
        gc.collect()
    assert filesystem.cat_file(path) == b"old"
    with pytest.raises(RuntimeError), filesystem.open(path, mode, compression=compression) as file:
        file.write(half)
        raise RuntimeError("the task failed")
    del file
    gc.collect()
    assert filesystem.cat_file(path) == b"old"


@pytest.mark.parametrize(
    ("mode", "compression"), [("wt", None), ("wb", None), ("wb", "gzip"), ("wt", "gzip")]
)
def test_dropped_file_of_fsspec_open_leaves_the_older_one(
    filesystem, directory, mode, compression
):
    filesystem.pipe_file(f"{directory}/o", b"old")
    opened = fsspec.open(
        f"sanderling://{directory}/o", mode, compression=compression,
        address=filesystem.store.address,
    )
    file = opened.open()
    file.write("half" if mode == "wt" else b"half")
    with pytest.warns(ResourceWarning):
        del file, opened
        gc.collect()
    assert filesystem.cat_file(f"{directory}/o") == b"old"


def test_failed_block_of_fsspec_open_in_a_transaction_leaves_the_older_file(filesystem, directory):
    filesystem.pipe_file(f"{directory}/o", b"old")
    url = f"sanderling://{filesystem.store.address}{directory}/o"
    opened = fsspec.open(url, "wb")
    with pytest.raises(RuntimeError), opened.fs.transaction, opened as file:
        file.write(b"half")
        raise RuntimeError("the task failed")
    assert names(filesystem, directory) == ["o"]
    assert filesystem.cat_file(f"{directory}/o") == b"old"


def test_many_files_open_and_come_together(filesystem, directory):
    address = filesystem.store.address
    files = fsspec.open_files(f"sanderling://{directory}/part-*", "wb", num=3, address=address)
    with files as opened:
        for index, file in enumerate(opened):
            file.write(b"%d" % index)
    with fsspec.open_files(f"sanderling://{directory}/part-*", address=address) as opened:
        assert [file.read() for file in opened] == [b"0", b"1", b"2"]
    found = filesystem.cat(f"{directory}/part-*")
    assert list(found.values()) == [b"0", b"1", b"2"]
    paths = [f"{directory}/part-1", f"{directory}/none"]
    with pytest.raises(FileNotFoundError):
        filesystem.cat(paths)
    assert filesystem.cat(paths, on_error="omit") == {paths[0]: b"1"}
    found = filesystem.cat(paths, on_error="return")
    assert isinstance(found[paths[1]], FileNotFoundError)
    assert filesystem.expand_path(f"{directory}/part-[01]") == [
        f"{directory}/part-0", f"{directory}/part-1"
    ]


def test_one_bad_range_is_its_own_error(filesystem, directory):
    filesystem.pipe_file(f"{directory}/o", b"0123456789")
    found = filesystem.cat_ranges([f"{directory}/o"] * 3, [0, 5, 8], [2, 500, 4])
    assert found == [b"01", b"56789", b""]
    with pytest.raises(ValueError):
        filesystem.cat_ranges([f"{directory}/o"], [0, 1], [2, 3])
    assert filesystem.cat_ranges([], [], []) == []


def test_moves_rename_as_fsspec_places_them(filesystem, directory):
    filesystem.pipe({f"{directory}/d/a": b"a", f"{directory}/d/b": b"b"})
    before = filesystem.info(f"{directory}/d/a")["object"]
    filesystem.mv(f"{directory}/d/a", f"{directory}/e/")
    assert filesystem.info(f"{directory}/e/a")["object"] == before
    filesystem.mv(f"{directory}/d", f"{directory}/e", recursive=True)
    assert filesystem.find(directory) == [f"{directory}/e/a", f"{directory}/e/d/b"]
    filesystem.mv(f"{directory}/e/*", f"{directory}/f/", recursive=True)
    assert filesystem.cat_file(f"{directory}/f/d/b") == b"b"


def objects(filesystem, directory: str) -> dict[str, int]:
    """Returns the names of all files in a directory, each with the number of its object."""
    found = filesystem.find(directory, detail=True)
    return {name.removeprefix(f"{directory}/"): info["object"] for name, info in found.items()}


def filled(filesystem, directory: str) -> dict[str, int]:
    """Makes `a` with two files and a directory, and returns its objects."""
    paths = [f"{directory}/a/{name}" for name in ("one", "two", "sub/three")]
    filesystem.pipe({path: path.encode() for path in paths})
    return objects(filesystem, f"{directory}/a")


def test_moves_of_patterns_lists_and_directories_move_no_bytes(filesystem, directory):
    a, b = f"{directory}/a", f"{directory}/b"
    first = filled(filesystem, directory)
    filesystem.mv(f"{a}/*", f"{b}/")
    assert objects(filesystem, b) == {name: first[name] for name in ("one", "two")}
    assert objects(filesystem, a) == {"sub/three": first["sub/three"]}
    filesystem.mv([f"{b}/one", f"{b}/two"], f"{a}/")
    assert objects(filesystem, a) == first
    filesystem.mv([f"{a}/one", f"{a}/sub"], [f"{b}/1", f"{b}/2"], recursive=True)
    assert objects(filesystem, b) == {"1": first["one"], "2/three": first["sub/three"]}
    filesystem.mv([f"{b}/1", f"{b}/2"], [f"{a}/one", f"{a}/sub"], recursive=True)
    assert objects(filesystem, a) == first
    # What is in a directory, into one that is there.
    filesystem.pipe({f"{b}/sub/four": b"4", f"{b}/one": b"replaced"})
    four = filesystem.info(f"{b}/sub/four")["object"]
    filesystem.mv(f"{a}/", b, recursive=True)
    assert objects(filesystem, b) == first | {"sub/four": four}
    assert names(filesystem, directory) == ["b"]
    filesystem.mv(f"{b}/*", a, recursive=True)
    assert objects(filesystem, a) == first | {"sub/four": four}
    assert objects(filesystem, b) == {}


def test_move_to_a_depth_deletes_nothing_that_is_deeper(filesystem, directory):
    a, b = f"{directory}/a", f"{directory}/b"
    first = filled(filesystem, directory)
    filesystem.mv(a, b, recursive=True, maxdepth=1)
    assert objects(filesystem, b) == {name: first[name] for name in ("one", "two")}
    assert objects(filesystem, a) == {"sub/three": first["sub/three"]}
    filesystem.mv(f"{directory}/*", f"{directory}/c/", recursive=True, maxdepth=1)
    assert objects(filesystem, a) == {"sub/three": first["sub/three"]}
    filesystem.mv(f"{directory}/*", f"{directory}/c/", recursive=True, maxdepth=2)
    assert objects(filesystem, b) == {}
    assert objects(filesystem, f"{directory}/c") == {name: first[name] for name in ("one", "two")}
    assert objects(filesystem, a) == {"sub/three": first["sub/three"]}
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="maxdepth"):
            filesystem.mv(a, b, recursive=True, maxdepth=wrong)


def test_move_in_a_transaction_that_fails_is_made_and_loses_nothing(filesystem, directory):
    first = filled(filesystem, directory)
    with pytest.raises(RuntimeError), filesystem.transaction:
        filesystem.mv(f"{directory}/a/*", f"{directory}/b/", recursive=True)
        filesystem.mv([f"{directory}/b/one"], f"{directory}/c/")
        raise RuntimeError("the task failed")
    moved = {f"b/{name}": number for name, number in first.items() if name != "one"}
    assert objects(filesystem, directory) == moved | {"c/one": first["one"]}


def test_move_onto_itself_changes_nothing(filesystem, directory):
    a = f"{directory}/a"
    first = filled(filesystem, directory)
    filesystem.mv(f"{a}/", a, recursive=True)
    filesystem.mv(a, a, recursive=True)
    filesystem.mv(f"{a}/*", f"{a}/")
    filesystem.mv(f"{a}/*", f"{a}/", recursive=True)
    filesystem.mv(f"{a}/one", f"{a}/one")
    filesystem.mv(f"{a}/one", a)
    filesystem.mv([f"{a}/one", f"{a}/two"], f"{a}/")
    assert objects(filesystem, a) == first
    with pytest.raises(FileNotFoundError):
        filesystem.mv(f"{a}/none", f"{a}/none")


def test_move_that_would_lose_something_is_refused_before_it_moves_anything(
    filesystem, directory
):
    a, b = f"{directory}/a", f"{directory}/b"
    filled(filesystem, directory)
    filesystem.pipe({f"{b}/one": b"other", f"{a}/sub/sub/five": b"5", f"{a}/sub/one": b"1"})
    before = objects(filesystem, directory)
    refused = [
        # Into itself.
        (f"{a}/", f"{a}/sub"),
        (a, f"{a}/sub"),
        (a, f"{a}/new/"),
        (f"{a}/*", f"{a}/sub/"),
        ("/", f"{a}/sub"),
        # To a name that is moved, too.
        ([f"{a}/one", f"{a}/two"], [f"{a}/two", f"{a}/three"]),
        ([a, f"{b}/one"], [f"{directory}/c", f"{a}/one"]),
        (f"{a}/sub/", a),
        # Two to one name, or one to two.
        ([f"{a}/one", f"{b}/one"], f"{directory}/c/"),
        ([f"{a}/one", f"{a}/one"], [f"{b}/1", f"{b}/2"]),
        ([a, f"{a}/one"], f"{b}/"),
        # As many targets as sources.
        ([f"{a}/one", f"{a}/two"], [f"{b}/one"]),
    ]
    for source, target in refused:
        with pytest.raises(ValueError):
            filesystem.mv(source, target, recursive=True)
    for source in (a, [a], [f"{a}/one", f"{a}/sub"]):
        with pytest.raises(IsADirectoryError):
            filesystem.mv(source, f"{directory}/c/")
    for source in (f"{a}/none", f"{a}/none*", [f"{a}/one", f"{a}/none"]):
        with pytest.raises(FileNotFoundError):
            filesystem.mv(source, f"{directory}/c/")
    assert objects(filesystem, directory) == before
    assert names(filesystem, directory) == ["a", "b"]


@pytest.mark.parametrize("source", ["a/*", "a/"])
def test_move_leaves_what_another_writer_adds_meanwhile(
    filesystem, store, directory, monkeypatch, source
):
    first = filled(filesystem, directory)
    filesystem.makedirs(f"{directory}/b")

    def late(path, *arguments, ls=filesystem.ls, **options):
        found = ls(path, *arguments, **options)
        if path.rstrip("/") == f"{directory}/a":
            store.put(f"{directory}/a/late", b"another writer's")
        return found

    # It is sealed after the names were looked up.
    monkeypatch.setattr(filesystem, "ls", late)
    filesystem.mv(f"{directory}/{source}", f"{directory}/b", recursive=True)
    monkeypatch.undo()
    assert objects(filesystem, f"{directory}/b") == first
    assert filesystem.cat(f"{directory}/a/late") == b"another writer's"


def test_errors_are_the_ones_of_files(filesystem, directory, tmp_path):
    filesystem.pipe_file(f"{directory}/o", b"x")
    with pytest.raises(FileNotFoundError):
        filesystem.cat_file(f"{directory}/none")
    with pytest.raises(FileNotFoundError):
        filesystem.ls(f"{directory}/none")
    with pytest.raises(FileNotFoundError):
        filesystem.rm(f"{directory}/none")
    with pytest.raises(IsADirectoryError):
        filesystem.cat_file(directory)
    with pytest.raises(NotADirectoryError):
        filesystem.rmdir(f"{directory}/o")
    with pytest.raises(OSError):
        filesystem.rmdir(directory)
    with pytest.raises(FileExistsError):
        filesystem.open(f"{directory}/o", "xb").close()
    with pytest.raises(ValueError):
        filesystem.open(f"{directory}/o", "qb")
    with pytest.raises(NotImplementedError, match="S3"):
        filesystem.sign(f"{directory}/o")
    with pytest.raises(NotImplementedError, match="truncate"):
        filesystem.touch(f"{directory}/o", truncate=False)
    with pytest.raises(FileNotFoundError):
        filesystem.get_file(f"{directory}/none", str(tmp_path / "x"))
    assert list(tmp_path.iterdir()) == []


def test_options_of_the_store_pass_through(filesystem, store, directory):
    filesystem.pipe_file(f"{directory}/a", b"x", ttl=600.0)
    filesystem.pipe({f"{directory}/b": b"x"}, ttl=600.0)
    with filesystem.open(f"{directory}/c", "wb", ttl=600.0, storage_class="dram:refuse") as file:
        file.write(b"x" * 10_000)
    assert all(store.stat(f"{directory}/{name}").expires_in > 60 for name in "abc")
    assert store.stat(f"{directory}/c").storage_class == "dram:refuse"
    filesystem.pipe_file(f"{directory}/d", b"x", attributes={"content-type": "text/plain"})
    info = filesystem.info(f"{directory}/d")
    assert info["attributes"] == {"content-type": "text/plain"}
    filesystem.pipe_file(f"{directory}/d", b"y", if_object=info["object"])
    with pytest.raises(FileExistsError):
        filesystem.pipe_file(f"{directory}/d", b"z", if_object=info["object"])


def test_callbacks_get_counts_of_bytes(filesystem, directory, tmp_path):
    (tmp_path / "up").write_bytes(b"u" * 100_000)
    up, down = Callback(), Callback()
    filesystem.put_file(str(tmp_path / "up"), f"{directory}/o", callback=up)
    filesystem.get_file(f"{directory}/o", str(tmp_path / "down"), callback=down)
    assert (up.size, up.value) == (down.size, down.value) == (100_000, 100_000)
    assert (tmp_path / "down").read_bytes() == b"u" * 100_000


def test_checksum_changes_with_the_bytes(filesystem, directory):
    filesystem.pipe_file(f"{directory}/o", b"x")
    first = filesystem.checksum(f"{directory}/o")
    assert filesystem.checksum(f"{directory}/o") == first
    filesystem.pipe_file(f"{directory}/o", b"y")
    assert filesystem.checksum(f"{directory}/o") != first


def _child(filesystem, path, connection):
    connection.send(filesystem.cat_file(path))


def test_forked_child_connects_again(filesystem, directory):
    filesystem.pipe_file(f"{directory}/o", b"x" * 100_000)
    here, there = multiprocessing.get_context("fork").Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_child, args=(filesystem, f"{directory}/o", there)
    )
    child.start()
    assert here.poll(60) and here.recv() == b"x" * 100_000
    child.join(60)
    assert child.exitcode == 0
