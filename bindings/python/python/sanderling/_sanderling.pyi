import builtins
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, overload

from typing_extensions import Buffer as Readable

VERSION: str

# By bindings/native/schema.txt; moments in microseconds, time left in milliseconds.
ObjectMetadata = tuple[
    str,
    int,
    str,
    int,
    int,
    bool,
    bool,
    bool,
    str,
    int,
    int,
    int | None,
    int,
    int,
    int | None,
    dict[str, str],
]

def export_spans(collector: str) -> None:
    """Records the spans of this process from now on, and exports them to a collector.

    Its address is `http://HOST[:PORT][/PATH]`. Raises `ValueError` if that is no such address, if
    the process exports to another collector already, or if the system has no thread for it.
    """

def end_export() -> tuple[str, int] | None:
    """Sends the last spans, for at most two seconds.

    Returns the collector and how many spans it did not take, or None if it took all or none are
    exported.
    """

def main(arguments: list[str]) -> int:
    """Runs the command line and returns its exit code: 0 for success.

    The first argument is the name of the program. Python's lock is free meanwhile. A command that
    starts a server returns when a signal ends it.
    """

def page(title: str, verdict: str, is_good: bool, body: str) -> str:
    """Returns a whole HTML page, with the style and the script of plots in it.

    `title` and `verdict` are text and are escaped; `body` is HTML with elements of `figure` and is
    not. `is_good` sets the color of the verdict.
    """

def figure(json: str) -> str:
    """Returns the HTML element of the plot that this JSON describes, for the body of a `page`."""

def resolve(
    address: str | None,
    context: str | None,
    token: str | None,
    token_file: str | PathLike[str] | None,
    tls_ca: str | PathLike[str] | None,
    tls_name: str | None,
) -> tuple[str, str | None, str | None, Path | None, Path | None, str | None]:
    """Finds the cluster: what is given, then the environment, the current context, the default.

    Returns the address, the context that it is from, token, file of the token, file of the
    authorities, and the name in certificates. Raises `ValueError` for a wrong address, a missing
    context, or a file of contexts that cannot be used; the text ends with the next step.
    """

def split_url(text: str) -> tuple[str | None, str] | None:
    """Splits a URL of the store into its address, None if it has none, and its path.

    Returns None for a text of another kind. Raises `ValueError` if the host or the port is wrong.
    """

