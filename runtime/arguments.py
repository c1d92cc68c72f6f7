"""
The command line's words, as a value. Pure.

The flags are those that hosts of comparable programs pass. What a later version brings is known and refused by name,
so that nobody wonders why a flag had no effect. A flag that takes several words takes all up to the next flag.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from .errors import ConfigError
from .wirejson import mend

__all__ = ["Options", "OutputFormat", "help_text", "parse_arguments"]

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]

PERMISSION_MODES: Final = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")


@attrs.frozen(kw_only=True)
class Options:
    """
    What the command line asks for.

    ``tools`` None: not said; ``setting_sources`` None: all. Files and folders are as they were written.
    """

    action: Literal["run", "help", "version"] = "run"
    prompt: str | None = None
    print: bool = False
    output_format: OutputFormat = "text"
    verbose: bool = False
    partial_messages: bool = False
    model: str | None = None
    system_prompt: str | None = None
    system_prompt_file: str | None = None
    append_system_prompt: str | None = None
    append_system_prompt_file: str | None = None
    tools: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    permission_mode: str | None = None
    max_turns: int | None = None
    session_id: str | None = None
    add_dirs: tuple[str, ...] = ()
    settings: str | None = None
    setting_sources: tuple[str, ...] | None = None
    cwd: str | None = None
    swallowed: str | None = None
    """The last word that a flag of several words took: perhaps it was meant as the prompt."""


# --- what there is --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Flag:
    """``field`` of `Options` is set; ``read`` makes its value of (flag, words). ``takes``: how many words follow."""

    names: tuple[str, ...]
    field: str
    help: str
    takes: Literal["none", "one", "several"] = "none"
    word: str = ""
    read: Callable[[str, Sequence[str]], Any] = lambda _flag, _words: True
    adds: bool = False


def _text(_flag: str, words: Sequence[str]) -> str:
    return mend(words[0])


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


def _choice(choices: Sequence[str]) -> Callable[[str, Sequence[str]], str]:
    def read(flag: str, words: Sequence[str]) -> str:
        if words[0] not in choices:
            raise ConfigError(flag, f"{words[0]!r} is not known", f"choose from {', '.join(choices)}")
        return words[0]

    return read


def _input_format(flag: str, words: Sequence[str]) -> str:
    if words[0] == "stream-json":
        raise ConfigError(f"{flag} stream-json", "it is not available yet in this version", "give the prompt as text")
    return _choice(("text",))(flag, words)


def _bypass(_flag: str, _words: Sequence[str]) -> str:
    return "bypassPermissions"


def _one(name: str, word: str, help: str, *, read: Callable[[str, Sequence[str]], Any], field: str = "") -> _Flag:
    return _Flag(names=(name,), field=field or _field(name), help=help, takes="one", word=word, read=read)


def _field(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


_FLAGS: Final = (
    _Flag(names=("-p", "--print"), field="print", help="print the outcome and exit (atrio always does)"),
    _one(
        "--output-format",
        "FORMAT",
        "text (default), json (the result object), stream-json (one JSON object a line)",
        read=_choice(get_args(OutputFormat)),
    ),
    _one("--input-format", "FORMAT", "text (default)", read=_input_format),
    _Flag(names=("--verbose",), field="verbose", help="tell more: progress on stderr, notices in stream-json"),
    _Flag(
        names=("--include-partial-messages",),
        field="partial_messages",
        help="the model's stream as stream_event lines (stream-json only)",
    ),
    _one("--model", "NAME", "the model (else ATRIO_MODEL, ANTHROPIC_MODEL, settings)", read=_name),
    _one("--system-prompt", "TEXT", "in place of atrio's own system prompt", read=_text),
    _one("--system-prompt-file", "FILE", "the same, from a file", read=_path),
    _one("--append-system-prompt", "TEXT", "added to the system prompt", read=_text),
    _one("--append-system-prompt-file", "FILE", "the same, from a file", read=_path),
    _Flag(
        names=("--tools",),
        field="tools",
        help='the tools on offer: names, "default" for all, "" for none',
        takes="several",
        word="NAME...",
        read=_comma_list,
        adds=True,
    ),
    _Flag(
        names=("--allowedTools", "--allowed-tools"),
        field="allowed_tools",
        help='rules that allow calls: Read, "Bash(git diff *)"',
        takes="several",
        word="RULE...",
        read=_rules,
        adds=True,
    ),
    _Flag(
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
        f"for calls that no rule speaks of: {', '.join(PERMISSION_MODES)}",
        read=_choice(PERMISSION_MODES),
    ),
    _Flag(
        names=("--dangerously-skip-permissions",),
        field="permission_mode",
        help="the same as --permission-mode bypassPermissions",
        read=_bypass,
    ),
    _one("--max-turns", "N", "end after so many model requests", read=_count),
    _one("--session-id", "UUID", "the new session's id (else one is drawn)", read=_name),
    _Flag(
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
    _Flag(names=("-v", "--version"), field="action", help="print the version", read=lambda _flag, _words: "version"),
    _Flag(names=("-h", "--help"), field="action", help="print this", read=lambda _flag, _words: "help"),
)

_LATER: Final = frozenset(
    (
        *("--fallback-model", "--resume", "-r", "--continue", "-c", "--fork-session", "--mcp-config", "--json-schema"),
        *("--strict-mcp-config", "--agents", "--agent", "--max-budget-usd", "--task-budget", "--effort", "--betas"),
        *("--permission-prompt-tool", "--include-hook-events", "--thinking", "--max-thinking-tokens", "--plugin-dir"),
        *("--replay-user-messages", "--forward-subagent-text", "--append-subagent-system-prompt", "--bare"),
        *("--debug", "-d", "--debug-file", "--prompt-suggestions", "--no-session-persistence"),
    )
)
_BY_NAME: Final[Mapping[str, _Flag]] = {name: flag for flag in _FLAGS for name in flag.names}


# --- reading --------------------------------------------------------------------------------------


def parse_arguments(argv: Sequence[str]) -> Options:
    """
    The options in ``argv`` (without the program's name; a leading ``run`` changes nothing).

    Raises:
        ConfigError: a flag is unknown, not available yet, lacks its value or doesn't go with another.
    """
    words = list(argv[1:] if argv[:1] == ["run"] else argv)
    values: dict[str, Any] = {}
    prompts: list[str] = []
    rest = _Words(words)
    for word in rest:
        if word == "--":
            prompts += rest.all()
        elif word.startswith("-") and word != "-":
            _take_flag(word, rest, values)
        else:
            prompts.append(word)
    if len(prompts) > 1:
        raise ConfigError(f"argument {_short(prompts[1])}", "one prompt is enough", "put the whole prompt in quotes")
    if prompts:
        values["prompt"] = mend(prompts[0])
    values.pop("input_format", None)
    options = Options(**values)
    if options.action == "run":
        _check(options)
    return options


class _Words:
    """The words that are left."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._at = 0

    def __iter__(self) -> Iterator[str]:
        while self._at < len(self._words):
            self._at += 1
            yield self._words[self._at - 1]

    def peek(self) -> str | None:
        return self._words[self._at] if self._at < len(self._words) else None

    def all(self) -> list[str]:
        return list(self)

    def values(self, *, several: bool) -> list[str]:
        """A flag's words: one, whatever it looks like (but no flag), or all up to the next flag."""
        taken: list[str] = []
        while (word := self.peek()) is not None and (several or not taken):
            is_flag = word.startswith("-") and len(word) > 1 if several else word == "--" or _known(word)
            if is_flag:
                break
            taken.append(word)
            self._at += 1
        return taken


def _known(word: str) -> bool:
    name = word.partition("=")[0]
    return name in _BY_NAME or name in _LATER


def _take_flag(word: str, rest: _Words, values: dict[str, Any]) -> None:
    name, has_value, value = word.partition("=")
    if name in _LATER:
        raise ConfigError(name, "it is not available yet in this version", "leave it out")
    flag = _BY_NAME.get(name)
    if flag is None:
        raise _unknown(name)
    given: list[str] = []
    if flag.takes == "none":
        if has_value:
            raise ConfigError(name, f"it takes no value, but was given {_short(value)}", "leave the value out")
    else:
        given = [value] if has_value else rest.values(several=flag.takes == "several")
        if not given:
            raise ConfigError(name, "its value is missing", f"write {name} {flag.word}")
        if flag.takes == "several" and not has_value:
            values["swallowed"] = given[-1]
    read = flag.read(name, given)
    values[flag.field] = (*values.get(flag.field, ()), *read) if flag.adds else read


def _unknown(name: str) -> ConfigError:
    close = difflib.get_close_matches(name, (*_BY_NAME, *_LATER), n=1)
    hint = f"did you mean {close[0]}?" if close else "see atrio --help; a prompt that begins with - goes behind --"
    return ConfigError(f"flag {_short(name)}", "there is no such flag", hint)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _check(options: Options) -> None:
    streaming = options.output_format == "stream-json"
    if streaming and options.print and not options.verbose:
        raise ConfigError("--output-format stream-json", "with --print it needs --verbose", "add --verbose")
    if options.partial_messages and not streaming:
        raise ConfigError(
            "--include-partial-messages", "it needs --output-format stream-json", "add that, or leave the flag out"
        )
    for text, file in (("system_prompt", "system_prompt_file"), ("append_system_prompt", "append_system_prompt_file")):
        if getattr(options, text) is not None and getattr(options, file) is not None:
            flag = f"--{text.replace('_', '-')}"
            raise ConfigError(flag, f"it doesn't go with {flag}-file", "give one of them")


def help_text() -> str:
    """What ``--help`` prints."""
    lines = [
        "usage: atrio run [PROMPT] [flags]      (or: atrio -p PROMPT [flags])",
        "       atrio demo                      (the whole loop against a scripted model; needs no key)",
        "",
        "Gives an agent a task and waits for the outcome. What is piped in is added to the prompt.",
        "",
        "flags:",
    ]
    for flag in _FLAGS:
        head = ", ".join(flag.names) + (f" {flag.word}" if flag.word else "")
        lines += [f"  {head:<36}  {flag.help}"] if len(head) <= 36 else [f"  {head}", f"  {'':<36}  {flag.help}"]
    lines += [
        "",
        "environment: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, ANTHROPIC_BASE_URL, ATRIO_MODEL, ATRIO_HOME",
        "exit codes: 0 success, 1 ended without success (or nobody reads the output), 2 usage or configuration,",
        "            130 interrupted (SIGINT), 143 terminated (SIGTERM)",
    ]
    return "\n".join(lines) + "\n"
