"""
The composition root: from an agent and a configuration to the parts of a session.

The only module that knows every other: which provider, which tools, which actors. Nothing here runs; nothing has
been written when it raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import getproxies
from uuid import UUID

import attrs
import httpx

from atrio.runtime.actor import FunctionActor
from atrio.runtime.backoff import RetryPolicy
from atrio.runtime.bookmarks import Bookmark
from atrio.runtime.config import Config, prepare_home
from atrio.runtime.context.step import ContextLimits
from atrio.runtime.errors import ConfigError, ToolRejected
from atrio.runtime.events import Notice, RunStarted
from atrio.runtime.journal import journal_path, results_folder
from atrio.runtime.ledger import Ledger
from atrio.runtime.mailbox import Address, Inbox, open_mailbox
from atrio.runtime.messages import Usage, UserMessage, text_of
from atrio.runtime.model import Provider
from atrio.runtime.prices import Catalogue
from atrio.runtime.records import ToolStartRecord
from atrio.runtime.state import Limits, LoopState, derive_id
from atrio.runtime.supervisor import ChildSpec, Restart
from atrio.runtime.tool import AskHandler, FileState, Progress, Tool, ToolContext, Workspace
from atrio.tools.background import BackgroundShells
from atrio.tools.background_tools import BashOutput, KillShell
from atrio.tools.glob import Glob
from atrio.tools.grep import Grep
from atrio.tools.permissions import Decision, PermissionMode, decide_permission
from atrio.tools.registry import Toolbox
from atrio.tools.rules import Rule, Rules, parse_rule_list
from atrio.tools.sandbox import Sandbox, choose_sandbox, describe
from atrio.tools.shell import Bash
from atrio.tools.skill import LoadSkill
from atrio.tools.skill import Skill as SkillTool
from atrio.tools.structured_output import StructuredOutput
from atrio.tools.todo import todos_of

from .account import Account
from .agent import Agent
from .asker import Asker
from .attach import Attacher
from .bookmarks import Bookmarks
from .broadcaster import Broadcaster
from .call import CallPipeline, CanUseTool
from .commands import CommandBook
from .compactor import Compactor
from .context.attaching import Attachments
from .context.attachments import TaskLine
from .context.cache_break import CacheWatch
from .context.instructions import NestedInstructions
from .context.prefetch import Prefetch
from .context.project import ProjectContext
from .context.skills import load_skill
from .dependencies import Dependencies
from .executor import Executor
from .gate import gate_for
from .hooking.command import Confine
from .hooking.payloads import HookSession
from .hooks import StopHook
from .http import HttpPool
from .keeper import Keeper
from .loop import History, Loop
from .mcp.manager import McpServers
from .protocol import ContextJob, LoopInput, ModelCall, RunCall
from .providers.anthropic import AnthropicProvider
from .recorder import Append, Recorder
from .reopen import Reopened
from .requests import RequestBuilder
from .run import RunFactory
from .session_hooks import SessionHooks
from .side_call import SideCall
from .streamer import Streamer, StreamerSettings
from .subagents.definitions import GENERAL_PURPOSE
from .subagents.host import AgentTree, Subagents
from .subagents.tools import subagent_tools
from .summarizer import Summarizer
from .watchdog import IdleLimits, PulseBoard

__all__ = ["Parts", "assemble", "child_attacher", "tool_environment"]

BACKGROUND_GRACE = 10.0
"""Seconds for background commands to end with the session, process trees and all."""

_FIXED = ("tools", "system_prompt", "append_system_prompt", "subagents", "sandbox", "sandbox_network", "bookmarks")
"""Of an agent: what a session is built with, and so keeps as long as it lives."""

_SERVICE = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What a service manager says to this process is not said to its children."""

_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")
"""Not for child processes: a tool's command has no business with the model's key."""


