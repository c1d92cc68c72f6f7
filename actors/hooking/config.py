"""
The ``hooks`` of settings files, as values: which handlers there are for which event. Pure.

    {"PreToolUse": [{"matcher": "Bash|Edit", "hooks": [{"type": "command", "command": "./check", "timeout": 10}]}]}

What can't be understood is an error that names file and key, since a guard that silently isn't there is worse than
none. What belongs to a newer or another program (an unknown event, a kind of handler that needs a model) is left out
with a warning.
"""

from __future__ import annotations

import functools
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import attrs

from atrio.runtime.errors import ConfigError
from atrio.runtime.messages import JsonObject
from atrio.tools.rules import Rule, parse_rule

from .payloads import TOOL_EVENTS, HookName

__all__ = ["CommandHandler", "Handler", "HookConfig", "HookGroup", "HttpHandler", "Matcher", "parse_hooks"]

KNOWN: Final = {name.value: name for name in HookName}

LEFT_OUT: Final = frozenset({"prompt", "agent", "mcp_tool"})
"""Kinds of handlers that other programs know."""

_NAMES: Final = re.compile(r"[A-Za-z0-9_\- ,|]*")


@attrs.frozen
class Matcher:
    """
    Which subjects a group of handlers is for.

    Empty or ``*``: all. Only letters, digits and ``_ - space , |``: a list of exact names. All else: a regular
    expression, to be found anywhere in the subject.
    """

    text: str = ""

    def matches(self, subject: str | None) -> bool:
        """Whether it is for this subject. An event without one is for every group."""
        if subject is None or self.text in ("", "*"):
            return True
        if _NAMES.fullmatch(self.text):
            return subject in {name.strip() for name in re.split(r"[|,]", self.text)}
        return _pattern(self.text).search(subject) is not None


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        # Of what may mean something else some day, such as "[[": it is the user's, and means what it means now.
        warnings.simplefilter("ignore")
        return re.compile(text)


@attrs.frozen(kw_only=True)
class CommandHandler:
    """
    A shell command.

    Args:
        timeout: seconds; None: the event's default.
        condition: the permission rule that a call must fall under.
        background: nobody waits for it. ``rewake``: but the model is told if it ends with status 2.
    """

    command: str
    timeout: float | None = None
    condition: Rule | None = None
    background: bool = False
    rewake: bool = False

    @property
    def label(self) -> str:
        return f"hook command {_short(self.command)!r}"


