"""The fsspec filesystem `sanderling://`, for pandas, pyarrow, DuckDB, Dask and the rest.

`sanderling://host/path` and `sanderling://host:port/path` are on that namenode, whose port is 7600
without one; `sanderling:///path` is on the cluster of `storage_options`, `address` or `context`,
or else on that of `sanderling.connect()`: SANDERLING_NAMENODE, the current context or
127.0.0.1:7600.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from hashlib import sha256
from typing import Any, NoReturn

from sanderling.extras import missing

try:
    from fsspec.callbacks import DEFAULT_CALLBACK
    from fsspec.compression import compr
    from fsspec.core import get_compression
    from fsspec.spec import AbstractFileSystem
    from fsspec.utils import isfilelike
except ModuleNotFoundError as error:
    raise missing(__name__, "fsspec", error) from None

from sanderling import _sanderling
from sanderling.errors import Exists, NotADirectory
from sanderling.metadata import CONTAINERS, Stat
from sanderling.files import READ_BUFFER_BYTES, ObjectWriter, abort_dropped, as_text
from sanderling.fs_coroutines import Coroutines
from sanderling.fs_moves import move
from sanderling.fs_transaction import StoreTransaction
from sanderling.connection import connect
from sanderling.credentials import resolve
from sanderling.store import Store

_COPY_BYTES = 8 << 20
"""Bytes in memory while one object is copied."""

LISTING_SECONDS = 10.0
"""How long a listing is believed when listings are cached and no other time is given."""

_PUT_OPTIONS = ("storage_class", "ttl", "attributes", "affinity", "if_absent", "if_object")
"""Options of the store that calls which write pass on."""


class _PerStore(type(AbstractFileSystem)):  # type: ignore[misc]
    """Instances with equal options are one, except those of a given store, which are its own."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if options.get("store") is not None:
            options["skip_instance_cache"] = True
        return super().__call__(*arguments, **options)


