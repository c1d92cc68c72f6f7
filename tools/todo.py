"""The TodoWrite tool: the model's list of what is to be done, kept in the session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import attrs

from atrio.runtime.messages import JsonObject
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .schema import Field, json_schema, structure

__all__ = ["TODOS", "Todo", "TodoWrite", "TodoWriteInput", "todos_of"]

TODOS: Final = "todos"
"""Where in ``ToolContext.state`` the list is."""

MAX_TODOS: Final = 200
MAX_CHARS: Final = 1_000

_WORDS: Final = {"completed": "done", "in_progress": "in progress", "pending": "pending"}


@attrs.frozen(kw_only=True)
class Todo:
    """One task."""

    content: Annotated[
        str, Field(min_length=1, max_length=MAX_CHARS, description="what is to be done, such as: Run the tests")
    ]
    status: Annotated[Literal["pending", "in_progress", "completed"], Field(description="how far it is")]
    active_form: Annotated[
        str | None,
        Field(
            max_length=MAX_CHARS,
            aliases=("activeForm",),
            description="the same while it is being done, such as: Running the tests",
        ),
    ] = None


@attrs.frozen(kw_only=True)
class TodoWriteInput:
    """The whole new list."""

    todos: Annotated[list[Todo], Field(max_length=MAX_TODOS, description="all tasks, in order; replaces the old list")]


class TodoWrite(Tool):
    """
    Replaces the session's task list, which `todos_of` reads. It touches nothing but that list.

    A list that isn't as it should be (several tasks in progress, none) is taken, with advice.
    """

    name = "TodoWrite"
    description = (
        "Keeps your list of tasks; each call gives the whole list. Use it for work of three steps or more: write the "
        "steps down first, have exactly one in_progress while you work, and set each to completed as soon as it is "
        "done, not before and not several at once."
    )
    input_schema = json_schema(TodoWriteInput)
    # The list is the model's own note, so that planning may use it too.
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def parse(self, raw: Mapping[str, Any]) -> TodoWriteInput:
        return structure(TodoWriteInput, raw, tool=self.name)

    def concurrency_safe(self, input: TodoWriteInput) -> bool:
        return False  # of two lists in one response the last one has to stand

    async def run(self, input: TodoWriteInput, ctx: ToolContext) -> ToolOutput:
        """Keep the list. It has nothing to wait for, so it is done or not begun when cancelled."""
        old, new = todos_of(ctx.state), tuple(input.todos)
        ctx.state[TODOS] = new
        details = {"oldTodos": [_record(todo) for todo in old], "newTodos": [_record(todo) for todo in new]}
        return ToolOutput(_report(new), details=details)


def todos_of(state: Mapping[str, Any]) -> tuple[Todo, ...]:
    """The session's task list, of ``ToolContext.state``; empty if none was written."""
    found = state.get(TODOS, ())
    return found if isinstance(found, tuple) else ()


def _record(todo: Todo) -> JsonObject:
    record: JsonObject = {"content": todo.content, "status": todo.status}
    return record if todo.active_form is None else {**record, "activeForm": todo.active_form}


def _report(todos: tuple[Todo, ...]) -> str:
    if not todos:
        return "The task list is empty now."
    counts: Counter[str] = Counter(todo.status for todo in todos)
    told = ", ".join(f"{counts[status]} {word}" for status, word in _WORDS.items() if counts[status])
    return f"The task list is kept: {told}. {_advice(todos, counts)}"


def _advice(todos: tuple[Todo, ...], counts: Counter[str]) -> str:
    if counts["completed"] == len(todos):
        return "All tasks are done."
    if counts["in_progress"] > 1:
        return "Have only one task in_progress: the one that you work on now; set the others to pending."
    if counts["in_progress"] == 0:
        following = next(todo for todo in todos if todo.status == "pending")
        return f"No task is in_progress: set the next one ({following.content!r}) to in_progress before you go on."
    current = next(todo for todo in todos if todo.status == "in_progress")
    return f"Go on with: {current.active_form or current.content}"
