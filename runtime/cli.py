"""
The ``atrio`` command.

Exit codes: 0 success; 1 ended without success, or nobody reads the output; 2 usage or configuration (nothing was
begun, or the first request showed that address, key or model are wrong); 130 after SIGINT, 143 after SIGTERM.
Only what was asked for goes to stdout; all that is said about it goes to stderr.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from .arguments import Options, help_text, parse_arguments
from .errors import ConfigError
from .logs import Level, LogFormat, format_line, utc_now
from .narration import told

if TYPE_CHECKING:
    from .config import Config

__all__ = ["main"]

STDIN_LIMIT_BYTES: Final = 10_000_000
"""The limit that comparable programs have; more belongs into a file that the agent can search."""

STDIN_PATIENCE: Final = 3.0
"""Seconds. With a prompt at hand, a stdin that stays open without a word was merely inherited."""

STDERR_PATIENCE: Final = 1.0
"""Seconds for somebody to take the last words."""

KEEP_DAYS: Final = 30
"""Days that a session is kept after its last use, unless ``cleanupPeriodDays`` says otherwise."""

SIGINT_CODE: Final = 130
SIGTERM_CODE: Final = 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; ``argv`` is without the program's name (None: the process's own). Returns the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    _occupy_standard_descriptors()
    try:
        if words[:1] == ["demo"]:
            from . import demo

            return demo.main(words[1:])
        if words[:1] == ["sessions"]:
            from . import sessions_cli

            return sessions_cli.main(words[1:])
        if words[:1] == ["context"]:
            from . import context_cli

            return context_cli.main(words[1:])
        return _command(words)
    except ConfigError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        # Before or after the part that listens to signals itself.
        _say("stopped by SIGINT")
        return SIGINT_CODE
    except Exception as error:
        # The outermost border: a bug shall be one sentence, too. The traceback is for whoever asks.
        if not {"--verbose", "--debug", "-d"}.isdisjoint(words):
            traceback.print_exc()
        _say(f"internal error, please report it: {told(error)}")
        return 1


def _command(words: Sequence[str]) -> int:
    options = parse_arguments(words)
    match options.action:
        case "help":
            return _print(help_text())
        case "version":
            from .job import atrio_version

            return _print(f"atrio {atrio_version()}\n")
        case "run":
            return _run(options)


def _run(options: Options) -> int:
    if sys.stdout is None:
        raise ConfigError("standard output", "it is closed", "redirect it to /dev/null if nobody is to read it")
    # Until the run listens to signals itself. (An interrupt is Python's own KeyboardInterrupt until then.)
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        # The heavy imports come after the command line is known to be right.
        import trio

        from .conversation import run_conversation
        from .headless import run_job
        from .job import prepare_job

        # What is imported stays: the garbage collector need not look at it again.
        gc.freeze()
        prompt = _prompt(options)
        job = prepare_job(options, os.environ)
        run = run_conversation if options.input_format == "stream-json" else run_job
        outcome = trio.run(partial(run, job, prompt), restrict_keyboard_interrupt_to_checkpoints=True)
        _expire(job.config)
    finally:
        signal.signal(signal.SIGTERM, before)
    for sentence in outcome.sentences:
        _say(sentence, options.log_format, "info" if outcome.code == 0 else "error")
    return outcome.code


def _expire(config: Config) -> None:
    """Sessions that nobody has used for a long time go, once the work is done."""
    from datetime import UTC, datetime

    from .store import remove_expired

    days = config.settings.cleanup_period_days or KEEP_DAYS
    remove_expired(config.home, days, datetime.now(UTC))


def _terminated(_number: int, _frame: object) -> NoReturn:
    _say("stopped by SIGTERM")
    sys.exit(SIGTERM_CODE)


def _prompt(options: Options) -> str | None:
    """None: a session is resumed without a new prompt."""
    if options.input_format == "stream-json":
        return options.prompt
    parts = [part for part in (options.prompt, _piped(options)) if part and part.strip()]
    if parts:
        return "\n\n".join(parts)
    if options.resumes:
        return None
    hint = 'write atrio run "what to do", or pipe it in'
    if options.swallowed is not None and options.prompt is None:
        hint = f"if {options.swallowed[:60]!r} was meant as one, put it first, or behind --"
    raise ConfigError("the prompt", "it is missing", hint)


def _piped(options: Options) -> str | None:
    """What is piped in; None at a terminal."""
    if sys.stdin is None or os.isatty(0):
        return None
    poll = select.poll()
    poll.register(0, select.POLLIN)
    if (options.prompt is not None or options.resumes) and not poll.poll(STDIN_PATIENCE * 1000):
        _say(
            f"nothing came on stdin for {STDIN_PATIENCE:g} s, going on without; redirect it from /dev/null to skip this"
        )
        return None
    pieces: list[bytes] = []
    size = 0
    try:
        while piece := os.read(0, 1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > STDIN_LIMIT_BYTES:
                raise ConfigError(
                    "standard input",
                    f"it is longer than {STDIN_LIMIT_BYTES:,} bytes",
                    "put it into a file and name that in the prompt",
                )
    except OSError as error:
        raise ConfigError(
            "standard input", f"it can't be read: {error.strerror}", "redirect it from /dev/null"
        ) from error
    return b"".join(pieces).decode("utf-8-sig", "replace")


def _print(text: str) -> int:
    try:
        os.write(1, text.encode())
    except OSError:
        return 1
    return 0


def _say(text: str, format: LogFormat = "text", level: Level = "error") -> None:
    """One sentence on stderr, if anybody is there."""
    data = format_line(text, format=format, level=level, source="atrio", now=utc_now(), prefix="atrio: ")
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    try:
        if poll.poll(STDERR_PATIENCE * 1000):
            os.write(2, data)
    except OSError:
        # Nobody is there.
        return


def _occupy_standard_descriptors() -> None:
    """A closed stdin, stdout or stderr must not become the number of a journal or socket that we open."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
