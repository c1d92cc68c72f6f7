"""
The flags of the command line: their names, what they take, what becomes of that. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from .errors import ConfigError
from .logs import LOG_FORMATS
from .wirejson import mend

__all__ = ["BY_NAME", "FLAGS", "LATER", "PERMISSION_MODES", "Flag", "InputFormat", "OutputFormat"]

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
InputFormat: TypeAlias = Literal["text", "stream-json"]

SANDBOXES: Final = ("required", "auto", "off")

PERMISSION_MODES: Final = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")


@attrs.frozen(kw_only=True)
class Flag:
    """
    A flag and what becomes of it.

    Args:
        field: which of the options it sets.
        takes: how many words follow it (maybe: one, if the next word is no flag).
        read: makes the option's value of the flag's name and its words.
        adds: given several times, the values are joined.
    """

    names: tuple[str, ...]
    field: str
    help: str
    takes: Literal["none", "one", "maybe", "several"] = "none"
    word: str = ""
    read: Callable[[str, Sequence[str]], Any] = lambda _flag, _words: True
    adds: bool = False


def _text(_flag: str, words: Sequence[str]) -> str:
    return mend(words[0])


def _texts(_flag: str, words: Sequence[str]) -> tuple[str, ...]:
    return tuple(mend(word) for word in words)


def _path(flag: str, words: Sequence[str]) -> str:
    if not words[0] or "\0" in words[0]:
        raise ConfigError(flag, f"{words[0]!r} is no path", "name a file or folder")
    return words[0]


def _paths(flag: str, words: Sequence[str]) -> tuple[str, ...]:
    return tuple(_path(flag, (word,)) for word in words)


def _name(flag: str, words: Sequence[str]) -> str:
    name = mend(words[0]).strip()
    if not name:
        raise ConfigError(flag, "it is empty", "give a name, or leave the flag out")
    return name


def _session(flag: str, words: Sequence[str]) -> str:
    return _name(flag, words) if words else ""


def _comma_list(_flag: str, words: Sequence[str]) -> tuple[str, ...]:
    return tuple(piece.strip() for word in words for piece in mend(word).split(",") if piece.strip())


def _rules(_flag: str, words: Sequence[str]) -> tuple[str, ...]:
    """Rules stay as they were written: their specifiers may hold commas and spaces."""
    return tuple(mend(word) for word in words if word.strip())


def _count(flag: str, words: Sequence[str]) -> int:
    text = words[0].strip()
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1):
        raise ConfigError(flag, f"{words[0]!r} is no whole number of at least 1", "correct it, or leave the flag out")
    return int(text)


def _amount(flag: str, words: Sequence[str]) -> float:
    try:
        number = float(words[0])
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise ConfigError(flag, f"{words[0]!r} is no number above 0", "correct it, or leave the flag out")
    return number


def _repeats(flag: str, words: Sequence[str]) -> int | None:
    if words[0].strip() == "0":
        return None
    number = _count(flag, words)
    if number < 2:
        raise ConfigError(flag, "1 would end each run that repeats nothing", "give 0 (never), or at least 2")
    return number


def _fallbacks(flag: str, words: Sequence[str]) -> tuple[str, ...]:
    names = _comma_list(flag, words)
    if not 1 <= len(names) <= 3:
        raise ConfigError(flag, f"it names {len(names)} models", "name one to three, with commas between them")
    return names


def _choice(choices: Sequence[str]) -> Callable[[str, Sequence[str]], str]:
    def read(flag: str, words: Sequence[str]) -> str:
        if words[0] not in choices:
            raise ConfigError(flag, f"{words[0]!r} is not known", f"choose from {', '.join(choices)}")
        return words[0]

    return read


def _bypass(_flag: str, _words: Sequence[str]) -> str:
    return "bypassPermissions"


def _one(name: str, word: str, help: str, *, read: Callable[[str, Sequence[str]], Any], field: str = "") -> Flag:
    return Flag(names=(name,), field=field or _field(name), help=help, takes="one", word=word, read=read)


def _field(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


FLAGS: Final = (
    Flag(names=("-p", "--print"), field="print", help="print the outcome and exit (atrio always does)"),
    _one(
        "--output-format",
        "FORMAT",
        "text (default), json (the result object), stream-json (one JSON object a line)",
        read=_choice(get_args(OutputFormat)),
    ),
    _one(
        "--input-format",
        "FORMAT",
        "text (default), or stream-json: one user line a turn (docs/streaming.md)",
        read=_choice(get_args(InputFormat)),
    ),
    Flag(
        names=("--replay-user-messages",),
        field="replay_user_messages",
        help="user lines that were read are repeated on stdout (stream-json both ways)",
    ),
    Flag(names=("--verbose",), field="verbose", help="tell more: progress on stderr, notices in stream-json"),
    Flag(
        names=("--include-partial-messages",),
        field="partial_messages",
        help="the model's stream as stream_event lines (stream-json only)",
    ),
    _one("--model", "NAME", "the model (else ATRIO_MODEL, ANTHROPIC_MODEL, settings)", read=_name),
    _one("--system-prompt", "TEXT", "in place of atrio's own system prompt", read=_text),
    _one("--system-prompt-file", "FILE", "the same, from a file", read=_path),
    _one("--append-system-prompt", "TEXT", "added to the system prompt", read=_text),
    _one("--append-system-prompt-file", "FILE", "the same, from a file", read=_path),
    Flag(
        names=("--tools",),
        field="tools",
        help='the tools on offer: names, "default" for all, "" for none',
        takes="several",
        word="NAME...",
        read=_comma_list,
        adds=True,
    ),
    Flag(
        names=("--allowedTools", "--allowed-tools"),
        field="allowed_tools",
        help='rules that allow calls: Read, "Bash(git diff *)"',
        takes="several",
        word="RULE...",
        read=_rules,
        adds=True,
    ),
    Flag(
        names=("--disallowedTools", "--disallowed-tools"),
        field="disallowed_tools",
        help="rules that deny calls, whatever else allows them",
        takes="several",
        word="RULE...",
        read=_rules,
        adds=True,
    ),
    _one(
        "--permission-mode",
        "MODE",
        f"for calls without a rule: {', '.join(PERMISSION_MODES)}",
        read=_choice(PERMISSION_MODES),
    ),
    Flag(
        names=("--dangerously-skip-permissions",),
        field="permission_mode",
        help="the same as --permission-mode bypassPermissions",
        read=_bypass,
    ),
    Flag(
        names=("--mcp-config",),
        field="mcp_config",
        help="MCP servers: files like .mcp.json, or JSON",
        takes="several",
        word="FILE...",
        read=_texts,
        adds=True,
    ),
    Flag(
        names=("--strict-mcp-config",),
        field="strict_mcp_config",
        help="only those of --mcp-config, not the project's .mcp.json",
    ),
    _one("--sandbox", "POLICY", "confine commands: required, auto (where it works) or off", read=_choice(SANDBOXES)),
    Flag(names=("--sandbox-network",), field="sandbox_network", help="leave confined commands the network"),
    _one("--agents", "JSON", 'kinds of subagents: {"name": {"description": ..., "prompt": ...}}', read=_text),
    Flag(
        names=("--forward-subagent-text",),
        field="forward_subagent_text",
        help="stream-json: also what subagents say, not just their calls",
    ),
    _one("--max-turns", "N", "end after so many model requests", read=_count),
    _one("--max-budget-usd", "USD", "end before a request once the run has cost this much", read=_amount),
    _one("--max-seconds", "N", "end after this time, wherever the run stands", read=_amount),
    _one("--max-repeats", "N", "end after the same calls gave the same results so often (10; 0: never)", read=_repeats),
    _one("--task-budget", "TOKENS", "what the API is told the whole task may take", read=_count),
    _one("--token-target", "TOKENS", "output tokens to be spent before the run may end by itself", read=_count),
    Flag(
        names=("--fallback-model",),
        field="fallback_models",
        help="up to 3 models (comma list) that take over from one that is overloaded or gone",
        takes="one",
        word="NAMES",
        read=_fallbacks,
    ),
    _one("--json-schema", "SCHEMA", "JSON Schema (or a file with one) that the answer must fit", read=_text),
    Flag(names=("--summaries",), field="summaries", help="say in a few words what goes on (costs requests)"),
    Flag(
        names=("--prompt-suggestions",),
        field="prompt_suggestions",
        help="after the run, guess what you will ask for next (costs a request)",
    ),
    _one("--small-model", "NAME", "the model for summaries and suggestions (else the main one)", read=_name),
    Flag(names=("--unattended",), field="unattended", help="wait out rate limits and overloads, however long"),
    _one("--session-id", "UUID", "the new session's id (else one is drawn)", read=_name),
    Flag(names=("-c", "--continue"), field="continue_last", help="go on with the last session of this folder"),
    Flag(
        names=("-r", "--resume"),
        field="resume",
        help="go on with a session: id, its beginning, title or file (else the last one here)",
        takes="maybe",
        word="[SESSION]",
        read=_session,
    ),
    Flag(names=("--fork-session",), field="fork", help="begin a new session with that one's history"),
    _one(
        "--resume-session-at",
        "UUID",
        "go on behind this message; later ones don't count",
        read=_name,
        field="resume_at",
    ),
    Flag(
        names=("--add-dir",),
        field="add_dirs",
        help="further folders that tools may use like the working directory",
        takes="several",
        word="DIR...",
        read=_paths,
        adds=True,
    ),
    _one("--settings", "FILE", "one more settings file, stronger than the others", read=_path),
    _one("--setting-sources", "LIST", 'settings files that count: user,project,local ("" for none)', read=_comma_list),
    _one("--cwd", "DIR", "work there", read=_path),
    _one("--log-format", "FORMAT", "what goes to stderr: text (default), or json", read=_choice(LOG_FORMATS)),
    Flag(names=("-d", "--debug"), field="debug", help="tell on stderr what goes on inside, tracebacks of bugs too"),
    Flag(names=("-v", "--version"), field="action", help="print the version", read=lambda _flag, _words: "version"),
    Flag(names=("-h", "--help"), field="action", help="print this", read=lambda _flag, _words: "help"),
)

LATER: Final = frozenset(
    (
        *("--agent", "--effort", "--betas"),
        *("--permission-prompt-tool", "--include-hook-events", "--thinking", "--max-thinking-tokens", "--plugin-dir"),
        *("--append-subagent-system-prompt", "--bare"),
        *("--debug-file", "--no-session-persistence"),
    )
)
BY_NAME: Final[Mapping[str, Flag]] = {name: flag for flag in FLAGS for name in flag.names}
