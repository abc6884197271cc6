"""Names the command that installs what an optional part needs."""

from __future__ import annotations


def missing(part: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Returns the error of a part whose package is not installed, with the command for it."""
    package = (error.name or "a package").partition(".")[0]
    text = f"{part} needs {package}: pip install 'sanderling[{extra}]'"
    return ModuleNotFoundError(text, name=error.name)
