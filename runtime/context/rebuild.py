"""
The history after a full compaction, and what of a history counts after one. Pure.

A new history is: the boundary, the summary, what is carried over byte for byte, what is restored, the tail. Messages
that are carried over or in the tail keep their uuids; the boundary names them, so that a journal needs to hold only
what is new (`NewHistory.written`) and `after_boundary` finds the rest before the boundary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from ..messages import AssistantMessage, Message, SystemMessage, TextBlock, UserMessage
from ..state import derive_id
from ..tokens import MARGIN, Estimates
from ..window import WindowLevels
from .pins import TASK_LIST_HEADER, carried_over, current_task_list
from .plan import ContextPlan
from .restore import RestoredFile, RestoredSkill, restore_files, restore_skills
from .step import ContextLimits
from .summary import Summary, SummaryRejected
from .units import BOUNDARY, boundary_index, call_names, units

__all__ = ["NewHistory", "Trigger", "after_boundary", "measured_since", "new_history"]

Trigger: TypeAlias = Literal["auto", "manual", "reactive"]

TAIL_SHARE = 0.1
"""Of the effective window: how much of the newest messages stays as it is."""

FULL_SHARE = 0.7
"""
Of the threshold: restoring and the tail fill no more, or the next compaction would follow at once. Nor do they bring
back more than half of what there was.
"""

SUMMARY_HEADER = (
    "The earlier part of this session no longer fits into the context. This is its summary; go on from it as if "
    "nothing had happened, without mentioning the summary or asking whether to go on.\n\n"
)


@attrs.frozen(kw_only=True)
class NewHistory:
    """What takes the history's place; ``tokens`` is its size, calibrated, with all that is fixed."""

    messages: tuple[Message, ...]
    written: tuple[Message, ...]
    """Those that a journal doesn't have yet: the boundary first, then the summary and what is restored."""
    plan: ContextPlan
    tokens: int


@attrs.frozen(kw_only=True)
class _Parts:
    carried: tuple[Message, ...]
    tail: tuple[Message, ...]
    restored: tuple[Message, ...]


