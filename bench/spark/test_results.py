#!/usr/bin/env python3
"""Tests what counts as the same result, and the queries' texts."""

import decimal
import datetime
import math
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import dialect
from results import difference, to_json


class SameResults(unittest.TestCase):
    """Two engines' right answers are the same, and wrong ones are not."""

    def test_order_and_kind_of_number_do_not_matter(self) -> None:
        day = datetime.date(2000, 1, 2)
        wanted = to_json([("a", 1, None), ("b", decimal.Decimal("2.50"), day)])
        found = to_json([("b", 2.5, day), ("a", 1.0, None)])
        self.assertEqual(difference(wanted, found), "")

    def test_last_digits_of_averages_do_not_matter(self) -> None:
        self.assertEqual(difference([["a", 1 / 3]], [["a", 0.333333]]), "")
        self.assertEqual(difference([[1e12 + 1]], [[1e12]]), "")
        self.assertIn("no row", difference([["a", 0.33]], [["a", 0.34]]))

    def test_rows_that_round_to_each_other_in_another_order_are_the_same(self) -> None:
        wanted = [[1.0000001, 5.0], [1.0000002, 4.0]]
        self.assertEqual(difference(wanted, [[1.0000002, 5.0], [1.0000001, 4.0]]), "")

    def test_a_row_more_or_less_or_twice_is_seen(self) -> None:
        self.assertEqual(difference([["a"]], []), "0 rows, 1 wanted")
        self.assertIn("rows with a", difference([["a"], ["b"]], [["b"], ["b"]]))
        self.assertIn("no row", difference([[1.0], [2.0]], [[2.0], [2.0]]))

    def test_null_is_neither_zero_nor_empty(self) -> None:
        self.assertNotEqual(difference([[None]], [[0.0]]), "")
        self.assertNotEqual(difference([[None]], [[""]]), "")

    def test_not_a_number_equals_itself(self) -> None:
        self.assertEqual(difference([[math.nan]], [[math.nan]]), "")
        self.assertNotEqual(difference([[math.nan]], [[1.0]]), "")

    def test_what_no_query_returns_is_refused(self) -> None:
        with self.assertRaises(TypeError):
            to_json([(object(),)])


class Texts(unittest.TestCase):
    """The queries are the same in both engines but for what has to differ."""

    def test_the_first_rows_of_an_order_with_ties_are_the_same(self) -> None:
        text = dialect.with_total_order("SELECT a, b FROM t ORDER BY b\nLIMIT 100;\n", 2)
        self.assertEqual(text, "SELECT a, b FROM t ORDER BY b, 1, 2\nLIMIT 100")

    def test_an_order_within_the_query_stays_as_it_is(self) -> None:
        text = "SELECT rank() OVER (ORDER BY a) FROM t LIMIT 100"
        self.assertEqual(dialect.with_total_order(text, 1), text)
        self.assertEqual(dialect.with_total_order("SELECT a FROM t ORDER BY a", 1),
                         "SELECT a FROM t ORDER BY a")

    def test_quoted_names_are_names(self) -> None:
        self.assertEqual(dialect.for_spark('SELECT a AS "30 days"'), "SELECT a AS `30 days`")


if __name__ == "__main__":
    unittest.main(verbosity=2)
