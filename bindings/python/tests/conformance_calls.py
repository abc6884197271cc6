"""The steps of conformance/semantics.toml as calls of the package: of a store or of one for
asyncio, which have the same names; of the fsspec filesystem; of the namenode's HTTP interface."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import sanderling
from sanderling.errors import SanderlingError
from sanderling.fs import SanderlingFileSystem

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "conformance"))

from table import Fields, Got, Refused, Step, fields, seconds, word_of  # noqa: E402

PAUSE_SECONDS = 0.1


async def waited(value: Any) -> Any:
    """Returns a result: that of an asynchronous store is awaited."""
    return await value if inspect.isawaitable(value) else value


def named(error: Exception) -> Refused:
    """Returns an error by its name."""
    return Refused(error.kind if isinstance(error, SanderlingError) else type(error).__name__)


def stat_fields(stat: Any) -> Fields:
    attributes = {f"attr.{name}": text for name, text in stat.attributes.items()}
    return attributes | fields(
        kind=stat.kind,
        bytes=stat.bytes,
        sealed=stat.is_sealed,
        listed=stat.is_listed,
        once=stat.delete_after_read,
        **{"class": stat.storage_class},
        expires=stat.expires_in is not None,
        entries=stat.entries,
        job=stat.job is not None,
        attributes=len(stat.attributes),
    )


def put_options(step: Step, objects: dict[str, int]) -> dict[str, Any]:
    """Returns the keywords of a step that makes an object."""
    given: dict[str, Any] = {"parents": step.has("parents"), "attributes": step.attributes()}
    if (ttl := step.seconds("ttl")) is not None:
        given["ttl"] = ttl
    if "class" in step.options:
        given["storage_class"] = step.options["class"]
    if (wanted := step.options.get("if")) is not None:
        given |= {"if_absent": True} if wanted == "absent" else {"if_object": objects[wanted]}
    return given


class Calls:
    """One caller of the package, and what its case has names for."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.objects: dict[str, int] = {}
        self.writers: dict[str, Any] = {}
        self.jobs: dict[str, Any] = {}

    async def begin(self, root: str) -> None:
        for each in (self.objects, self.writers, self.jobs):
            each.clear()
        await waited(self.store.mkdir(root, parents=True))

    async def pause(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)

    async def call(self, step: Step) -> Got:
        try:
            got: Got = await getattr(self, step.verb.replace("-", "_"))(step)
        except (SanderlingError, ValueError, TypeError) as error:
            raise named(error) from error
        return got

    # Objects

    def options(self, step: Step) -> dict[str, Any]:
        given = put_options(step, self.objects)
        given["delete_after_read"] = step.has("once")
        given["is_listed"] = step.options.get("listed") != "no"
        given["is_inline_allowed"] = step.options.get("inline") != "no"
        return given

    async def put(self, step: Step) -> Got:
        options = self.options(step) | {"replace": step.has("replace")}
        stat = await waited(self.store.put(step.words[0], step.data(), **options))
        self.objects[step.options.get("as", "")] = stat.object
        return stat_fields(stat)

    async def get(self, step: Step) -> Got:
        if len(step.words) == 1:
            return bytes(await waited(self.store.get(step.words[0])))
        offset, length = step.ranges()[0]
        return bytes(await waited(self.store.get_range(step.words[0], offset, length)))

    async def ranges(self, step: Step) -> Got:
        found = await waited(self.store.get_ranges(step.words[0], step.ranges()))
        return b"|".join(bytes(each) for each in found)

    async def concat(self, step: Step) -> Got:
        target, *parts = step.words
        options = self.options(step) | {"replace": step.has("replace")}
        return stat_fields(await waited(self.store.concat(parts, target, **options)))

    # Writers

    async def create(self, step: Step) -> Got:
        mode = "wb" if step.has("replace") else "xb"
        opened = self.store.open(step.words[0], mode, **self.options(step))
        self.writers[step.options.get("as", "")] = await waited(opened)
        return None

    async def append(self, step: Step) -> Got:
        opened = self.store.open(step.words[0], "ab")
        self.writers[step.options.get("as", "")] = await waited(opened)
        return None

    async def write(self, step: Step) -> Got:
        await waited(self.writers[step.words[0]].write(step.data()))
        return None

    async def flush(self, step: Step) -> Got:
        await waited(self.writers[step.words[0]].flush())
        return None

    async def close(self, step: Step) -> Got:
        writer = self.writers.pop(step.words[0])
        await waited(writer.close())
        return stat_fields(writer.stat)

    async def abort(self, step: Step) -> Got:
        await waited(self.writers.pop(step.words[0]).abort())
        return None

    # Names

    async def stat(self, step: Step) -> Got:
        return stat_fields(await waited(self.store.stat(step.words[0])))

    async def exists(self, step: Step) -> Got:
        return word_of(await waited(self.store.exists(step.words[0])))

    async def list(self, step: Step) -> Got:
        return [each.name for each in await waited(self.store.list(step.words[0]))]

    async def usage(self, step: Step) -> Got:
        usage = await waited(self.store.usage(step.words[0]))
        return fields(files=usage.files, directories=usage.directories, bytes=usage.bytes)

    async def mkdir(self, step: Step) -> Got:
        kind = step.options.get("kind", "directory")
        made = self.store.mkdir(step.words[0], parents=step.has("parents"), kind=kind)
        return stat_fields(await waited(made))

    async def rename(self, step: Step) -> Got:
        await waited(self.store.rename(*step.words, replace=step.has("replace")))
        return None

    async def delete(self, step: Step) -> Got:
        expected = self.objects[step.options["if"]] if "if" in step.options else None
        deleted = await waited(
            self.store.delete(step.words[0], recursive=step.has("recursive"), if_object=expected)
        )
        return fields(objects=deleted.objects)

    async def set_ttl(self, step: Step) -> Got:
        await waited(self.store.set_ttl(step.words[0], seconds(step.words[1])))
        return None

    async def set_attributes(self, step: Step) -> Got:
        expected = self.objects[step.options["if"]] if "if" in step.options else None
        changed = self.store.set_attributes(step.words[0], step.attributes(), if_object=expected)
        return stat_fields(await waited(changed))

    # Tables and multifiles

    async def put_value(self, step: Step) -> Got:
        table = await waited(self.store.table(step.words[0], create=False))
        return stat_fields(await waited(table.put(step.words[1], step.data(2))))

    async def get_value(self, step: Step) -> Got:
        table = await waited(self.store.table(step.words[0], create=False))
        # The one for asyncio cannot have a subscript that is awaited.
        get = table.get if hasattr(self.store, "__aenter__") else table.__getitem__
        return bytes(await waited(get(step.words[1])))

    async def put_part(self, step: Step) -> Got:
        bag = await waited(self.store.multifile(step.words[0], create=False))
        part = await waited(bag.part(step.words[1], replace=step.has("replace")))
        await waited(part.write(step.data(2)))
        await waited(part.close())
        return stat_fields(part.stat)

    async def get_parts(self, step: Step) -> Got:
        bag = await waited(self.store.multifile(step.words[0], create=False))
        if hasattr(bag, "stream"):
            return b"".join([bytes(piece) async for piece in bag.stream()])
        return bytes(bag.open().read())

    # Jobs and nodes

    async def job(self, step: Step) -> Got:
        lease, quota = step.seconds("lease") or 60.0, step.number("quota")
        limits = {
            "names_max": step.number("names"),
            "attribute_bytes_max": step.number("attribute_bytes"),
        }
        if step.has("keep") or step.has("once"):
            hints = {"keep_after": step.has("keep"), "delete_after_read": step.has("once")}
            job = self.store.job(step.words[0], lifetime=lease, quota=quota, **limits, **hints)
        else:
            job = self.store.register_job(step.words[0], lease=lease, quota_bytes=quota, **limits)
        self.jobs[step.options.get("as", "")] = await waited(job)
        return None

    async def renew_job(self, step: Step) -> Got:
        await waited(self.store.renew_job(self.jobs[step.words[0]]))
        return None

    async def end_job(self, step: Step) -> Got:
        job = self.jobs[step.words[0]]
        await waited(job.end() if hasattr(job, "end") else self.store.end_job(job))
        return None

    async def nodes(self, _step: Step) -> Got:
        return str(len(await waited(self.store.nodes())))

    async def notice(self, step: Step) -> Got:
        left = seconds(step.words[1]) or 0.0
        return await self.of_node(self.store.notice, step, left, "a test")

    async def decommission(self, step: Step) -> Got:
        return await self.of_node(self.store.decommission, step, "a test")

    async def cancel(self, step: Step) -> Got:
        return await self.of_node(self.store.cancel, step)

    async def of_node(self, change: Any, step: Step, *more: Any) -> Got:
        nodes = await waited(self.store.nodes())
        selected = selected_node(step.words[0], [node.name for node in nodes])
        node = await waited(change(selected, *more))
        return fields(
            policy=node.policy,
            deadline=node.deadline_in is not None,
            reason=node.reason,
            risk=node.is_at_risk,
        )


