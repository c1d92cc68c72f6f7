"""
Which MCP servers there are: the shapes of ``.mcp.json`` and ``--mcp-config``, with the environment filled in. Pure but
for reading the files.

A fault in one entry is a problem of that entry: the others are read all the same. Only a file that is no JSON at all
is refused as a whole.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from atrio.runtime.errors import ConfigError
from atrio.runtime.messages import JsonObject

__all__ = [
    "PROJECT_FILE",
    "HttpServer",
    "ServerConfig",
    "Servers",
    "StdioServer",
    "expand",
    "load_mcp_options",
    "parse_mcp_servers",
    "read_mcp_file",
    "safe_server_name",
]

PROJECT_FILE: Final = ".mcp.json"
"""The project's servers, beside its code."""

MAX_NAME_CHARS: Final = 48
"""Of 128 that the API takes for a tool's name, of which a server's is the beginning."""

SHOWN_CHARS: Final = 80

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@attrs.frozen(kw_only=True)
class StdioServer:
    """
    A server that is a child process and is talked to over its standard streams.

    ``env`` is added to the environment that the session gives it. ``call_limit``: seconds that a call may take
    without progress; None leaves it to the client.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    call_limit: float | None = None

    @property
    def target(self) -> str:
        """What is connected to, for people."""
        return self.command


@attrs.frozen(kw_only=True)
class HttpServer:
    """A server that is reached by streamable HTTP. ``headers`` may hold secrets and are not shown."""

    name: str
    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    call_limit: float | None = None

    @property
    def target(self) -> str:
        """What is connected to, for people: without a query or a password, which may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


ServerConfig: TypeAlias = StdioServer | HttpServer


@attrs.frozen(kw_only=True)
class Servers:
    """Servers by name, and what was wrong with entries that were left out."""

    configs: tuple[ServerConfig, ...] = ()
    problems: tuple[ConfigError, ...] = ()

    def overlaid(self, stronger: Servers) -> Servers:
        """These servers with ``stronger`` ones over them: of two with the same name, those win."""
        names = {config.name for config in stronger.configs}
        kept = tuple(config for config in self.configs if config.name not in names)
        return Servers(configs=(*kept, *stronger.configs), problems=(*self.problems, *stronger.problems))


