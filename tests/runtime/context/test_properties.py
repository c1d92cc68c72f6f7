"""What holds after each step and each compaction, whatever the history is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, TypeGuard

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atrio.actors.testing import violations_of
from atrio.runtime.context import (
    Collapse,
    ContextLimits,
    ContextPlan,
    NewHistory,
    Summary,
    after_boundary,
    new_history,
    plan_from_json,
    plan_to_json,
    project,
)
from atrio.runtime.context.collapse import collapse, next_range
from atrio.runtime.context.microcompact import microcompact
from atrio.runtime.context.pins import carried_over, protected
from atrio.runtime.context.pipeline import STEPS
from atrio.runtime.context.rebuild import measured_since
from atrio.runtime.context.snip import snip
from atrio.runtime.context.step import Moment, Step
from atrio.runtime.context.tool_budget import budget_results
from atrio.runtime.context.units import units
from atrio.runtime.history import check, wire_messages
from atrio.runtime.messages import (
    AssistantMessage,
    Block,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
    UserOrigin,
)
from atrio.runtime.tokens import Estimates
from atrio.runtime.window import ModelWindow, levels_of

MODEL = "m-1"
PNG = ImageBlock({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="})
ORIGINS: tuple[UserOrigin, ...] = ("prompt", "steer", "attachment", "recovery")
TOOLS = ("Read", "Bash", "Grep", "TodoWrite", "Task")
LIMITS = ContextLimits(results_dir="/r", result_chars=4_500, message_result_chars=9_000, keep_rounds=2)
LEVELS = levels_of(ModelWindow(tokens=20_000))
CASES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

THINKING: tuple[Block, ...] = (ThinkingBlock("I think so.", "c2ln"), RedactedThinkingBlock("ZW5j"))


@attrs.define
class Builder:
    """Draws a history, message by message."""

    draw: Callable[..., Any]
    name: str = "h"
    messages: list[Message] = attrs.field(factory=list)
    calls: int = 0

    def uuid(self) -> str:
        return f"{self.name}{len(self.messages)}"

    def text(self) -> TextBlock:
        words = self.draw(st.sampled_from(["Fix the bug.", "数据库", "Überall ", "def f(x): return x\n", "a"]))
        return TextBlock(words * self.draw(st.sampled_from([1, 1, 1, 5, 200])))

    def user(self) -> None:
        content: tuple[Block, ...] = (self.text(),)
        if self.draw(st.integers(0, 4)) == 0:
            content = (*content, PNG)
        origin: UserOrigin = self.draw(st.sampled_from(ORIGINS))
        hidden = origin in ("attachment", "recovery") and bool(self.messages)
        pinned = self.draw(st.integers(0, 5)) == 0
        if not self.messages:
            origin = "prompt"
        self.messages.append(
            UserMessage(uuid=self.uuid(), content=content, origin=origin, hidden=hidden, pinned=pinned)
        )

    def response(self) -> None:
        blocks: list[Block] = list(THINKING[: self.draw(st.integers(0, 2))])
        calls = [self.call() for _ in range(self.draw(st.sampled_from([0, 1, 1, 1, 2, 4])))]
        if not calls or self.draw(st.integers(0, 2)) == 0:
            blocks.append(self.text())
        usage = Usage(input_tokens=1_000, output_tokens=50, reported=True) if self.draw(st.booleans()) else Usage()
        self.messages.append(
            AssistantMessage(
                uuid=self.uuid(), message_id=self.uuid(), model=MODEL, content=(*blocks, *calls), usage=usage
            )
        )
        if self.draw(st.integers(0, 9)) == 0:
            self.messages.append(SystemMessage(uuid=self.uuid(), subtype="informational", text="by the way"))
        if calls:
            self.results(calls)

    def call(self) -> ToolUseBlock:
        self.calls += 1
        name = self.draw(st.sampled_from(TOOLS))
        return ToolUseBlock(f"{self.name}-c{self.calls}", name, {"n": self.draw(st.integers(0, 2))})

    def results(self, calls: Sequence[ToolUseBlock]) -> None:
        blocks: list[Block] = []
        for call in calls:
            text = self.draw(st.sampled_from(["ok", "line\n", "数据", "x"]))
            text *= self.draw(st.sampled_from([1, 1, 40, 880, 1_100]))
            content = (TextBlock(text), PNG) if self.draw(st.integers(0, 6)) == 0 else text
            blocks.append(ToolResultBlock(call.id, content, self.draw(st.integers(0, 4)) == 0))
        if self.draw(st.integers(0, 6)) == 0:
            blocks.append(self.text())
        pinned = self.draw(st.integers(0, 9)) == 0
        self.messages.append(UserMessage(uuid=self.uuid(), content=tuple(blocks), origin="tool_results", pinned=pinned))

    def more(self, count: int) -> None:
        if not self.messages:
            self.user()
        for _ in range(count):
            kind = self.draw(st.integers(0, 9))
            if kind < 7:
                self.response()
            elif kind < 9:
                self.user()
            else:
                self.messages.append(
                    AssistantMessage(
                        uuid=self.uuid(),
                        message_id="",
                        model="",
                        content=(TextBlock("the API failed"),),
                        api_error="server_error",
                    )
                )


@st.composite
def histories(draw: st.DrawFn) -> tuple[Message, ...]:
    builder = Builder(draw)
    builder.more(draw(st.integers(0, 14)))
    return tuple(builder.messages)


@st.composite
def plans(draw: st.DrawFn, messages: Sequence[Message]) -> ContextPlan:
    """A plan that a caller might have made: ranges and left-out messages of its own, sensible or not."""
    uuids = [message.uuid for message in messages]
    plan = ContextPlan().snip(draw(st.lists(st.sampled_from(uuids), max_size=3)))
    for _ in range(draw(st.integers(0, 2))):
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(uuids) - 1)] * 2)))
        text = draw(st.sampled_from(["much was done", "long " * 400]))
        plan = plan.stage(Collapse(first_uuid=uuids[first], last_uuid=uuids[last], summary=text))
    return plan.drain() if draw(st.booleans()) else plan


moments = st.builds(
    lambda tokens, gap: Moment(tokens=tokens, levels=LEVELS, now=10_000.0, last_response_at=10_000.0 - gap),
    st.sampled_from([0, 6_000, 9_500, 50_000]),
    st.sampled_from([1.0, 5_000.0]),
)


def thinking_of(messages: Sequence[Message]) -> dict[str, list[Block]]:
    return {
        message.uuid: [b for b in message.content if isinstance(b, ThinkingBlock | RedactedThinkingBlock)]
        for message in messages
        if isinstance(message, AssistantMessage)
    }


def assert_sound(before: Sequence[Message], after: Sequence[Message], pinned: frozenset[str]) -> None:
    assert [] == check(after)
    assert [] == violations_of_wire(after)
    by_uuid = {message.uuid: message for message in after}
    assert pinned <= by_uuid.keys()
    # The result of a call that is kept for its input may be shortened.
    whole = [m for m in before if m.uuid in pinned and not (is_results(m) and not m.pinned)]
    assert [] == [m.uuid for m in whole if m != by_uuid[m.uuid]]
    known = [message.uuid for message in before]
    kept = [message.uuid for message in after if message.uuid in set(known)]
    assert [uuid for uuid in known if uuid in set(kept)] == kept
    thinking = thinking_of(before)
    assert all(blocks == thinking[uuid] for uuid, blocks in thinking_of(after).items())


def differences(expected: Sequence[Message], actual: Sequence[Message]) -> list[str]:
    """The uuids of messages that are not the same: whole messages would fill screens."""
    pairs = zip_longest(expected, actual)
    return [f"{a.uuid if a else None}/{b.uuid if b else None}" for a, b in pairs if a != b]


def is_results(message: Message) -> TypeGuard[UserMessage]:
    return isinstance(message, UserMessage) and message.origin == "tool_results"


def violations_of_wire(messages: Sequence[Message]) -> object:
    return violations_of({"model": MODEL, "max_tokens": 1, "messages": wire_messages(messages, model=MODEL)})


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@CASES
@given(data=st.data())
def test_a_step_keeps_the_history_valid_and_what_is_pinned_and_never_adds_tokens(
    step: Step, data: st.DataObject
) -> None:
    messages = data.draw(histories())
    plan = data.draw(plans(messages))
    moment = data.draw(moments)
    estimates = Estimates()
    result = step(messages, plan, LIMITS, moment=moment, estimates=estimates)
    assert_sound(messages, result.messages, protected(messages, LIMITS.task_list_tools))
    assert estimates.total(result.messages) <= estimates.total(messages)
    moment = moment.less(result.freed_tokens)
    again = step(result.messages, result.plan, LIMITS, moment=moment, estimates=estimates)
    assert [] == differences(result.messages, again.messages)
    assert (result.plan, 0) == (again.plan, again.freed_tokens)
    # And the same decisions over the same history give the same bytes.
    once_more = step(messages, result.plan, LIMITS, moment=Moment(levels=LEVELS), estimates=Estimates())
    assert [] == differences(result.messages, once_more.messages)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@CASES
@given(data=st.data())
def test_what_a_step_says_it_freed_is_what_is_missing(step: Step, data: st.DataObject) -> None:
    messages = data.draw(histories())
    estimates = Estimates()
    staged = data.draw(plans(messages))
    plan = ContextPlan(staged=staged.staged)
    result = step(messages, plan, LIMITS, moment=data.draw(moments), estimates=estimates)
    assert estimates.total(messages) - estimates.total(result.messages) == result.freed_tokens


@pytest.mark.slow
@CASES
@given(data=st.data())
def test_the_whole_projection_is_sound_and_stable(data: st.DataObject) -> None:
    messages = data.draw(histories())
    plan = data.draw(plans(messages))
    estimates = Estimates()
    window = data.draw(st.sampled_from([4_000, 20_000, 200_000]))
    gap = data.draw(st.sampled_from([1.0, 5_000.0]))

    first = project(
        messages,
        plan,
        limits=LIMITS,
        levels=levels_of(ModelWindow(tokens=window)),
        estimates=estimates,
        now=10_000.0,
        last_response_at=10_000.0 - gap,
    )
    assert_sound(messages, first.messages, protected(messages, LIMITS.task_list_tools))
    assert estimates.total(first.messages) <= estimates.total(messages)
    second = project(
        messages,
        plan_from_json(plan_to_json(first.plan)),
        limits=LIMITS,
        levels=levels_of(ModelWindow(tokens=1_000_000)),
        estimates=Estimates(),
    )
    assert [] == differences(first.messages, second.messages)
    assert first.plan == second.plan


@pytest.mark.slow
@CASES
@given(data=st.data())
def test_compactions_keep_the_history_valid_and_what_is_pinned_and_journals_need_only_what_is_new(
    data: st.DataObject,
) -> None:
    builder = Builder(data.draw)
    builder.more(data.draw(st.integers(2, 10)))
    estimates = Estimates()
    levels = levels_of(ModelWindow(tokens=data.draw(st.sampled_from([4_000, 20_000, 200_000]))))
    history: tuple[Message, ...] = tuple(builder.messages)
    journal = history
    plan = ContextPlan()
    for number in range(data.draw(st.integers(1, 3))):
        view = project(history, plan, limits=LIMITS, levels=levels, estimates=estimates)
        built = new_history(
            after_boundary(history),
            Summary("What was done so far."),
            boundary_uuid=f"00000000-0000-0000-0000-00000000000{number}",
            trigger="auto",
            pre_tokens=view.tokens,
            plan=view.plan,
            shown=view.messages,
            limits=LIMITS,
            levels=levels,
            estimates=estimates,
        )
        if isinstance(built, NewHistory):
            assert_carried(history, built)
            assert estimates.total(project_again(built, levels)) < estimates.total(view.messages)
            history, plan = built.messages, built.plan
            journal = (*journal, *built.written)
            assert len(history) == measured_since(history)
            assert [] == differences(history, after_boundary(history))
        before = len(builder.messages)
        builder.more(data.draw(st.integers(1, 6)))
        history = (*history, *builder.messages[before:])
        journal = (*journal, *builder.messages[before:])
        assert [] == differences(history, after_boundary(journal))
        assert [] == violations_of_wire(history)


def project_again(built: NewHistory, levels: object) -> tuple[Message, ...]:
    view = project(
        built.messages,
        built.plan,
        limits=LIMITS,
        levels=levels_of(ModelWindow(tokens=200_000)),
        estimates=Estimates(),
    )
    return view.messages


def assert_carried(history: Sequence[Message], built: NewHistory) -> None:
    after = built.messages
    assert isinstance(after[0], SystemMessage)
    assert [] == check(after)
    assert [] == violations_of_wire(after)
    texts = {message.uuid: message for message in after}
    old = after_boundary(history)
    for message in old:
        if message.uuid in must_survive(old):
            assert [] == differences([message], [texts[message.uuid]])
    thinking = thinking_of(old)
    assert all(blocks == thinking[uuid] for uuid, blocks in thinking_of(after).items())


def must_survive(messages: Sequence[Message]) -> frozenset[str]:
    pinned = carried_over(messages)
    return frozenset(m.uuid for m in messages if m.uuid in pinned and not isinstance(m, SystemMessage))


@pytest.mark.slow
@CASES
@given(data=st.data())
def test_the_range_to_summarise_next_can_be_collapsed(data: st.DataObject) -> None:
    messages = data.draw(histories())
    limits = attrs.evolve(LIMITS, collapse_part_share=0.02)
    moment = Moment(tokens=50_000, levels=LEVELS)
    estimates = Estimates()
    found = next_range(messages, ContextPlan(), limits, moment=moment, estimates=estimates)
    if found is None:
        return
    plan = ContextPlan().stage(Collapse(first_uuid=found[0], last_uuid=found[1], summary="Short."))
    result = collapse(messages, plan, limits, moment=moment, estimates=estimates)
    assert 1 == len(result.plan.collapses)
    assert f"{found[0]}-collapse" in [message.uuid for message in result.messages]
    assert found != next_range(messages, result.plan, limits, moment=moment, estimates=estimates)


@pytest.mark.slow
@CASES
@given(histories())
def test_units_cover_the_history_in_order(messages: tuple[Message, ...]) -> None:
    parts = list(units(messages))
    assert list(range(len(messages))) == [i for unit in parts for i in range(unit.start, unit.end)]


def test_the_steps_run_from_the_lightest_to_the_heaviest() -> None:
    steps: list[Callable[..., object]] = list(STEPS.values())
    assert [budget_results, snip, microcompact, collapse] == steps
