"""Jobs: subtrees that live as long as the program that made them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from sanderling.arguments import COUNT_MAX, PutOptions, millis, some_millis, some_whole, text, whole
from sanderling.errors import BadRequest, Closed
from sanderling.facts import Job, JobAccount, Stat, Usage

if TYPE_CHECKING:
    from sanderling import _sanderling
    from sanderling._sanderling import Buffer
    from sanderling.store import Store

LEASE_SECONDS = 60.0
"""How long a job lives on when nothing is heard of the program that made it."""


JobRequest = tuple[
    str,
    int,
    int | None,
    int | None,
    int | None,
    int | None,
    int | None,
    bool,
    bool,
    bool,
    int | None,
    int | None,
]
"""The native arguments, in order: path, lease in milliseconds, quota, limits and hints."""


def request(
    path: str,
    lifetime: float,
    quota: int | None,
    names_max: int | None,
    attribute_bytes_max: int | None,
    expected_bytes: int | None,
    throughput: int | None,
    latency_sensitive: bool,
    delete_after_read: bool,
    keep_after: bool,
    recompute_per_mib: float | None,
    expected_reads: int | None,
) -> JobRequest:
    """Returns the native half's arguments of a job, checked."""
    lease = millis("lifetime", lifetime)
    if lease == 0:
        raise ValueError("lifetime is 0: a job lives at least a millisecond without a word")
    return (
        text(path),
        lease,
        some_whole("quota", quota),
        some_whole("names_max", names_max),
        some_whole("attribute_bytes_max", attribute_bytes_max),
        some_whole("expected_bytes", expected_bytes),
        some_whole("throughput", throughput),
        bool(latency_sensitive),
        bool(delete_after_read),
        bool(keep_after),
        some_millis("recompute_per_mib", recompute_per_mib),
        some_whole("expected_reads", expected_reads, COUNT_MAX),
    )


class JobScope:
    """A job while its program runs. Made by `Store.job`; left, it ends.

    Its lease is renewed in the background, without Python's lock. When the `with` block is left,
    by an error too, or the program dies, the subtree goes; with `keep_after` it stays.
    """

    def __init__(self, store: Store, job: Job, renewer: _sanderling.LeaseRenewer) -> None:
        self._store = store
        self._renewer: _sanderling.LeaseRenewer | None = renewer
        self.id = job.job
        """The job's id."""
        self.path = job.path
        """The root of its subtree."""
        self.info = job
        """The job as it was registered."""

    def __enter__(self) -> JobScope:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<sanderling.JobScope {self.id} at {self.path}>"

    @property
    def is_alive(self) -> bool:
        """Whether the job has neither been ended nor lost its lease, as far as is known here."""
        return self._renewer is not None and not self._renewer.has_ended()

    def put(self, name: str, data: Any, **options: Unpack[PutOptions]) -> Stat:
        """Writes a whole object of the job, as `Store.put` does; missing directories are made."""
        self._check()
        options.setdefault("parents", True)
        return self._store.put(self.path_of(name), data, **options)

    def get(self, name: str) -> Buffer:
        """Reads a whole object of the job."""
        self._check()
        return self._store.get(self.path_of(name))

    def delete(self, name: str, *, recursive: bool = False) -> None:
        """Deletes an object of the job."""
        self._check()
        self._store.delete(self.path_of(name), recursive=recursive)

    def usage(self) -> Usage:
        """Sums up what the job holds."""
        self._check()
        return self._store.usage(self.path)

    def account(self) -> JobAccount:
        """Returns how many names and bytes of attributes the job holds, and may hold."""
        self._check()
        return self._store.job_account(self.id)

    def token(
        self,
        name: str = "",
        *,
        rights: Iterable[str] = ("read", "write"),
        expires: float = 3600.0,
    ) -> str:
        """Returns a token for the job's subtree, or a part of it, to hand to a task.

        See `Store.token`.
        """
        self._check()
        path = self.path_of(name) if name else self.path
        return self._store.token(path, rights=rights, expires=expires, subject=f"job-{self.id}")

    def path_of(self, name: str) -> str:
        """Returns the whole path of a name, such as `a/b`, in the job's subtree."""
        return f"{self.path.rstrip('/')}/{text(name)}"

    def end(self) -> None:
        """Ends the job now; a second time does nothing."""
        renewer, self._renewer = self._renewer, None
        if renewer is None:
            return
        renewer.stop()
        try:
            self._store.end_job(self.id)
        except BadRequest as error:
            # Its lease has ended, or somebody else was first.
            if error.kind != "UnknownJob":
                raise

    deregister = end

    def detach(self) -> Job:
        """Leaves the job to somebody else, who renews it within its lifetime (`renew_job`)."""
        self._check()
        assert self._renewer is not None
        self._renewer.stop()
        self._renewer = None
        return self.info

    def _check(self) -> None:
        if self._renewer is None:
            raise Closed("the job was ended")


def job_id(job: int | Job) -> int:
    """Returns a job's id."""
    return job.job if isinstance(job, Job) else whole("the job", job)
