"""What a process runs with: keys, addresses, limits, rules. Read once, from the environment and settings files."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import attrs

from .errors import ConfigError
from .journal import make_private
from .redact import Redactor
from .settings import SOURCES, Settings, load_settings, read_settings
from .sse import MAX_EVENT_BYTES

__all__ = ["Config", "Durability", "prepare_home"]

E = TypeVar("E", bound=StrEnum)


class Durability(StrEnum):
    """When a journal record is on disk (all survive the death of the process; the power cut is what differs)."""

    OS = "os"
    """When the operating system likes."""
    BATCH = "batch"
    """At each point where the specification demands it: one ``fdatasync`` for all sessions of the process."""
    ALWAYS = "always"
    """After each write."""


def _default_home() -> Path:
    return _atrio_home(os.environ, Path.cwd())


def _atrio_home(environ: Mapping[str, str], cwd: Path) -> Path:
    """``ATRIO_HOME`` or its default, absolute."""
    remedy = "set ATRIO_HOME to a folder that you may write"
    user_home = _home_of(environ)
    text = environ.get("ATRIO_HOME", "").strip()
    if not text:
        if user_home is None:
            raise ConfigError("HOME", "it is not set, and your account has no home folder", remedy)
        return user_home / ".atrio"
    if text == "~" or text.startswith("~/"):
        if user_home is None:
            raise ConfigError("ATRIO_HOME", f"{text!r} needs a home folder, and there is none", remedy)
        return user_home / text[2:]
    try:
        home = Path(text).expanduser()
    except RuntimeError:
        raise ConfigError("ATRIO_HOME", f"{text!r} names a user who is not known", remedy) from None
    return home if home.is_absolute() else cwd.absolute() / home


def _home_of(environ: Mapping[str, str]) -> Path | None:
    """The user's home folder: ``HOME``, else what the account says."""
    text = environ.get("HOME")
    if not text:
        try:
            text = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    return Path(text).absolute() if text else None


@attrs.frozen(kw_only=True)
class Config:
    """
    Settings of a process, valid by construction. Times are seconds.

    Args:
        home: where sessions are kept (``ATRIO_HOME``).
        base_url: None is the public API.
        environ: the environment for tools and rules, settings files included.
    """

    home: Path = attrs.field(factory=_default_home)
    api_key: str | None = attrs.field(default=None, repr=False)
    auth_token: str | None = attrs.field(default=None, repr=False)
    base_url: str | None = None
    durability: Durability = Durability.BATCH
    max_retries: int = attrs.field(default=10, validator=attrs.validators.ge(0))
    unattended: bool = False
    """Rate limits and overloads are waited out, for as long as the provider says."""
    tool_concurrency: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    idle_event: float = attrs.field(default=90.0, validator=attrs.validators.gt(0))
    idle_byte: float = attrs.field(default=180.0, validator=attrs.validators.gt(0))
    max_event_bytes: int = attrs.field(default=MAX_EVENT_BYTES, validator=attrs.validators.ge(1024))
    settings: Settings = attrs.field(factory=Settings)
    environ: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        cwd: Path,
        sources: Iterable[str] = SOURCES,
        settings_file: Path | None = None,
    ) -> Config:
        """
        The configuration of a process that works in ``cwd``.

        Args:
            sources: which settings files count (``user``, ``project``, ``local``).
            settings_file: one more, stronger than those.

        Raises:
            ConfigError: something is set, but wrong.
        """
        home = _atrio_home(environ, cwd)
        settings = load_settings(cwd, home, _home_of(environ), sources)
        if settings_file is not None:
            settings = settings.overlaid(read_settings(settings_file))
        # The process's own environment is the more deliberate one.
        merged = {**settings.env, **environ}
        read = _Env(merged)
        return cls(
            home=home,
            api_key=read.key("ANTHROPIC_API_KEY"),
            auth_token=read.key("ANTHROPIC_AUTH_TOKEN"),
            base_url=read.text("ANTHROPIC_BASE_URL"),
            durability=read.choice("ATRIO_DURABILITY", Durability, Durability.BATCH),
            max_retries=read.whole("ATRIO_MAX_RETRIES", 10, least=0),
            tool_concurrency=read.whole("ATRIO_TOOL_CONCURRENCY", 10, least=1),
            idle_event=read.seconds("ATRIO_IDLE_EVENT", 90.0),
            idle_byte=read.seconds("ATRIO_IDLE_BYTE", 180.0),
            max_event_bytes=read.whole("ATRIO_MAX_EVENT_BYTES", MAX_EVENT_BYTES, least=1024),
            settings=settings,
            environ=merged,
        )

    def redactor(self) -> Redactor:
        """Takes this configuration's secrets out of what is written."""
        own = {"ANTHROPIC_API_KEY": self.api_key, "ANTHROPIC_AUTH_TOKEN": self.auth_token}
        return Redactor.for_environment({**self.environ, **{name: key for name, key in own.items() if key}})


@attrs.frozen
class _Env:
    environ: Mapping[str, str]

    def text(self, name: str) -> str | None:
        return self.environ.get(name, "").strip() or None

    def key(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None and not (text.isascii() and text.isprintable()):
            # Not shown: it is a secret all the same.
            raise ConfigError(name, "it holds characters that no key has (a line break?)", "copy it again")
        return text

    def whole(self, name: str, default: int, *, least: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ConfigError(name, f"{text!r} is no whole number of at least {least}", "correct or unset it")
        return number

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < 1e9:
            raise ConfigError(name, f"{text!r} is no number of seconds above 0", "correct or unset it")
        return number

    def choice(self, name: str, kind: type[E], default: E) -> E:
        text = self.text(name)
        if text is None:
            return default
        try:
            return kind(text)
        except ValueError:
            names = ", ".join(member.value for member in kind)
            raise ConfigError(name, f"{text!r} is not known", f"choose from {names}") from None


def prepare_home(config: Config) -> None:
    """
    Make sure that sessions can be kept.

    Raises:
        ConfigError: the home folder can't be made or written.
    """
    remedy = "point ATRIO_HOME at a folder that you may write"
    try:
        make_private(config.home / "projects")
    except OSError as error:
        problem = f"{config.home} can't be used: {error.filename}: {error.strerror}"
        raise ConfigError("ATRIO_HOME", problem, remedy) from error
    if not os.access(config.home / "projects", os.W_OK | os.X_OK):
        raise ConfigError("ATRIO_HOME", f"{config.home} is not writable", remedy)
