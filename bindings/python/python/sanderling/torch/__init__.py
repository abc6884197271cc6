"""Checkpoints of torch in the store, for `torch.distributed.checkpoint`.

    import torch.distributed.checkpoint as dcp
    from sanderling.torch import StorageReader, StorageWriter, latest

    dcp.save(state, storage_writer=StorageWriter(store, "/out/step-100"))
    dcp.load(state, storage_reader=StorageReader(store, latest(store, "/out")))

Tensors are written from their own memory and read into it. What `.metadata` names is a checkpoint,
and it is sealed after everything else: a save that was interrupted left none.
"""

from sanderling.extras import missing

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise missing(__name__, "torch", error) from None

from sanderling.torch.places import latest
from sanderling.torch.reader import StorageReader
from sanderling.torch.writer import StorageWriter

__all__ = ["StorageReader", "StorageWriter", "latest"]