@attrs.define(eq=False, kw_only=True)
class Parts:
    """What a session consists of, ready to be started. `choose` and `for_one_run` alone change something about it."""

    agent: Agent
    config: Config
    session_id: str
    workspace: Workspace
    journal: Path
    toolbox: Toolbox
    rules: Rules
    provider: Provider
    pool: HttpPool
    transport: httpx.AsyncBaseTransport | None
    bus: Broadcaster
    deps: Dependencies
    can_use_tool: CanUseTool | None
    ledger: Ledger
    recorder: Address[Append]
    recorder_inbox: Inbox[Append]
    requests: RequestBuilder
    files: dict[Path, FileState]
    environ: Mapping[str, str]
    attacher: Attacher | None
    hooks: SessionHooks | None
    prefetch: Prefetch | None
    background: BackgroundShells | None
    sandbox: str
    """Whether and how commands are confined, for people."""
    ask: AskHandler | None
    own_tools: Sequence[Tool]
    servers: McpServers
    state: dict[str, Any]
    project: ProjectContext | None
    subagents: Subagents | None = None
    agent_id: str | None = None
    """Which subagent's session this is; None: the main agent's."""
    cache: CacheWatch = attrs.field(factory=CacheWatch)
    reopened: Reopened | None = None
    commands: CommandBook = attrs.field(init=False, eq=False)
    keeper: Keeper = attrs.field(init=False, eq=False)
    bookmarks: Bookmarks | None = attrs.field(init=False, eq=False)

    _run_model: str | None = attrs.field(default=None, init=False)
    _run_rules: Rules = attrs.field(factory=Rules, init=False)

    @commands.default
    def _make_commands(self) -> CommandBook:
        return CommandBook(cwd=self.workspace.cwd, project=self.project)

    @keeper.default
    def _make_keeper(self) -> Keeper:
        return Keeper(
            agent=self.agent,
            requests=self.requests,
            deps=self.deps,
            catalogue=self.ledger.catalogue,
            limits=ContextLimits(results_dir=str(results_folder(self.journal))),
            cwd=self.workspace.cwd,
            files=self.files,
            attacher=self.attacher,
            hooks=self.hooks,
            prefetch=self.prefetch,
            project=self.project,
            over_budget=self.subagents.tree.over_budget if self.agent_id is not None and self.subagents else None,
        )

    @bookmarks.default
    def _make_bookmarks(self) -> Bookmarks | None:
        wanted = self.agent.bookmarks
        if self.agent.permission_mode is PermissionMode.PLAN:
            wanted -= {Bookmark.PROMPT_SUGGESTION}
        if not wanted or self.agent_id is not None:
            return None
        memory = self.journal.parent / "memory"
        if self.project is not None and self.project.memory.index is not None:
            memory = self.project.memory.index.path.parent
        return Bookmarks(
            wanted=wanted,
            asker=self.asker(),
            book=self.ledger.record,
            publish=self.bus.publish,
            memory=memory if self.project is not None else None,
            journals=self.journal.parent,
            redact=self.config.redactor().clean_text,
            now=self.deps.now,
        )

    @property
    def stop_hooks(self) -> Sequence[StopHook]:
        """Those of the agent, then those of settings files."""
        return (*self.agent.stop_hooks, *(self.hooks.stop_hooks() if self.hooks is not None else ()))

    def recorder_spec(self) -> ChildSpec:
        """The one actor that lives as long as the session. It is never restarted: nothing may run unrecorded."""
        return ChildSpec(
            Recorder.name,
            lambda: Recorder(
                inbox=self.recorder_inbox,
                path=self.journal,
                session_id=self.session_id,
                cwd=self.workspace.cwd,
                durability=self.config.durability,
                redactor=self.config.redactor(),
                now=self.deps.now,
                agent_id=self.agent_id,
                parent=self.reopened.resumed.last_uuid if self.reopened is not None else None,
                journal=self.reopened.file if self.reopened is not None else None,
            ),
            restart=Restart.TRANSIENT,
            inbox=self.recorder_inbox,
        )

    def helper_specs(self) -> Sequence[ChildSpec]:
        """Actors that live as long as the session, and whose loss it survives."""
        specs: list[ChildSpec] = []
        if self.prefetch is not None:
            specs.append(self.prefetch.spec())
        if self.bookmarks is not None:
            specs.append(self.bookmarks.spec())
        if (shells := self.background) is not None:
            specs.append(
                ChildSpec(
                    "background",
                    lambda: FunctionActor(shells.run),
                    restart=Restart.TEMPORARY,
                    shutdown=BACKGROUND_GRACE,
                )
            )
        return specs

    @property
    def model(self) -> str:
        """Of the run in progress, or of the next one."""
        return self._run_model or self.agent.model

    def choose(self, agent: Agent) -> None:
        """Go on with an agent that differs in its model, permission mode or limits."""
        _check_budget(agent, self.ledger.catalogue)
        self.agent = agent
        self.keeper.agent = agent

    def reconfigure(self, agent: Agent, config: Config) -> None:
        """`choose`, with rules as these settings have them."""
        rules = _rules(agent, config)
        kept = {name: getattr(self.agent, name) for name in _FIXED}
        self.choose(attrs.evolve(agent, **kept))
        self.rules = rules

    @contextmanager
    def for_one_run(self, *, model: str | None, allow: tuple[Rule, ...]) -> Iterator[None]:
        """Another model, and more that is allowed, as long as the block lasts."""
        self._run_model, self._run_rules = model, Rules(allow=allow)
        try:
            yield
        finally:
            self._run_model, self._run_rules = None, Rules()

    def refresh_tools(self) -> None:
        """Between runs: take over what MCP servers offer now."""
        self.toolbox.replace([*self.own_tools, *self.servers.tools()])

    def run_factory(
        self, run_id: str, message: UserMessage, history: History, notices: Sequence[Notice] = ()
    ) -> RunFactory:
        """The actors of one run; it begins with telling ``notices``."""
        account = Account(
            session_id=self.session_id,
            run_id=run_id,
            ledger=Ledger(self.ledger.catalogue),
            session_ledger=self.ledger,
        )
        if self.subagents is not None:
            self.subagents.begin_run(account.ledger, history.queue, account.denials)
        return RunFactory(
            loop=lambda *ends: self._loop(run_id, message, history, account, notices, *ends),
            executor=lambda inbox, loop: self._executor(run_id, inbox, loop),
            streamer=self._streamer,
            compactor=self._compactor,
            subagents=self.subagents,
            summarizer=(lambda loop: self._summarizer(message, account, loop)) if self.agent.summaries else None,
        )

    def _summarizer(self, message: UserMessage, account: Account, loop: Address[LoopInput]) -> Summarizer:
        def book(message_id: str, model: str, usage: Usage) -> None:
            # Paid for, but none of the agent's own responses.
            self.ledger.record(message_id, model, usage)
            account.ledger.record(message_id, model, usage)

        return Summarizer(prompt=text_of(message.content), bus=self.bus, loop=loop, asker=self.asker(), book=book)

    def asker(self) -> Asker:
        """For small questions beside the work."""
        return Asker(
            provider=self.provider,
            gate=gate_for(self.provider.endpoint),
            model=self.agent.small_model or self.agent.model,
            transport=self.transport,
            tls=self.pool.tls,
            max_event_bytes=self.config.max_event_bytes,
            new_id=self.deps.new_id,
        )

    def _compactor(self, inbox: Inbox[ContextJob], loop: Address[LoopInput], board: PulseBoard) -> Compactor:
        return Compactor(inbox=inbox, loop=loop, keeper=self.keeper, side=self.side_call(board))

    def side_call(self, board: PulseBoard) -> SideCall:
        """Questions to the model beside a run's own requests."""
        return SideCall(
            provider=self.provider,
            pool=HttpPool(self.transport, tls=self.pool.tls),
            gate=gate_for(self.provider.endpoint),
            board=board,
            idle=IdleLimits(event=self.config.idle_event, byte=self.config.idle_byte),
            retry=RetryPolicy(max_retries=self.config.max_retries, unattended=self.config.unattended),
            max_event_bytes=self.config.max_event_bytes,
            jitter=self.deps.jitter,
        )

    def _loop(
        self,
        run_id: str,
        message: UserMessage,
        history: History,
        account: Account,
        notices: Sequence[Notice],
        inbox: Inbox[LoopInput],
        streamer: Address[ModelCall],
        executor: Address[RunCall],
        compactor: Address[ContextJob],
        stopping: Callable[[], bool],
    ) -> Loop:
        agent = self.agent
        repeats = agent.max_repeats
        limits = Limits(
            max_turns=agent.max_turns,
            max_output_tokens=agent.max_tokens,
            no_progress_note=None if repeats is None else repeats // 2,
            no_progress_end=repeats,
            wants_structured_output=agent.output_schema is not None,
            has_stop_hooks=bool(self.stop_hooks) or self.subagents is not None,
            token_target=agent.token_target,
            task_budget=agent.task_budget,
            max_budget_usd=agent.max_budget_usd,
        )
        return Loop(
            state=LoopState(
                run_id=run_id,
                model=self.model,
                fallbacks=tuple(agent.fallback_models),
                limits=limits,
                messages=history.messages,
            ),
            prompt=message,
            opening=self.opening(run_id, message),
            inbox=inbox,
            streamer=streamer,
            executor=executor,
            compactor=compactor,
            stopping=stopping,
            recorder=self.recorder,
            bus=self.bus,
            requests=self.requests,
            account=account,
            history=history,
            cache=self.cache,
            stop_hooks=self.stop_hooks,
            subagents=self.subagents,
            max_seconds=agent.max_seconds,
            notices=notices,
        )

    def opening(self, run_id: str, message: UserMessage) -> RunStarted:
        """A run's first event."""
        return RunStarted(
            run_id=run_id,
            session_id=self.session_id,
            model=self.model,
            cwd=str(self.workspace.cwd),
            tools=tuple(self.toolbox.names()),
            permission_mode=self.agent.permission_mode.value,
            sandbox=self.sandbox,
            mcp_servers=tuple((server["name"], server["status"]) for server in self.servers.status()),
            slash_commands=self.commands.names(),
            agents=tuple(self.subagents.definitions) if self.subagents is not None else (),
            skills=tuple(skill.name for skill in self.project.skills) if self.project is not None else (),
            prompt=message,
        )

    def _executor(self, run_id: str, inbox: Inbox[RunCall], loop: Address[LoopInput]) -> Executor:
        pipeline = self.call_pipeline(run_id, loop)
        return Executor(inbox=inbox, loop=loop, pipeline=pipeline, limit=self.config.tool_concurrency)

    def call_pipeline(self, run_id: str, loop: Address[LoopInput]) -> CallPipeline:
        """The way of a tool call."""
        return CallPipeline(
            toolbox=self.toolbox,
            decide=self._permission,
            can_use_tool=self.hooks.approval(self.can_use_tool) if self.hooks is not None else self.can_use_tool,
            context=lambda call_id, progress: self._context(run_id, call_id, progress),
            recorder=self.recorder,
            loop=loop,
            hooks=(*self.agent.tool_hooks, *(self.hooks.tool_hooks() if self.hooks is not None else ())),
            start_record=lambda block, tool: ToolStartRecord(
                uuid=derive_id(run_id, "start", block.id), call_id=block.id, name=tool.name, idempotent=tool.idempotent
            ),
        )

    def _streamer(self, inbox: Inbox[ModelCall], loop: Address[LoopInput], board: PulseBoard) -> Streamer:
        settings = StreamerSettings(
            retry=RetryPolicy(max_retries=self.config.max_retries, unattended=self.config.unattended),
            idle=IdleLimits(event=self.config.idle_event, byte=self.config.idle_byte),
            max_event_bytes=self.config.max_event_bytes,
            jitter=self.deps.jitter,
        )
        return Streamer(
            inbox=inbox,
            loop=loop,
            pool=self.pool,
            provider=self.provider,
            board=board,
            gate=gate_for(self.provider.endpoint),
            settings=settings,
        )

    def _permission(self, tool: Tool, input: Any, ctx: ToolContext) -> Decision:
        rules = self.rules.merged(self._run_rules)
        return decide_permission(tool, input, ctx, rules, self.agent.permission_mode)

    def _context(self, run_id: str, call_id: str, progress: Progress) -> ToolContext:
        return ToolContext(
            session_id=self.session_id,
            run_id=run_id,
            call_id=call_id,
            workspace=self.workspace,
            results_dir=results_folder(self.journal),
            progress=progress,
            files=self.files,
            environ=self.environ,
            state=self.state,
            ask=self.ask,
        )