def safe_server_name(name: str) -> str:
    """
    The name as it stands in tools' names; empty if nothing of it can.

    It holds no ``__`` and neither begins nor ends with ``_``, so that ``mcp__a`` never covers tools of another server
    whose name only begins like it.
    """
    return re.sub(r"_{2,}", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")[:MAX_NAME_CHARS].strip("_")


def load_mcp_options(values: Iterable[str], environ: Mapping[str, str], cwd: Path) -> Servers:
    """
    The servers that ``--mcp-config`` names: each value is a file (seen from ``cwd``) or JSON text.

    Raises:
        ConfigError: a file can't be read, or is no JSON.
    """
    servers = Servers()
    for value in values:
        if value.lstrip().startswith("{"):
            found = parse_mcp_servers(value, environ, source="--mcp-config")
        else:
            found = read_mcp_file(cwd / value, environ)
        servers = servers.overlaid(found)
    return servers


def read_mcp_file(path: Path, environ: Mapping[str, str], *, optional: bool = False) -> Servers:
    """
    The servers of one file; none if it isn't there and is ``optional``.

    Raises:
        ConfigError: it can't be read, or is no JSON.
    """
    thing = f"MCP file {path}"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        if optional:
            return Servers()
        raise ConfigError(thing, "it does not exist", "correct the path") from None
    except (OSError, ValueError) as error:
        reason = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(thing, f"it can't be read: {reason}", "repair or remove it") from error
    return parse_mcp_servers(text, environ, source=str(path))


def parse_mcp_servers(text: str, environ: Mapping[str, str], *, source: str) -> Servers:
    """
    The servers in JSON text of the form ``{"mcpServers": {name: {...}}}``.

    Raises:
        ConfigError: it is no JSON of that form. What is wrong with single entries is in `Servers.problems`.
    """
    thing = f"MCP file {source}" if source != "--mcp-config" else source
    try:
        data = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(thing, f"it is no valid JSON at {where}: {error.msg}", "repair that place") from None
    except (RecursionError, ValueError):
        raise ConfigError(thing, "it is no valid JSON", "repair or remove it") from None
    entries = data.get("mcpServers", {}) if isinstance(data, dict) else None
    if not isinstance(entries, dict):
        raise ConfigError(thing, "it has no object mcpServers", 'write {"mcpServers": {"name": {...}}}')
    configs: dict[str, ServerConfig] = {}
    problems: list[ConfigError] = []
    for name, entry in entries.items():
        reader = _Entry(thing=f"{thing}: server {name!r}", environ=environ)
        try:
            config = reader.config(name, entry)
            if config.name in configs:
                raise reader.wrong(f"its name counts as {config.name!r}, which another server has", "rename one")
            configs[config.name] = config
        except ConfigError as error:
            problems.append(error)
    return Servers(configs=tuple(configs.values()), problems=tuple(problems))


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """``text`` with ``${VAR}`` and ``${VAR:-default}`` filled in, and the variables that are set nowhere."""
    missing: list[str] = []

    def value(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        known = environ.get(name)
        if default is not None:
            return known or default
        if known is None:
            missing.append(name)
            return found[0]
        return known

    return _VARIABLE.sub(value, text), tuple(dict.fromkeys(missing))


@attrs.frozen(kw_only=True)
class _Entry:
    """Reads one server's entry. ``thing`` names file and server."""

    thing: str
    environ: Mapping[str, str]

    def wrong(self, problem: str, remedy: str = "correct it") -> ConfigError:
        return ConfigError(self.thing, problem, remedy)

    def config(self, given_name: str, entry: object) -> ServerConfig:
        name = safe_server_name(given_name)
        if not name:
            raise self.wrong("no part of its name can be in a tool's name", "use A-Z, a-z, 0-9, _ and -")
        if not isinstance(entry, dict):
            raise self._kind("the entry", "an object", entry)
        kind = entry.get("type", "stdio" if "command" in entry else "http" if "url" in entry else None)
        for key in ("headersHelper", "oauth"):
            if key in entry:
                raise self.wrong(f"{key} is not supported", "give the header itself in headers, by ${VAR}")
        match kind:
            case "stdio":
                return self._stdio(name, entry)
            case "http" | "streamable-http" | "streamableHttp":
                return self._http(name, entry)
            case None:
                raise self.wrong("it has neither command nor url", "give one of them")
            case _:
                raise self.wrong(f"type {_shown(kind)} is not supported", "use stdio or http")

    def _stdio(self, name: str, entry: JsonObject) -> StdioServer:
        args = entry.get("args", [])
        if not isinstance(args, list):
            raise self._kind("args", "a list of texts", args)
        env = self._texts(entry.get("env"), "env")
        for variable in env:
            if not variable or "=" in variable:
                raise self.wrong(f"env has {variable!r}, which can't name a variable")
        return StdioServer(
            name=name,
            command=self._text(entry.get("command"), "command"),
            args=tuple(self._text(arg, f"args[{place}]", empty=True) for place, arg in enumerate(args)),
            env=env,
            call_limit=self._limit(entry.get("timeout")),
        )

    def _http(self, name: str, entry: JsonObject) -> HttpServer:
        url = self._text(entry.get("url"), "url")
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise self.wrong("url is no http or https address")
        headers = self._texts(entry.get("headers"), "headers")
        for header, value in headers.items():
            if not _HEADER.fullmatch(header) or "\n" in value or "\r" in value:
                raise self.wrong(f"headers has {header!r}, which is no header or has a line break in its value")
        return HttpServer(name=name, url=url, headers=headers, call_limit=self._limit(entry.get("timeout")))

    def _limit(self, value: object) -> float | None:
        """The wire has milliseconds."""
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self._kind("timeout", "a positive number of milliseconds", value)
        return value / 1000

    def _texts(self, value: object, key: str) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._kind(key, "an object of texts", value)
        return {name: self._text(item, f"{key}.{name}", empty=True) for name, item in value.items()}

    def _text(self, value: object, key: str, *, empty: bool = False) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = json.dumps(value)
        if not isinstance(value, str):
            raise self._kind(key, "a text", value)
        text, missing = expand(value, self.environ)
        if missing:
            names = ", ".join(missing)
            raise self.wrong(
                f"{key} needs the environment variable {names}, which is not set",
                "set it, or write a default as ${VAR:-value}",
            )
        if "\0" in text or (not text.strip() and not empty):
            raise self.wrong(f"{key} is empty or holds a NUL character")
        return text

    def _kind(self, key: str, wanted: str, value: object) -> ConfigError:
        return self.wrong(f"{key} must be {wanted}, it is {_shown(value)}")


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 3]}..."