class ManyCalls(Calls):
    """The same with the calls that take many objects: other requests carry them."""

    async def put(self, step: Step) -> Got:
        options = self.options(step) | {"replace": step.has("replace")}
        [stat] = self.store.put_many({step.words[0]: step.data()}, **options)
        self.objects[step.options.get("as", "")] = stat.object
        return stat_fields(stat)

    async def get(self, step: Step) -> Got:
        if len(step.words) == 1:
            return bytes(self.store.get_many([step.words[0]])[0])
        return await super().get(step)


def selected_node(word: str, names: list[str]) -> str:
    """Returns a node's name; `node-0` is the first one, whatever its name is."""
    number = word.removeprefix("node-")
    return names[int(number)] if number != word else word


class Files:
    """The fsspec filesystem."""

    def __init__(self, filesystem: SanderlingFileSystem) -> None:
        self.fs = filesystem
        self.writers: dict[str, Any] = {}
        self.objects: dict[str, int] = {}

    async def begin(self, root: str) -> None:
        self.writers.clear()
        self.fs.makedirs(root, exist_ok=True)

    async def pause(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)

    async def call(self, step: Step) -> Got:
        try:
            answer = getattr(self, step.verb.replace("-", "_"))(*step.words[:1], step)
            got: Got = await waited(answer)
        except (SanderlingError, ValueError, TypeError) as error:
            raise named(error) from error
        return got

    def options(self, step: Step) -> dict[str, Any]:
        given = put_options(step, self.objects)
        del given["parents"]
        return given if step.has("replace") or "if_object" in given else given | {"if_absent": True}

    def put(self, path: str, step: Step) -> Any:
        self.fs.pipe_file(path, step.data(), **self.options(step))
        info = self.fs.info(path)
        self.objects[step.options.get("as", "")] = info["object"]
        return self.fields_of(info)

    def get(self, path: str, step: Step) -> Any:
        if len(step.words) == 1:
            return self.fs.cat_file(path)
        offset, length = step.ranges()[0]
        return self.fs.cat_file(path, offset, offset + length)

    def ranges(self, path: str, step: Step) -> Got:
        wanted = step.ranges()
        starts, ends = [at for at, _ in wanted], [at + length for at, length in wanted]
        found = self.fs.cat_ranges([path] * len(wanted), starts, ends, on_error="raise")
        return b"|".join(found)

    def stat(self, path: str, _step: Step) -> Any:
        return self.fields_of(self.fs.info(path))

    @staticmethod
    def fields_of(info: dict[str, Any]) -> Fields:
        attributes = {f"attr.{name}": text for name, text in info["attributes"].items()}
        count = len(attributes)
        return attributes | fields(
            kind=info["kind"], bytes=info["size"], sealed=info["is_sealed"], attributes=count
        )

    def exists(self, path: str, _step: Step) -> Any:
        return word_of(self.fs.exists(path))

    def list(self, path: str, _step: Step) -> Got:
        return [name.rpartition("/")[2] for name in self.fs.ls(path, detail=False)]

    def mkdir(self, path: str, step: Step) -> Got:
        self.fs.mkdir(path, create_parents=step.has("parents"))
        return self.stat(path, step)

    def rename(self, path: str, step: Step) -> Got:
        self.fs.mv_file(path, step.words[1])

    def delete(self, path: str, step: Step) -> Got:
        self.fs.rm(path, recursive=step.has("recursive"))

    def create(self, path: str, step: Step) -> Got:
        mode = "wb" if step.has("replace") else "xb"
        options = {name: value for name, value in self.options(step).items() if name != "if_absent"}
        self.writers[step.options["as"]] = self.fs.open(path, mode, **options)

    def append(self, path: str, step: Step) -> Got:
        self.writers[step.options["as"]] = self.fs.open(path, "ab")

    def write(self, name: str, step: Step) -> Got:
        self.writers[name].write(step.data())

    def flush(self, name: str, _step: Step) -> Got:
        self.writers[name].flush()

    def close(self, name: str, _step: Step) -> Got:
        writer = self.writers.pop(name)
        writer.close()
        return stat_fields(writer.stat)

    def abort(self, name: str, _step: Step) -> Got:
        self.writers.pop(name).abort()


