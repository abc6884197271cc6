"""Tables of key-values."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, Unpack

from sanderling.arguments import PutOptions
from sanderling.errors import NoSuchKey, NotFound
from sanderling.facts import Deleted, Stat
from sanderling.multifiles import below

if TYPE_CHECKING:
    from sanderling._sanderling import Buffer
    from sanderling.store import Store

KEYS_AT_ONCE = 1000
"""Values that iterating over a table reads in one call."""


class Table(MutableMapping[str, Any]):
    """A mapping of names to bytes that every client of the cluster shares.

    Made by `Store.table`. A value is replaced at once: a reader sees the old or the new one. Keys
    are names, without slashes; values are anything with a contiguous buffer, and come back as
    `Buffer`. A key that is not there raises `KeyError` (`errors.NoSuchKey`).
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self.path = path

    def __repr__(self) -> str:
        return f"<sanderling.Table {self.path}>"

    def __getitem__(self, key: str) -> Buffer:
        try:
            return self._store.get(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    def __setitem__(self, key: str, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: str) -> None:
        try:
            self._store.delete(below(self.path, key))
        except NotFound as error:
            raise missing(key, error) from None

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(key) and "/" not in key and self._has(key)

    def __iter__(self) -> Iterator[str]:
        """Yields the keys in their order."""
        return (entry.name for entry in self._store.list(self.path))

    def __len__(self) -> int:
        return self._store.stat(self.path).entries

    def put(self, key: str, value: Any, **options: Unpack[PutOptions]) -> Stat:
        """Sets a value; the last one put wins. Options are those of `Store.put`."""
        options["kind"] = "key_value"
        return self._store.put(below(self.path, key), value, **options)

    def put_many(self, values: Mapping[str, Any]) -> list[Stat]:
        """Sets many values in one call. Each is replaced at once, all of them are not."""
        named = {below(self.path, key): value for key, value in values.items()}
        return self._store.put_many(named, kind="key_value")

    def get_many(self, keys: list[str]) -> list[Buffer]:
        """Reads many values in one call, in the order of the keys. Raises the first error."""
        return self._store.get_many([below(self.path, key) for key in keys])

    def items(self) -> ItemsView[str, Buffer]:
        """Returns keys and values. Iterating reads a thousand values per call."""
        return _Items(self)

    def values(self) -> ValuesView[Buffer]:
        """Returns the values. Iterating reads a thousand per call."""
        return _Values(self)

    def delete(self) -> Deleted:
        """Deletes the table with all its values."""
        return self._store.delete(self.path, recursive=True)

    def _has(self, key: str) -> bool:
        return self._store.exists(below(self.path, key))

    def _pairs(self) -> Iterator[tuple[str, Buffer]]:
        keys = list(self)
        for start in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[start : start + KEYS_AT_ONCE]
            paths = [below(self.path, key) for key in some]
            for key, value in zip(some, self._store.get_many(paths, return_errors=True)):
                # It went after it was listed.
                if isinstance(value, NotFound):
                    continue
                if isinstance(value, Exception):
                    raise value
                yield key, value


class _Items(ItemsView[str, Any]):
    _mapping: Table

    def __iter__(self) -> Iterator[tuple[str, Buffer]]:
        return self._mapping._pairs()


class _Values(ValuesView[Any]):
    _mapping: Table

    def __iter__(self) -> Iterator[Buffer]:
        return (value for _, value in self._mapping._pairs())


def missing(key: str, error: NotFound) -> NoSuchKey:
    """Returns the error that says that there is no such key."""
    no_key = NoSuchKey(str(error))
    no_key.kind, no_key.recovery, no_key.path = error.kind, error.recovery, error.path
    no_key.errno, no_key.key = error.errno, key
    return no_key
