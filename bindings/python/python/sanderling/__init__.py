"""Sanderling keeps ephemeral data alive on machines that are taken away at short notice.

    import sanderling

    with sanderling.Cluster.local(datanodes=3, dram_bytes=256 << 20) as cluster:
        store = cluster.store()
        store.put("/hello", b"world")
        cluster.notice(cluster.nodes()[0], deadline_seconds=5)
        assert store.get("/hello") == b"world"
"""

from sanderling import errors
from sanderling._sanderling import VERSION as __version__
from sanderling._sanderling import Buffer
from sanderling.arguments import PutOptions
from sanderling.cluster import Cluster, ClusterError, Namenode
from sanderling.connection import connect
from sanderling.errors import (
    Changed,
    DataUnavailable,
    Exists,
    Full,
    NotFound,
    Recovery,
    SanderlingError,
    TimedOut,
    Unreachable,
)
from sanderling.metadata import (
    Deleted,
    Durability,
    Drain,
    Entry,
    Event,
    Forecast,
    Fsck,
    Job,
    JobAccount,
    Loss,
    LossReport,
    Node,
    Stat,
    Usage,
)
from sanderling.files import ObjectReader, ObjectWriter
from sanderling.objects import JobScope, Multifile, Table
from sanderling.store import Store

__all__ = [
    "Buffer",
    "Changed",
    "Cluster",
    "ClusterError",
    "DataUnavailable",
    "Deleted",
    "Durability",
    "Drain",
    "Entry",
    "Event",
    "Exists",
    "Forecast",
    "Fsck",
    "Full",
    "Job",
    "JobAccount",
    "JobScope",
    "Loss",
    "LossReport",
    "Multifile",
    "Namenode",
    "Node",
    "NotFound",
    "ObjectReader",
    "ObjectWriter",
    "PutOptions",
    "Recovery",
    "SanderlingError",
    "Stat",
    "Store",
    "Table",
    "TimedOut",
    "Unreachable",
    "Usage",
    "__version__",
    "connect",
    "errors",
]
