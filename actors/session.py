"""
A session: one conversation, its journal, and one run at a time.

`open_session` is the door. Everything that a session starts lives in its nursery or in the nursery of a
`Session.submit` block, so that leaving either ends it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import httpx
import trio

from atrio.runtime.config import Config
from atrio.runtime.context.report import WindowReport
from atrio.runtime.context_view import render_report
from atrio.runtime.cost_view import render_costs
from atrio.runtime.doors import single_error
from atrio.runtime.errors import ConfigError, JournalError, PeerGone, ReplyDropped, SessionBusy, SessionClosed
from atrio.runtime.events import ContextCompacted, Notice, PromptSuggested
from atrio.runtime.ledger import Ledger
from atrio.runtime.messages import Block, Message, TextBlock, UserMessage, text_of
from atrio.runtime.records import MAIN_SCOPE, Record, UserRecord
from atrio.runtime.rerecord import records_of, rerecord
from atrio.runtime.result import Result
from atrio.runtime.supervisor import Supervisor
from atrio.runtime.tool import AskHandler
from atrio.runtime.tree import ActorInfo
from atrio.tools.permissions import PermissionMode

from .account import with_totals
from .agent import Agent
from .app import Parts, assemble, tool_environment
from .call import CanUseTool
from .commands import CommandInfo, Expanded, Local
from .context.project import load_project_context
from .context_report import window_report
from .dependencies import Dependencies, Prepared
from .local_run import LocalRun
from .loop import History
from .mcp.config import ServerConfig
from .mcp.manager import mcp_servers
from .queue import MessageQueue
from .recorder import write_and_wait
from .reopen import Reopened, reopen
from .rerun import rerun_calls
from .run import Run, RunTree
from .subagents.host import Child
from .subagents.parts import child_parts
from .watchdog import PulseBoard, Watchdog

__all__ = ["Session", "open_session", "run_agent"]

CLOSE_LIMIT = 10.0
"""Seconds for the journal to take what is queued when a session closes."""


class Session:
    """
    One conversation. Made by `open_session`.

    ``id`` names its journal; ``messages`` is the history as it is now, always valid.
    """

    def __init__(self, parts: Parts, supervisor: Supervisor) -> None:
        self._parts = parts
        self._supervisor = supervisor
        self._history = History()
        self._notices: tuple[Notice, ...] = tuple(
            Notice(level="warning", source="mcp", text=text) for text in parts.servers.notices()
        )
        self._continuation: str | None = None
        self._interrupted_prompt: UserMessage | None = None
        self._tree: RunTree | None = None
        self._tools_revision = parts.servers.revision
        self._closed = False
        self._occupied: str | None = None
        if parts.subagents is not None:
            parts.subagents.open_child = self._open_child

    @property
    def id(self) -> str:
        return self._parts.session_id

    @property
    def agent(self) -> Agent:
        return self._parts.agent

    @property
    def cwd(self) -> Path:
        return self._parts.workspace.cwd

    @property
    def journal(self) -> Path:
        """The file that records this session."""
        return self._parts.journal

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._history.messages

    @property
    def interrupted_prompt(self) -> UserMessage | None:
        """What the user asked for last, if the session was reopened before that was done; see `resume`."""
        return self._interrupted_prompt

    @property
    def can_resume(self) -> bool:
        """Whether there is something that `resume` could go on with."""
        return self._continuation is not None

    def context(self) -> WindowReport:
        """What fills the model's window now, and how much room there is."""
        return window_report(self.agent, self.messages, self._parts.requests)

    @property
    def suggestion(self) -> PromptSuggested | None:
        """What the user may want to ask for next, after the last run; None unless `Agent.bookmarks` asks for it."""
        return self._parts.bookmarks.suggestion if self._parts.bookmarks is not None else None

    async def settle(self) -> None:
        """Wait until the background has done what follows a run (`Agent.bookmarks`). Cancelled: it goes on."""
        if self._parts.bookmarks is not None:
            await self._parts.bookmarks.settle()

    def tree(self) -> ActorInfo:
        """Every actor of the session as it is now; the run in progress, if there is one, hangs below."""
        tree = self._supervisor.tree()
        if self._tree is None:
            return tree
        return attrs.evolve(tree, children=(*tree.children, self._tree.supervisor.tree()))

    @asynccontextmanager
    async def submit(self, prompt: str | Sequence[Block]) -> AsyncIterator[Run]:
        """
        Start a run with ``prompt`` and give it to the block.

        The run ends before the block does: leaving it early (by ``break``, an exception, a cancellation) aborts the
        run, which still answers its open calls and journals its end.

        A prompt may be a slash command. A built-in one (``/help`` lists them) asks no model: its run begins, has the
        outcome as its result's text, and ends.

        Raises:
            SessionBusy: a run is in progress; steer it instead.
            SessionClosed: the session has ended.
            PromptBlocked: a hook refuses the prompt.
            JournalError: the record can't be kept.
        """
        self._refuse_unless_idle()
        parts = self._parts
        blocks = _as_blocks(prompt)
        # What a subagent is told comes from a model, which has no business with commands.
        command = await parts.commands.read(blocks) if parts.agent_id is None else None
        if isinstance(command, Local):
            async with self._run_locally(command, self._message(blocks)) as run:
                yield run
            return
        if parts.hooks is not None:
            await parts.hooks.prompt(text_of(blocks))
        command = command or Expanded(blocks=blocks)
        self._refuse_unless_idle()
        with parts.for_one_run(model=command.model, allow=command.allow):
            async with self._run(self._message(command.blocks)) as run:
                yield run

    @asynccontextmanager
    async def resume(self) -> AsyncIterator[Run]:
        """
        Go on with what was broken off before the session was reopened (see `interrupted_prompt`), without a new
        prompt. Else like `submit`.

        Raises:
            ConfigError: there is nothing to go on with; submit a prompt.
            SessionBusy, SessionClosed, JournalError: as `submit` does.
        """
        self._refuse_unless_idle()
        text = self._continuation
        if text is None:
            raise ConfigError("the prompt", "it is missing, and nothing was left to be done", "say what to do next")
        message = attrs.evolve(self._message((TextBlock(text),)), origin="recovery", hidden=True)
        async with self._run(message) as run:
            yield run

    @asynccontextmanager
    async def _run(self, message: UserMessage) -> AsyncIterator[Run]:
        run, tree = self._new_run(message)
        if self._parts.prefetch is not None:
            self._parts.prefetch.begin_run(text_of(message.content))
        async with single_error(), trio.open_nursery() as nursery:
            self._tree = tree
            nursery.start_soon(self._drive, run, tree)
            try:
                yield run
            finally:
                run.interrupt("the submit block was left")

    @asynccontextmanager
    async def _run_locally(self, command: Local, message: UserMessage) -> AsyncIterator[Run]:
        self._refuse_unless_idle()
        parts, run_id = self._parts, self._parts.deps.new_id()
        self._history = history = History(
            messages=self._history.messages, call_ids=self._history.call_ids, queue=MessageQueue(closed=True)
        )
        run = Run(id=run_id, tree=None, subscription=parts.bus.subscribe(), history=history, new_message=self._message)
        ledger = Ledger(parts.ledger.catalogue)
        local = LocalRun(
            command=command,
            run=run,
            history=history,
            opening=parts.opening(run_id, message),
            bus=parts.bus,
            work=lambda: self._perform(command, ledger),
            record=self._record,
            ledger=ledger,
        )
        self._occupied = f"has /{command.name} in progress"
        async with single_error(), trio.open_nursery() as nursery:
            nursery.start_soon(self._drive_locally, local)
            try:
                yield run
            finally:
                run.interrupt("the submit block was left")

    async def _drive_locally(self, local: LocalRun) -> None:
        try:
            await local.perform()
        finally:
            self._occupied = None
            self._parts.bus.unsubscribe(local.run.events)

    async def _perform(self, command: Local, ledger: Ledger) -> str:
        """A built-in command; what it has to say."""
        match command.name:
            case "compact":
                ready = await self._compact(command.arguments)
                for message_id, model, usage in ready.side_usage:
                    ledger.record(message_id, model, usage)
                return f"Compacted: about {ready.pre_tokens or 0:,} tokens before, {ready.post_tokens or 0:,} now."
            case "clear":
                await self._clear()
                return "The conversation so far is forgotten."
            case "model" if command.arguments:
                self.set_model(command.arguments)
                return f"The model is now {self.agent.model}."
            case "model":
                return f"The model is {self.agent.model}."
            case "cost":
                return render_costs(self._parts.ledger.by_model, self._parts.ledger.cost_usd)
            case "context":
                return render_report(self.context())
            case _:
                return self._parts.commands.help()

    async def add(self, prompt: str | Sequence[Block]) -> None:
        """
        Put a user's message into the history without asking the model. Cancelled: it may be there after a resume.

        Raises:
            SessionBusy: a run is in progress; steer it instead.
            SessionClosed: the session has ended.
            JournalError: the record can't be kept.
        """
        self._refuse_unless_idle()
        message = self._message(_as_blocks(prompt))
        with self._occupied_with("is being added to"):
            await self._record((UserRecord(message=message),))
            self._history.messages = (*self._history.messages, message)

    def commands(self) -> Sequence[CommandInfo]:
        """The slash commands that a prompt may call."""
        return self._parts.commands.commands()

    def reconfigure(self, agent: Agent, config: Config) -> None:
        """
        From the next run on, another agent's model, limits and rules, with the rules of ``config``'s settings. Tools
        and prompts stay those that the session was opened with.

        Raises:
            ConfigError: a rule is wrong, or a budget can't be kept. Nothing has changed.
        """
        self._parts.reconfigure(agent, config)

    def set_model(self, model: str) -> None:
        """
        From the next run on, another model.

        Raises:
            ConfigError: a budget is set, and this model's price isn't known.
        """
        self._parts.choose(attrs.evolve(self.agent, model=model))

    def set_permission_mode(self, mode: PermissionMode) -> None:
        """From the next call on, also in the run in progress."""
        self._parts.choose(attrs.evolve(self.agent, permission_mode=mode))

    async def clear(self) -> None:
        """
        Forget the conversation; the session goes on with an empty one. Cancelled: it may be forgotten.

        Raises:
            SessionBusy: a run is in progress.
            SessionClosed: the session has ended.
            JournalError: the record can't be kept.
        """
        self._refuse_unless_idle()
        with self._occupied_with("is being cleared"):
            await self._clear()

    async def _clear(self) -> None:
        parts = self._parts
        before = self.context().tokens
        await self._replace_history(Prepared(messages=(), pre_tokens=before, post_tokens=0), "clear")
        parts.keeper.begin_anew()
        parts.files.clear()

    @contextmanager
    def _occupied_with(self, what: str) -> Iterator[None]:
        self._occupied = what
        try:
            yield
        finally:
            self._occupied = None

    async def compact(self, instructions: str = "") -> None:
        """
        Put a summary in place of the older part of the history, now. ``instructions`` say what matters in it.

        Cancelled: the history is as it was.

        Raises:
            SessionBusy: a run is in progress.
            SessionClosed: the session has ended.
            ContextExhausted: the model gave no summary that makes room; the text says why.
            JournalError: the record can't be kept.
        """
        self._refuse_unless_idle()
        with self._occupied_with("is being compacted"):
            await self._compact(instructions)

    async def _compact(self, instructions: str) -> Prepared:
        board = PulseBoard()
        async with single_error(), trio.open_nursery() as nursery:
            await nursery.start(Watchdog(board=board).run)
            side = self._parts.side_call(board)
            try:
                wanted = (instructions,) if instructions.strip() else ()
                model = self.agent.model
                ready = await self._parts.keeper.compact(self.messages, model, "manual", wanted, side)
            finally:
                await side.pool.aclose()  # noqa: ASYNC102  # shielded and bounded there
            nursery.cancel_scope.cancel(reason="the compaction is done")
        await self._replace_history(ready, "manual")
        return ready

    async def _replace_history(self, ready: Prepared, trigger: str) -> None:
        """Another history takes the place of the present one."""
        parts = self._parts
        messages, records = rerecord(
            ready.messages,
            run_id=parts.deps.new_id(),
            number=0,
            data={"trigger": trigger, "preTokens": ready.pre_tokens},
            used={message.uuid for message in self.messages},
        )
        for message_id, model, usage in ready.side_usage:
            parts.ledger.record(message_id, model, usage)
        await self._record(with_totals(records, parts.ledger))
        self._history.messages = messages
        for text in ready.notices:
            parts.bus.publish(Notice(level="warning", source="context", text=text))
        parts.bus.publish(
            ContextCompacted(
                uuid=messages[0].uuid,
                trigger=trigger,
                pre_tokens=ready.pre_tokens or 0,
                post_tokens=ready.post_tokens,
            )
        )

    def _refuse_unless_idle(self) -> None:
        if self._closed:
            raise SessionClosed(f"session {self.id} is closed")
        if self._tree is not None:
            raise SessionBusy(f"session {self.id} has a run in progress; steer it, or wait for its end")
        if self._occupied is not None:
            raise SessionBusy(f"session {self.id} {self._occupied}; wait for its end")

    def _new_run(self, message: UserMessage) -> tuple[Run, RunTree]:
        run_id = self._parts.deps.new_id()
        # One history for each run, so that a `Run` keeps its own result when the next one begins.
        self._history = History(
            messages=self._history.messages,
            call_ids=self._history.call_ids,
            queue=MessageQueue(run_id=run_id, scope=self._parts.agent_id or MAIN_SCOPE, recorder=self._parts.recorder),
        )
        if self._parts.bookmarks is not None:
            self._parts.bookmarks.run_begins()
        notices, self._notices = self._notices, ()
        self._continuation = self._interrupted_prompt = None
        if self._parts.servers.revision != self._tools_revision:
            self._tools_revision = self._parts.servers.revision
            self._parts.refresh_tools()
        tree = RunTree(self._parts.run_factory(run_id, message, self._history, notices), self._history)
        run = Run(
            id=run_id,
            tree=tree,
            subscription=self._parts.bus.subscribe(),
            history=self._history,
            new_message=lambda blocks: attrs.evolve(self._message(blocks), origin="steer"),
        )
        return run, tree

    async def _drive(self, run: Run, tree: RunTree) -> None:
        limit = self.agent.max_seconds
        if limit is not None:
            run.scope.deadline = trio.current_time() + limit
        try:
            with run.scope:
                await self._run_all(tree)
            if self._parts.hooks is not None and self._history.result is not None:
                await self._parts.hooks.failed(self._history.result)
            if self._parts.bookmarks is not None and run.ended and run.result.is_success:
                self._parts.bookmarks.run_ended(run.id, self.messages)
        finally:
            self._tree = None
            if self._parts.prefetch is not None:
                self._parts.prefetch.end_run()
            self._parts.bus.unsubscribe(run.events)

    async def _run_all(self, tree: RunTree) -> None:
        if (subagents := self._parts.subagents) is None:
            return await tree.run(task_status=trio.TASK_STATUS_IGNORED)
        async with trio.open_nursery() as nursery:
            # The run's actors end one after the other, each in its time; what is below it ends at once.
            nursery.start_soon(subagents.stop_with)
            await tree.run(task_status=trio.TASK_STATUS_IGNORED)
            nursery.cancel_scope.cancel(reason="the run is over")

    @asynccontextmanager
    async def _open_child(self, child: Child) -> AsyncIterator[Session]:
        """The session of a subagent."""
        parts = child_parts(self._parts, child)
        child.host = parts.subagents
        async with _running(parts, None, "startup") as session:
            if child.order.fork:
                await session.begin_with(self._history)
            yield session

    async def begin_with(self, history: History) -> None:
        """
        Begin with another session's history, recorded here as well. Cancelled: it may be recorded.

        Raises:
            JournalError: it can't be recorded.
        """
        await self._record(records_of(history.messages))
        self._history = History(messages=history.messages, call_ids=set(history.call_ids))

    def _message(self, blocks: tuple[Block, ...]) -> UserMessage:
        return UserMessage(uuid=self._parts.deps.new_id(), content=blocks)

    async def take_up(self, reopened: Reopened) -> None:
        """
        Settle what was left open, and record that. For `open_session`.

        Cancelled: it may be recorded; a later resume does what is left of it.

        Raises:
            JournalError: it can't be recorded.
        """
        parts, resumed = self._parts, reopened.resumed
        if resumed.rerun and reopened.file is not None:
            id = parts.deps.new_id()
            answers = await rerun_calls(resumed.rerun, lambda listener: parts.call_pipeline(id, listener))
            resumed = resumed.answered(answers)
        if resumed.settle_records:
            await self._record(resumed.settle_records)
        self._history = History(messages=resumed.messages, call_ids=set(resumed.call_ids))
        self._notices += reopened.notices()
        self._continuation, self._interrupted_prompt = resumed.continuation, resumed.interrupted_prompt

    async def _record(self, records: Sequence[Record]) -> None:
        try:
            await write_and_wait(self._parts.recorder, records, sync=True)
        except (PeerGone, ReplyDropped) as error:
            raise JournalError("the journal is gone; nothing may run unrecorded") from error

    def close(self) -> None:
        """No further submissions."""
        self._closed = True