def assemble(
    agent: Agent,
    *,
    cwd: Path,
    add_dirs: tuple[Path, ...],
    session_id: str | None,
    config: Config,
    can_use_tool: CanUseTool | None,
    transport: httpx.AsyncBaseTransport | None,
    deps: Dependencies,
    project: ProjectContext | None,
    ask: AskHandler | None = None,
    servers: McpServers,
    reopened: Reopened | None = None,
) -> Parts:
    """
    Check everything that can be checked without starting anything, and put the parts together.

    Raises:
        ConfigError: a setting is missing or wrong.
    """
    workspace = Workspace(
        cwd=_folder("the working directory", cwd), add_dirs=tuple(_folder("--add-dir", f) for f in add_dirs)
    )
    if reopened is not None:
        session, journal = reopened.session_id, reopened.journal
    else:
        session = _session_id(session_id) if session_id is not None else deps.new_id()
        journal = journal_path(config.home, workspace.cwd, session)
    rules = _rules(agent, config)
    sandbox = choose_sandbox(agent.sandbox, network=agent.sandbox_network)
    background = BackgroundShells() if project is not None else None
    own = _equip(agent, rules, project, background, sandbox)
    catalogue = Catalogue.load()
    _check_budget(agent, catalogue)
    bus, ledger = Broadcaster(), _ledger(catalogue, reopened)
    recorder: Address[Append]
    recorder, recorder_inbox = open_mailbox(256, name="recorder")
    subagents = _subagents(agent, project, bus, ledger, recorder, journal, deps)
    if subagents is not None:
        own += subagent_tools(subagents, agent, catalogue)
    toolbox = Toolbox([*own, *servers.tools()])
    provider = AnthropicProvider.from_config(config, needs_key=transport is None)
    prepare_home(config)
    files: dict[Path, FileState] = {}
    state: dict[str, Any] = {}
    environ = tool_environment()
    hooks = attacher = prefetch = None
    if project is not None:
        prefetch = Prefetch(project)
        attacher = _attacher(agent, project, workspace, toolbox, files, deps, prefetch, state, background)
        hooks = SessionHooks.from_settings(
            config.settings,
            session=HookSession(
                session_id=session,
                transcript_path=str(journal),
                cwd=str(workspace.cwd),
                permission_mode=agent.permission_mode.value,
            ),
            cwd=workspace.cwd,
            environ=environ,
            results_dir=results_folder(journal),
            publish=bus.publish,
            confine=_confinement(sandbox, workspace, results_folder(journal)),
        )
    return Parts(
        agent=agent,
        config=config,
        session_id=session,
        workspace=workspace,
        journal=journal,
        toolbox=toolbox,
        rules=rules,
        provider=provider,
        transport=transport,
        pool=HttpPool(transport, tls=bool(getproxies()) or not provider.url.startswith("http://")),
        bus=bus,
        deps=deps,
        can_use_tool=can_use_tool,
        ledger=ledger,
        recorder=recorder,
        recorder_inbox=recorder_inbox,
        requests=RequestBuilder.for_session(
            agent,
            toolbox,
            cwd=workspace.cwd,
            add_dirs=workspace.add_dirs,
            today=deps.now().date(),
            project=project,
        ),
        files=files,
        attacher=attacher,
        prefetch=prefetch,
        background=background,
        sandbox=describe(agent.sandbox, sandbox),
        ask=ask,
        own_tools=tuple(own),
        servers=servers,
        state=state,
        project=project,
        subagents=subagents,
        reopened=reopened,
        hooks=hooks,
        environ=environ,
    )


