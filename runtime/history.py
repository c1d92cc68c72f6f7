"""
The history as the model gets it, and whether a history is valid. Pure.

`check` states the law that every history obeys whenever it can be read. `wire_messages` makes requests; it repairs
what breaks the law all the same (a journal of another program, a half-written one), since a request that the API
refuses would end a session for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from .messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    JsonObject,
    Message,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    block_to_wire,
)
from .sendable import Role, legal_id, legal_name, sendable

__all__ = ["MAX_MEDIA", "check", "repair_pairs", "wire_messages"]

MAX_MEDIA = 100
"""The API refuses a request with more images and documents than this; the oldest make room."""

LOST_RESULT = "The result of this call was lost; its outcome is unknown. Check before you repeat it."
EMPTY_TURN = "(no content)"
OMITTED_MEDIA = "[An older image or document was left out here, as a request may hold only 100 of them.]"
BEGINNING = "[The conversation begins here.]"

_THINKING = (ThinkingBlock, RedactedThinkingBlock)


@attrs.define
class _Wire:
    """A message in the making: one role, blocks of one or more of our messages."""

    role: Role
    blocks: list[Block]


@attrs.frozen
class _Call:
    """A call that waits for its result: the id in the history, and the id that is sent."""

    id: str
    sent_id: str


def wire_messages(messages: Sequence[Message], *, model: str) -> list[JsonObject]:
    """
    What to send: alternating roles from the user's on, every call answered in the next message and results first
    there, ids unique, thinking only if ``model`` itself wrote it, no empty text, at most 100 media. What has been
    sent once is sent again as the same bytes, but for the media that had to make room.

    Our own notes about errors (`AssistantMessage.api_error`) and marks (`SystemMessage`) are not sent.
    """
    turns = _repaired(_merged(messages, model))
    if not turns or turns[0].role != "user":
        turns.insert(0, _Wire("user", [TextBlock(BEGINNING)]))
    _limit_media(turns)
    _trim_end(turns[-1])
    return [{"role": turn.role, "content": [block_to_wire(block) for block in turn.blocks]} for turn in turns]


def _merged(messages: Sequence[Message], model: str) -> list[_Wire]:
    turns: list[_Wire] = []
    for message in messages:
        if isinstance(message, SystemMessage) or (isinstance(message, AssistantMessage) and message.api_error):
            continue
        role: Role = "user" if isinstance(message, UserMessage) else "assistant"
        same_model = not isinstance(message, AssistantMessage) or _wrote(message, model)
        blocks = [
            kept
            for block in message.content
            if (same_model or not isinstance(block, _THINKING)) and (kept := sendable(block, role)) is not None
        ]
        if turns and turns[-1].role == role:
            turns[-1].blocks += blocks
        else:
            turns.append(_Wire(role, blocks))
    return turns


def _wrote(message: AssistantMessage, model: str) -> bool:
    """Thinking is bound to the model. An alias that was asked for and the dated name that answered are the same."""
    return model in (message.model, message.requested_model) or not message.model


def _repaired(turns: list[_Wire]) -> list[_Wire]:
    """Each call answered exactly once, in the next turn, results first; what answers no call is dropped."""
    repaired: list[_Wire] = []
    calls: list[_Call] = []
    taken: set[str] = set()
    for turn in turns:
        if turn.role == "user":
            blocks, calls = _results_first(turn.blocks, calls), []
        else:
            if calls:
                repaired.append(_Wire("user", _results_first([], calls)))
            blocks, calls = _with_legal_calls(turn.blocks, taken)
        repaired.append(_Wire(turn.role, blocks or [TextBlock(EMPTY_TURN)]))
    if calls:
        repaired.append(_Wire("user", _results_first([], calls)))
    return repaired


def _with_legal_calls(blocks: list[Block], taken: set[str]) -> tuple[list[Block], list[_Call]]:
    kept: list[Block] = []
    calls: dict[str, _Call] = {}
    for block in blocks:
        if isinstance(block, ToolUseBlock):
            if block.id in calls:
                # One result can't answer two calls.
                continue
            calls[block.id] = call = _Call(block.id, legal_id(block.id, taken))
            name = legal_name(block.name)
            if (call.sent_id, name) != (block.id, block.name):
                block = attrs.evolve(block, id=call.sent_id, name=name)
        kept.append(block)
    while kept and isinstance(kept[-1], _THINKING):
        # A message may not end in thinking.
        kept.pop()
    return kept, list(calls.values())


def _results_first(blocks: list[Block], calls: list[_Call]) -> list[Block]:
    results: dict[str, ToolResultBlock] = {}
    rest: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolResultBlock):
            results.setdefault(block.tool_use_id, block)
        else:
            rest.append(block)
    answered = [_answer_to(call, results.get(call.id)) for call in calls]
    return [*answered, *rest]


def _answer_to(call: _Call, result: ToolResultBlock | None) -> ToolResultBlock:
    if result is None:
        return _lost(call.sent_id)
    return result if call.sent_id == call.id else attrs.evolve(result, tool_use_id=call.sent_id)


def _trim_end(last: _Wire) -> None:
    """White space at the end of what the model is to continue is refused."""
    block = last.blocks[-1]
    if last.role == "assistant" and isinstance(block, TextBlock):
        last.blocks[-1] = attrs.evolve(block, text=block.text.rstrip())


def repair_pairs(messages: Sequence[Message]) -> tuple[Message, ...]:
    """
    The same net over the history itself: results that are missing are put in, those without a call or in excess left
    out, all results first in their message and in the order of the calls.
    """
    repaired: list[Message] = []
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, UserMessage):
            content = _results_first(list(message.content), [_Call(id, id) for id in open_calls])
            open_calls = []
            if content != list(message.content):
                message = attrs.evolve(message, content=tuple(content))
            if not message.content:
                continue
        elif isinstance(message, AssistantMessage) and not message.api_error:
            if open_calls:
                repaired.append(_answer(repaired[-1], open_calls))
            open_calls = list(dict.fromkeys(block.id for block in message.tool_uses))
        repaired.append(message)
    if open_calls:
        repaired.append(_answer(repaired[-1], open_calls))
    return tuple(repaired)


def _lost(id: str) -> ToolResultBlock:
    return ToolResultBlock(id, LOST_RESULT, is_error=True)


def _answer(after: Message, ids: Iterable[str]) -> UserMessage:
    return UserMessage(uuid=f"{after.uuid}-answers", content=tuple(_lost(id) for id in ids), origin="tool_results")


def _limit_media(turns: list[_Wire]) -> None:
    total = sum(_media_in(block) for turn in turns for block in turn.blocks)
    surplus = total - MAX_MEDIA
    for turn in turns:
        for position, block in enumerate(turn.blocks):
            if surplus <= 0:
                return
            turn.blocks[position], dropped = _without_media(block, surplus)
            surplus -= dropped


def _media_in(block: object) -> int:
    if isinstance(block, ImageBlock | DocumentBlock):
        return 1
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        return sum(_media_in(part) for part in block.content)
    return 0


def _without_media(block: Block, most: int) -> tuple[Block, int]:
    if isinstance(block, ImageBlock | DocumentBlock):
        return TextBlock(OMITTED_MEDIA), 1
    dropped = 0
    if isinstance(block, ToolResultBlock) and not isinstance(block.content, str):
        parts = list(block.content)
        for position, part in enumerate(parts):
            if isinstance(part, ImageBlock | DocumentBlock) and dropped < most:
                parts[position] = TextBlock(OMITTED_MEDIA)
                dropped += 1
        if dropped:
            block = attrs.evolve(block, content=tuple(parts))
    return block, dropped


def check(messages: Sequence[Message]) -> list[str]:
    """
    What is wrong with a history; nothing, if it obeys the law.

    Every tool_use has exactly one tool_result, in the next user message (before anything else there); no result
    without its call; ids of calls unique; no message without content; uuids unique; the first message a user's.
    """
    problems: list[str] = []
    open_ids: list[str] = []
    asked: set[str] = set()
    uuids: set[str] = set()
    first = True
    for number, message in enumerate(messages):
        where = f"message {number}"
        if message.uuid in uuids:
            problems.append(f"{where}: uuid {message.uuid} is used twice")
        uuids.add(message.uuid)
        if isinstance(message, SystemMessage):
            continue
        if not message.content:
            problems.append(f"{where}: it has no content")
        if first and not isinstance(message, UserMessage):
            problems.append(f"{where}: a history begins with a user message")
        first = False
        if isinstance(message, UserMessage):
            problems += _check_results(where, message, open_ids)
            open_ids = []
        elif not message.api_error:
            if open_ids:
                problems.append(f"{where}: calls {', '.join(open_ids)} before it have no result")
            open_ids = [block.id for block in message.tool_uses]
            for id in open_ids:
                if id in asked:
                    problems.append(f"{where}: call id {id} is used twice")
                asked.add(id)
            if any(isinstance(block, ToolResultBlock) for block in message.content):
                problems.append(f"{where}: an assistant message holds a tool_result")
    if open_ids:
        problems.append(f"at the end: calls {', '.join(open_ids)} have no result")
    return problems


def _check_results(where: str, message: UserMessage, open_ids: list[str]) -> list[str]:
    problems: list[str] = []
    answered: list[str] = []
    others = False
    for block in message.content:
        if isinstance(block, ToolUseBlock):
            problems.append(f"{where}: a user message holds a tool_use")
        if not isinstance(block, ToolResultBlock):
            others = True
            continue
        if others and block.tool_use_id in open_ids:
            problems.append(f"{where}: the result of {block.tool_use_id} comes after other content")
        if block.tool_use_id not in open_ids:
            problems.append(f"{where}: a result for {block.tool_use_id}, which is no open call")
        elif block.tool_use_id in answered:
            problems.append(f"{where}: two results for {block.tool_use_id}")
        answered.append(block.tool_use_id)
    missing = [id for id in open_ids if id not in answered]
    if missing:
        problems.append(f"{where}: no result for {', '.join(missing)}")
    return problems
