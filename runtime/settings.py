"""
Settings files: where they are, how they are read, how several become one.

A project's ``.atrio/`` and ``.claude/`` folders are read alike, so that an existing project works unchanged. What is
unknown is left alone (the files serve other programs too); what is known but wrong is an error that names the file
and the place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from .errors import ConfigError
from .messages import JsonObject

__all__ = ["SOURCES", "Settings", "load_settings", "read_settings"]

SOURCES = ("user", "project", "local")
"""From the weakest to the strongest."""


@attrs.frozen(kw_only=True)
class Settings:
    """
    What atrio takes from settings files. Lists of all files are joined, of single values the strongest wins.

    Args:
        hooks: the groups of each hook event, as the files have them.
        hook_files: the file that each of these groups is from, in the same order, to be named where one is wrong.
    """

    model: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict)
    cleanup_period_days: int | None = None
    """Days after which a session that nobody uses is deleted; None is the default, 30."""
    hooks: Mapping[str, Sequence[Any]] = attrs.field(factory=dict)
    hook_files: Mapping[str, Sequence[str]] = attrs.field(factory=dict)

    def overlaid(self, stronger: Settings) -> Settings:
        """These settings with ``stronger`` ones over them."""
        return Settings(
            model=stronger.model or self.model,
            allow=(*self.allow, *stronger.allow),
            deny=(*self.deny, *stronger.deny),
            ask=(*self.ask, *stronger.ask),
            default_mode=stronger.default_mode or self.default_mode,
            additional_directories=(*self.additional_directories, *stronger.additional_directories),
            env={**self.env, **stronger.env},
            cleanup_period_days=stronger.cleanup_period_days or self.cleanup_period_days,
            hooks=_joined(self.hooks, stronger.hooks),
            hook_files=_joined(self.hook_files, stronger.hook_files),
        )


def _joined(one: Mapping[str, Sequence[Any]], other: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    return {key: (*one.get(key, ()), *other.get(key, ())) for key in (*one, *other)}


def load_settings(cwd: Path, home: Path, user_home: Path | None, sources: Iterable[str] = SOURCES) -> Settings:
    """
    All settings files of these sources, merged; a file that isn't there is none.

    Raises:
        ConfigError: a file can't be read or is wrong, or a source is unknown.
    """
    settings = Settings()
    wanted = tuple(sources)
    for source in wanted:
        if source not in SOURCES:
            raise ConfigError("--setting-sources", f"{source!r} is no source", f"choose from {', '.join(SOURCES)}")
    for source in SOURCES:
        if source in wanted:
            for path in _files(source, cwd, home, user_home):
                text = _text_of(path)
                if text is not None:
                    found = _parse(path, text)
                    settings = settings.overlaid(found if source == "user" else _without_doors(found))
    return settings


def _without_doors(settings: Settings) -> Settings:
    """A project may say how it is built, not where the user's key is sent or what is loaded into his programs."""
    env = {name: text for name, text in settings.env.items() if not _DOORS.fullmatch(name)}
    return attrs.evolve(settings, env=env)


_DOORS = re.compile(
    r"(?:ANTHROPIC|OPENAI|LD|DYLD)_\w+|ATRIO_HOME|PYTHON(?:PATH|HOME|STARTUP)|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_\w+"
    r"|NODE_OPTIONS|HOME|PATH",
    re.IGNORECASE,
)


def _files(source: str, cwd: Path, home: Path, user_home: Path | None) -> Sequence[Path]:
    match source:
        case "user":
            own = home / "settings.json"
            return (own,) if user_home is None else (user_home / ".claude" / "settings.json", own)
        case "project":
            return (cwd / ".claude" / "settings.json", cwd / ".atrio" / "settings.json")
        case _:
            return (cwd / ".claude" / "settings.local.json", cwd / ".atrio" / "settings.local.json")