def new_history(
    messages: Sequence[Message],
    summary: Summary,
    *,
    boundary_uuid: str,
    trigger: Trigger,
    pre_tokens: int,
    plan: ContextPlan,
    shown: Sequence[Message],
    limits: ContextLimits,
    levels: WindowLevels,
    estimates: Estimates,
    fixed_tokens: int = 0,
    ratio: float = 1.0,
    files: Sequence[RestoredFile] = (),
    skills: Sequence[RestoredSkill] = (),
    task_list: str | None = None,
) -> NewHistory | SummaryRejected:
    """
    The history that begins with this summary.

    ``messages`` is the history since the last boundary and ``shown`` its projection. ``fixed_tokens`` (estimated) is
    what every request holds beside messages; ``files`` and ``skills`` come newest first. ``task_list`` is the current
    one, where the caller knows better than the history. Refused if nothing would be gained.
    """
    head = UserMessage(
        uuid=derive_id(boundary_uuid, "summary"),
        content=(TextBlock(SUMMARY_HEADER + summary.text),),
        origin="attachment",
        hidden=True,
    )
    sizes = {message.uuid: estimates.of(message) for message in shown}
    before = sum(sizes.values())
    room = min(int(levels.auto * FULL_SHARE / ratio) - fixed_tokens, before // 2) - estimates.of(head)
    tail = _tail(messages, sizes, min(room, int(levels.effective * TAIL_SHARE)))
    kept = {message.uuid for message in tail}
    pinned = carried_over(messages)
    carried = tuple(m for m in messages if m.uuid in pinned and m.uuid not in kept and _is_sent(m))
    tasks = _task_list(messages, tail, task_list, limits, boundary_uuid)
    # Of what is kept, results that are in files count as their previews.
    kept_size = sum(sizes.get(message.uuid, 0) or estimates.of(message) for message in (*carried, *tail))
    room -= kept_size + estimates.total(tasks)
    seen = _read_paths(tail)
    skill_messages = restore_skills(skills, room, boundary_uuid, estimates)
    room -= estimates.total(skill_messages)
    restored_files = restore_files([f for f in files if f.path not in seen], room, boundary_uuid, estimates)
    parts = _Parts(carried=carried, tail=tail, restored=(*tasks, *skill_messages, *restored_files))
    fresh = (head, *parts.restored)
    size = kept_size + estimates.total(fresh)
    if size >= before:
        return SummaryRejected("no_gain", "The history would be no shorter with this summary.")
    tokens = round((size + fixed_tokens) * ratio * (1 + MARGIN))
    boundary = _boundary(boundary_uuid, trigger, pre_tokens, tokens, fresh, parts)
    built = (boundary, head, *carried, *parts.restored, *tail)
    return NewHistory(
        messages=built,
        written=(boundary, *fresh),
        plan=plan.for_history(built, call_names(built)),
        tokens=tokens,
    )


def _boundary(
    uuid: str, trigger: Trigger, before: int, after: int, fresh: Sequence[Message], parts: _Parts
) -> SystemMessage:
    return SystemMessage(
        uuid=uuid,
        subtype=BOUNDARY,
        text="The conversation was compacted.",
        data={
            "trigger": trigger,
            "preTokens": before,
            "postTokens": after,
            "fresh": [message.uuid for message in fresh],
            "carried": [message.uuid for message in parts.carried],
            "tail": [message.uuid for message in parts.tail],
        },
    )


def _is_sent(message: Message) -> bool:
    return isinstance(message, UserMessage) or (isinstance(message, AssistantMessage) and not message.api_error)


def _tail(messages: Sequence[Message], sizes: Mapping[str, int], room: int) -> tuple[Message, ...]:
    """The newest whole units that fit, as they are in the history; nothing that the projection (``sizes``) hides."""
    start = len(messages)
    for unit in reversed(list(units(messages))):
        part = messages[unit.start : unit.end]
        if any(_is_sent(message) and message.uuid not in sizes for message in part):
            break
        room -= sum(sizes.get(message.uuid, 0) for message in part)
        if room < 0:
            break
        start = unit.start
    return tuple(message for message in messages[start:] if _is_sent(message))


def _task_list(
    messages: Sequence[Message], tail: Sequence[Message], given: str | None, limits: ContextLimits, boundary: str
) -> tuple[UserMessage, ...]:
    tools = limits.task_list_tools
    text = given if given is not None else current_task_list(messages, tools)
    if text is None or (given is None and current_task_list(tail, tools) is not None):
        return ()
    content = (TextBlock(TASK_LIST_HEADER + text),)
    return (UserMessage(uuid=derive_id(boundary, "tasks"), content=content, origin="attachment", hidden=True),)


def _read_paths(tail: Sequence[Message]) -> frozenset[object]:
    """Files that the tail shows anyway."""
    return frozenset(
        path
        for message in tail
        if isinstance(message, AssistantMessage)
        for call in message.tool_uses
        if call.name == "Read" and isinstance(path := call.input.get("file_path"), str)
    )


def after_boundary(messages: Sequence[Message]) -> tuple[Message, ...]:
    """
    What of the history counts: from the newest boundary on, with the messages that the boundary names put in from
    before it where they are missing (a journal holds them once); everything, if there is no boundary.
    """
    index = boundary_index(messages)
    if index is None:
        return tuple(messages)
    boundary = messages[index]
    rest = messages[index + 1 :]
    data = _data(boundary)
    fresh, carried, tail = (_uuids(data, name) for name in ("fresh", "carried", "tail"))
    named = {*carried, *tail}
    present = {message.uuid for message in rest[: len(fresh) + len(named)]}
    missing = named - present
    if not missing:
        return tuple(messages[index:])
    found = {message.uuid: message for message in messages[:index] if message.uuid in missing}
    count = sum(1 for message in rest[: len(fresh)] if message.uuid in fresh)
    return (
        boundary,
        *rest[:1],
        *(found[uuid] for uuid in carried if uuid in found),
        *rest[1:count],
        *(found[uuid] for uuid in tail if uuid in found),
        *rest[max(1, count) :],
    )


def measured_since(messages: Sequence[Message]) -> int:
    """The index from which on responses saw the context as it is: after everything that the boundary brought along."""
    if not messages or not isinstance(messages[0], SystemMessage) or messages[0].subtype != BOUNDARY:
        return 0
    data = _data(messages[0])
    named = {uuid for name in ("fresh", "carried", "tail") for uuid in _uuids(data, name)}
    since = 1
    for index in range(1, min(len(messages), len(named) + 1)):
        if messages[index].uuid in named:
            since = index + 1
    return since


def _data(message: Message) -> Mapping[str, Any]:
    return message.data if isinstance(message, SystemMessage) else {}


def _uuids(data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = data.get(name)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
