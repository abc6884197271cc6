"""Pages with plots: the frame, style and script of `crates/plot`, filled with JSON."""

from __future__ import annotations

import html
import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FILES = ROOT / "crates/plot/static"
# Height of one row of a plot of rows.
ROW = 26


class Row(NamedTuple):
    """A named line of a plot: a dot at its median, on a line from its least to its greatest."""

    name: str
    colour: str
    note: str
    values: tuple[float, float, float] | None = None
    """Least, median and greatest. Without them the note stands alone."""


def page(title: str, verdict: str, is_good: bool, body: str) -> str:
    """Returns a page; the title and the verdict are text, the body is HTML."""
    kind = "verdict" if is_good else "verdict bad"
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    parts = {
        "title": html.escape(title),
        "verdict": f'<p class="{kind}">{html.escape(verdict)}</p>',
        "version": manifest["workspace"]["package"]["version"],
        "style": (FILES / "plot.css").read_text(encoding="utf-8"),
        "script": (FILES / "plot.js").read_text(encoding="utf-8"),
        "body": body,
    }
    text = (FILES / "page.html").read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text


def figure(spec: dict[str, Any]) -> str:
    """Returns the element of a plot."""
    # JSON has this letter in strings alone. `</script>` or `<!--` would end or hide the element.
    safe = json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    kind = 'class=plot type="application/json"'
    return f"<div class=picture><script {kind}>{safe}</script></div>\n"


def bar(colour: str, x: tuple[float, float], y: tuple[float, float], title: str) -> dict[str, Any]:
    """Returns a bar between values of both axes; its title is shown under the pointer."""
    return {"kind": "bar", "class": colour, "x": x, "y": y, "title": title}


def legend(entries: dict[str, str]) -> str:
    """Returns a list of what colours mean."""
    items = (
        f'<li><i class="{kind}"></i>{html.escape(what)}</li>' for kind, what in entries.items()
    )
    return f"<ul class=legend>{''.join(items)}</ul>"


def places(names: list[str]) -> dict[str, Any]:
    """Returns a y axis of named places, the first at the top, whose middle is at 0.5."""
    at = [(place + 0.5, name) for place, name in enumerate(names)]
    return {"ends": (max(len(names), 1), 0), "at": at, "grid": False}


def rows(about: str, sides: tuple[float, float], x: dict[str, Any], shown: list[Row]) -> str:
    """Returns a plot of rows between their names and notes, which have the space `sides`."""
    marks: list[dict[str, Any]] = []
    for place, row in enumerate(shown):
        middle = place + 0.5
        end = {"at": (x["ends"][1], middle), "by": (14, 4)}
        marks.append({"kind": "text", "class": f"strong {row.colour}", "text": row.note, **end})
        if row.values:
            least, median, most = row.values
            line = {"points": [(least, middle), (most, middle)]}
            marks.append({"kind": "curve", "class": f"spread {row.colour}", **line})
            dot = {"points": [(median, middle)], "r": 5}
            marks.append({"kind": "dots", "class": row.colour, **dot})
    y = places([row.name for row in shown])
    panel = {"height": ROW * len(shown), "y": y, "marks": marks}
    left, right = sides
    axis = {"grid": True, **x}
    return figure({"about": about, "left": left, "right": right, "x": axis, "panels": [panel]})
