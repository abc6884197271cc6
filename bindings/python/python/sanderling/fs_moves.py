"""Moves of the fsspec filesystem: which renames one is made of, and in which order."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from glob import has_magic
from typing import TYPE_CHECKING, Any, NamedTuple

from fsspec.utils import other_paths

from sanderling.errors import BadRequest, IsADirectory, NotADirectory, NotEmpty, NotFound

if TYPE_CHECKING:
    from sanderling.fs import SanderlingFileSystem


class _Rename(NamedTuple):
    source: str
    target: str
    is_merged: bool = False
    """Whether it is a directory of which the renames of all entries follow. They are made instead
    of its own if its target is a directory already."""


def move(
    fs: SanderlingFileSystem, path1: Any, path2: Any, recursive: bool, maxdepth: int | None
) -> None:
    """Renames what a name, a pattern or a list of both stands for.

    It looks everything up once, and checks it, before the first rename. What another writer adds
    later stays where it is, except in a directory that is renamed as a whole.
    """
    if maxdepth is not None and maxdepth < 1:
        raise ValueError("maxdepth must be at least 1")
    pairs = _pairs(fs, _name_or_names(path1), _name_or_names(path2), recursive, maxdepth)
    _check_sources([source for source, _ in pairs])
    renames = [each for pair in pairs for each in _of_pair(fs, *pair, recursive, maxdepth)]
    _check(renames)
    _make(fs, renames)


def _pairs(
    fs: SanderlingFileSystem,
    path1: str | list[Any],
    path2: str | list[Any],
    recursive: bool,
    maxdepth: int | None,
) -> list[tuple[str, str]]:
    """Returns the sources, each with its target."""
    if isinstance(path2, list):
        sources = path1 if isinstance(path1, list) else [path1]
        if len(sources) != len(path2):
            raise ValueError(f"{len(sources)} sources and {len(path2)} targets: name one for each")
        return list(zip(fs._strip_protocol(sources), fs._strip_protocol(path2), strict=True))
    into = fs._strip_protocol(path2)
    if isinstance(path1, list):
        return [(name, _inside(into, name)) for name in fs.expand_path(path1, maxdepth=maxdepth)]
    source = fs._strip_protocol(path1)
    if has_magic(source):
        names = _matches(fs, source, recursive, maxdepth)
        return list(zip(names, _placed(fs, names, into), strict=True))
    is_inside = path2.endswith("/") or fs.isdir(into)
    if source != into and is_inside and not path1.endswith("/"):
        into = _inside(into, source)
    return [(source, into)]


def _matches(
    fs: SanderlingFileSystem, pattern: str, recursive: bool, maxdepth: int | None
) -> list[str]:
    """Returns the files that a pattern matches. With `recursive`, returns the directories, too, but
    nothing that is in one of them; with `maxdepth` as well, the files in them instead."""
    found = fs.glob(pattern, maxdepth=maxdepth, detail=True)
    if not found:
        raise NotFound(f"nothing matches {pattern}")
    if recursive and maxdepth is None:
        return [name for name in found if all(each not in found for each in _above(name))]
    kinds = {name: info.get("type") == "directory" for name, info in found.items()}
    if recursive and maxdepth is not None and maxdepth > 1:
        for name in [name for name, is_directory in kinds.items() if is_directory]:
            kinds.update(_entries(fs, name, maxdepth - 1))
    return sorted(name for name, is_directory in kinds.items() if not is_directory)


def _placed(fs: SanderlingFileSystem, names: list[str], into: str) -> list[str]:
    """Returns the targets of what a pattern matches."""
    if not names:
        return []
    # As fsspec places them: it puts what is in a lone directory to the target.
    is_lone = len(names) == 1 and not (fs.isdir(names[0]) and fs.ls(names[0]))
    placed = other_paths(names, into, exists=is_lone)
    return [fs._strip_protocol(each) for each in placed]


def _of_pair(
    fs: SanderlingFileSystem, source: str, target: str, recursive: bool, maxdepth: int | None
) -> list[_Rename]:
    """Returns the renames of a file, or of a directory with what is in it."""
    is_directory = fs.info(source)["type"] == "directory"
    if is_directory and not recursive:
        raise IsADirectory(f"{source} is a directory: move it with recursive=True")
    if source == target:
        # As local file systems have it, there is nothing to do.
        return []
    if not is_directory:
        return [_Rename(source, target)]
    if source in (target, *_above(target)):
        raise BadRequest(f"{source} cannot be moved into itself, to {target}: name another target")
    if maxdepth is None and not fs.isdir(target):
        return [_Rename(source, target)]
    target = target.rstrip("/")
    renames = [_Rename(source, target or "/", True)]
    for name, is_merged in _entries(fs, source, maxdepth):
        renames.append(_Rename(name, target + name[len(source) :], is_merged))
    # A directory that is moved in part stays.
    return [each for each in renames if maxdepth is None or not each.is_merged]


def _entries(
    fs: SanderlingFileSystem, directory: str, depth: int | None
) -> Iterator[tuple[str, bool]]:
    """Yields what is in a directory, down to `depth` levels, and whether each is a directory.

    Unlike `find`, it raises the error of a directory that it cannot list.
    """
    for info in fs.ls(directory, refresh=True):
        name, is_directory = info["name"], info["type"] == "directory"
        yield name, is_directory
        if is_directory and depth != 1:
            yield from _entries(fs, name, None if depth is None else depth - 1)


def _check_sources(sources: list[str]) -> None:
    """Refuses to move an object twice."""
    found = set(sources)
    if len(found) < len(sources):
        raise BadRequest("a source is named twice: name each once")
    for source in sources:
        for above in _above(source):
            if above in found:
                raise BadRequest(f"{source} is in {above}, which is moved too: name one of them")


def _check(renames: list[_Rename]) -> None:
    """Refuses renames of which one would replace what another one moves or has moved."""
    sources = {rename.source for rename in renames}
    targets = set()
    for source, target, _ in renames:
        for each in (target, *_above(target)):
            if each in sources:
                raise BadRequest(
                    f"{source} cannot be moved to {target}, because {each} is moved too:"
                    " name another target"
                )
        if target in targets:
            raise BadRequest(f"two objects would be moved to {target}: move them one by one")
        targets.add(target)


def _make(fs: SanderlingFileSystem, renames: list[_Rename]) -> None:
    """Makes the renames, and deletes the directories that are empty after them."""
    whole: set[str] = set()
    merged: list[str] = []
    parents: set[str] = set()
    for source, target, is_merged in renames:
        if any(above in whole for above in _above(source)):
            continue
        if is_merged and fs.isdir(target):
            merged.append(source)
            continue
        parent = fs._parent(target)
        if parent not in parents and not fs.isdir(parent):
            fs.makedirs(parent, exist_ok=True)
        parents.add(parent)
        fs.mv_file(source, target)
        if is_merged:
            whole.add(source)
    for source in reversed(merged):
        # It may have what another writer has added, or be gone.
        with contextlib.suppress(NotADirectory, NotEmpty, NotFound):
            fs.rmdir(source)


def _name_or_names(path: Any) -> str | list[Any]:
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else list(path)


def _inside(directory: str, path: str) -> str:
    """Returns the name that an object gets in another directory."""
    return f"{directory.rstrip('/')}/{path.rpartition('/')[2]}"


def _above(path: str) -> Iterator[str]:
    """Yields the directories above a path, the root last."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path
