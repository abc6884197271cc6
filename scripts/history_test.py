"""Tests of the check of commits' texts."""

import unittest

import history


class HistoryTest(unittest.TestCase):
    """A text in order, and each mistake."""

    def test_text_in_order(self) -> None:
        text = "gateway, docs: answer a repeated completion\n\nThe first answer may be lost.\n"
        self.assertEqual(history.problems(text), [])

    def test_each_mistake_is_found(self) -> None:
        body = "\n\nBecause."
        for subject, words in (
            ("core: " + "a" * 67, "73 columns"),
            ("Mend a bug", "area"),
            ("core: mend one; docs: state it", "two statements"),
            ("core: mend one, and state it", "two statements"),
            ("core: mend it.", "full stop"),
        ):
            found = history.problems(subject + body)
            self.assertEqual(len(found), 1, found)
            self.assertIn(words, found[0])
        self.assertEqual(history.problems("core: mend one, and another" + body, may_join=True), [])
        self.assertIn("no body", history.problems("core: mend it")[0])
        self.assertIn("not empty", history.problems("core: mend it\nBecause.")[0])

    def test_commits_of_this_repository(self) -> None:
        listed = history.commits("HEAD")
        self.assertIn(listed, ([], None))
        self.assertIsNone(history.commits("no-such-commit"))


if __name__ == "__main__":
    unittest.main()
