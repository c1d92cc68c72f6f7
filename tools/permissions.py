"""
Whether a tool call may run: rules and mode in, allow, ask or deny out. Pure but for following symlinks.

The first of these that has an answer decides: deny rules; plan mode (nothing that changes anything); ask rules; the
guard against critical removals; bypass mode; allow rules; acceptEdits mode; what the tool itself declares. Then
dontAsk mode turns ask into deny.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import attrs

from atrio.runtime.tool import Tool, ToolContext

from .file_commands import Touched, changes_shell, edited_paths, touched_paths
from .guarded import are_plain, is_guarded
from .paths import is_inside, real_path
from .removals import critical_removal
from .rule_matching import allows_command, catches_command, matches_text, path_matcher
from .rules import Rule, Rules, parse_rule, parse_rule_list
from .shell_syntax import simple_commands

__all__ = [
    "Behavior",
    "Decision",
    "PermissionMode",
    "Rule",
    "Rules",
    "decide_permission",
    "denied_reads",
    "parse_rule",
    "parse_rule_list",
]

SHELL_TOOLS: Final = frozenset({"Bash"})
"""Whose specifiers are shell commands."""

SHOWN_CHARS: Final = 200
"""How much of a command or path a reason repeats."""


class PermissionMode(StrEnum):
    """How a session treats calls that no rule decides."""

    DEFAULT = "default"
    """Reads inside the workspace are allowed, all else is asked for."""
    ACCEPT_EDITS = "acceptEdits"
    """Edits inside the workspace are allowed as well, and shell commands that do just that (mkdir, touch, mv, cp)."""
    PLAN = "plan"
    """Only tools that change nothing may run."""
    DONT_ASK = "dontAsk"
    """What would be asked for is denied."""
    BYPASS = "bypassPermissions"
    """All is allowed but for deny and ask rules, and removals of a home folder or more."""


class Behavior(StrEnum):
    """What a decision comes to."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@attrs.frozen
class Decision:
    """Whether a call may run, and why, in a sentence for the model."""

    behavior: Behavior
    reason: str


@attrs.frozen(kw_only=True)
class _Call:
    """One call, with what rules are matched with."""

    tool: Tool
    text: str | None
    paths: tuple[Path, ...]
    real_paths: tuple[Path | None, ...]
    ctx: ToolContext

    @property
    def subject(self) -> str:
        """The call in the form of the rule that would cover just it."""
        text = self.text
        if text is None:
            return self.tool.name
        return f"{self.tool.name}({text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + '...'})"


def decide_permission(tool: Tool, input: Any, ctx: ToolContext, rules: Rules, mode: PermissionMode) -> Decision:
    """The decision on one call. An exception of the tool's own ``paths`` or ``specifier`` passes through."""
    paths = tool.paths(input, ctx)
    real_paths = tuple(real_path(path) for path in paths)
    call = _Call(tool=tool, text=tool.specifier(input), paths=paths, real_paths=real_paths, ctx=ctx)
    decision = _by_rules_and_mode(call, rules, mode) or _by_declaration(call)
    if decision.behavior is Behavior.ASK and mode is PermissionMode.DONT_ASK:
        return Decision(Behavior.DENY, f"{decision.reason}, and permission mode {mode} denies what would be asked for.")
    if decision.behavior is Behavior.ASK:
        return Decision(Behavior.ASK, f"{decision.reason}, so it needs to be approved.")
    return decision


def denied_reads(tool: str, rules: Rules, ctx: ToolContext) -> Callable[[Path], bool] | None:
    """
    Which absolute paths deny rules keep this tool from: for tools that look at many files in one call.

    None if there are no such rules. The test doesn't follow symlinks; give it the resolved path as well.
    """
    patterns = [rule.specifier for rule in rules.deny if rule.names(tool) and rule.specifier is not None]
    tests = [path_matcher(pattern, ctx.workspace.roots, strict=True) for pattern in patterns]
    return (lambda path: any(test(path) for test in tests)) if tests else None


def _by_rules_and_mode(call: _Call, rules: Rules, mode: PermissionMode) -> Decision | None:
    subject = call.subject
    if None in call.real_paths:
        return Decision(Behavior.DENY, f"{subject} names a path that no file can have; correct the path.")
    if rule := _first_caught(rules.deny, call):
        return Decision(Behavior.DENY, f"The rule {rule} denies {subject}; don't try to reach the same in other ways.")
    if mode is PermissionMode.PLAN and not call.tool.read_only:
        return Decision(
            Behavior.DENY, f"{subject} may change something, and in plan mode only reading is allowed; plan it instead."
        )
    if rule := _first_caught(rules.ask, call):
        return Decision(Behavior.ASK, f"The rule {rule} asks for approval of {subject}")
    allowing = _allowing(rules.allow, call)
    if (mode is PermissionMode.BYPASS or allowing) and (lost := _critical_loss(rules.allow, call)):
        return Decision(Behavior.ASK, f"{subject} would remove {lost}, which no mode and no general rule allows")
    if mode is PermissionMode.BYPASS:
        return Decision(Behavior.ALLOW, f"Permission mode {mode} allows {subject}.")
    if allowing:
        return Decision(Behavior.ALLOW, f"Allowed by {', '.join(map(str, allowing))}: {subject}.")
    if mode is PermissionMode.ACCEPT_EDITS and _only_edits(rules.allow, call):
        return Decision(Behavior.ALLOW, f"Permission mode {mode} allows edits inside the workspace, so {subject}.")
    return None