@asynccontextmanager
async def open_session(
    agent: Agent,
    *,
    cwd: str | Path = ".",
    add_dirs: Sequence[str | Path] = (),
    session_id: str | None = None,
    resume: str | Path | None = None,
    fork: bool = False,
    resume_at: str | None = None,
    config: Config | None = None,
    can_use_tool: CanUseTool | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
    deps: Dependencies | None = None,
    project: bool = False,
    ask: AskHandler | None = None,
    mcp: Sequence[ServerConfig] = (),
) -> AsyncIterator[Session]:
    """
    Open a session and close it, with everything below it, at the end of the block.

    Args:
        cwd: where tools work.
        add_dirs: further folders that tools may use like ``cwd``.
        session_id: a UUID for a new session (or a fork); drawn if None.
        resume: a session to go on with: its id, the beginning of that, its title, or its journal's path (one that
            lies outside of the home folder is forked, never written).
        fork: begin a new session with the history of that one, which stays as it is.
        resume_at: the uuid of a message; what came after it, and after the results of its calls, doesn't count.
        config: keys, URLs, limits; read from the environment if None.
        can_use_tool: asked about calls that no rule decides; without it they are denied.
        transport: takes the place of the network (tests).
        deps: what the loop needs from outside (tests, embedding programs).
        project: read the project's instruction files, skills and memory, and tell the model of changes around it; run
            the hooks of settings files; let Bash leave commands running in the background.
        mcp: servers whose tools the agent gets, under the session's supervision.
        ask: puts a question of the AskUser tool to a person.

    Raises:
        ConfigError: a setting is missing or wrong, or there is no such session. Nothing has been written.
        JournalLocked: somebody else writes the session that is to be resumed.
        JournalError: the journal can't be opened, or was lost meanwhile; then the block is cancelled.
    """
    deps = deps or Dependencies()
    folder, more = Path(cwd), tuple(Path(name) for name in add_dirs)
    if config is None:
        config = Config.from_env(os.environ, cwd=folder)
    known = await load_project_context(folder, more, config.home, _user_home(config)) if project else None
    if resume is None and (fork or resume_at is not None):
        raise ConfigError("fork and resume_at", "they say how to resume a session, but not which", "give resume")
    async with AsyncExitStack() as stack:
        reopened: Reopened | None = None
        if resume is not None:
            reopened = await reopen(
                resume, config=config, cwd=folder, fork=fork, at=resume_at, session_id=session_id, deps=deps
            )
            stack.callback(reopened.close)
        servers = await stack.enter_async_context(
            mcp_servers(
                mcp,
                cwd=folder,
                environ=tool_environment(),
                log_dir=config.home / "mcp-logs" if mcp else None,
                roots=(folder, *more),
            )
        )
        parts = assemble(
            agent,
            cwd=folder,
            add_dirs=more,
            project=known,
            ask=ask,
            servers=servers,
            session_id=session_id,
            config=config,
            can_use_tool=can_use_tool,
            transport=transport,
            deps=deps,
            reopened=reopened,
        )
        source = "startup" if reopened is None else "fork" if fork else "resume"
        async with _running(parts, reopened, source) as session:
            yield session


