"""Optional parts name the command that installs what they need."""

import subprocess
import sys

import pytest

HIDE = """
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
import {part}
"""


@pytest.mark.parametrize(
    ("part", "package", "extra"),
    [
        ("sanderling.arrow", "pyarrow", "arrow"),
        ("sanderling.flight", "pyarrow", "arrow"),
        ("sanderling.fs", "fsspec", "fsspec"),
        ("sanderling.torch", "torch", "torch"),
    ],
)
def test_part_without_its_package_names_the_extra(part: str, package: str, extra: str) -> None:
    program = HIDE.format(package=package, part=part)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    last = ran.stderr.strip().splitlines()[-1]
    assert ran.returncode == 1
    assert f"needs {package}: pip install 'sanderling[{extra}]'" in last
