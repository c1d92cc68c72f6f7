"""
How many tokens a conversation takes, without a tokenizer. Pure.

No tokenizer for the present models is public, so what the server reported last is the anchor, and only what came
after it is estimated: by counting classes of characters, corrected by a ratio that is learned for each model.
The weights were fitted to o200k over code, prose, JSON, logs and base64 and stay within about 5 % there, where a
quarter of the characters is wrong by half for JSON and by two thirds for base64 or Chinese.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from .media_size import document_tokens, image_tokens
from .messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    JsonObject,
    Message,
    RawBlock,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from .plain_json import json_line

__all__ = [
    "MARGIN",
    "Calibration",
    "Estimates",
    "Measurement",
    "estimate_block",
    "estimate_message",
    "estimate_schemas",
    "estimate_text",
    "measure",
]

MARGIN = 0.05
"""Put on top of whatever is estimated, never on what the server reported."""

MESSAGE_OVERHEAD = 4
CALL_OVERHEAD = 12
RESULT_OVERHEAD = 10
TOOLS_OVERHEAD = 340
"""What the API itself tells the model about tools, once there are any."""


def _classes(**kinds: str) -> bytes:
    """A table that shows each ASCII character as the kind it is of, and all else as "-"."""
    table = bytearray(b"-" * 256)
    for kind, members in kinds.items():
        for char in members:
            table[ord(char)] = ord(kind)
    return bytes(table)


# A pass over the text costs more than anything else here: each table serves several patterns, each pattern is counted
# once, and rare ones are quick.
_LETTERS = _classes(a=string.ascii_lowercase, A=string.ascii_uppercase)
_DIGITS = _classes(**{"0": string.digits})
_PUNCTUATION = _classes(p=string.punctuation)

_WEIGHTS: tuple[tuple[bytes, tuple[tuple[bytes, float], ...]], ...] = (
    (
        _LETTERS,
        (
            (b"-a", 0.96),  # words begin
            (b"-A", 0.96),
            (b"aA", 1.45),  # camelCase, base64
            (b"AAa", 1.84),
            (b"aaaaaaaa", 1.43),  # long words
            (b"AAAA", 0.5),
        ),
    ),
    (_DIGITS, ((b"-0", 1.08), (b"000", 0.96))),
    (_PUNCTUATION, ((b"-p", 0.95), (b"pppppppppppppppp", 1.0))),
)

NEWLINE_TOKENS = 0.56
SPACES = b" " * 16
"""Takes a token: shorter runs are part of what follows."""

# By lead byte, how many bytes a character has; continuation bytes are left out.
_WIDTHS = bytes(b"-" * 192 + b"r" * 32 + b"c" * 16 + b"e" * 16)
_CONTINUATIONS = bytes(range(0x80, 0xC0))
_WIDE_TOKENS = (
    (b"r", 0.28),  # Cyrillic, Greek, Hebrew, Arabic, accents
    (b"c", 0.8),  # Chinese, Japanese, Korean
    (b"e", 1.5),  # emoji
)


def estimate_text(text: str) -> int:
    """Tokens of a text, before calibration; 0 only for an empty one."""
    if not text:
        return 0
    raw = text.encode("utf-8", "surrogatepass")
    tokens = raw.count(b"\n") * NEWLINE_TOKENS + raw.count(SPACES)
    if len(raw) > len(text):
        widths = raw.translate(_WIDTHS, _CONTINUATIONS)
        tokens += sum(widths.count(kind) * weight for kind, weight in _WIDE_TOKENS)
    for table, patterns in _WEIGHTS:
        kinds = raw.translate(table)
        tokens += sum(kinds.count(pattern) * weight for pattern, weight in patterns)
    return 1 + int(tokens)


def _estimate_json(value: Mapping[str, Any]) -> int:
    return estimate_text(json_line(value).decode())


def estimate_block(block: Block) -> int:
    """Tokens of a block: images and documents by their size, calls by their JSON, the rest by its text."""
    match block:
        case TextBlock():
            return estimate_text(block.text)
        case ThinkingBlock():
            return estimate_text(block.thinking)
        case RedactedThinkingBlock():
            # Encrypted: four base64 characters for three bytes, about four bytes a token.
            return len(block.data) * 3 // 16
        case ToolUseBlock():
            return CALL_OVERHEAD + estimate_text(block.name) + _estimate_json(block.input)
        case ToolResultBlock():
            return RESULT_OVERHEAD + _estimate_result(block)
        case ImageBlock():
            return image_tokens(block.source)
        case DocumentBlock():
            return document_tokens(block.source, estimate_text)
        case RawBlock():
            return _estimate_json(block.data)


def _estimate_result(block: ToolResultBlock) -> int:
    if isinstance(block.content, str):
        return estimate_text(block.content)
    return sum(map(estimate_block, block.content))


def estimate_message(message: Message) -> int:
    """Tokens of a message; 0 for what is never sent (marks, notes in a response's place)."""
    if isinstance(message, SystemMessage) or (isinstance(message, AssistantMessage) and message.api_error):
        return 0
    return MESSAGE_OVERHEAD + sum(map(estimate_block, message.content))


def estimate_schemas(tools: Iterable[JsonObject]) -> int:
    """Tokens of the tools' definitions, with what the API adds when there are any."""
    sizes = [_estimate_json(tool) for tool in tools]
    return TOOLS_OVERHEAD + sum(sizes) if sizes else 0


@attrs.define(eq=False)
class Estimates:
    """
    Estimates of messages and changed copies of them, kept while the messages live: a turn pays for what is new only.

    It holds no decisions; losing it costs time and changes nothing.
    """

    _known: dict[int, tuple[Message, int]] = attrs.field(factory=dict)
    """By identity; the message is held, so that no other can get its identity."""
    _variants: dict[tuple[str, Hashable], tuple[Message, Message]] = attrs.field(factory=dict)

    def of(self, message: Message) -> int:
        """`estimate_message`, remembered."""
        known = self._known.get(id(message))
        if known is None:
            known = (message, estimate_message(message))
            self._known[id(message)] = known
        return known[1]

    def total(self, messages: Iterable[Message]) -> int:
        """Tokens of several messages."""
        return sum(map(self.of, messages))

    def variant(self, message: Message, key: Hashable, make: Callable[[], Message]) -> Message:
        """What ``make`` makes of the message; the same object as long as message and ``key`` are the same."""
        known = self._variants.get((message.uuid, key))
        if known is None or known[0] is not message:
            known = self._variants[message.uuid, key] = (message, make())
        return known[1]

    def forget_others(self, messages: Sequence[Message]) -> None:
        """Let go of messages whose uuids are not among these, once they are the greater part."""
        if len(self._known) > 4 * len(messages) + 1_000:
            used = {message.uuid for message in messages}
            self._known = {key: known for key, known in self._known.items() if known[0].uuid in used}
            self._variants = {key: known for key, known in self._variants.items() if key[0] in used}


@attrs.frozen(kw_only=True)
class Calibration:
    """
    What estimates have to be multiplied with, by model: a moving average of reported over estimated.

    A model that nothing is known of counts as 1. Pairs that can't be right (tiny, or off by more than five times)
    teach nothing.
    """

    ratios: Mapping[str, float] = attrs.field(factory=dict)
    weight: float = 0.3
    """Of the newest pair."""

    def ratio(self, model: str) -> float:
        return self.ratios.get(model, 1.0)

    def observed(self, model: str, *, estimated: int, reported: int) -> Calibration:
        """With one more pair, both of the same part of a request (uncalibrated tokens; tokens by the server)."""
        if estimated < _SMALLEST_PAIR or not 0.2 <= reported / estimated <= 5:
            return self
        newest = reported / estimated
        before = self.ratios.get(model)
        ratio = newest if before is None else before + self.weight * (newest - before)
        return attrs.evolve(self, ratios={**self.ratios, model: ratio})


_SMALLEST_PAIR = 50
"""Estimated tokens below which overheads drown the ratio."""


@attrs.frozen(kw_only=True)
class Measurement:
    """How full the context is. ``tokens`` is what decisions go by: reported plus estimated, with the margin."""

    tokens: int
    reported: int
    """By the server, for everything up to the message at ``anchor``; 0 if nothing was reported yet."""
    estimated: int
    """Calibrated, without the margin: what came after the anchor, or everything."""
    anchor: int | None
    """The index of the response whose usage is counted from."""


def measure(
    messages: Sequence[Message],
    *,
    overhead: int = 0,
    ratio: float = 1.0,
    estimate: Callable[[Message], int] = estimate_message,
    since: int = 0,
) -> Measurement:
    """
    How full the context is with these messages.

    ``overhead`` is the estimate of what is sent beside them (system prompt, tools, user context); it counts only
    while no response has reported it. Usage of responses before index ``since`` is of another context (before a
    compaction) and not used.
    """
    anchor = next((index for index in range(len(messages) - 1, since - 1, -1) if _reports(messages[index])), None)
    reported = 0
    if anchor is not None:
        response = messages[anchor]
        assert isinstance(response, AssistantMessage)
        reported, overhead = response.usage.context_tokens, 0
    after = messages[anchor + 1 :] if anchor is not None else messages
    estimated = (overhead + sum(map(estimate, after))) * ratio
    return Measurement(
        tokens=reported + round(estimated * (1 + MARGIN)),
        reported=reported,
        estimated=round(estimated),
        anchor=anchor,
    )


def _reports(message: Message) -> bool:
    return (
        isinstance(message, AssistantMessage)
        and not message.api_error
        and message.usage.reported
        and message.usage.context_tokens > message.usage.output_tokens
    )