@attrs.frozen(kw_only=True)
class HttpHandler:
    """
    An address that events are posted to.

    Args:
        headers: pairs; ``$NAME`` and ``${NAME}`` in a value stand for environment variables.
        variables: the only ones that they may stand for; others become empty.
        timeout, condition: as of `CommandHandler`.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    variables: tuple[str, ...] = ()
    timeout: float | None = None
    condition: Rule | None = None

    @property
    def label(self) -> str:
        return f"hook address {_short(_without_login(self.url))}"


Handler: TypeAlias = CommandHandler | HttpHandler


@attrs.frozen(kw_only=True)
class HookGroup:
    """Handlers for the same subjects."""

    matcher: Matcher
    handlers: tuple[Handler, ...]


@attrs.frozen(kw_only=True)
class HookConfig:
    """All hooks of a session, and what was left out of its settings and why, for the user."""

    groups: Mapping[HookName, tuple[HookGroup, ...]] = attrs.field(factory=dict)
    warnings: tuple[str, ...] = ()

    def has(self, name: HookName) -> bool:
        """Whether anybody listens to this event: if not, there is no need to describe it."""
        return bool(self.groups.get(name))


def parse_hooks(hooks: Mapping[str, Sequence[Any]], files: Mapping[str, Sequence[str]] | None = None) -> HookConfig:
    """
    The hooks in `Settings.hooks`; ``files`` is `Settings.hook_files`.

    Raises:
        ConfigError: something has the wrong shape.
    """
    groups: dict[HookName, tuple[HookGroup, ...]] = {}
    left_out: list[str] = []
    for key, items in hooks.items():
        places = _places(key, len(items), (files or {}).get(key, ()))
        name = KNOWN.get(key)
        if name is None:
            for thing in dict.fromkeys(thing for thing, _ in places):
                left_out.append(f"{thing}: hooks.{key} is no event that is known here; its hooks are left out")
            continue
        read = [
            _Reader(thing, place, name, left_out).group(item)
            for (thing, place), item in zip(places, items, strict=True)
        ]
        groups[name] = tuple(group for group in read if group.handlers)
    return HookConfig(groups=groups, warnings=tuple(left_out))


def _places(key: str, count: int, files: Sequence[str]) -> list[tuple[str, str]]:
    """For each group the thing that it is in, and where in there."""
    seen: Counter[str] = Counter()
    places: list[tuple[str, str]] = []
    for position in range(count):
        thing = files[position] if position < len(files) else "the settings"
        places.append((thing, f"hooks.{key}[{seen[thing]}]"))
        seen[thing] += 1
    return places


@attrs.frozen
class _Reader:
    """Reads one group, which is at ``place`` of ``thing``."""

    thing: str
    place: str
    name: HookName
    warnings: list[str]

    def group(self, item: object) -> HookGroup:
        data = self._object(item, self.place)
        text = data.get("matcher")
        if text is not None and not isinstance(text, str):
            raise self._wrong(f"{self.place}.matcher", "a text", text)
        matcher = Matcher(text or "")
        try:
            matcher.matches("")
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                self.thing, f"{self.place}.matcher {_short(matcher.text)!r} is no pattern: {error}", "correct it"
            ) from None
        handlers = data.get("hooks")
        if not isinstance(handlers, list):
            raise self._wrong(f"{self.place}.hooks", "a list of handlers", handlers)
        return HookGroup(matcher=matcher, handlers=tuple(self._handlers(handlers)))

    def _handlers(self, items: Sequence[object]) -> Iterator[Handler]:
        for position, item in enumerate(items):
            place = f"{self.place}.hooks[{position}]"
            handler = self._handler(self._object(item, place), place)
            if handler is not None:
                yield handler

    def _handler(self, data: JsonObject, place: str) -> Handler | None:
        kind = data.get("type")
        if isinstance(kind, str) and kind in LEFT_OUT:
            self._warn(f"{place} is of type {kind}, which is not supported; it is left out")
            return None
        if kind not in ("command", "http"):
            raise self._wrong(f"{place}.type", '"command" or "http"', kind)
        timeout, condition = self._timeout(data, place), self._condition(data, place)
        if condition is not None and self.name not in TOOL_EVENTS:
            self._warn(f"{place} has an `if`, which only calls of tools can fulfil; it never runs")
            return None
        if kind == "http":
            return self._http(data, place, timeout, condition)
        rewake = self._flag(data, "asyncRewake", place)
        return CommandHandler(
            command=self._command(data, place),
            timeout=timeout,
            condition=condition,
            background=rewake or self._flag(data, "async", place),
            rewake=rewake,
        )

    def _command(self, data: JsonObject, place: str) -> str:
        text = data.get("command")
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise self._wrong(f"{place}.command", "a command", text)
        return text

    def _http(self, data: JsonObject, place: str, timeout: float | None, condition: Rule | None) -> HttpHandler:
        url = data.get("url")
        if not isinstance(url, str) or not _is_address(url):
            raise self._wrong(f"{place}.url", "an http or https address", url)
        headers = self._object(data.get("headers", {}), f"{place}.headers")
        for name, value in headers.items():
            if not isinstance(value, str):
                raise self._wrong(f"{place}.headers.{name}", "a text", value)
        variables = data.get("allowedEnvVars", [])
        if not isinstance(variables, list) or not all(isinstance(each, str) for each in variables):
            raise self._wrong(f"{place}.allowedEnvVars", "a list of names", variables)
        return HttpHandler(
            url=url,
            headers=tuple(headers.items()),
            variables=tuple(variables),
            timeout=timeout,
            condition=condition,
        )

    def _timeout(self, data: JsonObject, place: str) -> float | None:
        value = data.get("timeout")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9 or math.isnan(value):
            raise self._wrong(f"{place}.timeout", "a number of seconds above 0", value)
        return float(value)

    def _condition(self, data: JsonObject, place: str) -> Rule | None:
        text = data.get("if")
        if text is None:
            return None
        if not isinstance(text, str):
            raise self._wrong(f"{place}.if", "a permission rule", text)
        try:
            return parse_rule(text)
        except ConfigError as error:
            raise ConfigError(self.thing, f"{place}.if: {error.thing}: {error.problem}", error.remedy) from None

    def _flag(self, data: JsonObject, key: str, place: str) -> bool:
        value = data.get(key, False)
        if not isinstance(value, bool):
            raise self._wrong(f"{place}.{key}", "true or false", value)
        return value

    def _object(self, value: object, place: str) -> JsonObject:
        if not isinstance(value, dict):
            raise self._wrong(place, "an object", value)
        return value

    def _warn(self, text: str) -> None:
        self.warnings.append(f"{self.thing}: {text}")

    def _wrong(self, place: str, wanted: str, value: object) -> ConfigError:
        if value is None:
            return ConfigError(self.thing, f"{place} is missing; it must be {wanted}", "add it")
        return ConfigError(
            self.thing, f"{place} must be {wanted}, it is {_short(json.dumps(value, default=str))}", "correct it"
        )


def _is_address(text: str) -> bool:
    if any(char.isspace() or not char.isprintable() for char in text):
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an address in them, a port that is no number
        return False


def _without_login(text: str) -> str:
    """An address as it may be shown: what is before the @, or behind the ?, may be a secret."""
    parts = urlsplit(text)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:77]}..."
