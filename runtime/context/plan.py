"""
What has been decided about the view of the history that the model gets, as a value. Pure.

The history is the truth and changes by a full compaction only. All lighter steps are decisions in a `ContextPlan`;
they are frozen, so that consecutive requests begin with the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ..messages import JsonObject, Message

__all__ = ["Collapse", "ContextPlan", "plan_from_json", "plan_to_json"]


@attrs.frozen(kw_only=True)
class Collapse:
    """A range of the history (both ends included) and the summary that may stand for it."""

    first_uuid: str
    last_uuid: str
    summary: str


@attrs.frozen(kw_only=True)
class ContextPlan:
    """
    Decisions about calls and messages that are still in the history.

    A result that was decided on once is never decided on again: up to ``budgeted_through`` all results either are in
    ``persisted`` or stay whole.
    """

    persisted: Mapping[str, str] = attrs.field(factory=dict)
    """By call id: the text in place of a result whose full text is in a file."""
    budgeted_through: str | None = None
    """The uuid of the last message whose results were decided on."""
    cleared: frozenset[str] = frozenset()
    """Calls whose results are replaced by a placeholder."""
    snipped: frozenset[str] = frozenset()
    """uuids of messages that are left out."""
    snip_requests: frozenset[str] = frozenset()
    """uuids that a user or tool wants left out; the next step decides on them."""
    staged: tuple[Collapse, ...] = ()
    """Summaries that lie ready, oldest first; they cost nothing until they are committed."""
    collapses: tuple[Collapse, ...] = ()
    """Committed: the summary stands for its range."""
    draining: bool = False
    """The next step commits all that is staged, however full the window is."""

    def stage(self, collapse: Collapse) -> ContextPlan:
        """With one more summary that lies ready."""
        return attrs.evolve(self, staged=(*self.staged, collapse))

    def drain(self) -> ContextPlan:
        """With everything committed at the next step that is staged by then."""
        return attrs.evolve(self, draining=True)

    def snip(self, uuids: Iterable[str]) -> ContextPlan:
        """
        With these messages left out from the next step on. A response with calls and the message that answers them
        have to be named together; what is pinned or part of a collapse stays.
        """
        return attrs.evolve(self, snip_requests=self.snip_requests | frozenset(uuids))

    def for_history(self, messages: Sequence[Message], call_ids: Iterable[str]) -> ContextPlan:
        """
        What is left of the plan for a new history with these calls: results that were replaced stay so, ranges and
        left-out messages are gone with the history that they belonged to.
        """
        calls = frozenset(call_ids)
        return ContextPlan(
            persisted={id: text for id, text in self.persisted.items() if id in calls},
            budgeted_through=messages[-1].uuid if messages else None,
            cleared=self.cleared & calls,
        )


def plan_to_json(plan: ContextPlan) -> JsonObject:
    """The plan as a JSON object, for journals."""
    return {
        "persisted": dict(plan.persisted),
        "budgetedThrough": plan.budgeted_through,
        "cleared": sorted(plan.cleared),
        "snipped": sorted(plan.snipped),
        "snipRequests": sorted(plan.snip_requests),
        "draining": plan.draining,
        "staged": [_collapse_to_json(collapse) for collapse in plan.staged],
        "collapses": [_collapse_to_json(collapse) for collapse in plan.collapses],
    }


def plan_from_json(data: Mapping[str, Any]) -> ContextPlan:
    """The plan that was written; what has another shape than `plan_to_json` gives is left out. Raises nothing."""
    persisted = data.get("persisted")
    through = data.get("budgetedThrough")
    return ContextPlan(
        persisted={id: text for id, text in persisted.items() if isinstance(id, str) and isinstance(text, str)}
        if isinstance(persisted, dict)
        else {},
        budgeted_through=through if isinstance(through, str) else None,
        cleared=_texts(data.get("cleared")),
        snipped=_texts(data.get("snipped")),
        snip_requests=_texts(data.get("snipRequests")),
        draining=data.get("draining") is True,
        staged=_collapses(data.get("staged")),
        collapses=_collapses(data.get("collapses")),
    )


def _collapse_to_json(collapse: Collapse) -> JsonObject:
    return {"first": collapse.first_uuid, "last": collapse.last_uuid, "summary": collapse.summary}


def _collapses(value: object) -> tuple[Collapse, ...]:
    found: list[Collapse] = []
    for item in value if isinstance(value, list) else []:
        match item:
            case {"first": str(first), "last": str(last), "summary": str(summary)}:
                found.append(Collapse(first_uuid=first, last_uuid=last, summary=summary))
            case _:
                pass
    return tuple(found)


def _texts(value: object) -> frozenset[str]:
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
