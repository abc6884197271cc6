"""Writes the report."""

from __future__ import annotations

import json
from pathlib import Path

from sanderling.demo.run import Facts
from sanderling.demo.summary import Summary


def write(facts: Facts, summary: Summary, directory: Path) -> Path:
    """Writes the report into `directory` and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "result.json"
    path.write_text(json.dumps(summary.as_json(), indent=2))
    return path
