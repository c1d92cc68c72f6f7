"""
Says what voided the provider's prompt cache when its reads drop. Pure.

A request is compared with the one before by digests of its parts as they are sent, so that a mere change of order
within a tool's schema is seen, too: the provider compares bytes. Digests are made only after a drop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import orjson

from atrio.runtime.messages import Usage
from atrio.runtime.model import ModelRequest
from atrio.runtime.wirejson import without_surrogates

__all__ = ["CacheBreak", "CacheWatch", "RequestDigest", "changes_between", "digest_of", "is_break"]

MIN_SHARE: Final = 0.05
MIN_TOKENS: Final = 2_000
"""A smaller drop is how caches are: the last few blocks may miss."""

LIFETIME: Final = 300.0
"""Seconds that the provider keeps what nobody asks for."""

MAX_NAMED: Final = 5


@attrs.frozen(kw_only=True)
class RequestDigest:
    """A request by the parts that a prompt cache depends on, in the order in which they count."""

    model: str
    tools: Mapping[str, str]
    system: tuple[str, ...]
    betas: tuple[str, ...]
    settings: str
    """Thinking, and what else the body has beside the conversation."""
    messages: tuple[str, ...]


@attrs.frozen(kw_only=True)
class CacheBreak:
    """
    Far less was read from the cache than for the request before.

    ``changes`` says what of the request is not as it was; empty if all is, so that the provider itself let go of it.
    ``idle`` is how many seconds lay between the two.
    """

    tokens_before: int
    tokens_now: int
    changes: tuple[str, ...]
    idle: float

    @property
    def dropped(self) -> int:
        return self.tokens_before - self.tokens_now

    def __str__(self) -> str:
        drop = f"{self.dropped:,} fewer tokens came from the prompt cache ({self.tokens_now:,})"
        if self.changes:
            return f"{drop}: {'; '.join(self.changes)}"
        if self.idle >= LIFETIME:
            return f"{drop}: nothing was asked for {self.idle:.0f} s, and the cache has expired"
        return f"{drop}, though the request begins as the one before; the provider dropped it"


def is_break(before: Usage, now: Usage) -> bool:
    """Whether the drop of cache reads is more than noise. Usage that was not reported says nothing."""
    if not (before.reported and now.reported):
        return False
    # What was written by the one before is to be read by this one, too; servers differ in how soon.
    dropped = before.cache_read_input_tokens - now.cache_read_input_tokens
    return dropped > MIN_TOKENS and dropped > MIN_SHARE * before.cache_read_input_tokens


def digest_of(request: ModelRequest) -> RequestDigest:
    """The digest of a request. Costs time in proportion to its length."""
    tools: dict[str, str] = {}
    for position, tool in enumerate(request.tools):
        tools[str(tool.get("name", position))] = _digest(tool)
    return RequestDigest(
        model=request.model,
        tools=tools,
        system=tuple(_digest(part) for part in request.system),
        betas=request.betas,
        settings=_digest([request.thinking, _lasting(request.extra)]),
        messages=tuple(_digest(message) for message in request.messages),
    )


def _lasting(extra: Mapping[str, object]) -> Mapping[str, object]:
    """Without what is meant to differ between requests and is no part of the cached prefix."""
    lasting = {key: value for key, value in extra.items() if key != "metadata"}
    output = lasting.get("output_config")
    if isinstance(output, Mapping):
        lasting["output_config"] = {key: value for key, value in output.items() if key != "task_budget"}
    return lasting


def _digest(value: object) -> str:
    try:
        data = orjson.dumps(value)
    except TypeError:
        data = repr(without_surrogates(value)).encode()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def changes_between(before: RequestDigest, now: RequestDigest) -> tuple[str, ...]:
    """What differs in the part that both requests should share, in words."""
    changes: list[str] = []
    if before.model != now.model:
        changes.append(f"the model is {now.model}, it was {before.model}")
    changes += _tool_changes(before.tools, now.tools)
    if before.system != now.system:
        changes.append(f"the system prompt changed in {_first_difference(before.system, now.system, 'part')}")
    if before.betas != now.betas:
        changes.append(f"the beta features are {_listed(now.betas)}, they were {_listed(before.betas)}")
    if before.settings != now.settings:
        changes.append("thinking or other settings of the request changed")
    if now.messages[: len(before.messages)] != before.messages:
        where = _first_difference(before.messages, now.messages, "message")
        changes.append(f"the history changed in {where} of {len(before.messages)}")
    return tuple(changes)


def _tool_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    new = [name for name in now if name not in before]
    lost = [name for name in before if name not in now]
    other = [name for name in now if name in before and before[name] != now[name]]
    changes = [
        f"tools {words}: {_listed(names)}"
        for words, names in (("were added", new), ("are gone", lost), ("are described differently", other))
        if names
    ]
    if not changes and list(before) != list(now):
        changes.append("the tools stand in another order")
    return changes


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more if names else "none"


def _first_difference(before: Sequence[str], now: Sequence[str], what: str) -> str:
    pairs = zip(before, now, strict=False)
    number = next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(before), len(now)))
    return f"{what} {number + 1}"


@attrs.define(eq=False)
class CacheWatch:
    """Remembers a conversation's last request, and what came of it."""

    _last: tuple[ModelRequest, Usage, float] | None = attrs.field(default=None, init=False)

    def observe(self, request: ModelRequest, usage: Usage, now: float) -> CacheBreak | None:
        """
        Take a request that was answered, its usage and the time (seconds, any clock); says so if the cache broke.

        After a break this may take some 10 ms for each megabyte of the conversation.
        """
        last, self._last = self._last, (request, usage, now)
        if last is None or not is_break(last[1], usage):
            return None
        return CacheBreak(
            tokens_before=last[1].cache_read_input_tokens,
            tokens_now=usage.cache_read_input_tokens,
            changes=changes_between(digest_of(last[0]), digest_of(request)),
            idle=now - last[2],
        )

    def expect_break(self) -> None:
        """The history was changed on purpose (a compaction): the next drop is no news."""
        self._last = None