def read_settings(path: Path) -> Settings:
    """
    One file.

    Raises:
        ConfigError: it isn't there or can't be read, is no JSON object, or a known key has a value of the wrong kind.
    """
    text = _text_of(path)
    if text is None:
        raise ConfigError(_thing(path), "it does not exist", "correct the path")
    return _parse(path, text)


def _thing(path: Path) -> str:
    return f"settings file {path}"


def _text_of(path: Path) -> str | None:
    """The file's text, whatever mark it begins with; None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(_thing(path), f"it can't be read: {error.strerror}", "repair or remove it") from error
    except UnicodeDecodeError as error:
        problem = f"it is no UTF-8 text (byte {error.start})"
        raise ConfigError(_thing(path), problem, "save it as UTF-8") from error


def _parse(path: Path, text: str) -> Settings:
    thing = _thing(path)
    if not text.strip():
        return Settings()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(thing, f"it is no valid JSON at {where}: {error.msg}", "repair that place") from None
    except RecursionError:
        raise ConfigError(thing, "it is nested too deeply", "repair or remove it") from None
    except ValueError as error:
        # A number of thousands of digits.
        raise ConfigError(thing, f"it is no valid JSON: {error}", "repair or remove it") from None
    return _Reader(thing).settings(data)


@attrs.frozen
class _Reader:
    thing: str

    def settings(self, data: object) -> Settings:
        top = self._object(data, "the file")
        permissions = self._object(top.get("permissions"), "permissions")
        hooks = self._lists(top.get("hooks"), "hooks")
        return Settings(
            model=self._text(top.get("model"), "model"),
            allow=self._texts(permissions.get("allow"), "permissions.allow"),
            deny=self._texts(permissions.get("deny"), "permissions.deny"),
            ask=self._texts(permissions.get("ask"), "permissions.ask"),
            default_mode=self._text(permissions.get("defaultMode"), "permissions.defaultMode"),
            additional_directories=self._texts(
                permissions.get("additionalDirectories"), "permissions.additionalDirectories"
            ),
            env=self._env(top.get("env")),
            cleanup_period_days=self._days(top.get("cleanupPeriodDays"), "cleanupPeriodDays"),
            hooks=hooks,
            hook_files={key: (self.thing,) * len(groups) for key, groups in hooks.items()},
        )

    def _wrong(self, key: str, wanted: str, value: object) -> ConfigError:
        shown = json.dumps(value)
        return ConfigError(self.thing, f"{key} must be {wanted}, it is {shown[:80]}", "correct it")

    def _object(self, value: object, key: str) -> JsonObject:
        if value is None and key != "the file":
            return {}
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return value

    def _text(self, value: object, key: str) -> str | None:
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        raise self._wrong(key, "a text", value)

    def _texts(self, value: object, key: str) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self._wrong(key, "a list of texts", value)
        for position, item in enumerate(value):
            if not isinstance(item, str):
                raise self._wrong(f"{key}[{position}]", "a text", item)
        return tuple(value)

    def _lists(self, value: object, key: str) -> Mapping[str, Sequence[Any]]:
        lists = self._object(value, key)
        for name, items in lists.items():
            if not isinstance(items, list):
                raise self._wrong(f"{key}.{name}", "a list", items)
        return {name: tuple(items) for name, items in lists.items()}

    def _days(self, value: object, key: str) -> int | None:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 36_500):
            return value
        raise self._wrong(key, "a whole number of days from 1 to 36500", value)

    def _env(self, value: object) -> Mapping[str, str]:
        env = self._object(value, "env")
        for name, text in env.items():
            if not name or "=" in name or "\0" in name:
                raise ConfigError(self.thing, f"env has {name!r}, which can't name a variable", "correct it")
            if not isinstance(text, str | int | float) or "\0" in str(text):
                raise self._wrong(f"env.{name}", "a text", text)
        return {name: text if isinstance(text, str) else json.dumps(text) for name, text in env.items()}