def _check_budget(agent: Agent, catalogue: Catalogue) -> None:
    if agent.max_budget_usd is None:
        return
    beside = (agent.small_model,) if agent.summaries or agent.bookmarks else ()
    for model in (agent.model, *beside):
        if model is not None and catalogue.find(model) is None:
            raise ConfigError(
                "max_budget_usd",
                f"the price of {model} is not known, so no budget can be kept",
                "leave the budget out, or choose a model that is in the price list",
            )


def _confinement(sandbox: Sandbox | None, workspace: Workspace, results_dir: Path) -> Confine | None:
    """What puts the commands of hooks into the sandbox, where there is one."""
    if sandbox is None:
        return None
    return lambda argv, env: sandbox.enter(argv, env, workspace=workspace, results_dir=results_dir)


def tool_environment() -> Mapping[str, str]:
    """The environment of processes that tools start."""
    return {name: value for name, value in os.environ.items() if name not in _SECRETS and name not in _SERVICE}


def _equip(
    agent: Agent,
    rules: Rules,
    project: ProjectContext | None,
    background: BackgroundShells | None,
    sandbox: Sandbox | None,
) -> list[Tool]:
    """The agent's tools as this session has them, and those that the session itself brings along."""
    tools: list[Tool] = []
    for each in agent.tools:
        if isinstance(each, Glob | Grep):
            # A rule that denies reading a file hides it from searches over its folder too.
            tools.append(type(each)(rules))
        elif type(each) is Bash:
            tools.append(Bash(background, sandbox=sandbox))
        else:
            tools.append(each)
    names = {tool.name for tool in tools}
    if background is not None and any(isinstance(tool, Bash) for tool in tools):
        tools += [tool for tool in (BashOutput(background), KillShell(background)) if tool.name not in names]
    if project is not None and project.skills and SkillTool.name not in names:
        tools.append(SkillTool(_skill_loader(project), lambda: [skill.name for skill in project.skills]))
    if agent.output_schema is not None:
        tools.append(StructuredOutput(agent.output_schema))
    return tools


