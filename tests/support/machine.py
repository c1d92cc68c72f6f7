"""The pure machine, fed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from atrio.runtime.actions import Action, Finish, Publish
from atrio.runtime.decide import decide
from atrio.runtime.history import check
from atrio.runtime.messages import Block, TextBlock, Usage, UserMessage
from atrio.runtime.model import FailureKind, IncompleteBlock, ModelFailure
from atrio.runtime.observations import (
    BlockArrived,
    ContextReady,
    InputAccepted,
    Observation,
    ResponseFailed,
    ResponseFinished,
    ResponseOpened,
)
from atrio.runtime.result import TerminalReason
from atrio.runtime.state import Limits, LoopState, Phase

RUN: Final = "11111111-1111-4111-8111-111111111111"
PROMPT: Final = UserMessage(uuid="p", content=(TextBlock("do it"),))
OVERLOADED: Final = ModelFailure(kind=FailureKind.OVERLOADED, message="overloaded", retryable=True, status=529)


class Machine:
    """Feeds observations and keeps what came out: ``actions`` is all of it, ``last`` what came of the latest one."""

    def __init__(self, **limits: Any) -> None:
        self.state = LoopState(run_id=RUN, model="m", limits=Limits(**limits))
        self.actions: list[Action] = []
        self.last: Sequence[Action] = ()

    def feed(self, *observations: Observation) -> Self:
        for observation in observations:
            transition = decide(self.state, observation)
            self.state, self.last = transition.state, transition.actions
            self.actions += transition.actions
        return self

    def phase(self) -> Phase:
        return self.state.phase

    def begin(self) -> Self:
        self.feed(InputAccepted(message=PROMPT))
        return self.prepared()

    def prepared(self) -> Self:
        return self.ready().open()

    def ready(self, **more: Any) -> Self:
        return self.feed(ContextReady(**{"messages": self.state.messages, **more}))

    def open(self) -> Self:
        number = self.state.turn.request
        return self.feed(ResponseOpened(request=number, message_id=f"msg_{number}", model="m", usage=Usage()))

    def block(self, *blocks: Block) -> Self:
        for block in blocks:
            index = len(self.state.turn.blocks)
            self.feed(BlockArrived(request=self.state.turn.request, index=index, block=block))
        return self

    def end(
        self,
        stop_reason: str | None = "end_turn",
        incomplete: tuple[IncompleteBlock, ...] = (),
        usage: Usage | None = None,
    ) -> Self:
        return self.feed(
            ResponseFinished(
                request=self.state.turn.request,
                stop_reason=stop_reason,
                usage=Usage() if usage is None else usage,
                incomplete=incomplete,
            )
        )

    def fail(self, failure: ModelFailure = OVERLOADED, crashed: bool = False) -> Self:
        return self.feed(ResponseFailed(request=self.state.turn.request, failure=failure, crashed=crashed))

    def finishes(self) -> list[Finish]:
        return [action for action in self.actions if isinstance(action, Finish)]

    def events(self, kind: type) -> list[Any]:
        return [a.event for a in self.actions if isinstance(a, Publish) and isinstance(a.event, kind)]

    def assert_over(self, reason: TerminalReason) -> Finish:
        assert [reason] == [finish.reason for finish in self.finishes()]
        assert self.state.phase is Phase.TERMINAL
        assert self.state.terminal is reason
        assert isinstance(self.actions[-1], Finish)
        assert [] == check(self.state.messages)
        return self.finishes()[0]
