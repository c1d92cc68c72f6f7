"""
The request for a summary of the history, and what its answer is worth. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from ..blocks import LIMIT_REASONS
from ..messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    RawBlock,
    RedactedThinkingBlock,
    StopReason,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    text_of,
)
from ..state import derive_id
from ..tokens import Estimates, estimate_text
from .units import rounds

__all__ = [
    "MAX_SHORTENINGS",
    "SUMMARY_SYSTEM",
    "RejectReason",
    "Summary",
    "SummaryRejected",
    "SummaryRequest",
    "read_summary",
    "shortened",
    "strip_media",
    "summary_request",
]

SUMMARY_SYSTEM = (
    "You write the summary of a working session between a user and an agent, for the agent who will go on with it "
    "and sees nothing else. You call no tools. You leave out nothing that the work still depends on."
)

SUMMARY_PROMPT = """\
The room for this conversation is used up. Write a summary from which the work can go on without the conversation. \
Answer with text only: no tool calls.

First go through the conversation from its beginning inside <analysis> tags, as notes to yourself: what was asked, \
what was done, what failed, what the user said about it. Then write the summary inside <summary> tags, under these \
nine headings:

1. Request and intent: what the user wants, in full, with all conditions and all changes of mind.
2. Technical concepts: the technologies, conventions and decisions that matter here.
3. Files and code: each file that was looked at, changed or made; why it matters; the passages of code that are \
needed to go on, word for word.
4. Errors and fixes: what went wrong, how it was repaired, and what the user said about it.
5. Problem solving: what is solved, and what is being looked into with what findings.
6. User messages: everything that the user wrote, in order, apart from results of tools.
7. Pending tasks: what was asked for and isn't done.
8. Current work: what was going on just before this request, with file names and code.
9. Next step: the one that follows from the latest request, with the words of that request; none if all is done.

Names of files, commands, identifiers and error texts are given exactly as they are."""

MAX_SHORTENINGS = 3
"""Requests that may follow one that was too long itself."""

DROP_SHARE = 0.2
"""Of the rounds, where the server doesn't say by how much a request is too long."""

CLIPPED_CHARS = 2_000

BEGINNING_LOST = "[The beginning of the conversation was left out, as it is too long to be summarised in one request.]"
MEDIA_LEFT_OUT = "[image or document]"


@attrs.frozen(kw_only=True)
class SummaryRequest:
    """What to send: the conversation with the instruction as its last message, one answer, no tools used."""

    system: str
    messages: tuple[Message, ...]
    max_tokens: int


def summary_request(
    messages: Sequence[Message], *, run_id: str, max_tokens: int, instructions: Sequence[str] = ()
) -> SummaryRequest:
    """
    The request for a summary of these messages (as they are sent: projected, after the boundary).

    Thinking is dropped as a whole, images and documents become a short text. ``instructions`` come from the user's
    /compact and from hooks.
    """
    extra = [text.strip() for text in instructions if text.strip()]
    prompt = SUMMARY_PROMPT
    if extra:
        prompt += "\n\nInstructions for this summary, which come first where they differ:\n" + "\n".join(extra)
    ask = UserMessage(uuid=derive_id(run_id, "summary-prompt"), content=(TextBlock(prompt),), hidden=True)
    return SummaryRequest(system=SUMMARY_SYSTEM, messages=(*_bare(messages), ask), max_tokens=max_tokens)


