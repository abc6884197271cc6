"""The pages' examples are run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT, Runner, blocks

PAGES = ["README.md", "docs/QUICKSTART.md", "docs/CLI.md", "docs/HTTP.md", "docs/PYTHON.md",
         "docs/FSSPEC.md", "docs/ARROW.md", "docs/TASKS.md", "docs/BAG.md"]


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_the_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runner = Runner(ROOT / page, tmp_path)
    monkeypatch.setenv("SANDERLING_NAMENODE", runner.shell["SANDERLING_NAMENODE"])
    assert runner.run() > 0


def test_page_is_cut_into_its_examples() -> None:
    page = """# Title
```python
a = 1
```
<!-- not run: it takes a cluster of a hundred -->
```sh
sanderling bench scale
```
<!-- run python
b = 2
-->
```console
$ ls
file
```
```text
no example
```
"""
    found = [(block.line, block.language, block.text, block.reason) for block in blocks(page)]
    assert found == [
        (3, "python", "a = 1\n", None),
        (7, "sh", "sanderling bench scale\n", "it takes a cluster of a hundred"),
        (10, "python", "b = 2\n", None),
        (13, "sh", "ls\n", None),
    ]
