"""The fsspec filesystem `sanderling://`, for pandas, pyarrow, DuckDB, Dask and the rest.

The namenode's address comes from `storage_options={"address": "host:port"}`, from the URL,
`sanderling://host:port/path`, or from SANDERLING_NAMENODE. In a URL, the first part is an address
when it has a port; otherwise it belongs to the path: `sanderling://data/a` and
`sanderling:///data/a` are the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fsspec.spec import AbstractFileSystem

from sanderling.errors import Exists, IsADirectory, NotADirectory, NotFound
from sanderling.facts import CONTAINERS, Entry, Stat
from sanderling.files import READ_BUFFER_BYTES, ObjectReader, ObjectWriter
from sanderling.store import Store, connect

_URL = re.compile(r"^sanderling:/{0,2}(?P<address>[^/]+:\d+)?(?P<path>.*)$", re.DOTALL)

_COPY_BYTES = 8 << 20
"""Bytes in memory while one object is copied."""


class SanderlingFileSystem(AbstractFileSystem):
    """The store as fsspec knows filesystems. Instances with equal options are one."""

    protocol = "sanderling"
    root_marker = "/"

    def __init__(
        self,
        address: str | None = None,
        timeout: float | None = None,
        store: Store | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.store = store or connect(address, timeout=timeout)

    # Names

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        match = _URL.match(text)
        if match:
            text = match["path"]
        return "/" + text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        match = _URL.match(path)
        return {"address": match["address"]} if match and match["address"] else {}

    @classmethod
    def _parent(cls, path: str) -> str:
        return cls._strip_protocol(path).rpartition("/")[0] or "/"

    # Facts

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return _info(self.store.stat(self._strip_protocol(path)))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            entries = self.store.list(path)
        except NotADirectory:
            found = [self.info(path)]
        else:
            found = [_listed(path, entry) for entry in entries]
        return found if detail else [each["name"] for each in found]

    def created(self, path: str) -> datetime:
        return self.store.stat(self._strip_protocol(path)).created_at

    def modified(self, path: str) -> datetime:
        return self.store.stat(self._strip_protocol(path)).modified_at

    def ukey(self, path: str) -> str:
        stat = self.store.stat(self._strip_protocol(path))
        return f"{stat.object}-{stat.bytes}-{stat.modified_at.timestamp()}"

    # Directories

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if self.store.exists(path):
            raise Exists(f"{path} exists")
        self.store.mkdir(path, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if exist_ok:
            self.store.mkdir(path, parents=True)
        else:
            self.mkdir(path)

    def rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not self.store.stat(path).is_container:
            raise NotADirectory(f"{path} is not a directory")
        self.store.delete(path)

    # Deletion and names

    def _rm(self, path: str) -> None:
        self.store.delete(self._strip_protocol(path))

    rm_file = _rm

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        for each in path if isinstance(path, list) else [path]:
            each = self._strip_protocol(each)
            for name in self.glob(each) if _is_pattern(each) else [each]:
                self.store.delete(name, recursive=recursive)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        single = isinstance(path1, str) and isinstance(path2, str) and not _is_pattern(path1)
        if not single or path2.endswith("/") or self.isdir(path2) or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source) and not recursive:
            raise IsADirectory(f"{source} is a directory: move it with recursive=True")
        self.store.mkdir(self._parent(target), parents=True)
        self.store.rename(source, target, replace=True)

    def mv_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self.store.rename(source, target, replace=True)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.store.mkdir(target, parents=True)
            return
        with self.store.open(source) as reader:
            with self.store.open(target, "wb", parents=True) as writer:
                while data := reader.read(_COPY_BYTES):
                    writer.write(data)

    # Data

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        storage_class: str | None = None,
        ttl: float | None = None,
        **_: Any,
    ) -> ObjectReader | ObjectWriter:
        path = self._strip_protocol(path)
        if mode == "rb":
            size = READ_BUFFER_BYTES if block_size in (None, "default") else int(block_size)
            file: Any = self.store.open(path, "rb", buffer_bytes=size)
        else:
            file = self.store.open(
                path,
                mode,
                parents=True,
                storage_class=storage_class,
                ttl=ttl,
                autocommit=autocommit,
            )
        file.path, file.fs = path, self
        return file

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return bytes(self.store.get(path))
        with self.store.open(path, buffer_bytes=0) as reader:
            begin, stop = _bounds(start, end, reader.size)
            reader.seek(begin)
            return reader.read(stop - begin)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        count = len(paths)
        starts = list(starts) if isinstance(starts, Sequence) else [starts] * count
        ends = list(ends) if isinstance(ends, Sequence) else [ends] * count
        if not len(starts) == len(ends) == count:
            raise ValueError("paths, starts and ends differ in length")
        wanted: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            wanted.setdefault(self._strip_protocol(path), []).append(index)
        results: list[Any] = [None] * count
        for path, indices in wanted.items():
            try:
                parts: list[Any] = self._ranges_of(path, indices, starts, ends)
            except Exception as error:
                if on_error != "return":
                    raise
                parts = [error] * len(indices)
            for index, part in zip(indices, parts, strict=True):
                results[index] = part
        return results

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        path = self._strip_protocol(path)
        self.store.put(path, value, replace=mode != "create", parents=True)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if truncate or not self.exists(path):
            self.store.put(path, b"", parents=True)

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, **options: Any) -> None:
        if callback is not None:
            options["callback"] = callback
        super().get_file(rpath, lpath, **options)

    def _ranges_of(
        self, path: str, indices: list[int], starts: list[Any], ends: list[Any]
    ) -> list[bytes]:
        with self.store.open(path, buffer_bytes=0) as reader:
            bounds = [_bounds(starts[index], ends[index], reader.size) for index in indices]
            return reader.read_ranges([(begin, stop - begin) for begin, stop in bounds])

    def exists(self, path: str, **_: Any) -> bool:
        try:
            return self.store.exists(self._strip_protocol(path))
        except (NotADirectory, NotFound):
            return False


def _info(stat: Stat) -> dict[str, Any]:
    return {
        "name": stat.path,
        "size": 0 if stat.kind == "directory" else stat.bytes,
        "type": "directory" if stat.is_container else "file",
        "created": stat.created_at,
        "mtime": stat.modified_at,
        "kind": stat.kind,
        "lost_bytes": stat.lost_bytes,
        "is_sealed": stat.is_sealed,
    }


def _listed(directory: str, entry: Entry) -> dict[str, Any]:
    return {
        "name": f"{directory.rstrip('/')}/{entry.name}",
        "size": 0 if entry.kind == "directory" else entry.bytes,
        "type": "directory" if entry.kind in CONTAINERS else "file",
        "mtime": entry.modified_at,
        "kind": entry.kind,
        "lost_bytes": entry.lost_bytes,
        "is_sealed": entry.is_sealed,
    }


def _bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    begin, stop, _ = slice(start, end).indices(size)
    return begin, max(begin, stop)


def _is_pattern(path: str) -> bool:
    return any(letter in path for letter in "*?[")


