"""
Context management: which messages a request sends, and what takes the history's place when it no longer fits.

Everything here is pure. The session's history is the truth; `project` makes the view of it that is sent, by decisions
that a `ContextPlan` holds; `new_history` makes the history after a full compaction.
"""

from .autocompact import CompactHistory, CompactVerdict, Verdict, autocompact, is_blocked
from .microcompact import context_management
from .pins import pinned_tokens
from .pipeline import Projection, project
from .plan import Collapse, ContextPlan, plan_from_json, plan_to_json
from .rebuild import NewHistory, after_boundary, new_history
from .report import WindowReport, report
from .restore import RestoredFile, RestoredSkill
from .step import ContextLimits, Persist
from .summary import (
    Summary,
    SummaryRejected,
    SummaryRequest,
    read_summary,
    shortened,
    strip_media,
    summary_request,
)

__all__ = [
    "Collapse",
    "CompactHistory",
    "CompactVerdict",
    "ContextLimits",
    "ContextPlan",
    "NewHistory",
    "Persist",
    "Projection",
    "RestoredFile",
    "RestoredSkill",
    "Summary",
    "SummaryRejected",
    "SummaryRequest",
    "Verdict",
    "WindowReport",
    "after_boundary",
    "autocompact",
    "context_management",
    "is_blocked",
    "new_history",
    "pinned_tokens",
    "plan_from_json",
    "plan_to_json",
    "project",
    "read_summary",
    "report",
    "shortened",
    "strip_media",
    "summary_request",
]
