"""
From a session's parts to those of one of its subagents: what it shares, what it has for itself, what it may do.

Shared: provider, transport, configuration, rate gate, MCP servers, background commands. Its own: history, window,
journal, record of files, mailbox, ledger (which counts in the parent's). Its rights are at most the parent's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs

from atrio.actors.agent import Agent
from atrio.actors.app import Parts, child_attacher
from atrio.actors.broadcaster import Broadcaster
from atrio.actors.call import CanUseTool
from atrio.actors.context.cache_break import CacheWatch
from atrio.actors.context.project import ProjectContext
from atrio.actors.hooking.bridge import Subagent
from atrio.actors.http import HttpPool
from atrio.actors.mcp.manager import McpServers
from atrio.actors.recorder import Append
from atrio.actors.requests import RequestBuilder
from atrio.actors.session_hooks import SessionHooks
from atrio.runtime.mailbox import Address, open_mailbox
from atrio.runtime.state import STRUCTURED_OUTPUT
from atrio.runtime.tool import Tool
from atrio.tools.ask import AskUser
from atrio.tools.permissions import PermissionMode
from atrio.tools.registry import Toolbox
from atrio.tools.rules import Rules

from .host import Child, Subagents
from .tools import AgentOutput, AgentStop, AgentTool, choose_model, subagent_tools

__all__ = ["child_parts"]

_STRICTEST_FIRST: Final = (
    PermissionMode.PLAN,
    PermissionMode.DONT_ASK,
    PermissionMode.DEFAULT,
    PermissionMode.ACCEPT_EDITS,
    PermissionMode.BYPASS,
)

_NOT_FOR_SUBAGENTS: Final = (AgentTool, AgentOutput, AgentStop, AskUser)
"""The first three each session has of its own; questions to a person are the main agent's."""


def child_parts(parent: Parts, child: Child) -> Parts:
    """
    The parts of the session that ``child`` is; nothing has been started or written.

    Raises:
        ConfigError: its definition can't be used.
    """
    order = child.order
    agent = _agent(parent, child)
    bus, journal, ledger = Broadcaster(), Path(child.journal), child.ledger
    recorder: Address[Append]
    recorder, recorder_inbox = open_mailbox(256, name="recorder")
    host = _host(parent, child, bus, recorder)
    own = _tools(parent, child, agent, host)
    toolbox = Toolbox(own)
    files = dict(parent.files)
    state: dict[str, Any] = {}
    project = parent.project
    # A fork's requests begin as its parent's do, to the byte.
    same = attrs.evolve(parent.requests, agent=agent, toolbox=toolbox, notices=())
    requests = same if order.fork else _requests(parent, agent, toolbox, project)
    return attrs.evolve(
        parent,
        agent=agent,
        agent_id=order.agent_id,
        journal=journal,
        toolbox=toolbox,
        rules=_rules(parent, child),
        pool=HttpPool(parent.transport, tls=parent.pool.tls),
        bus=bus,
        can_use_tool=_approval(parent, agent),
        ledger=ledger,
        recorder=recorder,
        recorder_inbox=recorder_inbox,
        requests=requests,
        files=files,
        attacher=child_attacher(agent, project, parent.workspace, toolbox, files, parent.deps, state),
        hooks=_hooks(parent, child, agent, bus),
        prefetch=None,
        background=None,
        ask=None,
        own_tools=own,
        servers=McpServers(links={}),
        state=state,
        cache=CacheWatch(),
        reopened=None,
        subagents=host,
    )


def _agent(parent: Parts, child: Child) -> Agent:
    order, above = child.order, parent.agent
    definition = order.definition
    fresh = not order.fork
    return attrs.evolve(
        above,
        name=definition.name,
        model=choose_model(order, above.model, parent.ledger.catalogue),
        system_prompt=definition.prompt or above.system_prompt,
        append_system_prompt=None if definition.prompt else above.append_system_prompt,
        max_turns=definition.max_turns,
        max_budget_usd=definition.max_budget_usd,
        max_seconds=None,
        thinking=None if fresh else above.thinking,
        permission_mode=stricter(above.permission_mode, definition.permission_mode),
        output_schema=None,
        stop_hooks=(),
        token_target=None,
        summaries=False,
        bookmarks=(),
        task_budget=None,
    )


def stricter(parent: PermissionMode, wanted: PermissionMode | None) -> PermissionMode:
    """The mode of a subagent: the one it wants, unless that allows more than its parent's."""
    if wanted is None:
        return parent
    return min(parent, wanted, key=_STRICTEST_FIRST.index)


def _approval(parent: Parts, agent: Agent) -> CanUseTool | None:
    """Where the parent denies what would be asked for, so does the subagent, whatever its own mode."""
    if parent.agent.permission_mode is PermissionMode.DONT_ASK:
        return None
    return parent.can_use_tool


def _rules(parent: Parts, child: Child) -> Rules:
    return parent.rules.merged(Rules(deny=child.order.definition.denied))


def _tools(parent: Parts, child: Child, agent: Agent, host: Subagents) -> tuple[Tool, ...]:
    """What the parent has, as far as subagents may and this kind wants; its own tools for agents if it may have any."""
    order, definition = child.order, child.order.definition
    new = {tool.name: tool for tool in subagent_tools(host, agent, parent.ledger.catalogue)}
    nested = order.fork or host.refusal_of_depth() is None
    tools: list[Tool] = []
    for tool in parent.toolbox:
        if tool.name == STRUCTURED_OUTPUT:
            continue
        if isinstance(tool, _NOT_FOR_SUBAGENTS):
            replaced = new.get(tool.name) if nested else None
            if replaced is None:
                continue
            tool = replaced
        if definition.offers(tool.name, *tool.aliases):
            tools.append(tool)
    return tuple(tools)


def _host(parent: Parts, child: Child, bus: Broadcaster, recorder: Address[Append]) -> Subagents:
    above = parent.subagents
    assert above is not None
    order = child.order
    return Subagents(
        definitions=above.definitions,
        tree=above.tree,
        publish=bus.publish,
        new_id=above.new_id,
        journal_of=above.journal_of,
        ledger=child.ledger,
        recorder=recorder,
        depth=order.depth,
        agent_id=order.agent_id,
        policy=above.policy,
        fork=order.fork,
    )


def _requests(parent: Parts, agent: Agent, toolbox: Toolbox, project: ProjectContext | None) -> RequestBuilder:
    made = RequestBuilder.for_session(
        agent,
        toolbox,
        cwd=parent.workspace.cwd,
        add_dirs=parent.workspace.add_dirs,
        today=parent.deps.now().date(),
        project=project,
    )
    # What is wrong with the project's files was told by the main agent.
    return attrs.evolve(made, notices=())


def _hooks(parent: Parts, child: Child, agent: Agent, bus: Broadcaster) -> SessionHooks | None:
    hooks = parent.hooks
    if hooks is None:
        return None
    who = Subagent(agent_id=child.id, agent_type=child.order.definition.name, transcript_path=str(child.journal))
    session = attrs.evolve(
        hooks.engine.session,
        permission_mode=agent.permission_mode.value,
        agent_id=who.agent_id,
        agent_type=who.agent_type,
    )
    return SessionHooks.of_subagent(hooks, who, session, publish=bus.publish)