class Buffer:
    """Read-only bytes of an object, or of anything with a buffer, that are not copied.

    Those of a read on the same host lie in the datanode's memory, which is free again when the last
    `Buffer` of them, and the last view of it, is gone.
    """

    def __new__(cls, data: Readable) -> Buffer:
        """Holds the bytes of anything with a contiguous buffer, without a copy of them.

        Raises `TypeError` if `data` has no buffer, and `ValueError` if it is not
        contiguous, where `bytes(data)` helps, or holds Python objects.
        """

    def __len__(self) -> int:
        """Returns the number of bytes."""

    def __bool__(self) -> bool:
        """Returns whether there is at least one byte."""

    def __bytes__(self) -> bytes:
        """Returns a copy of the bytes."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Returns a read-only view of the bytes; raises `BufferError` for a request to write."""

    def __hash__(self) -> int:
        """Returns the hash of equal `bytes`."""

    def __eq__(self, other: object) -> bool:
        """Returns whether the other object has a buffer of the same bytes."""

    def __lt__(self, other: Readable) -> bool: ...
    def __le__(self, other: Readable) -> bool: ...
    def __gt__(self, other: Readable) -> bool: ...
    def __ge__(self, other: Readable) -> bool: ...
    @overload
    def __getitem__(self, index: int, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> Buffer: ...
    def __iter__(self) -> Iterator[int]: ...
    def __contains__(self, item: int | Readable, /) -> bool: ...
    def __add__(self, other: Readable, /) -> bytes: ...
    def __getattr__(self, name: str, /) -> Any: ...
    def __reduce_ex__(  # type: ignore[override]
        self, protocol: int, /
    ) -> tuple[type[bytes], tuple[Any]]: ...
    def tobytes(self) -> bytes:
        """Returns a copy of the bytes as `bytes`, which does not keep memory of a datanode."""

class Options:
    """How objects are made: checked once, used for many objects. See `arguments.PutOptions`."""

    def __init__(
        self,
        replace: bool,
        parents: bool,
        storage_class: str | None,
        ttl_millis: int | None,
        delete_after_read: bool,
        is_listed: bool,
        affinity: str | None,
        is_key_value: bool,
        attributes: Sequence[tuple[str, str]],
        condition: int | None,
        is_inline_allowed: bool,
    ) -> None:
        """Checks the options.

        `ttl_millis` is the time to live in milliseconds, None to keep the object. `affinity` is an
        object's path, which begins with a slash, or a host. `condition` is the id of the object
        that must have the name, 0 for none, None for no condition. Raises `BadRequest` for an
        unknown storage class or a bad path of affinity.
        """

class Credentials:
    """What a client shows to a cluster, and how it checks the certificates of servers."""

    def __init__(
        self,
        token: str | None,
        token_file: str | PathLike[str] | None,
        tls_ca: str | PathLike[str] | None,
        tls_name: str | None,
    ) -> None:
        """Takes a token, or else the file that has it, and reads the file of the authorities.

        `tls_ca` turns TLS on; `tls_name` is the name in the certificates. Raises `ValueError` if a
        file cannot be read, or has no token or no certificate: name another file.
        """

class Client:
    """A connection to a cluster, for any number of threads.

    Each method waits for its call and returns the result. A client that a `CompletionQueue` has
    connected returns call ids instead, except from `keep_job`, `within` and `metrics`. A call
    raises an error of `sanderling.errors`: `TimedOut` after the client's timeout, `Unreachable`
    without a server, `NotAllowed` without the right, and what the method names. In a forked child
    it raises `RuntimeError`: connect again. A path that is none is `BadRequest`. Offsets, lengths
    and ids are below 2**64; sizes are in bytes. Objects of JSON are those of `sanderling.metadata`.
    """

    def __init__(
        self,
        address: str,
        timeout_millis: int | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Connects to the namenode at `address`, `HOST:PORT`.

        Each call takes at most `timeout_millis` milliseconds, retries included, 10,000 by default.
        """

    def put(self, name: str, data: Readable, options: Options) -> ObjectMetadata:
        """Writes a whole object, seals it, and returns its metadata.

        `data` has a contiguous buffer, which is read in place: it must not change until the call
        ends. Raises `Exists` and `Changed` by the options, `NotFound` for a missing directory
        above, and `Full` without room for it.
        """

    def put_many(
        self, objects: Sequence[tuple[str, Readable]], options: Options
    ) -> builtins.list[ObjectMetadata | Exception]:
        """Writes many whole objects; returns, in their order, the metadata or the error of each.

        Errors are those of `put`. An error of one object does not keep the others from being
        written.
        """

    def get(self, name: str) -> Buffer:
        """Returns all bytes of an object as one piece.

        An object that is to be deleted after a read is deleted then. Raises `NotFound`, and
        `DataUnavailable` with the lost ranges: compute these again.
        """

    def get_many(self, names: Sequence[str]) -> builtins.list[Buffer | Exception]:
        """Reads many whole objects; returns, in their order, the bytes or the error of each.

        Errors are those of `get`. Raises only what concerns all, such as `Unreachable`.
        """

    def get_range(self, name: str, offset: int, length: int) -> Buffer:
        """Returns `length` bytes from `offset` on; the object stays, whatever its options.

        Raises `BadRequest` of kind `OutOfRange` if that is past the end: read within the bytes that
        `stat` returns. Else as `get`.
        """

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[Buffer]:
        """Returns the bytes of many ranges, (offset, bytes) each, in their order.

        Raises what `get_range` does; if any range fails, all do.
        """

    def get_into(self, name: str, offset: int, buffer: Readable) -> int:
        """Reads from `offset` on into a writable, contiguous buffer; returns how many bytes.

        These are fewer than the buffer holds only at the object's end. Raises what `get` does, and
        then the buffer's content is undefined; `ValueError` if the buffer is read-only or not
        contiguous.
        """

    def delete_read(self, name: str, object: int) -> None:
        """Deletes an object that was read whole, if the object of this id still has the name.

        Raises nothing if that fails: the bytes that were read are good, and the object stays.
        """

    def stream(self, name: str) -> Stream:
        """Opens a multifile, or a directory of files, as one stream of its parts.

        Parts created later are not in it. Raises `NotFound` and `NotADirectory`: correct the path.
        """

    def reader(self, name: str) -> Reader:
        """Opens an object for reading as it is now; no bytes are read yet.

        Raises `NotFound` and `IsADirectory`: correct the path.
        """

    def readers(self, names: Sequence[str]) -> builtins.list[Reader | Exception]:
        """Opens many objects; returns, in their order, the reader or the error of each."""

    def read_many(
        self, wanted: Sequence[tuple[Reader, Sequence[tuple[int, int]]]]
    ) -> builtins.list[builtins.list[Buffer] | Exception]:
        """Reads ranges, (offset, bytes) each, of many open objects with few requests.

        Returns, in the order given, the bytes of each object's ranges, or the error that
        `Reader.read_ranges` would raise.
        """

    def create(self, name: str, options: Options) -> Writer:
        """Creates an object and returns its writer; `Writer.close` seals it.

        Raises `Exists` and `Changed` by the options, `NotFound` for a missing directory above, and
        `Full` without room.
        """

    def append(self, name: str) -> Writer:
        """Opens a sealed file and returns a writer that adds bytes at its end.

        Raises `NotFound`, and `SecondWriter` while another writer has it: try again after
        `retry_after` seconds.
        """

    def stat(self, name: str) -> ObjectMetadata:
        """Returns the metadata of an object; raises `NotFound`."""

    def list(self, name: str, with_attributes: bool) -> str:
        """Returns all entries of a directory, multifile or table in the order of names, as JSON.

        With `with_attributes` each has the texts beside its bytes. Raises `NotFound` and
        `NotADirectory`: correct the path.
        """

    def set_attributes(
        self, name: str, attributes: Sequence[tuple[str, str]], expected: int | None
    ) -> ObjectMetadata:
        """Replaces all attributes, (name, text) each, of an object and returns its metadata.

        With `expected`, an object's id, raises `Changed` if another object has the name by now:
        look it up and decide again. Raises `BadRequest` of kind `TooLarge` for too many: set fewer
        or shorter ones.
        """

    def concat(self, parts: Sequence[str], target: str, options: Options) -> ObjectMetadata:
        """Makes one sealed file of the blocks of `parts`, in their order, and removes the parts.

        It is one step. No byte is moved. Raises `BadRequest` for a part that is no sealed file or
        belongs to another job, and `Exists` and `Changed` by the options; nothing has changed then.
        """

    def make_directory(self, name: str, kind: str, parents: bool) -> ObjectMetadata:
        """Makes a `directory`, `multifile` or `table`, by its kind; returns its metadata.

        With `parents` missing directories above are made, and it may exist already. Else raises
        `Exists` and `NotFound`. Raises `ValueError` for another kind.
        """

    def make_durable(
        self, name: str, store: str, parents: bool, backlog_bytes_max: int | None, adopt: bool
    ) -> ObjectMetadata:
        """Makes a directory whose sealed objects datanodes copy to the store of this name.

        While `backlog_bytes_max` bytes wait for the store, writers wait: None keeps the bound of a
        directory that is durable already, with `parents`, and is 16 GiB else. With `adopt` the
        objects that the store has become the directory's. Raises `BadRequest` if no datanode has
        the store, or it has a directory: choose another one; `NotEmpty` and `Exists`: choose
        another path.
        """

    def durability(self, name: str) -> str:
        """Returns how far the object or directory is copied to its store, as JSON.

        The text is `null` if it is in no durable directory. Raises `NotFound`: check the path.
        """

    def wait_durable(self, name: str, within_millis: int) -> str:
        """Waits until the store has everything that was sealed at or below the path before the
        call.

        Returns JSON: `null` then, or how far it is when `within_millis` milliseconds are over.
        Raises `BadRequest` if the path is in no durable directory: make one with `make_durable`.
        """

    def rename(self, source: str, target: str, replace: bool) -> None:
        """Moves an object, with everything in it, to another name in one step.

        Raises `NotFound`, and `Exists` unless `replace` and both are files: choose another name.
        """

    def delete(self, name: str, recursive: bool, expected: int | None) -> tuple[int, int]:
        """Deletes an object; returns how many objects were freed at once and how many bytes they
        had.

        The rest of a large directory is freed afterwards. With `expected`, an object's id, raises
        `Changed` if another object has the name by now. Raises `NotEmpty` for a directory that
        holds something: set `recursive`.
        """

    def set_ttl(self, name: str, ttl_millis: int | None) -> None:
        """Deletes the object in `ttl_millis` milliseconds from now; None takes an earlier TTL back.

        Raises `NotFound`: check the name; an earlier TTL may have ended.
        """

    def usage(self, name: str) -> tuple[int, int, int, int]:
        """Returns how many files, directories, bytes and lost bytes a subtree has, in this order.

        Raises `NotFound`: check the path.
        """

    def register_job(
        self,
        name: str,
        lease_millis: int,
        quota_bytes: int | None,
        names_max: int | None,
        attribute_bytes_max: int | None,
        expected_bytes: int | None,
        throughput_bytes_per_second: int | None,
        is_latency_sensitive: bool,
        delete_after_read: bool,
        keep_after_job: bool,
        recompute_millis_per_mib: int | None,
        expected_reads: int | None,
    ) -> str:
        """Makes a job, which ends if it is not renewed for `lease_millis` milliseconds, and returns
        it as JSON.

        `quota_bytes`, `names_max` and `attribute_bytes_max` bound its subtree; None is no bound.
        The others are hints: `recompute_millis_per_mib` is the milliseconds that it takes to
        compute a MiB again, `expected_reads` counts reads of each byte. Raises `BadRequest` of kind
        `WrongKind` if the subtree is not empty or is another job's: choose another path.
        """

    def job_account(self, job: int) -> tuple[int, int, int | None, int | None]:
        """Returns a job's names, bytes of attributes, and the limits of both, None for no limit.

        Raises `BadRequest` of kind `UnknownJob` if it has ended: register another one.
        """

    def keep_job(self, job: int, lease_millis: int) -> LeaseRenewer:
        """Renews a job in the background, three times within `lease_millis`, until the result is
        dropped.
        """

    def token(
        self, subtree: str, rights: Sequence[str], lifetime_millis: int, subject: str
    ) -> str:
        """Returns a token for a subtree that allows no more than the client's own token, nor for
        longer.

        It ends `lifetime_millis` milliseconds from now; `rights` are some of `read`, `write`,
        `admin` and `metrics`. Raises `NotAllowed` for more than the own one allows: request less;
        `BadRequest` if the cluster has no tokens.
        """

    def renew_job(self, job: int) -> None:
        """Renews a job's lease once, so that the job and its subtree stay for another lease.

        Raises `BadRequest` of kind `UnknownJob` if it has ended: register another one.
        """

    def end_job(self, job: int) -> None:
        """Ends a job and deletes its subtree, unless it is to be kept.

        Raises `BadRequest` of kind `UnknownJob` if it has ended: nothing is left to do.
        """

    def jobs(self) -> str:
        """Returns the jobs that have not ended, each with its subtree, lease, quota and bytes, as
        JSON.
        """

    def nodes(self, all: bool) -> str:
        """Returns the datanodes as JSON, with `all` also those that are gone and remembered."""

    def notice(self, node: str, deadline_millis: int, reason: str) -> str:
        """Gives a node a notice: it ends in `deadline_millis` milliseconds, and its blocks move
        before.

        `node` is a name, id or address. Returns the node's state as JSON. Raises `UnknownNode`:
        select one of `nodes`; `BadRequest` of kind `DeadlinePassed`: give a positive deadline.
        """

    def decommission(self, node: str, reason: str) -> str:
        """Starts the orderly removal of a node, without a deadline; returns its state as JSON.

        Its blocks move to other nodes. Raises `UnknownNode`: select one of `nodes`.
        """

    def cancel(self, node: str) -> str:
        """Cancels the notice or the decommission of a node, which stays; returns its state as JSON.

        Raises `UnknownNode`, and an error of kind `WrongState` if the node does not drain: nothing
        is to be cancelled.
        """

    def events(self, after: int, limit: int, wait_millis: int) -> str:
        """Returns at most `limit` events with a sequence above `after`, as JSON.

        Waits up to `wait_millis` milliseconds for the first one.
        """

    def report(self) -> str:
        """Returns everything that was ever declared lost, as JSON."""

    def fsck(self) -> str:
        """Makes the namenode check its catalog for contradictions; returns the report as JSON."""

    def within(self, timeout_millis: int) -> Client:
        """Returns a client that shares everything with this one, and whose calls take at most
        `timeout_millis` milliseconds. Sends no request."""

    def metrics(self) -> dict[str, float]:
        """Returns what this client has counted since it connected: calls, bytes, and a stall in
        seconds.

        Sends no request. The names are those of `bindings/native/schema.txt`, but
        `longest_stall_seconds`.
        """

class LeaseRenewer:
    """Renews a job's lease in the background until it is stopped or dropped."""

    def stop(self) -> None:
        """Stops the renewal: the job ends when its lease does. A second call does nothing."""

    def has_ended(self) -> bool:
        """Returns whether the namenode has reported the end of the job; False after `stop`."""

class Stream:
    """The parts of a multifile, one after the other, for one thread or task at a time."""

    def next(self) -> Buffer | None:
        """Returns the next bytes; None at the end of the last part.

        Raises `DataUnavailable` if bytes of a part are lost: compute it again; the next call begins
        with the part after it. Raises `Closed` while another thread reads, and after a call that
        was cancelled.
        """

class CompletionQueue:
    """The calls of one asyncio loop: its thread begins them and takes many results at once.

    At most 1,024 calls are in flight together; the others wait in order, and their timeouts begin
    later.
    """

    def __init__(self) -> None:
        """Opens the queue; raises `RuntimeError` if the system has no thread or pipe for it."""

    def fileno(self) -> int:
        """Returns the descriptor that is readable while results are there."""

    # Returns a call id, like every method of the client that the answer is.
    def connect(
        self, address: str, timeout_millis: int | None, credentials: Credentials | None
    ) -> Client:
        """Begins to connect, as `Client` does; the result is a client whose methods return call
        ids.

        Returns a call id. Raises `RuntimeError` if the queue is closed.
        """

    def take(self) -> list[tuple[int, bool, Any]]:
        """Removes the results that are there: call id, whether the call failed, result or
        exception.

        Does not wait; the list may be empty.
        """

    def cancel(self, call_id: int) -> None:
        """Cancels a call, whose result may still come as an error; does nothing after its end."""

    def close(self) -> None:
        """Cancels the calls and refuses later ones with `RuntimeError`."""

class Reader:
    """An object that was opened for reading, as it was then. Threads may share it."""

    @property
    def stat(self) -> ObjectMetadata:
        """The object's metadata as last looked up; sends no request."""

    @property
    def bytes(self) -> int:
        """The object's length in bytes as last looked up; sends no request."""

    def read_range(self, offset: int, length: int) -> builtins.bytes:
        """Returns a copy of `length` bytes from `offset` on.

        Raises `BadRequest` of kind `OutOfRange` if that is past the end, and `DataUnavailable` with
        the lost ranges: compute these again.
        """

    def view(self, offset: int, length: int) -> Buffer:
        """Returns `length` bytes from `offset` on, not copied; raises what `read_range` does."""

    def read_into(self, offset: int, buffer: Readable) -> int:
        """Reads from `offset` on into a writable, contiguous buffer; returns how many bytes.

        These are fewer than the buffer holds only at the object's end. Raises what `read_range`
        does, and then the buffer's content is undefined; `ValueError` if the buffer is read-only or
        not contiguous.
        """

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[builtins.bytes]:
        """Returns copies of many ranges, (offset, bytes) each, in their order; if one fails, all
        do.
        """

class Writer:
    """An object that is being written, by one thread or task at a time.

    Its methods, but `abort` and `position`, raise `Closed` after its end and while another thread
    uses it. Dropped unclosed it is aborted.
    """

    @property
    def position(self) -> int:
        """How many bytes the object has with those written so far; sends no request."""

    def write(self, data: Readable) -> None:
        """Adds bytes at the end; others can read them after `flush` or `close`.

        From 4 MiB on, `data` is not copied and the call waits for its acknowledgements; less is
        copied. After an error the writer takes no further write: write the object again. Raises
        `WriterLost` if its lease has ended, `Full` without room.
        """

    def set_attribute(self, name: str, text: str) -> None:
        """Sets a text that is kept beside the bytes from `close` on, in place of one of the same
        name.
        """

    def flush(self) -> None:
        """Sends all bytes so far, waits for their acknowledgements, and makes them readable.

        Raises what `write` does, and `DataUnavailable` if flushed ranges are lost: write the whole
        again.
        """

    def close(self) -> ObjectMetadata:
        """Sends the rest, seals the object, and returns its metadata; it is visible from then on.

        Raises what `flush` does; the object is not sealed then.
        """

    def abort(self) -> None:
        """Gives the object up: a new one vanishes, an appended one keeps what was flushed.

        Does nothing after the writer's end.
        """

