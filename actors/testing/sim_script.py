"""What the simulated model says: turns drawn from a source of randomness. Pure."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import attrs

from atrio.runtime.messages import JsonObject

from .turns import Part, Turn, block, text, thinking, tool

__all__ = ["ANSWER", "SCHEMA", "draw_script"]

SCHEMA: JsonObject = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}

ANSWER = Turn(tool("StructuredOutput", {"answer": "forty-two"}))
"""A response that fits `SCHEMA`."""

WORDS = (
    "plain words, and some more of them",
    "\u00fcml\u00e4ut \u4e2d\u6587 \U0001f9ea\u200d\U0001f680 \u202eturned",
    "line\u2028separator\u0085next\x0bline\x0c\ttab\r\nend",
    "nul \x00 and \x7f and \ufeff inside",
    'data: {"type": "message_stop"}\n\nevent: error',
    " ",
    "a" * 700,
)

CALL_IDS = (None, None, None, None, None, "toolu_same", "not a legal id!", "x" * 300)
"""Mostly ids of the model's own; sometimes what careless servers send."""


@attrs.frozen(kw_only=True)
class Deed:
    """One thing that a simulated tool may do, as a call's input. ``weight`` says how often."""

    weight: int
    make: Callable[[Random], JsonObject]


DEEDS = (
    Deed(weight=10, make=lambda rng: {"do": "answer"}),
    Deed(weight=8, make=lambda rng: {"do": "sleep", "seconds": round(rng.uniform(0, 20), 2)}),
    Deed(weight=2, make=lambda rng: {"do": "crash"}),
    Deed(weight=2, make=lambda rng: {"do": "refuse"}),
    Deed(weight=2, make=lambda rng: {"do": "group"}),
    Deed(weight=2, make=lambda rng: {"do": "fail_all", "seconds": round(rng.uniform(0, 5), 2)}),
    Deed(weight=1, make=lambda rng: {"do": "hang"}),
    Deed(weight=2, make=lambda rng: {"do": "huge", "size": rng.randrange(50_000, 300_000)}),
    Deed(weight=2, make=lambda rng: {"do": "flood", "size": rng.randrange(10, 700)}),
    Deed(weight=2, make=lambda rng: {"do": "stubborn", "seconds": round(rng.uniform(0, 10), 2)}),
    Deed(weight=1, make=lambda rng: {"do": "empty"}),
    Deed(weight=1, make=lambda rng: {"do": "nonsense"}),
    Deed(weight=1, make=lambda rng: {"do": "odd_details"}),
    Deed(weight=1, make=lambda rng: {"do": "surrogates"}),
)

NAMES = ("Look", "Look", "Look", "Change", "Change", "Stay", "Ask")


def draw_script(rng: Random, *, schema: bool) -> tuple[Turn, ...]:
    """
    Some turns, of one of several temperaments. The last is a plain text, and fit to be said for ever.

    Args:
        schema: the agent has an output schema, so some turns answer it, rightly or wrongly.
    """
    kind = rng.choice(("work", "work", "work", "work", "talk", "circles", "malformed", "limits", "pauses"))
    match kind:
        case "circles":
            call = tool("Look", {"do": "answer", "number": 0})
            turns = [Turn(call)] * rng.randrange(3, 14)
        case "malformed":
            turns = [Turn(_broken_call(rng)) for _ in range(rng.randrange(1, 7))]
        case "limits":
            turns = [_limited(rng) for _ in range(rng.randrange(1, 8))]
        case "pauses":
            turns = [Turn(_words(rng), stop_reason="pause_turn") for _ in range(rng.randrange(1, 12))]
        case "talk":
            turns = [_talk(rng) for _ in range(rng.randrange(1, 3))]
        case _:
            turns = [_work(rng, schema) for _ in range(rng.randrange(1, 8))]
    turns += [_talk(rng) for _ in range(rng.randrange(0, 3))]
    if schema and rng.random() < 0.7:
        turns.insert(rng.randrange(len(turns) + 1), ANSWER)
    return (*turns, Turn(text("All done.")))


def _work(rng: Random, schema: bool) -> Turn:
    if rng.random() < 0.12:
        return _limited(rng)
    parts: list[Part] = []
    if rng.random() < 0.4:
        parts.append(_thought(rng))
    if rng.random() < 0.5:
        parts.append(_words(rng))
    count = rng.choice((1, 1, 1, 2, 3, 5, 12)) if rng.random() < 0.98 else 260
    parts += [_call(rng) for _ in range(count)]
    if schema and rng.random() < 0.2:
        parts.append(tool("StructuredOutput", {"answer": 42}))
    if rng.random() < 0.2:
        parts.append(_words(rng))
    return _timed(rng, parts)


def _talk(rng: Random) -> Turn:
    parts: list[Part] = [_thought(rng)] if rng.random() < 0.3 else []
    parts += [_words(rng) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
    if rng.random() < 0.05:
        parts.append(block({"type": "fresh_kind", "value": rng.randrange(10)}))
    return _timed(rng, parts, rng.choice((None, None, None, None, "stop_sequence", "refusal", "end_turn")))


def _limited(rng: Random) -> Turn:
    """Cut by the output limit, often inside a block."""
    reason = rng.choice(("max_tokens", "max_tokens", "model_context_window_exceeded"))
    parts: list[Part] = [_thought(rng)] if rng.random() < 0.3 else []
    match rng.choice(("text", "call", "both", "thinking")):
        case "text":
            parts.append(text(rng.choice(WORDS), unfinished=rng.random() < 0.5))
        case "call":
            parts.append(tool("Look", '{"do": "answ', unfinished=True))
        case "both":
            parts += [_words(rng), _call(rng), tool("Change", '{"do"', unfinished=True)]
        case _:
            parts.append(thinking("so far", unfinished=True))
    return _timed(rng, parts, reason)


def _timed(rng: Random, parts: list[Part], reason: str | None = None) -> Turn:
    delay = rng.choice((0.0, 0.0, 0.3, 2.0, 45.0))
    pace = rng.choice((0.0, 0.0, 0.0, 0.05, 0.5))
    return Turn(*parts, stop_reason=reason, delay=delay, pace=pace)


def _thought(rng: Random) -> Part:
    if rng.random() < 0.2:
        return block({"type": "redacted_thinking", "data": "c2VjcmV0"})
    return thinking(rng.choice(("", "hm", "let me see \U0001f914" * 5)))


def _words(rng: Random) -> Part:
    return text(rng.choice(WORDS), chunk=rng.choice((1, 7, 20, 1000)) if rng.random() < 0.3 else 60)


def _call(rng: Random) -> Part:
    luck = rng.random()
    if luck < 0.05:
        return tool(rng.choice(("Nobody", "no such tool!", "l" * 300)), {})
    if luck < 0.1:
        return _broken_call(rng)
    if luck < 0.13:
        return tool("Look", {"do": 7})
    deed = rng.choices(DEEDS, [deed.weight for deed in DEEDS])[0].make(rng)
    # A number, so that equal calls are a circle only where one is meant.
    return tool(rng.choice(NAMES), {**deed, "number": rng.randrange(10**6)}, rng.choice(CALL_IDS))


def _broken_call(rng: Random) -> Part:
    return tool("Look", rng.choice(('{"do": ', "[1, 2]", '"text"', "{'do': 1}", '{"do": "answer"} trailing', "nul")))