class AsyncFiles(Files):
    """The same with the coroutines that have code of their own."""

    async def put(self, path: str, step: Step) -> Got:
        await self.fs._pipe_file(path, step.data(), **self.options(step))
        info = await self.fs._info(path)
        self.objects[step.options.get("as", "")] = info["object"]
        return self.fields_of(info)

    async def get(self, path: str, step: Step) -> Got:
        if len(step.words) == 1:
            return bytes(await self.fs._cat_file(path))
        offset, length = step.ranges()[0]
        return bytes(await self.fs._cat_file(path, offset, offset + length))

    async def stat(self, path: str, _step: Step) -> Got:
        return self.fields_of(await self.fs._info(path))

    async def exists(self, path: str, _step: Step) -> Got:
        return word_of(await self.fs._exists(path))


class Http:
    """The namenode's HTTP interface, which has nodes and no data."""

    def __init__(self, cluster: sanderling.Cluster) -> None:
        self.url = f"http://{cluster.http_address}"

    async def begin(self, _root: str) -> None:
        pass

    async def pause(self) -> None:
        await asyncio.sleep(PAUSE_SECONDS)

    async def call(self, step: Step) -> Got:
        names = [node["name"] for node in self.fetch("/v1/nodes")["nodes"]]
        if step.verb == "nodes":
            return str(len(names))
        path = f"/v1/nodes/{selected_node(step.words[0], names)}"
        if step.verb == "node":
            node = self.fetch(path)
        else:
            body: dict[str, Any] = {}
            if step.verb != "cancel":
                body["reason"] = "a test"
            if step.verb == "notice":
                body["deadline_seconds"] = seconds(step.words[1])
            node = self.fetch(f"{path}/{step.verb}", json.dumps(body).encode() if body else b"")
        return fields(
            policy=node["policy"],
            deadline=node["deadline_in"] is not None,
            reason=node["reason"],
            risk=node["is_at_risk"],
        )

    def fetch(self, path: str, body: bytes | None = None) -> Any:
        """Sends a request, with a body by POST; raises an error by the name in the answer."""
        request = urllib.request.Request(self.url + path, data=body)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise Refused(json.load(error)["error"]["name"]) from error
