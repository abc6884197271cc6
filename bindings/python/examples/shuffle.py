"""A shuffle in a job: mappers write parts of multifiles, reducers read them as streams.

    python shuffle.py [namenode's address]
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import sanderling

LINES = ["to be or not to be", "that is the question", "whether it is nobler to be"]
REDUCERS = 2


def map_line(job: sanderling.JobScope, store: sanderling.Store, number: int) -> None:
    """Sends each word of a line to the reducer that counts it."""
    words: list[list[str]] = [[] for _ in range(REDUCERS)]
    for word in LINES[number].split():
        words[ord(word[0]) % REDUCERS].append(word)
    for reducer, some in enumerate(words):
        bag = store.multifile(job.path_of(f"to-{reducer}"))
        with bag.part(f"from-{number}") as part:
            part.write("".join(f"{word}\n" for word in some).encode())


def reduce_words(job: sanderling.JobScope, store: sanderling.Store, reducer: int) -> None:
    """Counts the words of one reducer, and puts the counts into the job's table."""
    counts: Counter[str] = Counter()
    with store.multifile(job.path_of(f"to-{reducer}")).open() as stream:
        counts.update(line.decode().strip() for line in stream)
    table = store.table(job.path_of("counts"))
    table.put_many({word: str(count).encode() for word, count in counts.items()})


def run(address: str) -> dict[str, int]:
    """Counts the words. Nothing of the job stays, however it ends."""
    with sanderling.connect(address) as store, ThreadPoolExecutor() as pool:
        with store.job("/jobs/word-count", lifetime=60, quota=64 << 20) as job:
            list(pool.map(lambda number: map_line(job, store, number), range(len(LINES))))
            list(pool.map(lambda reducer: reduce_words(job, store, reducer), range(REDUCERS)))
            counts = store.table(job.path_of("counts"))
            return {word: int(bytes(count)) for word, count in counts.items()}


def main() -> None:
    """Runs on a cluster that is there, or on one of its own."""
    if len(sys.argv) > 1:
        print(run(sys.argv[1]))
    else:
        with sanderling.Cluster.local(datanodes=2, dram_bytes=64 << 20) as cluster:
            print(run(cluster.address))


if __name__ == "__main__":
    main()