def _skill_loader(project: ProjectContext) -> LoadSkill:
    async def load(name: str, arguments: str) -> str:
        skill = project.skill(name)
        if skill is None:
            raise ToolRejected(f"There is no skill {name!r}.")
        return (await load_skill(skill, arguments)).text

    return load


def _attacher(
    agent: Agent,
    project: ProjectContext,
    workspace: Workspace,
    toolbox: Toolbox,
    files: Mapping[Path, FileState],
    deps: Dependencies,
    prefetch: Prefetch | None,
    state: Mapping[str, Any],
    background: BackgroundShells | None,
) -> Attacher:
    nested = NestedInstructions(start=project.instructions, cwd=workspace.cwd, add_dirs=workspace.add_dirs)
    tools, mode = tuple(toolbox.names()), agent.permission_mode.value
    return Attacher(
        attachments=Attachments(nested=nested, prefetch=prefetch, today=deps.now().date(), tools=tools, mode=mode),
        files=files,
        new_id=deps.new_id,
        today=lambda: deps.now().date(),
        tools=tools,
        mode=mode,
        tasks=lambda: [TaskLine(todo.content, todo.status) for todo in todos_of(state)],
        background=background,
    )


def child_attacher(
    agent: Agent,
    project: ProjectContext | None,
    workspace: Workspace,
    toolbox: Toolbox,
    files: Mapping[Path, FileState],
    deps: Dependencies,
    state: Mapping[str, Any],
) -> Attacher | None:
    """What joins a subagent's conversation beside it, if anything does for its parent."""
    if project is None:
        return None
    return _attacher(agent, project, workspace, toolbox, files, deps, None, state, None)


