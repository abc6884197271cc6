"""The one place where the texts of queries differ: DuckDB's SQL beside Spark's."""

from __future__ import annotations

import re

# Changes with every rule, so that texts which were kept are made anew.
VERSION = 2

_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_LIMIT = re.compile(r"\blimit\s+\d+\s*$", re.IGNORECASE)


def without_rounding(text: str) -> str:
    """Returns a query whose quotient is not rounded to two digits.

    Query 78 rounds quotients like 41 / 40, which lie in the middle between two such numbers:
    DuckDB rounds what the double is, Spark what it is in decimal digits. Both are right.
    """
    quotient = "(ss_qty*1.00)/(coalesce(ws_qty,0)+coalesce(cs_qty,0))"
    return text.replace(f"round({quotient},2)", quotient)


def with_total_order(text: str, columns: int) -> str:
    """Returns a query whose first rows are the same for every sort.

    Where a query keeps the first 100 rows of an order with ties, both engines are right and their
    rows differ. All its columns are therefore put after the order's own.
    """
    text = text.strip().rstrip(";").rstrip()
    limit = _LIMIT.search(text)
    orders = [found.start() for found in _ORDER.finditer(text)]
    if not limit or not orders:
        return text
    order = text[orders[-1] : limit.start()].rstrip()
    if order.count("(") != order.count(")"):
        return text
    ordinals = ", ".join(str(column) for column in range(1, columns + 1))
    return f"{text[: orders[-1]]}{order}, {ordinals}\n{limit.group(0)}"


def for_spark(text: str) -> str:
    """Returns a text of DuckDB's in Spark's SQL."""
    # Names in double quotes are strings to Spark.
    return re.sub(r'"([^"\n]*)"', r"`\1`", text)
