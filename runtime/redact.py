"""
Secrets are taken out of what is written: journal, output lines, recorded streams. Pure.

Known are the values of environment variables that are named like secrets, and the shapes of common keys. A
secret's place keeps a mark, so that the text stays readable and two redactions of one text are equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs
import orjson

__all__ = ["Redactor"]

_NAMES = re.compile(r"(?i)(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?)(?:$|_)")
_NOT_SECRET = re.compile(r"(?i)^(?:true|false|none|null|yes|no|\d{1,6}|/.*|https?://[^@]*)$")
_LEAST = 8
"""Shorter values are words that occur everywhere."""

# Neither side may go on with a base64 character: a signature or an image must not lose a piece.
_EDGE = rb"(?<![A-Za-z0-9+/=_-])"
_SHAPES = (
    rb"sk-ant-[A-Za-z0-9_-]{20,}",
    rb"sk-(?:proj-)?[A-Za-z0-9]{32,}",
    rb"gh[pousr]_[A-Za-z0-9]{36,}",
    rb"github_pat_[A-Za-z0-9_]{40,}",
    rb"AKIA[0-9A-Z]{16}(?![A-Za-z0-9+/=])",
    rb"xox[abprs]-[A-Za-z0-9-]{20,}",
    rb"glpat-[A-Za-z0-9_-]{20,}",
)


@attrs.frozen
class Redactor:
    """``names`` maps each secret, as it looks inside JSON, to the name of its variable."""

    names: Mapping[bytes, str]
    _pattern: re.Pattern[bytes] = attrs.field(init=False, eq=False, repr=False)

    @_pattern.default
    def _compile(self) -> re.Pattern[bytes]:
        known = sorted(map(re.escape, self.names), key=len, reverse=True)
        shapes = rb"|".join(_SHAPES)
        return re.compile(rb"|".join((*known, _EDGE + rb"(?:" + shapes + rb")")))

    @classmethod
    def for_environment(cls, environ: Mapping[str, str]) -> Redactor:
        """For the variables that are named like secrets."""
        names: dict[bytes, str] = {}
        for name, value in environ.items():
            if _NAMES.search(name) and len(value) >= _LEAST and not _NOT_SECRET.match(value):
                names[_in_json(value)] = name
                names[value.encode("utf-8", "surrogateescape")] = name
        return cls(names)

    def clean(self, line: bytes) -> bytes:
        """The line with its secrets replaced. It stays valid JSON if it was."""
        return self._pattern.sub(self._mark, line)

    def _mark(self, match: re.Match[bytes]) -> bytes:
        name = self.names.get(match.group())
        return f"[redacted:{name}]".encode() if name else b"[redacted]"


def _in_json(value: str) -> bytes:
    return orjson.dumps(value.encode("utf-8", "replace").decode("utf-8"))[1:-1]