def _subagents(
    agent: Agent,
    project: ProjectContext | None,
    bus: Broadcaster,
    ledger: Ledger,
    recorder: Address[Append],
    journal: Path,
    deps: Dependencies,
) -> Subagents | None:
    """Who looks after agents below this one, if it may have any. What the program defines wins over files."""
    if agent.subagents is None:
        return None
    folder = journal.with_suffix("") / "subagents"
    found = project.subagents if project is not None else ()
    kinds = {kind.name: kind for kind in (GENERAL_PURPOSE, *found, *agent.subagents)}
    return Subagents(
        definitions=kinds,
        tree=AgentTree(budget=agent.max_budget_usd),
        publish=bus.publish,
        new_id=deps.new_id,
        journal_of=lambda id: str(folder / f"agent-{id}.jsonl"),
        ledger=ledger,
        recorder=recorder,
        policy=agent.background_policy,
    )


def _ledger(catalogue: Catalogue, reopened: Reopened | None) -> Ledger:
    """The session's, with what it has used so far."""
    ledger = Ledger(catalogue)
    if reopened is not None:
        for totals in (reopened.resumed.usage_before or {}, *reopened.resumed.usage_below):
            ledger.carry(totals)
        for message_id, (model, usage) in reopened.resumed.usage.items():
            ledger.record(message_id, model, usage)
    return ledger


def _rules(agent: Agent, config: Config) -> Rules:
    settings = config.settings
    return Rules(
        allow=(*parse_rule_list(settings.allow), *parse_rule_list(agent.allowed_tools)),
        deny=(*parse_rule_list(settings.deny), *parse_rule_list(agent.disallowed_tools)),
        ask=parse_rule_list(settings.ask),
    )


def _folder(thing: str, path: Path) -> Path:
    try:
        resolved = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(thing, f"{path} can't be used: {error}", "name a folder that exists") from error
    if not resolved.is_dir():
        raise ConfigError(thing, f"{path} is not a folder", "name a folder that exists")
    return resolved


def _session_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigError("the session id", f"{text!r} is not a UUID", "leave it out to have one drawn") from None
