"""What is made or read by a schema, held against it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import sanderling

BINDINGS = Path(__file__).parents[2]


def schema(of: str) -> list[str]:
    """Returns the names of the fields in the order in which the native half passes them."""
    lines = (BINDINGS / "native" / "schema.txt").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[0] == of]


def names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def test_metadata_has_the_fields_of_the_schema(store):
    assert names(sanderling.Stat) == schema("stat")
    assert names(sanderling.Usage) == schema("usage")
    assert names(sanderling.JobAccount) == schema("job_account")
    metrics = {name.removesuffix("_seconds"): value for name, value in store.metrics().items()}
    assert sorted(metrics) == sorted(schema("metrics"))
    assert all(isinstance(value, float) for value in metrics.values())


def test_synchronous_half_is_up_to_date():
    script = BINDINGS / "python" / "synchronous.py"
    ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_stale_synchronous_half_is_noticed(tmp_path):
    script = tmp_path / "synchronous.py"
    script.write_text((BINDINGS / "python" / "synchronous.py").read_text())
    package = tmp_path / "python" / "sanderling"
    (package / "aio").mkdir(parents=True)
    for name in ("objects.py", "store.py"):
        (package / "aio" / name).write_text("async def put() -> None:\n    await call()\n")
    for expected in (1, 0):
        ran = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
        assert ran.returncode == expected, ran.stdout + ran.stderr
        assert subprocess.run([sys.executable, script]).returncode == 0
    assert (package / "store.py").read_text().endswith("def put() -> None:\n    call()\n")