class SanderlingFileSystem(Coroutines, metaclass=_PerStore):
    """The store as a filesystem of fsspec. Instances with equal options are one.

    Listings are not cached unless `use_listings_cache=True`; then they are believed for
    `listings_expiry_time` seconds, or until this instance writes there. Calls that
    write take the store's `ttl` (seconds), `storage_class`, `attributes`, `affinity`, `if_absent`
    and `if_object`. `context` names the cluster; `token_file`, `tls_ca` and `tls_name` are for
    clusters with access control. Their defaults are those of `sanderling.connect`.
    """

    protocol = "sanderling"
    root_marker = "/"
    transaction_type = StoreTransaction

    def __init__(
        self,
        address: str | None = None,
        timeout: float | None = None,
        store: Store | None = None,
        token_file: str | None = None,
        tls_ca: str | None = None,
        tls_name: str | None = None,
        context: str | None = None,
        use_listings_cache: bool = False,
        listings_expiry_time: float | None = LISTING_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(
            use_listings_cache=use_listings_cache,
            listings_expiry_time=listings_expiry_time,
            **options,
        )
        # No token as text: options travel with pickles and stand in their texts.
        self._shown: dict[str, Any]
        self._shown = {"timeout": timeout, "token_file": token_file, "tls_ca": tls_ca}
        self._shown["tls_name"] = tls_name
        self._pinned: dict[str, Any] = {}
        if store is None:
            address = self._found(address, context)
        self._store = store or connect(address, **self._shown)
        self._of_loops = {}
        self._owner = os.getpid()

    def _found(self, address: str | None, context: str | None) -> str:
        """Returns the namenode's address; what a context has stays this instance's."""
        shown = {name: self._shown[name] for name in ("token_file", "tls_ca", "tls_name")}
        place = resolve(address, context, **shown)
        if place.context is None:
            return place.address
        for name in shown:
            value = getattr(place, name)
            self._shown[name] = None if value is None else os.fspath(value)
        # Another machine may have other contexts, or another current one.
        found = {"address": place.address, **{name: self._shown[name] for name in shown}}
        self._pinned = {name: value for name, value in found.items() if value is not None}
        return place.address

    @property
    def store(self) -> Store:
        """The connected store. A forked child connects again."""
        if self._owner != os.getpid():
            self._store = connect(self._store.address, **self._shown)
            self._of_loops = {}
            self._owner = os.getpid()
        return self._store

    def __reduce__(self) -> Any:
        options = dict(self.storage_options)
        if options.pop("store", None) is not None:
            options["address"] = self._store.address
        if self._pinned:
            options.pop("context", None)
            options.update(self._pinned)
        return _made, (type(self), self.storage_args, options)

    # Names

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = os.fspath(path) if isinstance(path, os.PathLike) else str(path)
        url = _sanderling.split_url(text)
        return "/" + (text if url is None else url[1]).strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        url = _sanderling.split_url(path)
        return {} if url is None or url[0] is None else {"address": url[0]}

    @classmethod
    def _parent(cls, path: str) -> str:
        return cls._strip_protocol(path).rpartition("/")[0] or "/"

    # Metadata

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Returns the metadata of an object. Raises `NotFound`."""
        return self._info_of(self.store.stat(self._strip_protocol(path)))

    def exists(self, path: str, **_: Any) -> bool:
        """Returns whether an object has the name."""
        return self.store.exists(self._strip_protocol(path))

    def ls(
        self, path: str, detail: bool = True, refresh: bool = False, **_: Any
    ) -> list[Any]:
        """Lists a directory: metadata, or names without `detail`; anew with `refresh`."""
        path = self._strip_protocol(path)
        found = None if refresh else self._remembered(path)
        if found is None:
            found = self._listed(path)
            self.dircache[path] = found
        return list(found) if detail else [each["name"] for each in found]

    def created(self, path: str) -> datetime:
        """Returns when the object was created."""
        return self.store.stat(self._strip_protocol(path)).created_at

    def modified(self, path: str) -> datetime:
        """Returns when its bytes or entries last changed."""
        return self.store.stat(self._strip_protocol(path)).modified_at

    def ukey(self, path: str) -> str:
        """Returns a text that is another one after every change of the object's bytes."""
        stat = self.store.stat(self._strip_protocol(path))
        return f"{stat.object}-{stat.bytes}-{stat.modified_at.timestamp()}"

    def checksum(self, path: str) -> int:
        """Returns a number that is another one after every change of the object's bytes."""
        return int(sha256(self.ukey(path).encode()).hexdigest()[:16], 16)

    def sign(self, path: str, expiration: int = 100, **_: Any) -> NoReturn:
        """Raises `NotImplementedError`: objects have no URL that another program could open."""
        raise NotImplementedError(
            "sanderling:// has no signed URLs: give the reader the namenode's address, or use the"
            " S3 gateway's presigned URLs"
        )

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forgets cached listings: all, or those in which this path has a part."""
        if path is None:
            self.dircache.clear()
        elif self.dircache.use_listings_cache:
            path = self._strip_protocol(path)
            for each in [each for each in self.dircache if _is_within(each, path)]:
                self.dircache.pop(each, None)
            while path != "/":
                path = self._parent(path)
                self.dircache.pop(path, None)
        super().invalidate_cache(path)

    def _remembered(self, path: str) -> list[dict[str, Any]] | None:
        try:
            found: list[dict[str, Any]] = self.dircache[path]
        except KeyError:
            return None
        return found

    def _listed(self, path: str) -> list[dict[str, Any]]:
        # Dictionaries straight from the native half's words: a listing may be long.
        try:
            text = self.store._run("lookup", 0, self.store._client.list, path, False)
        except NotADirectory:
            return [self.info(path)]
        prefix = path.rstrip("/") + "/"
        for each in (raw := json.loads(text)):
            kind = each["kind"]
            each["name"] = prefix + each["name"]
            each["size"] = 0 if kind == "directory" else each["bytes"]
            each["type"] = "directory" if kind in CONTAINERS else "file"
            each["mtime"] = _UTC(each["modified_at"] / 1e6, timezone.utc)
            del each["bytes"], each["modified_at"]
        found: list[dict[str, Any]] = raw
        return found

    @staticmethod
    def _info_of(stat: Stat) -> dict[str, Any]:
        return {
            "name": stat.path,
            "size": 0 if stat.kind == "directory" else stat.bytes,
            "type": "directory" if stat.is_container else "file",
            "created": stat.created_at,
            "mtime": stat.modified_at,
            "kind": stat.kind,
            "object": stat.object,
            "lost_bytes": stat.lost_bytes,
            "is_sealed": stat.is_sealed,
            "attributes": stat.attributes,
        }

    @staticmethod
    def _put_options(options: dict[str, Any]) -> dict[str, Any]:
        return {name: options[name] for name in _PUT_OPTIONS if name in options}

    # Directories

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Makes a directory. Raises `Exists` if the name is taken."""
        path = self._strip_protocol(path)
        if self.store.exists(path):
            raise Exists(f"{path} exists")
        self.store.mkdir(path, parents=create_parents)
        self.invalidate_cache(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it. Raises `Exists` without `exist_ok`."""
        path = self._strip_protocol(path)
        if exist_ok:
            self.store.mkdir(path, parents=True)
            self.invalidate_cache(path)
        else:
            self.mkdir(path)

    def rmdir(self, path: str) -> None:
        """Deletes an empty directory. Raises `NotEmpty` and `NotADirectory`."""
        path = self._strip_protocol(path)
        if not self.store.stat(path).is_container:
            raise NotADirectory(f"{path} is not a directory")
        self.store.delete(path)
        self.invalidate_cache(path)

    # Deletion and names

    def rm_file(self, path: str) -> None:
        """Deletes one object. Raises `NotFound`."""
        path = self._strip_protocol(path)
        self.store.delete(path)
        self.invalidate_cache(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Deletes objects by names or patterns; with `recursive`, what directories hold, too."""
        self._remove(path, recursive, maxdepth)

    def _remove(self, path: Any, recursive: bool, maxdepth: int | None) -> None:
        if maxdepth is not None:
            for each in reversed(self.expand_path(path, recursive, maxdepth)):
                self.rm_file(each)
            return
        for each in path if isinstance(path, list) else [path]:
            each = self._strip_protocol(each)
            for name in self.glob(each) if _is_pattern(each) else [each]:
                self.store.delete(name, recursive=recursive)
                self.invalidate_cache(name)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        """Renames objects: each at once, without moving a byte, also in a transaction.

        A directory is renamed as a whole if its target does not exist; else its entries are, and it
        is deleted if it is empty then. With `maxdepth` only files move. Raises `BadRequest`, and
        moves nothing, if a target is in a source, or if two objects would get one name.
        """
        move(self, path1, path2, recursive, maxdepth)

    def mv_file(self, path1: str, path2: str, **_: Any) -> None:
        """Renames one object in one step, in place of what had the name."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self.store.rename(source, target, replace=True)
        self.invalidate_cache(source)
        self.invalidate_cache(target)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        """Copies one object through this process; of a directory, makes an empty one."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
            return
        with self.store.open(source) as reader:
            with self.open(target, "wb", **self._put_options(options)) as writer:
                while data := reader.read(_COPY_BYTES):
                    writer.write(data)

    # Data

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Opens a file, binary or text. An exception in its `with` block commits nothing."""
        if "b" not in mode:
            text = {name: options.pop(name, None) for name in ("encoding", "errors", "newline")}
            mode = mode.replace("t", "") + "b"
            file = self.open(path, mode, block_size, cache_options, compression, **options)
            file.is_wrapped = True
            return as_text(file, **text)
        if compression is None or mode == "rb":
            return super().open(path, mode, block_size, cache_options, compression, **options)
        codec = get_compression(self._strip_protocol(path), compression)
        file = super().open(path, mode, block_size, cache_options, None, **options)
        if codec is None:
            return file
        file.is_wrapped = True
        return _Compressor(compr[codec](file, mode="wb"), file)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if mode == "rb":
            size = READ_BUFFER_BYTES if block_size in (None, "default") else int(block_size)
            file: Any = self.store.open(path, "rb", buffer_bytes=size)
        elif self._intrans and not autocommit:
            file = self.transaction.stage(path, mode, self._put_options(options))
        else:
            file = self.store.open(
                path, mode, parents=True, autocommit=autocommit, **self._put_options(options)
            )
            self.invalidate_cache(path)
            file.after_end = partial(self.invalidate_cache, path)
        file.path, file.fs = path, self
        return file

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        """Reads an object, or a range of it; negative bounds count from its end."""
        path = self._strip_protocol(path)
        if start is None and end is None:
            return bytes(self.store.get(path))
        with self.store.open(path, buffer_bytes=0) as reader:
            begin, stop = _bounds(start, end, reader.size)
            return bytes(reader.view(begin, stop - begin))

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any
    ) -> Any:
        """Reads whole objects; of many, small ones travel together."""
        paths = self.expand_path(path, recursive=recursive)
        is_many = len(paths) > 1 or isinstance(path, list)
        if not is_many and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0], **options)
        if recursive:
            paths = [each for each in paths if not self.isdir(each)]
        if options:
            found: list[Any] = self.cat_ranges(
                paths, options.get("start"), options.get("end"), on_error="return"
            )
        else:
            found = self.store.get_many(paths, return_errors=True)
        results: dict[str, Any] = {}
        for name, value in zip(paths, found, strict=True):
            if isinstance(value, Exception):
                if on_error == "raise":
                    raise value
                if on_error == "omit":
                    continue
                results[name] = value
            else:
                results[name] = bytes(value)
        return results

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Reads ranges of many objects, all of them at once: one look-up of all names, then what a
        datanode holds of all ranges travels together. Gaps need not be read to join ranges, so
        `max_gap` changes nothing.
        """
        count = len(paths)
        starts = list(starts) if isinstance(starts, Sequence) else [starts] * count
        ends = list(ends) if isinstance(ends, Sequence) else [ends] * count
        if not len(starts) == len(ends) == count:
            raise ValueError("paths, starts and ends differ in length")
        wanted: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            wanted.setdefault(self._strip_protocol(path), []).append(index)
        asked: list[tuple[_sanderling.Reader, list[tuple[int, int]]]] = []
        order: list[list[int]] = []
        results: list[Any] = [None] * count
        client = self.store._client
        readers = self.store._run("lookup", 0, client.readers, list(wanted))
        for reader, indices in zip(readers, wanted.values(), strict=True):
            if isinstance(reader, Exception):
                _fill(results, indices, [reader] * len(indices))
            else:
                bounds = [_bounds(starts[each], ends[each], reader.bytes) for each in indices]
                asked.append((reader, [(begin, stop - begin) for begin, stop in bounds]))
                order.append(indices)
        total = sum(length for _, ranges in asked for _, length in ranges)
        read = self.store._run("read", total, client.read_many, asked) if asked else []
        for (reader, ranges), indices, parts in zip(asked, order, read, strict=True):
            if not isinstance(parts, Exception):
                _fill(results, indices, parts)
            elif len(ranges) == 1:
                _fill(results, indices, [parts])
            else:
                # One range's error is not that of the others.
                _fill(results, indices, [_one(client, reader, each) for each in ranges])
        for error in results:
            if isinstance(error, Exception) and on_error != "return":
                raise error
        return results

    def pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **options: Any
    ) -> None:
        """Writes a whole object; the mode `create` raises `Exists` if the name is taken."""
        path = self._strip_protocol(path)
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb", **options) as file:
                file.write(value)
            return
        self.store.put(
            path, value, replace=mode != "create", parents=True, **self._put_options(options)
        )
        self.invalidate_cache(path)

    def pipe(self, path: Any, value: Any = None, **options: Any) -> None:
        """Writes whole objects, one or a mapping of many, of which small ones travel together."""
        if not isinstance(path, Mapping) or self._intrans:
            super().pipe(path, value, **options)
            return
        objects = {self._strip_protocol(name): data for name, data in path.items()}
        is_new = options.get("mode") == "create"
        put = self._put_options(options)
        try:
            self.store.put_many(objects, replace=not is_new, parents=True, **put)
        finally:
            # After an error of one, the others are there.
            for name in objects:
                self.invalidate_cache(name)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Writes an empty object. Without `truncate`, raises `NotImplementedError` if it exists."""
        if not truncate and self.exists(path):
            raise NotImplementedError(
                f"{path} exists: an object's times are the store's; touch it with truncate=True"
            )
        self.pipe_file(path, b"", **options)

    def put_file(
        self,
        lpath: Any,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **options: Any,
    ) -> None:
        """Copies a local file to an object; of a local directory, makes an empty one."""
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        with open(lpath, "rb") as file:
            callback.set_size(os.fstat(file.fileno()).st_size)
            with self.open(rpath, "xb" if mode == "create" else "wb", **options) as writer:
                while data := file.read(_COPY_BYTES):
                    callback.relative_update(writer.write(data))

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **_: Any
    ) -> None:
        """Copies an object to a local file, which appears when all bytes are there."""
        callback = callback or DEFAULT_CALLBACK
        path = self._strip_protocol(rpath)
        if outfile is not None or isfilelike(lpath):
            self._copy_out(path, outfile or lpath, callback)
            return
        if self.isdir(path):
            os.makedirs(lpath, exist_ok=True)
            return
        target = os.fspath(lpath)
        os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
        partial = f"{target}.{uuid.uuid4().hex}.part"
        try:
            with open(partial, "wb") as file:
                self._copy_out(path, file, callback)
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise

    def _copy_out(self, path: str, file: Any, callback: Any) -> None:
        with self.store.open(path, buffer_bytes=0) as reader:
            callback.set_size(reader.size)
            for offset in range(0, reader.size, _COPY_BYTES):
                part = reader.view(offset, min(_COPY_BYTES, reader.size - offset))
                file.write(memoryview(part))
                callback.relative_update(len(part))


class _Compressor(io.BufferedIOBase):
    """Writes an object through a compression, of which the end seals the object."""

    def __init__(self, outer: Any, inner: ObjectWriter) -> None:
        self._outer = outer
        self._inner = inner
        self.name = inner.name

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        count: int = self._outer.write(data)
        return count

    def close(self) -> None:
        if not self.closed:
            try:
                self._outer.close()
                self._inner.close()
            except BaseException:
                self._inner.abort()
                raise
            finally:
                super().close()

    def abort(self) -> None:
        """Gives the object up."""
        self._inner.abort()
        super().close()

    def __del__(self) -> None:
        # The base class would close the file, which seals what was written so far.
        if not getattr(self, "closed", True):
            abort_dropped(self)

    def _dealloc_warn(self, _source: object) -> None:
        # See `ObjectWriter`.
        if not self.closed:
            abort_dropped(self)

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


_UTC = datetime.fromtimestamp


def _made(
    kind: type[SanderlingFileSystem], arguments: tuple[Any, ...], options: dict[str, Any]
) -> SanderlingFileSystem:
    """Makes an instance again in the process that unpickles it."""
    made: SanderlingFileSystem = kind(*arguments, **options)
    return made


def _bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    begin, stop, _ = slice(start, end).indices(size)
    return begin, max(begin, stop)


def _fill(results: list[Any], indices: list[int], parts: Sequence[Any]) -> None:
    for index, part in zip(indices, parts, strict=True):
        results[index] = part if isinstance(part, Exception) else bytes(part)


def _one(
    client: _sanderling.Client, reader: _sanderling.Reader, wanted: tuple[int, int]
) -> Any:
    found = client.read_many([(reader, [wanted])])[0]
    return found if isinstance(found, Exception) else found[0]


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_pattern(path: str) -> bool:
    return any(letter in path for letter in "*?[")
