"""
The command line's words, as a value. Pure.

The flags are those that hosts of comparable programs pass. What a later version brings is known and refused by name,
so that nobody wonders why a flag had no effect. A flag that takes several words takes all up to the next flag.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

from .errors import ConfigError
from .flags import BY_NAME, FLAGS, LATER, InputFormat, OutputFormat
from .logs import LogFormat
from .wirejson import mend

__all__ = ["Options", "help_text", "parse_arguments"]


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
    input_format: InputFormat = "text"
    replay_user_messages: bool = False
    log_format: LogFormat = "text"
    debug: bool = False
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
    agents: str | None = None
    forward_subagent_text: bool = False
    max_turns: int | None = None
    mcp_config: tuple[str, ...] = ()
    strict_mcp_config: bool = False
    sandbox: str = "off"
    sandbox_network: bool = False
    max_budget_usd: float | None = None
    max_seconds: float | None = None
    max_repeats: int | None = 10
    task_budget: int | None = None
    token_target: int | None = None
    fallback_models: tuple[str, ...] = ()
    json_schema: str | None = None
    summaries: bool = False
    prompt_suggestions: bool = False
    small_model: str | None = None
    unattended: bool = False
    session_id: str | None = None
    continue_last: bool = False
    resume: str | None = None
    """Which session; empty is the last one."""
    fork: bool = False
    resume_at: str | None = None
    add_dirs: tuple[str, ...] = ()
    settings: str | None = None
    setting_sources: tuple[str, ...] | None = None
    cwd: str | None = None
    swallowed: str | None = None
    """The last word that a flag of several words took: perhaps it was meant as the prompt."""

    @property
    def resumes(self) -> bool:
        """Whether an existing session is to go on."""
        return self.continue_last or self.resume is not None

    def without_session(self) -> Options:
        """The same for a session that is open already."""
        return attrs.evolve(self, session_id=None, continue_last=False, resume=None, fork=False, resume_at=None)


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
    return name in BY_NAME or name in LATER


def _take_flag(word: str, rest: _Words, values: dict[str, Any]) -> None:
    name, has_value, value = word.partition("=")
    if name in LATER:
        raise ConfigError(name, "it is not available yet in this version", "leave it out")
    flag = BY_NAME.get(name)
    if flag is None:
        raise _unknown(name)
    given: list[str] = []
    if flag.takes == "none":
        if has_value:
            raise ConfigError(name, f"it takes no value, but was given {_short(value)}", "leave the value out")
    else:
        given = [value] if has_value else rest.values(several=flag.takes == "several")
        if not given and flag.takes != "maybe":
            raise ConfigError(name, "its value is missing", f"write {name} {flag.word}")
        if flag.takes in ("several", "maybe") and given and not has_value:
            values["swallowed"] = given[-1]
    read = flag.read(name, given)
    values[flag.field] = (*values.get(flag.field, ()), *read) if flag.adds else read


def _unknown(name: str) -> ConfigError:
    close = difflib.get_close_matches(name, (*BY_NAME, *LATER), n=1)
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
    if options.input_format == "stream-json" and not streaming:
        raise ConfigError("--input-format stream-json", "it needs --output-format stream-json", "add that")
    if options.replay_user_messages and options.input_format != "stream-json":
        raise ConfigError("--replay-user-messages", "it needs --input-format stream-json", "add that, or leave it out")
    _check_session(options)
    for text, file in (("system_prompt", "system_prompt_file"), ("append_system_prompt", "append_system_prompt_file")):
        if getattr(options, text) is not None and getattr(options, file) is not None:
            flag = f"--{text.replace('_', '-')}"
            raise ConfigError(flag, f"it doesn't go with {flag}-file", "give one of them")


def _check_session(options: Options) -> None:
    if options.continue_last and options.resume:
        raise ConfigError("--continue", "it doesn't go with --resume SESSION", "give one of them")
    if not options.resumes and (options.fork or options.resume_at is not None):
        flag = "--fork-session" if options.fork else "--resume-session-at"
        raise ConfigError(flag, "it needs --resume or --continue", "add one, or leave it out")
    if options.session_id is not None and options.resumes and not options.fork:
        raise ConfigError("--session-id", "a resumed session keeps its own", "add --fork-session, or leave it out")


def help_text() -> str:
    """What ``--help`` prints."""
    lines = [
        "usage: atrio run [PROMPT] [flags]      (or: atrio -p PROMPT [flags])",
        "       atrio sessions [list|show|rename|delete|export|search]",
        "       atrio demo                      (the whole loop against a scripted model; needs no key)",
        "",
        "Gives an agent a task and waits for the outcome. What is piped in is added to the prompt.",
        "",
        "flags:",
    ]
    for flag in FLAGS:
        head = ", ".join(flag.names) + (f" {flag.word}" if flag.word else "")
        lines += [f"  {head:<36}  {flag.help}"] if len(head) <= 36 else [f"  {head}", f"  {'':<36}  {flag.help}"]
    lines += [
        "",
        "environment: ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN, ANTHROPIC_BASE_URL, ATRIO_MODEL, ATRIO_HOME",
        "exit codes: 0 success, 1 ended without success (or nobody reads the output), 2 usage or configuration,",
        "            130 interrupted (SIGINT), 143 terminated (SIGTERM)",
    ]
    return "\n".join(lines) + "\n"
