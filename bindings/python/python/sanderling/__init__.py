"""Sanderling keeps ephemeral data alive on machines that are taken away at short notice."""

from sanderling._sanderling import VERSION as __version__

__all__ = ["__version__"]
