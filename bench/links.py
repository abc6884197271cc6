"""Places with shaped links: a network namespace each, on a bridge in a namespace of its own.

The shape is the lab's (`sanderling lab`): tbf at both ends of every link.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from goal import Unavailable

WIRE = "wire"
# What tbf lets through at once: five ticks of a kernel at 1000 Hz, a bit more than one at 250 Hz.
BURST_SECONDS = 0.005
BURST_BYTES_MIN = 128 << 10
SEND_QUEUE = "400ms"
SWITCH_QUEUE = "100ms"


@dataclass(frozen=True)
class Links:
    """A small network. The namenode and the clients are where this program is."""

    places: int
    bytes_per_second: int
    # RFC 2544 sets 198.18.0.0/15 aside for measurements; the lab takes 198.18.
    subnet: str = field(default_factory=lambda: f"198.19.{os.getpid() % 200}")

    @property
    def root(self) -> str:
        return f"{self.subnet}.254"

    def address(self, place: int) -> str:
        """Returns the address of a place."""
        return f"{self.subnet}.{place + 1}"

    def at(self, place: int) -> tuple[str, ...]:
        """Returns the words before a command that runs it at a place."""
        return ("ip", "netns", "exec", namespace(place))

    def make(self) -> None:
        """Makes the namespaces and the links.

        Raises `Unavailable` with the first command that failed.
        """
        switch, outer, inner = namespace("switch"), link("r"), link("q")
        ip(f"netns add {switch}")
        ip(f"-n {switch} link add bridge type bridge forward_delay 0")
        ip(f"-n {switch} link set bridge up")
        ip(f"link add {outer} type veth peer name {inner} netns {switch}")
        ip(f"-n {switch} link set {inner} master bridge up")
        ip(f"address add {self.root}/24 dev {outer}")
        ip(f"link set {outer} up")
        for place in range(self.places):
            self.make_place(place, switch)

    def make_place(self, place: int, switch: str) -> None:
        """Makes one namespace with a link that is shaped at both ends."""
        own, port = namespace(place), link(f"n{place}")
        ip(f"netns add {own}")
        ip(f"-n {own} link set lo up")
        ip(f"-n {switch} link add {port} type veth peer name {WIRE} netns {own}")
        ip(f"-n {switch} link set {port} master bridge up")
        ip(f"-n {own} address add {self.address(place)}/24 dev {WIRE}")
        ip(f"-n {own} link set {WIRE} up")
        self.shape(own, WIRE, SEND_QUEUE)
        self.shape(switch, port, SWITCH_QUEUE)

    def shape(self, where: str, device: str, queue: str) -> None:
        """Limits what leaves by a device."""
        burst = max(int(self.bytes_per_second * BURST_SECONDS), BURST_BYTES_MIN)
        rate = f"rate {self.bytes_per_second * 8}bit burst {burst} latency {queue}"
        command(f"tc -n {where} qdisc add dev {device} root tbf {rate}")

    def remove(self) -> None:
        """Removes everything; the other links go with their namespaces."""
        # At once: the kernel removes a namespace, and what is in it, when it finds the time.
        with contextlib.suppress(Unavailable):
            ip(f"link del {link('r')}")
        for name in [*range(self.places), "switch"]:
            with contextlib.suppress(Unavailable):
                ip(f"netns del {namespace(name)}")


class Sent:
    """Watches when bytes leave a place while a `with` block runs."""

    EVERY_SECONDS = 0.005
    # Heartbeats and metadata are less than this in a whole drain.
    IDLE_BYTES = 256 << 10

    def __init__(self, place: int) -> None:
        path = f"/sys/class/net/{WIRE}/statistics/tx_bytes"
        # Read inside the namespace: its devices are seen there alone.
        script = f"while read -r _; do cat {path}; done"
        words = ["ip", "netns", "exec", namespace(place), "sh", "-c", script]
        self._reader = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.samples: list[tuple[float, int]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Sent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        with self._reader as reader:
            assert reader.stdin
            reader.stdin.close()

    def _watch(self) -> None:
        reader = self._reader
        assert reader.stdin and reader.stdout
        while not self._is_over.wait(self.EVERY_SECONDS):
            reader.stdin.write("\n")
            reader.stdin.flush()
            self.samples.append((time.monotonic(), int(reader.stdout.readline())))

    def seconds(self) -> float:
        """Returns the time from the first byte of the stream to the last."""
        first, last = self.samples[0][1], self.samples[-1][1]
        under_way = [
            at for at, sent in self.samples
            if first + self.IDLE_BYTES <= sent <= last - self.IDLE_BYTES
        ]
        if len(under_way) < 2:
            raise Unavailable("nothing left the node")
        return under_way[-1] - under_way[0]


@contextlib.contextmanager
def links(places: int, bytes_per_second: int) -> Iterator[Links]:
    """Makes a network and removes it at the end."""
    made = Links(places, bytes_per_second)
    try:
        made.make()
        yield made
    finally:
        made.remove()


def namespace(name: int | str) -> str:
    return f"sanderling-bench-{os.getpid()}-{name}"


def link(end: str) -> str:
    """Names a link end in at most 15 bytes, the kernel's limit."""
    return f"sb{os.getpid()}{end}"


def ip(words: str) -> None:
    command(f"ip {words}")


def command(line: str) -> None:
    """Runs a command whose words hold no spaces."""
    try:
        ran = subprocess.run(line.split(), capture_output=True, text=True, timeout=20)
    except OSError as error:
        raise Unavailable(f"{line}: {error.strerror}: install iproute2") from error
    if ran.returncode:
        raise Unavailable(f"{line}: {ran.stderr.strip()}: it needs root")