def _bare(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Without thinking and media; messages that hold nothing else are left out."""
    kept: list[Message] = []
    for message in strip_media(messages):
        if isinstance(message, AssistantMessage):
            content = tuple(b for b in message.content if not isinstance(b, ThinkingBlock | RedactedThinkingBlock))
            if not content:
                continue
            if len(content) < len(message.content):
                message = attrs.evolve(message, content=content)
        if not isinstance(message, SystemMessage):
            kept.append(message)
    return tuple(kept)


def strip_media(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The same messages with a short text for each image and document; those without any are the same objects."""
    return tuple(_without_media(message) for message in messages)


def _without_media(message: Message) -> Message:
    if not isinstance(message, UserMessage):
        return message
    content = tuple(_plain(block) for block in message.content)
    return message if content == message.content else attrs.evolve(message, content=content)


def _plain(block: Block) -> Block:
    if isinstance(block, ImageBlock | DocumentBlock):
        return TextBlock(MEDIA_LEFT_OUT)
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        inner = tuple(
            TextBlock(MEDIA_LEFT_OUT) if isinstance(part, ImageBlock | DocumentBlock) else part
            for part in block.content
        )
        return block if inner == block.content else attrs.evolve(block, content=inner)
    return block


def shortened(request: SummaryRequest, *, too_many_tokens: int | None, estimates: Estimates) -> SummaryRequest | None:
    """
    The request after the server found it too long: without its oldest rounds, as many as cover the gap that was
    reported, else a fifth of them. One round is always left; its long texts are clipped when nothing else is left to
    drop, and None says that this was done already.
    """
    ask, body = request.messages[-1], [m for m in request.messages[:-1] if not _is_marker(m)]
    parts = rounds(body)
    drop = _rounds_to_drop([estimates.total(body[start:end]) for start, end in parts], too_many_tokens)
    if drop:
        marker = UserMessage(uuid=f"{ask.uuid}-beginning", content=(TextBlock(BEGINNING_LOST),), hidden=True)
        return attrs.evolve(request, messages=(marker, *body[parts[drop][0] :], ask))
    clipped = tuple(_clipped(message) for message in request.messages[:-1])
    if clipped == request.messages[:-1]:
        return None
    return attrs.evolve(request, messages=(*clipped, ask))


def _is_marker(message: Message) -> bool:
    return isinstance(message, UserMessage) and message.uuid.endswith("-beginning")


def _rounds_to_drop(sizes: Sequence[int], gap: int | None) -> int:
    most = len(sizes) - 1
    if gap is None or gap <= 0:
        return min(most, max(1, round(len(sizes) * DROP_SHARE)))
    freed = dropped = 0
    while dropped < most and freed < gap:
        freed += sizes[dropped]
        dropped += 1
    return dropped


def _clipped(message: Message) -> Message:
    if isinstance(message, SystemMessage):
        return message
    content = tuple(_clipped_block(block) for block in message.content)
    return message if content == message.content else attrs.evolve(message, content=content)


def _clipped_block(block: Block) -> Block:
    if isinstance(block, TextBlock) and len(block.text) > 2 * CLIPPED_CHARS:
        return TextBlock(_clip(block.text))
    if isinstance(block, ToolResultBlock):
        text = block.content
        if not isinstance(text, str):
            text = "\n".join(part.text for part in text if isinstance(part, TextBlock))
        return attrs.evolve(block, content=_clip(text)) if len(text) > 2 * CLIPPED_CHARS else block
    return block


def _clip(text: str) -> str:
    return f"{text[:CLIPPED_CHARS]}\n[...]\n{text[-CLIPPED_CHARS:]}"


RejectReason: TypeAlias = Literal["empty", "thinking_only", "cut", "refused", "tool_calls", "too_long", "no_gain"]


@attrs.frozen
class Summary:
    """A summary that may take the history's place."""

    text: str


@attrs.frozen
class SummaryRejected:
    """The answer is no summary; the history stays as it is."""

    reason: RejectReason
    message: str


_ANALYSIS = re.compile(r"\A<analysis>.*?</analysis>", re.DOTALL)
_OPEN_ANALYSIS = re.compile(r"\A<analysis>.*", re.DOTALL)
_SUMMARY = re.compile(r"<summary>(.*)</summary>", re.DOTALL)


def read_summary(
    content: Sequence[Block], stop_reason: StopReason | None, *, max_tokens: int | None = None
) -> Summary | SummaryRejected:
    """The summary in a response; ``max_tokens`` is the most that it may take (estimated)."""
    if any(isinstance(block, ToolUseBlock) or _is_server_call(block) for block in content):
        return SummaryRejected("tool_calls", "The model called a tool where it was asked for a summary.")
    if stop_reason == "refusal":
        return SummaryRejected("refused", "The model refused to write the summary.")
    text = text_of(tuple(content)).strip()
    if not text:
        if any(isinstance(block, ThinkingBlock | RedactedThinkingBlock) for block in content):
            return SummaryRejected("thinking_only", "The model thought, but wrote no summary.")
        return SummaryRejected("empty", "The model's summary is empty.")
    text = _ANALYSIS.sub("", text)
    found = _SUMMARY.search(text)
    if stop_reason in LIMIT_REASONS and found is None:
        return SummaryRejected("cut", "The summary reached the output limit before its end.")
    summary = (found[1] if found else _OPEN_ANALYSIS.sub("", text).replace("<summary>", "")).strip()
    if not summary:
        return SummaryRejected("empty", "The model wrote notes, but no summary.")
    if max_tokens is not None and (tokens := estimate_text(summary)) > max_tokens:
        message = f"The summary takes about {tokens:,} tokens; {max_tokens:,} is the most that it may take."
        return SummaryRejected("too_long", message)
    return Summary(summary)


def _is_server_call(block: Block) -> bool:
    return isinstance(block, RawBlock) and block.type.endswith("tool_use")
