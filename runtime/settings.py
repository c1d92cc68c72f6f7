"""
Settings files: where they are, how they are read, how several become one.

A project's ``.atrio/`` and ``.claude/`` folders are read alike, so that an existing project works unchanged. What is
unknown is left alone (the files serve other programs too); what is known but wrong is an error that names the file
and the place.
"""

from __future__ import annotations

import json
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
    """What atrio takes from settings files. Lists of all files are joined, of single values the strongest wins."""

    model: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    default_mode: str | None = None
    additional_directories: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict)

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
        )


def load_settings(cwd: Path, home: Path, user_home: Path, sources: Iterable[str] = SOURCES) -> Settings:
    """
    All settings files of these sources, merged.

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
                if path.exists():
                    settings = settings.overlaid(read_settings(path))
    return settings


def _files(source: str, cwd: Path, home: Path, user_home: Path) -> Sequence[Path]:
    match source:
        case "user":
            return (user_home / ".claude" / "settings.json", home / "settings.json")
        case "project":
            return (cwd / ".claude" / "settings.json", cwd / ".atrio" / "settings.json")
        case _:
            return (cwd / ".claude" / "settings.local.json", cwd / ".atrio" / "settings.local.json")


def read_settings(path: Path) -> Settings:
    """
    One file.

    Raises:
        ConfigError: it can't be read, is no JSON object, or a known key has a value of the wrong kind.
    """
    thing = f"settings file {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(thing, f"it can't be read: {error}", "repair or remove it") from error
    if not text.strip():
        return Settings()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(thing, f"it is no valid JSON at {where}: {error.msg}", "repair that place") from None
    except RecursionError:
        raise ConfigError(thing, "it is nested too deeply", "repair or remove it") from None
    return _Reader(thing).settings(data)


@attrs.frozen
class _Reader:
    thing: str

    def settings(self, data: object) -> Settings:
        top = self._object(data, "the file")
        permissions = self._object(top.get("permissions"), "permissions")
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
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(value)

    def _env(self, value: Any) -> Mapping[str, str]:
        env = self._object(value, "env")
        for name, text in env.items():
            if not isinstance(text, str | int | float | bool):
                raise self._wrong(f"env.{name}", "a text", text)
        return {name: text if isinstance(text, str) else json.dumps(text) for name, text in env.items()}
