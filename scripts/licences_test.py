#!/usr/bin/env python3
"""Tests that scripts/licences.py finds what deny.toml does not allow, and what is not packed."""

import tempfile
import unittest
import zipfile
from pathlib import Path

import licences

ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}


def package(**more: object) -> dict:
    """Returns a package that may be used, but for what is given."""
    return {"name": "a", "version": "1", "license": "MIT", "source": licences.REGISTRY,
            "dependencies": []} | more


class LicencesTest(unittest.TestCase):
    """What is refused, and what is not."""

    def test_expressions_are_met_by_what_is_allowed(self) -> None:
        for expression in ["MIT", "MIT OR GPL-3.0-only", "MIT/Apache-2.0", "(MIT OR GPL-2.0) AND "
                           "Unicode-3.0", "GPL-2.0 OR Apache-2.0 WITH LLVM-exception"]:
            self.assertTrue(licences.is_allowed(expression, ALLOWED), expression)
        for expression in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT WITH LLVM-exception",
                           "(MIT AND GPL-2.0) OR Zlib"]:
            self.assertFalse(licences.is_allowed(expression, ALLOWED), expression)

    def test_foreign_licences_sources_and_wildcards_are_found(self) -> None:
        self.assertEqual(licences.problems([package()], ALLOWED), [])
        wildcard = [{"name": "b", "req": "*"}]
        for bad in [package(license="GPL-3.0-only"), package(license=None),
                    package(source="git+https://example.com/a"),
                    package(source=None, dependencies=wildcard)]:
            self.assertEqual(len(licences.problems([bad], ALLOWED)), 1, bad)

    def test_archive_without_the_texts_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            jar, out = Path(place, "a.jar"), Path(place, licences.NAME)
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr("META-INF/MANIFEST.MF", "")
            self.assertEqual(len(licences.look(jar)), 1)
            licences.write("sanderling-jni", out)
            text = out.read_text()
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr(f"META-INF/{licences.NAME}", text)
            self.assertEqual(licences.look(jar), [])
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr(f"META-INF/{licences.NAME}", text.replace("\ntokio ", "\n"))
            self.assertEqual(len(licences.look(jar)), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
