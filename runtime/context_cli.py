"""
``atrio context [SESSION]``: what fills a session's window.

A front door, like `cli`: it reaches up lazily. Exit codes: 0 shown, 1 nobody reads, 2 usage or no such session.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import orjson

from .config import Config
from .context_view import render_report
from .errors import ConfigError, JournalError
from .job import DEFAULT_MODEL
from .messages import AssistantMessage, Message
from .resume import resume_file
from .store import find_session, latest_session

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # it never returns
        raise ConfigError("atrio context", message, "see atrio context --help")


def main(argv: Sequence[str]) -> int:
    """
    Run the command; returns the exit code.

    Raises:
        ConfigError: the words make no sense, or there is no such session.
    """
    parser = _Parser(prog="atrio context", description="What fills a session's context window.")
    parser.add_argument("session", nargs="?", help="id, the beginning of one, or title (else the latest here)")
    parser.add_argument("--model", help="count with this model's window (else the one that answered last)")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    given = parser.parse_args(list(argv))
    cwd = Path(os.getcwd())
    config = Config.from_env(os.environ, cwd=cwd)
    try:
        journal = find_session(config.home, given.session, cwd) if given.session else latest_session(config.home, cwd)
        messages = resume_file(journal)[0].messages
    except JournalError as error:
        raise ConfigError("the session", str(error)) from error
    return _show(messages, given.model or _model_of(messages), config, cwd, as_json=given.json)


def _model_of(messages: Sequence[Message]) -> str:
    last = next((message for message in reversed(messages) if isinstance(message, AssistantMessage)), None)
    return (last.requested_model or last.model) if last is not None else DEFAULT_MODEL


def _show(messages: Sequence[Message], model: str, config: Config, cwd: Path, *, as_json: bool) -> int:
    import trio

    from atrio.actors.agent import Agent
    from atrio.actors.context_report import report_of
    from atrio.tools.registry import default_tools

    agent = Agent(model=model, tools=default_tools())
    report = trio.run(partial(report_of, agent, messages, config=config, cwd=cwd))
    text = orjson.dumps(report.to_json()).decode() if as_json else render_report(report)
    try:
        os.write(1, f"{text}\n".encode())
    except OSError:
        return 1
    return 0
