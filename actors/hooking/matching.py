"""
Which handlers an event is for. Pure but for following symlinks.

A condition (``if``) narrows when a hook runs, and hooks are mostly guards: so it is read as deny rules are, and holds
for all that the call can mean. Where a call's input has nothing that a rule speaks of, the name alone decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from atrio.tools.paths import real_path
from atrio.tools.rule_matching import catches_command, matches_text, path_matcher
from atrio.tools.rules import Rule

from .config import Handler, HookConfig
from .payloads import TOOL_EVENTS, HookEvent

__all__ = ["handlers_for"]

PATH_KEYS: Final = ("file_path", "notebook_path", "path")
"""Where the inputs of tools name the file that they are about."""


def handlers_for(config: HookConfig, event: HookEvent, cwd: Path) -> tuple[Handler, ...]:
    """Those that match, each once however often it is configured, in the order of the settings."""
    found = (
        handler
        for group in config.groups.get(event.name, ())
        if group.matcher.matches(event.subject)
        for handler in group.handlers
        if handler.condition is None or _holds(handler.condition, event, cwd)
    )
    return tuple(dict.fromkeys(found))


def _holds(rule: Rule, event: HookEvent, cwd: Path) -> bool:
    if event.name not in TOOL_EVENTS or event.subject is None or not rule.names(event.subject):
        return False
    input = event.fields.get("tool_input")
    if rule.specifier is None or not isinstance(input, Mapping):
        return True
    return _covers(rule.specifier, input, cwd)


def _covers(specifier: str, input: Mapping[str, Any], cwd: Path) -> bool:
    command, url = input.get("command"), input.get("url")
    if isinstance(command, str):
        return catches_command(specifier, command)
    for key in PATH_KEYS:
        path = input.get(key)
        if isinstance(path, str) and "\0" not in path:
            real = real_path(cwd / path)
            caught = path_matcher(specifier, (cwd,), strict=True)
            return caught(cwd / path) or (real is not None and caught(real))
    if isinstance(url, str) and specifier.startswith("domain:"):
        return matches_text(specifier.removeprefix("domain:"), _host(url))
    return True


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
