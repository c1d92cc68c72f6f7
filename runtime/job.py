"""
What the command line is to run: options, environment and settings files put together and checked.

It reaches up into tools and actors on behalf of `cli`, inside functions.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import attrs

from .arguments import Options
from .bookmarks import Bookmark
from .config import Config
from .errors import ConfigError
from .flags import PERMISSION_MODES
from .journal import journal_path
from .messages import JsonObject
from .settings import SOURCES
from .store import find_session, latest_session

if TYPE_CHECKING:
    from atrio.actors.agent import Agent
    from atrio.actors.mcp.config import ServerConfig
    from atrio.actors.subagents.definitions import SubagentDefinition
    from atrio.tools.permissions import PermissionMode

__all__ = ["DEFAULT_MODEL", "Job", "atrio_version", "prepare_job"]

DEFAULT_MODEL: Final = "claude-sonnet-4-5"

AGENT_TOOLS: Final = frozenset(("Agent", "Task", "AgentOutput", "TaskOutput", "AgentStop", "TaskStop"))
"""With any of these among the tools, the agent may have subagents."""


@attrs.frozen(kw_only=True)
class Job:
    """
    One run of the command line, checked as far as that is possible without starting anything.

    ``resume``: the journal of the session to go on with. ``project``: instruction files, skills and memory are read.
    ``live``: a live view on stderr; ``plain``: progress lines there instead.
    """

    options: Options
    config: Config
    agent: Agent
    cwd: Path
    add_dirs: tuple[Path, ...] = ()
    session_id: str | None = None
    resume: Path | None = None
    project: bool = True
    mcp: tuple[ServerConfig, ...] = ()
    environ: Mapping[str, str] = attrs.field(factory=dict)
    """As it was given, for reading the settings again."""
    version: str = "unknown"
    live: bool = False
    plain: bool = False

    @property
    def api_key_source(self) -> str:
        """Which variable the key for the model's API comes from."""
        if self.config.api_key:
            return "ANTHROPIC_API_KEY"
        return "ANTHROPIC_AUTH_TOKEN" if self.config.auth_token else "none"


def atrio_version() -> str:
    """The installed version."""
    try:
        return version("atrio")
    except PackageNotFoundError:
        return "unknown"


def prepare_job(options: Options, environ: Mapping[str, str]) -> Job:
    """
    The job that the options describe. Nothing is written.

    Raises:
        ConfigError: an option, a variable or a settings file is wrong.
    """
    cwd = _working_folder(options.cwd)
    sources = SOURCES if options.setting_sources is None else options.setting_sources
    config = Config.from_env(
        environ,
        cwd=cwd,
        sources=sources,
        settings_file=_settings_file(options.settings),
    )
    if options.unattended:
        config = attrs.evolve(config, unattended=True)
    terminal = os.isatty(2) and environ.get("TERM", "dumb") != "dumb"
    text = options.output_format == "text"
    return Job(
        options=options,
        config=config,
        agent=_agent(options, config),
        cwd=cwd,
        add_dirs=(*map(Path, options.add_dirs), *_settings_folders(config, cwd)),
        session_id=_session_id(options.session_id, config, cwd),
        resume=_resumed_journal(options, config, cwd),
        # Without settings files of the project and the user there are no instructions of theirs either.
        project=options.setting_sources != (),
        mcp=_mcp(options, config, cwd, own="project" in sources and not options.strict_mcp_config),
        environ=environ,
        version=atrio_version(),
        live=text and terminal,
        plain=options.verbose and options.output_format != "stream-json" and not (text and terminal),
    )


def _agent(options: Options, config: Config) -> Agent:
    from atrio.actors.agent import Agent
    from atrio.tools.registry import default_tools, select_tools
    from atrio.tools.rules import parse_rule_list
    from atrio.tools.sandbox import SandboxPolicy

    parse_rule_list((*options.allowed_tools, *options.disallowed_tools))
    # The session itself makes the tools for agents.
    names = None if options.tools is None else [name for name in options.tools if name not in AGENT_TOOLS]
    return Agent(
        model=_model(options, config),
        tools=default_tools() if names is None else select_tools(names),
        subagents=_subagents(options),
        system_prompt=_text(options.system_prompt, options.system_prompt_file, "--system-prompt-file"),
        append_system_prompt=_text(
            options.append_system_prompt, options.append_system_prompt_file, "--append-system-prompt-file"
        ),
        max_turns=options.max_turns,
        sandbox=SandboxPolicy(options.sandbox),
        sandbox_network=options.sandbox_network,
        max_budget_usd=options.max_budget_usd,
        max_seconds=options.max_seconds,
        max_repeats=options.max_repeats,
        summaries=options.summaries,
        bookmarks=(Bookmark.PROMPT_SUGGESTION,) if options.prompt_suggestions else (),
        small_model=options.small_model,
        task_budget=options.task_budget,
        token_target=options.token_target,
        fallback_models=options.fallback_models,
        output_schema=None if options.json_schema is None else _schema(options.json_schema),
        permission_mode=_permission_mode(options, config),
        allowed_tools=options.allowed_tools,
        disallowed_tools=options.disallowed_tools,
    )


