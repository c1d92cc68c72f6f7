"""The AskUser tool: a question to the person behind the session, with a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import attrs
import trio

from atrio.runtime.errors import ToolRejected
from atrio.runtime.question import AskHandler, Option, Question
from atrio.runtime.tool import Tool, ToolContext, ToolOutput

from .schema import Field, json_schema, structure

__all__ = ["AskUser", "AskUserInput", "OfferedOption"]

DEFAULT_DEADLINE: Final = 300
"""Seconds: as long as an approval may take."""

MAX_DEADLINE: Final = 86_400
"""A day: whoever has not answered by then will start another run."""

MAX_OPTIONS: Final = 10
MAX_CHARS: Final = 4_000

NOBODY: Final = (
    "Nobody is there to answer: this session runs without a person. Don't ask again. Decide yourself, prefer what is "
    "easy to undo, and say in your final answer what you assumed."
)


@attrs.frozen(kw_only=True)
class OfferedOption:
    """One answer to choose."""

    label: Annotated[str, Field(min_length=1, max_length=200, description="the answer in a few words")]
    description: Annotated[str, Field(max_length=MAX_CHARS, description="what choosing it means")] = ""


@attrs.frozen(kw_only=True)
class AskUserInput:
    """The question."""

    question: Annotated[str, Field(min_length=1, max_length=MAX_CHARS, description="the whole question")]
    header: Annotated[str, Field(max_length=80, description="its subject in one or two words")] = ""
    options: Annotated[
        list[OfferedOption],
        Field(max_length=MAX_OPTIONS, description="answers to choose from; another text may be given all the same"),
    ] = attrs.field(factory=list)
    multi_select: Annotated[
        bool, Field(aliases=("multiSelect",), description="several of the options may be chosen")
    ] = False
    deadline: Annotated[
        int,
        Field(ge=1, le=MAX_DEADLINE, description="seconds to wait for the answer; then you go on without it"),
    ] = DEFAULT_DEADLINE


class AskUser(Tool):
    """
    Asks whom the embedding program's handler (``ToolContext.ask``) reaches.

    There is a result in any case: at once where no handler is, at the question's deadline where no answer comes, and
    when the handler fails. Without an answer the result is an error.
    """

    name = "AskUser"
    description = (
        "Asks the person who started this work a question and waits for the answer. Use it only for what you can't "
        "find out and what would be costly to get wrong. Offer options where you can, the one you recommend first."
    )
    input_schema = json_schema(AskUserInput)
    aliases: tuple[str, ...] = ("AskUserQuestion",)
    read_only = True
    idempotent = True
    permission: Literal["allow", "read", "edit", "ask"] = "allow"

    def parse(self, raw: Mapping[str, Any]) -> AskUserInput:
        return structure(AskUserInput, raw, tool=self.name)

    def concurrency_safe(self, input: AskUserInput) -> bool:
        return False  # people answer one question at a time

    async def check(self, input: AskUserInput, ctx: ToolContext) -> None:
        """Raises `ToolRejected` for options that can't be told apart."""
        labels = [option.label.strip().casefold() for option in input.options]
        if len(set(labels)) < len(labels):
            raise ToolRejected("Two options have the same label; give each a label of its own.")

    async def run(self, input: AskUserInput, ctx: ToolContext) -> ToolOutput:
        """Ask, and wait until the deadline at most. Cancelled: so is the handler; the question stays unanswered."""
        if ctx.ask is None:
            return ToolOutput(NOBODY, is_error=True, details=_details(input, None, "nobody"))
        question = Question(
            session_id=ctx.session_id,
            call_id=ctx.call_id,
            text=input.question,
            header=input.header,
            options=tuple(Option(label=option.label, description=option.description) for option in input.options),
            multi_select=input.multi_select,
            deadline=float(input.deadline),
        )
        ctx.progress(f"Waiting for an answer: {input.question}", {"deadline": input.deadline})
        return await _ask(ctx.ask, question, input)


async def _ask(handler: AskHandler, question: Question, input: AskUserInput) -> ToolOutput:
    given: object = None
    with trio.move_on_after(question.deadline) as patience:
        try:
            given = await handler(question)
        except Exception as error:
            text = f"The question could not be put: {type(error).__name__}: {error}. Decide yourself, and say so."
            return ToolOutput(text, is_error=True, details=_details(input, None, "failed"))
    if patience.cancelled_caught:
        text = (
            f"No answer came within {question.deadline:g} s. Decide yourself, and say in your answer what you assumed."
        )
        return ToolOutput(text, is_error=True, details=_details(input, None, "late"))
    answers = _texts(given)
    if not answers:
        text = "The user gave no answer to this. Decide yourself, or end your work with what is to be decided."
        return ToolOutput(text, is_error=True, details=_details(input, None, "declined"))
    shown = "\n".join(f"- {answer}" for answer in answers) if len(answers) > 1 else answers[0]
    return ToolOutput(
        f"The user answers: {shown}" if len(answers) == 1 else f"The user chooses:\n{shown}",
        details=_details(input, answers, "answered"),
    )


def _texts(given: object) -> list[str]:
    """What came from the handler, which is foreign code: all that is no text is no answer."""
    parts = given if isinstance(given, tuple | list) else [given]
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def _details(input: AskUserInput, answers: list[str] | None, outcome: str) -> dict[str, object]:
    return {"question": input.question, "outcome": outcome, "answers": answers}