def _by_declaration(call: _Call) -> Decision:
    tool, subject = call.tool, call.subject
    if tool.permission == "allow":
        return Decision(Behavior.ALLOW, f"The program that runs this session vouches for {tool.name}.")
    roots = call.ctx.workspace.roots
    if tool.permission == "read":
        outside = [path for path in _real(call) if not is_inside(path, _readable(call.ctx))]
        if not outside:
            return Decision(Behavior.ALLOW, f"{subject} only reads inside the workspace.")
        where = ", ".join(str(root) for root in roots)
        return Decision(Behavior.ASK, f"No rule allows {subject}: {outside[0]} is outside the workspace ({where})")
    if tool.permission == "edit" and any(is_guarded(path, roots) for path in (*_real(call), *call.paths)):
        return Decision(Behavior.ASK, f"No rule allows {subject}, which other programs take their orders from")
    return Decision(Behavior.ASK, f"No rule allows {subject}")


def _first_caught(rules: Sequence[Rule], call: _Call) -> Rule | None:
    """The first rule that part of the call falls under: for rules that restrict."""
    about_files = any(rule.names("Read", "Edit", "Write") for rule in rules)
    touched = None
    if about_files and call.text is not None and call.tool.name in SHELL_TOOLS:
        touched = touched_paths(call.text, call.ctx.cwd)
    for rule in rules:
        if touched is not None and _catches_file(rule, call, touched):
            return rule
        if not rule.names(call.tool.name, *call.tool.aliases):
            continue
        if rule.specifier is None:
            return rule
        if call.tool.name in SHELL_TOOLS:
            if call.text is not None and catches_command(rule.specifier, call.text):
                return rule
        elif call.paths:
            caught = path_matcher(rule.specifier, call.ctx.workspace.roots, strict=True)
            if any(caught(path) for path in (*call.paths, *_real(call))):
                return rule
        elif call.text is not None and matches_text(rule.specifier, call.text):
            return rule
    return None


def _catches_file(rule: Rule, call: _Call, touched: Touched) -> bool:
    """Whether a rule for files is about one that the shell command names: rules for Read and Edit hold there too."""
    paths = (touched.read if rule.names("Read") else ()) + (touched.written if rule.names("Edit", "Write") else ())
    if rule.specifier is None or not paths:
        return False
    caught = path_matcher(rule.specifier, call.ctx.workspace.roots, strict=True)
    return any(caught(path) for path in paths)


def _critical_loss(rules: Iterable[Rule], call: _Call) -> str | None:
    """What of importance a shell command would remove, unless a rule names this very command."""
    if call.tool.name not in SHELL_TOOLS or call.text is None:
        return None
    text = call.text.strip()
    if any(rule.names(call.tool.name) and rule.specifier == text for rule in rules):
        return None
    return critical_removal(text, cwd=call.ctx.cwd, roots=call.ctx.workspace.roots)


def _allowing(rules: Iterable[Rule], call: _Call) -> list[Rule]:
    """The rules that allow the call: one that allows all of it, or else those that do so together."""
    relevant = [rule for rule in rules if rule.names(call.tool.name, *call.tool.aliases)]
    alone = next((rule for rule in relevant if _allow([rule], call)), None)
    if alone is not None:
        return [alone]
    return relevant if len(relevant) > 1 and _allow(relevant, call) else []


def _allow(rules: list[Rule], call: _Call) -> bool:
    specifiers = [rule.specifier for rule in rules if rule.specifier is not None]
    if len(specifiers) < len(rules):
        return True
    if call.paths and call.tool.name not in SHELL_TOOLS:
        tests = [path_matcher(specifier, (call.ctx.cwd,)) for specifier in specifiers]
        return all(any(test(path) for test in tests) for path in _real(call))
    if call.text is None:
        return False
    if call.tool.name in SHELL_TOOLS:
        return allows_command(specifiers, call.text)
    return any(matches_text(specifier, call.text) for specifier in specifiers)


def _real(call: _Call) -> list[Path]:
    return [path for path in call.real_paths if path is not None]


def _readable(ctx: ToolContext) -> tuple[Path, ...]:
    """The workspace, and where long results and a sandbox's temporary files are kept, so that they can be read back."""
    kept = map(real_path, (ctx.results_dir, ctx.results_dir.parent / "tmp"))
    return (*ctx.workspace.roots, *(path for path in kept if path is not None))


def _only_edits(rules: Iterable[Rule], call: _Call) -> bool:
    """Whether the call does nothing but edit plain files of the workspace, and what rules allow besides."""
    if call.tool.name not in SHELL_TOOLS:
        return call.tool.permission == "edit" and bool(call.paths) and are_plain(call.paths, call.ctx)
    if call.text is None:
        return False
    relevant = [rule.specifier for rule in rules if rule.names(call.tool.name, *call.tool.aliases) and rule.specifier]
    parts = simple_commands(call.text)
    if parts is None or any(changes_shell(part) for part in parts if not part.startswith((">", "&>"))):
        return False

    def is_edit(part: str) -> bool:
        paths = edited_paths(part, call.ctx.cwd)
        return paths is not None and are_plain(paths, call.ctx, through_links=True)

    return allows_command(relevant, call.text, also=is_edit)
