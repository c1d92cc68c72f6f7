"""TodoWrite keeps the list in the session's state and says what should be otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atrio.runtime.errors import InvalidToolInput
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.todo import TODOS, Todo, TodoWrite, todos_of

TODO_WRITE = TodoWrite()


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


async def write(ctx: ToolContext, *todos: tuple[str, str], **more: Any) -> ToolOutput:
    raw = {"todos": [{"content": content, "status": status, **more} for content, status in todos]}
    return await TODO_WRITE.run(TODO_WRITE.parse(raw), ctx)


async def test_the_list_is_replaced_as_a_whole_and_kept_in_the_session(ctx: ToolContext) -> None:
    assert () == todos_of(ctx.state)
    await write(ctx, ("a", "in_progress"), ("b", "pending"))
    output = await write(ctx, ("b", "in_progress"), activeForm="doing b")
    assert (Todo(content="b", status="in_progress", active_form="doing b"),) == todos_of(ctx.state)
    assert {
        "oldTodos": [{"content": "a", "status": "in_progress"}, {"content": "b", "status": "pending"}],
        "newTodos": [{"content": "b", "status": "in_progress", "activeForm": "doing b"}],
    } == output.details


@pytest.mark.parametrize(
    ("statuses", "advice"),
    [
        (["in_progress", "pending"], "1 in progress, 1 pending. Go on with: task 0"),
        (["completed", "completed"], "2 done. All tasks are done."),
        (["completed", "pending"], "No task is in_progress: set the next one ('task 1') to in_progress"),
        (["in_progress", "in_progress"], "Have only one task in_progress"),
        ([], "The task list is empty now."),
    ],
)
async def test_the_report_counts_and_advises(ctx: ToolContext, statuses: list[str], advice: str) -> None:
    output = await write(ctx, *[(f"task {number}", status) for number, status in enumerate(statuses)])
    assert advice in str(output.content)
    assert not output.is_error


@pytest.mark.parametrize(
    "todos",
    [
        [{"content": "", "status": "pending"}],
        [{"content": "a", "status": "doing"}],
        [{"status": "pending"}],
        [{"content": "a", "status": "pending"}] * 201,
    ],
)
def test_a_bad_list_is_refused(todos: list[dict[str, str]]) -> None:
    with pytest.raises(InvalidToolInput):
        TODO_WRITE.parse({"todos": todos})


def test_what_others_put_in_the_place_of_the_list_is_no_list() -> None:
    assert () == todos_of({TODOS: "nonsense"})


def test_two_lists_of_one_response_are_written_in_order() -> None:
    assert not TODO_WRITE.concurrency_safe(TODO_WRITE.parse({"todos": []}))
