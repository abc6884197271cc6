"""The README's Python is run as it stands there."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[3] / "README.md"


def test_snippets_of_the_readme_run():
    snippets = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert snippets
    for snippet in snippets:
        exec(compile(snippet, str(README), "exec"), {"__name__": "readme"})
