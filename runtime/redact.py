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

from .wirejson import mend

__all__ = ["Redactor"]

_NAMES = re.compile(
    r"(?i)(?:^|_)(?:api_?key|key|token|pat|pwd|auth|credentials?)(?:_|$)"
    r"|(?:apikey|secret|password|passwd|passphrase|sshpass)s?(?:_|$)"
)
_LEAST = 8
"""Shorter values are words that occur everywhere."""

# Paths (of key files, sockets) and addresses without a login are no secrets; but base64 may begin with a slash.
_PATH = re.compile(r"(?:~|\.{0,2})/(?!(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/]{30,}={0,2}$).*", re.DOTALL)
_ADDRESS = re.compile(r"https?://[^@]*")

# Words of the lines themselves: a variable with such a value must not make a journal unreadable.
_VOCABULARY = re.compile(
    r"assistant|(?:cache_(?:creation|read)_)?input_tokens|output_tokens|completed|document|ephemeral|external"
    r"|incomplete|invalidJson|isSidechain|is_error|(?:message|session|tool_use|parent_tool_use)_id|parentUuid"
    r"|redacted(?:_thinking)?|requestedModel|run_ended|run_started|sessionId|signature|stop_reason|stop_sequence"
    r"|stream_event|terminalReason|thinking|timestamp|toolName|toolUse(?:Id|Result)|tool_(?:result|started|use)|userType"
)


def _shape(start: str, rest: str, *, part_of: str = "A-Za-z0-9_-") -> tuple[bytes, re.Pattern[bytes]]:
    """
    What begins with ``start`` where no longer word does. After an escape (a line end) a word may begin.

    The fixed start comes first: that lets the search skip a megabyte of something else in no time.
    """
    before = rf"(?:(?<![{part_of}]{start})|(?<=\\[nrtbf]{start})|(?<=\\u[0-9a-fA-F]{{4}}{start}))"
    return start.encode(), re.compile(f"{start}{before}{rest}".encode())


# Standard base64 has neither "-" nor "_", so these can't occur in a signature or an image; AKIA can, and must stand
# alone. (URL-safe base64 that begins like a key is taken for one.)
_SHAPES = (
    _shape("sk-", r"(?:(?:ant-|proj-|svcacct-)[A-Za-z0-9_-]{20,}|(?:or-v1-)?[A-Za-z0-9]{32,})"),
    _shape("gh", r"[pousr]_[A-Za-z0-9]{36,}"),
    _shape("github_pat_", r"[A-Za-z0-9_]{40,}"),
    _shape("AKIA", r"[0-9A-Z]{16}(?![A-Za-z0-9+/=])", part_of="A-Za-z0-9+/"),
    _shape("xox", r"[abeoprs]-[A-Za-z0-9-]{20,}"),
    _shape("glpat-", r"[A-Za-z0-9_-]{20,}"),
    (
        b"PRIVATE KEY-----",
        re.compile(
            rb"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----(?:[^\"-]++|-(?!----))*+"
            rb"-----END (?:[A-Z]+ ){0,3}PRIVATE KEY-----"
        ),
    ),
)


_PARTIAL_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_BACKSLASH = ord("\\")
_NOT_IN_MARKS = re.compile(r"[^A-Za-z0-9_]")


@attrs.frozen
class Redactor:
    """``names`` maps each secret, as it looks inside JSON, to the name of its variable; ``plain`` as it is."""

    names: Mapping[bytes, str]
    plain: Mapping[bytes, str] = attrs.field(factory=dict)

    @classmethod
    def for_environment(cls, environ: Mapping[str, str]) -> Redactor:
        """For the variables that are named like secrets."""
        secrets = {name: value for name, value in environ.items() if _NAMES.search(name) and _is_secret(value, environ)}
        # What is found in a mark would be marked again and again.
        marks = [_mark(name).decode() for name in secrets]
        inside: dict[bytes, str] = {}
        plain: dict[bytes, str] = {}
        for name, value in secrets.items():
            if not any(value in mark for mark in marks):
                once = _in_json(value)
                inside[once] = name
                # The text of a call's arguments is JSON within JSON.
                inside[_in_json(once.decode())] = name
                plain[value.encode("utf-8", "surrogatepass")] = name
        return cls(_longest_first(inside), _longest_first(plain))

    def clean(self, line: bytes) -> bytes:
        """The JSON line with its secrets replaced. It stays valid JSON."""
        return _without_shapes(_without(line, self.names, json=True))

    def clean_text(self, text: str) -> str:
        """Text that is no JSON, with its secrets replaced."""
        data = text.encode("utf-8", "surrogatepass")
        return _without_shapes(_without(data, self.plain, json=False)).decode("utf-8", "surrogatepass")


def _is_secret(value: str, environ: Mapping[str, str]) -> bool:
    if len(value) < _LEAST or _VOCABULARY.fullmatch(value) or value in environ:
        return False
    return not (_PATH.fullmatch(value) or _ADDRESS.fullmatch(value))


def _longest_first(secrets: Mapping[bytes, str]) -> Mapping[bytes, str]:
    """One secret may be a part of another."""
    return {secret: secrets[secret] for secret in sorted(secrets, key=len, reverse=True)}


def _without(data: bytes, secrets: Mapping[bytes, str], *, json: bool) -> bytes:
    for secret, name in secrets.items():
        # To find none is the rule, and this is the fastest way to know.
        start = data.find(secret)
        if start < 0:
            continue
        parts: list[bytes] = []
        end = 0
        while start >= 0:
            if json and _in_escape(data, start):
                start = data.find(secret, start + 1)
                continue
            parts += (data[end:start], _mark(name))
            end = start + len(secret)
            start = data.find(secret, end)
        data = b"".join((*parts, data[end:]))
    return data


def _in_escape(data: bytes, start: int) -> bool:
    """Whether this place is inside of an escape sequence: a mark there would leave a broken one."""
    before = data[max(0, start - 5) : start]
    partial = _PARTIAL_ESCAPE.search(before)
    if partial is None:
        return False
    backslash = start - len(partial.group())
    first = backslash
    while first > 0 and data[first - 1] == _BACKSLASH:
        first -= 1
    return (backslash - first) % 2 == 0


def _mark(name: str) -> bytes:
    return f"[redacted:{_NOT_IN_MARKS.sub('_', name)}]".encode("ascii")


def _in_json(value: str) -> bytes:
    return orjson.dumps(mend(value))[1:-1]


def _without_shapes(data: bytes) -> bytes:
    for start, pattern in _SHAPES:
        if start in data:
            data = pattern.sub(b"[redacted]", data)
    return data