def _subagents(options: Options) -> tuple[SubagentDefinition, ...] | None:
    """The kinds of subagents that the command line defines; None: no subagents at all."""
    from atrio.actors.subagents.definitions import parse_subagents

    if options.agents is not None:
        return parse_subagents(options.agents)
    wanted = options.tools is None or "default" in options.tools or not AGENT_TOOLS.isdisjoint(options.tools)
    return () if wanted else None


def _mcp(options: Options, config: Config, cwd: Path, *, own: bool) -> tuple[ServerConfig, ...]:
    """With ``own``, also those of the project's file, which has no more weight than its settings; flags overrule it."""
    from atrio.actors.mcp.config import PROJECT_FILE, Servers, load_mcp_options, read_mcp_file

    project = read_mcp_file(cwd / PROJECT_FILE, config.environ, optional=True) if own else Servers()
    servers = project.overlaid(load_mcp_options(options.mcp_config, config.environ, cwd))
    if servers.problems:
        raise servers.problems[0]
    return servers.configs


def _schema(text: str) -> JsonObject:
    """A JSON Schema, as it is or in a file."""
    thing = "--json-schema"
    if not text.lstrip().startswith("{"):
        read = _text(None, text, thing)
        assert read is not None
        text, thing = read, f"{thing} {text}"
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(thing, f"it is no valid JSON at {where}: {error.msg}", "correct that place") from None
    if not isinstance(schema, dict):
        raise ConfigError(thing, "it is no JSON object", "give a JSON Schema")
    return schema


def _model(options: Options, config: Config) -> str:
    # Variables are closer to this very run than settings files are, as everywhere in `Config`.
    variables = (config.environ.get(name, "").strip() for name in ("ATRIO_MODEL", "ANTHROPIC_MODEL"))
    return options.model or next(filter(None, variables), None) or config.settings.model or DEFAULT_MODEL


def _permission_mode(options: Options, config: Config) -> PermissionMode:
    from atrio.tools.permissions import PermissionMode

    name = options.permission_mode or config.settings.default_mode or PermissionMode.DEFAULT
    if name not in PERMISSION_MODES:
        raise ConfigError(
            "permissions.defaultMode of the settings",
            f"{name!r} is not known",
            f"choose from {', '.join(PERMISSION_MODES)}",
        )
    return PermissionMode(name)


def _text(text: str | None, file: str | None, flag: str) -> str | None:
    if file is None:
        return text
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(flag, f"{file} can't be read: {error}", "name a text file") from error


def _working_folder(cwd: str | None) -> Path:
    try:
        folder = Path(cwd if cwd is not None else os.getcwd()).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError("the working directory", f"it can't be used: {error}", "name one that exists") from error
    if not folder.is_dir():
        raise ConfigError("the working directory", f"{folder} is not a folder", "name one that exists")
    return folder


def _settings_file(name: str | None) -> Path | None:
    if name is None:
        return None
    if name.lstrip().startswith("{"):
        raise ConfigError("--settings", "it takes a file, not JSON", "write the settings to a file and name that")
    return Path(name).absolute()


def _settings_folders(config: Config, cwd: Path) -> tuple[Path, ...]:
    """Settings files are shared between machines: a folder that is not on this one is left out."""
    folders = (cwd / Path(name).expanduser() for name in config.settings.additional_directories if "\0" not in name)
    return tuple(folder for folder in folders if folder.is_dir())


def _resumed_journal(options: Options, config: Config, cwd: Path) -> Path | None:
    if options.resume:
        return find_session(config.home, options.resume, cwd)
    return latest_session(config.home, cwd) if options.resumes else None


def _session_id(text: str | None, config: Config, cwd: Path) -> str | None:
    if text is None:
        return None
    try:
        id = str(UUID(text))
    except ValueError:
        raise ConfigError("--session-id", f"{text!r} is not a UUID", "leave it out to have one drawn") from None
    journal = journal_path(config.home, cwd, id)
    if journal.exists():
        raise ConfigError("--session-id", f"{id} is taken by the session in {journal}", "give another one")
    return id