@asynccontextmanager
async def _running(parts: Parts, reopened: Reopened | None, source: str) -> AsyncIterator[Session]:
    """The session of these parts, with all that lives as long as it does."""
    async with single_error(), trio.open_nursery() as nursery:
        children = [parts.recorder_spec(), *parts.helper_specs()]
        supervisor = Supervisor("session", children, max_restarts=0)
        await nursery.start(supervisor.run)
        session = Session(parts, supervisor)
        try:
            if reopened is not None:
                await session.take_up(reopened)
            if parts.hooks is not None:
                await parts.hooks.start(source, parts.agent.model, nursery)
            yield session
        finally:
            session.close()
            if parts.hooks is not None:
                await parts.hooks.end()  # noqa: ASYNC102  # shielded and bounded there
            await parts.pool.aclose()
            nursery.cancel_scope.cancel(reason="the session was closed")


async def run_agent(agent: Agent, prompt: str | Sequence[Block], **options: object) -> Result:
    """
    One session, one run: open, submit, wait, close. ``options`` are those of `open_session`.

    Cancelled: the run is aborted and its journal complete.
    """
    async with open_session(agent, **options) as session, session.submit(prompt) as run:  # type: ignore[arg-type]
        return await run.wait()


def _user_home(config: Config) -> Path | None:
    home = config.environ.get("HOME") or os.environ.get("HOME")
    return Path(home) if home else None


def _as_blocks(prompt: str | Sequence[Block]) -> tuple[Block, ...]:
    blocks = (TextBlock(prompt),) if isinstance(prompt, str) else tuple(prompt)
    if not any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        raise ConfigError("the prompt", "it is empty", "say what the agent is to do")
    return blocks
