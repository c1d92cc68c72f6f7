"""A question has a result in any case: at once where nobody is, at its deadline, when its handler fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from atrio.runtime.errors import InvalidToolInput, ToolRejected
from atrio.runtime.question import AskHandler, Option, Question
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.ask import AskUser

ASK_USER = AskUser()


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


async def ask(ctx: ToolContext, handler: AskHandler | None, **raw: Any) -> ToolOutput:
    input = ASK_USER.parse({"question": "Which one?", **raw})
    ctx = attrs.evolve(ctx, ask=handler)
    await ASK_USER.check(input, ctx)
    return await ASK_USER.run(input, ctx)


def answering(answer: Any, seen: list[Question] | None = None) -> AskHandler:
    async def handler(question: Question) -> Any:
        if seen is not None:
            seen.append(question)
        return answer

    return handler


async def test_without_a_handler_the_model_hears_at_once_that_nobody_is_there(
    ctx: ToolContext, autojump_clock: MockClock
) -> None:
    output = await ask(ctx, None)
    assert output.is_error
    assert "Nobody is there to answer" in str(output.content)
    assert 0.0 == trio.current_time()


async def test_the_handler_gets_the_whole_question(ctx: ToolContext) -> None:
    seen: list[Question] = []
    output = await ask(
        ctx,
        answering("B", seen),
        header="Choice",
        options=[{"label": "A", "description": "the first"}, {"label": "B"}],
        multiSelect=True,
        deadline=7,
    )
    options = (Option(label="A", description="the first"), Option(label="B"))
    assert [
        Question(
            session_id="s",
            call_id="c",
            text="Which one?",
            header="Choice",
            options=options,
            multi_select=True,
            deadline=7.0,
        )
    ] == seen
    assert "The user answers: B" == output.content
    assert {"question": "Which one?", "outcome": "answered", "answers": ["B"]} == output.details


async def test_several_answers_are_listed(ctx: ToolContext) -> None:
    assert "The user chooses:\n- A\n- B" == (await ask(ctx, answering(("A", "B")))).content


@pytest.mark.parametrize("answer", [None, "", "  ", (), 7, [None]])
async def test_what_is_no_answer_is_told_as_none(ctx: ToolContext, answer: object) -> None:
    output = await ask(ctx, answering(answer))
    assert output.is_error
    assert "gave no answer" in str(output.content)


async def test_no_answer_is_awaited_beyond_the_deadline(ctx: ToolContext, autojump_clock: MockClock) -> None:
    async def silent(question: Question) -> str:
        await trio.sleep_forever()
        raise AssertionError

    output = await ask(ctx, silent, deadline=60)
    assert output.is_error
    assert "No answer came within 60 s" in str(output.content)
    assert 60.0 == trio.current_time()


async def test_a_handler_that_fails_is_an_error_result(ctx: ToolContext) -> None:
    async def broken(question: Question) -> str:
        raise ValueError("no terminal")

    output = await ask(ctx, broken)
    assert output.is_error
    assert "ValueError: no terminal" in str(output.content)


async def test_options_must_differ(ctx: ToolContext) -> None:
    with pytest.raises(ToolRejected, match="same label"):
        await ask(ctx, answering("A"), options=[{"label": "A"}, {"label": "a "}])


@pytest.mark.parametrize("raw", [{"deadline": 0}, {"deadline": 86_401}, {"options": [{"label": "x"}] * 11}])
def test_limits_hold(raw: dict[str, object]) -> None:
    with pytest.raises(InvalidToolInput):
        ASK_USER.parse({"question": "?", **raw})
