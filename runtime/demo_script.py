"""
What the demo plays: a small project with two faults, and what the scripted model says and calls. Pure values.

The model's words are fixed, the tools are real; so every edit and command here has to fit the files here.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

import attrs

__all__ = ["FILES", "PROMPT", "Call", "Reply", "check_command", "replies"]

PROMPT: Final = "The tests of this package fail. Find out why, and fix it."

_DURATIONS: Final = '''\
"""Durations as people write them: 250ms, 30s, 5m, 2h."""

UNITS = {"ms": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text):
    """Seconds. Raises ValueError for anything else than a number and a unit."""
    number = text.rstrip("hms")
    unit = text[len(number) :]
    if unit not in UNITS:
        raise ValueError(f"no such unit: {unit!r}")
    return float(number) * UNITS[unit]
'''

_CACHE: Final = '''\
"""A cache whose entries live for a while."""

import time

from .durations import parse_duration


class Cache:
    def __init__(self, lifetime):
        self.lifetime = parse_duration(lifetime)
        self._entries = {}

    def put(self, key, value):
        self._entries[key] = (value, time.monotonic() + self.lifetime)

    def get(self, key, default=None):
        value, expires = self._entries.get(key, (default, 0.0))
        return value if time.monotonic() > expires else default
'''

_TESTS: Final = """\
import time
import unittest

from shelf.cache import Cache
from shelf.durations import parse_duration


class DurationTest(unittest.TestCase):
    def test_units(self):
        self.assertEqual(0.25, parse_duration("250ms"))
        self.assertEqual(300.0, parse_duration("5m"))


class CacheTest(unittest.TestCase):
    def test_an_entry_is_there_while_it_lives(self):
        cache = Cache("1m")
        cache.put("a", 1)
        self.assertEqual(1, cache.get("a"))

    def test_an_entry_is_gone_after_its_life(self):
        cache = Cache("300ms")
        cache.put("a", 1)
        time.sleep(0.4)
        self.assertIsNone(cache.get("a"))
"""

FILES: Final[Mapping[str, str]] = {
    "shelf/__init__.py": "",
    "shelf/durations.py": _DURATIONS,
    "shelf/cache.py": _CACHE,
    "tests/__init__.py": "",
    "tests/test_shelf.py": _TESTS,
}
"""The project: path to content. Milliseconds count as seconds, and the cache keeps just what has expired."""


@attrs.frozen
class Call:
    """A tool call of the script."""

    name: str
    input: Mapping[str, Any]


@attrs.frozen
class Reply:
    """One response: text, then calls."""

    text: str
    calls: tuple[Call, ...] = ()


def check_command(python: str) -> tuple[str, ...]:
    """The command that tests the project."""
    # -B: compiled files are told apart by whole seconds and size, and an edit may keep both.
    return (python, "-B", "-m", "unittest", "discover", "-t", ".", "-s", "tests")


def replies(python: str) -> tuple[Reply, ...]:
    """What the model says, in order. ``python`` runs the tests."""
    test = {"command": shlex.join(check_command(python)), "description": "Run the tests"}
    return (
        Reply(
            "I look for the code that the tests use.",
            (Call("Grep", {"pattern": "def |class ", "output_mode": "content", "glob": "*.py"}),),
        ),
        Reply(
            "Two modules matter, and I read both.",
            (Call("Read", {"file_path": "shelf/durations.py"}), Call("Read", {"file_path": "shelf/cache.py"})),
        ),
        Reply(
            "A millisecond is taken for a whole second. I correct the table.",
            (
                Call(
                    "Edit",
                    {
                        "file_path": "shelf/durations.py",
                        "old_string": 'UNITS = {"ms": 1.0, ',
                        "new_string": 'UNITS = {"ms": 0.001, ',
                    },
                ),
            ),
        ),
        Reply("Now the tests.", (Call("Bash", test),)),
        Reply(
            "The cache still returns only what has expired: the comparison is the wrong way round. I turn it, run the "
            "tests again, and look for the same mistake elsewhere.",
            (
                Call(
                    "Edit",
                    {
                        "file_path": "shelf/cache.py",
                        "old_string": "if time.monotonic() > expires else",
                        "new_string": "if time.monotonic() < expires else",
                    },
                ),
                Call("Bash", test),
                Call(
                    "Grep", {"pattern": r"monotonic\(\) *[<>]|time\(\) *[<>]", "output_mode": "content", "glob": "*.py"}
                ),
            ),
        ),
        Reply(
            "Fixed. Two mistakes hid behind one another: milliseconds were counted as seconds, and the cache compared "
            "the time the wrong way round. All tests pass."
        ),
    )
