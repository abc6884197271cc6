"""Pictures as SVG text whose colours are classes of the page's style."""

from __future__ import annotations

import html
import math
from typing import Any, NamedTuple

WIDTH = 1000
# One line of a picture of rows, and the space above the first.
LINE, TOP = 26, 38


class Row(NamedTuple):
    """A named line of a picture: a dot at its median, on a line from its least to its greatest."""

    name: str
    kind: str
    note: str
    values: tuple[float, float, float] | None = None
    """Least, median and greatest. Without them the note stands alone."""


def element(name: str, kind: str, inner: str = "", **attributes: Any) -> str:
    """Writes an element of a class; floats get one decimal."""
    words = "".join(
        f' {key.replace("_", "-")}="{f"{value:.1f}" if isinstance(value, float) else value}"'
        for key, value in attributes.items()
    )
    return f'<{name} class="{kind}"{words}>{inner}</{name}>'


def box(kind: str, x: tuple[float, float], y: float, height: float, title: str = "") -> str:
    """Draws a box between two places of the x axis; its title is shown under the pointer."""
    inner = f"<title>{html.escape(title)}</title>"
    return element("rect", kind, inner, x=x[0], width=max(x[1] - x[0], 0.8), y=y, height=height)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Writes words that begin at a place, end there, or have their middle there."""
    return element("text", kind, html.escape(words), x=x, y=y, text_anchor=anchor)


def svg(height: float, label: str, parts: list[str]) -> str:
    """Returns a picture; `label` describes it to readers who do not see it."""
    head = f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{html.escape(label)}">'
    return "\n".join([head, *parts, "</svg>"])


def dots(label: str, sides: tuple[float, float], ends: tuple[float, float],
         ticks: list[tuple[float, str, str]], shown: list[Row], is_log: bool = False) -> str:
    """Draws rows between their names and notes, on an axis with these ends.

    `sides` is the space for names and notes; a tick is its value, its label and its class. What is
    beyond an end is drawn there.
    """
    height, (left, right) = TOP + LINE * len(shown) + 10, sides
    low, high = (math.log(end) for end in ends) if is_log else ends

    def x(value: float) -> float:
        kept = min(max(value, ends[0]), ends[1])
        share = ((math.log(kept) if is_log else kept) - low) / (high - low)
        return left + share * (WIDTH - left - right)

    def line(kind: str, x: tuple[float, float], y: tuple[float, float]) -> str:
        return element("line", kind, x1=x[0], x2=x[1], y1=y[0], y2=y[1])

    parts = []
    for at, words, kind in ticks:
        parts.append(line(kind, (x(at), x(at)), (TOP - 12, height)))
        parts.append(text(x(at), TOP - 20, words, "soft", "middle"))
    for number, row in enumerate(shown):
        y = TOP + LINE * (number + 0.5)
        parts.append(text(left - 14, y + 4, row.name, anchor="end"))
        parts.append(text(WIDTH - right + 14, y + 4, row.note, row.kind))
        if row.values:
            least, middle, most = (x(value) for value in row.values)
            parts.append(line(f"spread {row.kind}", (least, most), (y, y)))
            parts.append(element("circle", row.kind, cx=middle, cy=y, r=5))
    return svg(height, label, parts)
