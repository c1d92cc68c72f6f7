"""The command line as real processes against a scripted model on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.support import forking
from tests.support.forking import Ended

from atrio.actors.testing import Fault, ScriptedModel, Turn, text, tool
from atrio.runtime.journal import journal_path

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "atrio.runtime")
LIMIT = 30.0


@attrs.frozen
class Place:
    """Where one command runs: an empty project, and a home that doesn't exist yet."""

    project: Path
    home: Path

    def environ(self, url: str | None, **more: str) -> dict[str, str]:
        known = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
        server = {"ANTHROPIC_BASE_URL": url} if url is not None else {}
        return {**known, "HOME": str(self.home.parent), "ATRIO_HOME": str(self.home), **server, **more}

    def journal(self, session_id: str) -> list[dict[str, Any]]:
        path = journal_path(self.home, self.project.resolve(), session_id)
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    project = tmp_path / "project"
    project.mkdir()
    return Place(project, tmp_path / "home")


async def atrio(
    place: Place,
    *words: str,
    url: str | None = None,
    stdin: bytes = b"",
    environ: Mapping[str, str] | None = None,
) -> Ended:
    environ = place.environ(url, **(environ or {}))
    return await forking.run(words, stdin=stdin, cwd=place.project, env=environ)


def kinds(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, str | None]]:
    return [(line["type"], line.get("subtype")) for line in lines]


# --- formats --------------------------------------------------------------------------------------


async def test_text_is_the_answer_and_nothing_else(place: Place) -> None:
    async with ScriptedModel([Turn(text("It is done."))]).serve() as url:
        ended = await atrio(place, "run", "do it", url=url)

    assert Ended(0, "It is done.\n", "") == ended


async def test_json_is_the_result_alone(place: Place) -> None:
    async with ScriptedModel([Turn(text("It is done."))]).serve() as url:
        ended = await atrio(place, "-p", "do it", "--output-format", "json", url=url)
    (result,) = ended.lines

    assert (0, "", "success", "It is done.") == (ended.code, ended.err, result["subtype"], result["result"])
    assert place.journal(result["session_id"])


async def test_a_stream_opens_with_init_and_ends_with_one_result(place: Place) -> None:
    (place.project / "a").write_text("hello\n")
    model = ScriptedModel(
        [
            Turn(text("I look."), tool("Read", {"file_path": "a"}), tool("Bash", {"command": "rm a"})),
            Turn(text("Done.")),
        ]
    )
    async with model.serve() as url:
        ended = await atrio(place, "-p", "look", "--output-format", "stream-json", "--verbose", url=url)

    assert [
        ("system", "init"),
        ("assistant", None),
        ("assistant", None),
        ("assistant", None),
        ("user", None),
        ("system", "permission_denied"),
        ("user", None),
        ("assistant", None),
        ("result", "success"),
    ] == kinds(ended.lines)
    assert 1 == len({line["session_id"] for line in ended.lines})
    assert len(ended.lines) == len({line["uuid"] for line in ended.lines})
    assert [("Bash", {"command": "rm a"})] == [
        (denial["tool_name"], denial["tool_input"]) for denial in ended.lines[-1]["permission_denials"]
    ]
    assert (0, []) == (ended.code, model.violations)
    assert (place.project / "a").exists()


async def test_partial_messages_are_the_raw_stream(place: Place) -> None:
    async with ScriptedModel([Turn(text("Done."))]).serve() as url:
        ended = await atrio(place, "run", "x", "--output-format", "stream-json", "--include-partial-messages", url=url)
    events = [line["event"]["type"] for line in ended.lines if line["type"] == "stream_event"]

    assert "message_start" == events[0]
    assert "message_stop" == events[-1]


async def test_what_is_piped_in_follows_the_prompt(place: Place) -> None:
    model = ScriptedModel([Turn(text("ok"))], repeat_last=True)
    async with model.serve() as url:
        both = await atrio(place, "run", "explain this", url=url, stdin=b"caf\xe9\n")
        alone = await atrio(place, "-p", url=url, stdin=b"hello")

    assert (0, 0) == (both.code, alone.code)
    assert ["explain this\n\ncaf\N{REPLACEMENT CHARACTER}\n", "hello"] == [
        request.messages[0]["content"][-1]["text"] for request in model.requests
    ]


async def test_flags_reach_the_request(place: Place) -> None:
    prompt = place.project / "p.txt"
    prompt.write_text("Be kind.")
    model = ScriptedModel([Turn(text("ok"))])
    flags = ("--model", "m-1", "--system-prompt-file", str(prompt), "--append-system-prompt", "Be short.")
    async with model.serve() as url:
        await atrio(place, "run", "x", *flags, "--tools", "Read,Grep", url=url)
    (request,) = model.requests

    assert "m-1" == request.body["model"]
    assert ["Be kind.", "Be short."] == [block["text"] for block in request.body["system"]]
    assert ["Read", "Grep"] == [each["name"] for each in request.body["tools"]]


async def test_the_model_comes_from_the_nearest_place(place: Place) -> None:
    settings = place.project / ".atrio" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"model": "from-settings"}')
    model = ScriptedModel([Turn(text("ok"))], repeat_last=True)
    async with model.serve() as url:
        await atrio(place, "run", "x", "--setting-sources", "", url=url)
        await atrio(place, "run", "x", url=url)
        await atrio(place, "run", "x", url=url, environ={"ANTHROPIC_MODEL": "from-environment"})
        await atrio(place, "run", "x", "--model", "from-flag", url=url, environ={"ATRIO_MODEL": "y"})

    assert ["claude-sonnet-4-5", "from-settings", "from-environment", "from-flag"] == [
        request.body["model"] for request in model.requests
    ]


async def test_rules_of_the_command_line_allow_calls(place: Place) -> None:
    model = ScriptedModel([Turn(tool("Bash", {"command": "mkdir one,two"})), Turn(text("ok"))])
    async with model.serve() as url:
        ended = await atrio(place, "run", "x", "--allowedTools", "Read,Bash(mkdir *,two)", url=url)

    assert (0, True) == (ended.code, (place.project / "one,two").is_dir())


async def test_progress_goes_to_stderr_when_asked_for(place: Place) -> None:
    async with ScriptedModel([Turn(text("ok"))]).serve() as url:
        ended = await atrio(place, "run", "x", "--verbose", url=url)

    assert "ok\n" == ended.out
    assert "turn 1: asking claude-sonnet-4-5" in ended.err.splitlines()


async def test_secrets_stay_inside(place: Place) -> None:
    key = "a-key-that-nobody-must-see"
    model = ScriptedModel([Turn(text(f"your key is {key}"))])
    async with model.serve() as url:
        ended = await atrio(place, "run", "x", "--output-format", "json", url=url, environ={"ANTHROPIC_API_KEY": key})

    assert "your key is [redacted:ANTHROPIC_API_KEY]" == ended.lines[0]["result"]


# --- failures -------------------------------------------------------------------------------------


async def test_a_run_without_success_exits_with_1_and_says_why(place: Place) -> None:
    model = ScriptedModel([Turn(tool("Glob", {"pattern": "*"}))], repeat_last=True)
    async with model.serve() as url:
        plain = await atrio(place, "run", "x", "--max-turns", "2", url=url)
        ended = await atrio(place, "run", "x", "--max-turns", "2", "--output-format", "json", url=url)

    assert (1, "") == (plain.code, plain.out)
    assert "atrio: the run ended without success (max_turns): the limit of 2 turns is reached\n" == plain.err
    assert (1, "error_max_turns", ["the limit of 2 turns is reached"]) == (
        ended.code,
        ended.lines[0]["subtype"],
        ended.lines[0]["errors"],
    )


async def test_a_later_failure_of_the_model_is_no_configuration_error(place: Place) -> None:
    model = ScriptedModel(
        [Turn(tool("Glob", {"pattern": "*"})), Turn(text("ok"))],
        faults={2: Fault.status(401, message="expired")},
    )
    async with model.serve() as url:
        ended = await atrio(place, "run", "x", "--output-format", "json", url=url)

    assert (1, True, 401) == (ended.code, ended.lines[0]["is_error"], ended.lines[0]["api_error_status"])


@pytest.mark.parametrize(
    ("status", "beginning"),
    [
        (401, "atrio: ANTHROPIC_API_KEY: "),
        (404, "atrio: model 'claude-sonnet-4-5': "),
    ],
)
async def test_a_first_request_that_is_refused_shows_wrong_settings(place: Place, status: int, beginning: str) -> None:
    model = ScriptedModel([Turn(text("ok"))], faults={1: Fault.status(status, message="not this one")})
    async with model.serve() as url:
        ended = await atrio(
            place, "run", "x", "--output-format", "json", url=url, environ={"ANTHROPIC_API_KEY": "wrong-key"}
        )

    assert (2, [("result", "error_during_execution")]) == (ended.code, kinds(ended.lines))
    assert ended.err.startswith(beginning)
    assert "not this one" in ended.err
    assert 1 == ended.err.count("\n")


async def test_a_wrong_address_is_a_configuration_error(place: Place) -> None:
    with trio.socket.socket() as taken:
        await taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ended = await atrio(place, "run", "x", url=url)

    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith(f"atrio: ANTHROPIC_BASE_URL: {url} can't be reached: ")


async def test_a_journal_that_is_lost_ends_the_run_with_a_result(place: Place) -> None:
    (place.project / "a").write_text(f"{'x' * 99}\n" * 400)
    model = ScriptedModel([Turn(tool("Read", {"file_path": "a"})), Turn(text("ok"))])
    words = ["run", "x", "--output-format", "stream-json"]
    async with model.serve() as url:
        with trio.fail_after(LIMIT):
            done = await trio.run_process(
                ["sh", "-c", 'ulimit -f 32; exec "$@"', "sh", *COMMAND, *words],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd=place.project,
                # The limit holds for bytecode caches too, which Python would leave cut for everybody else.
                env=place.environ(url, PYTHONDONTWRITEBYTECODE="1"),
            )
    lines = [json.loads(line) for line in done.stdout.splitlines()]

    assert (1, [("result", "error_during_execution")]) == (done.returncode, kinds(lines)[-1:])
    assert 1 == [line["type"] for line in lines].count("result")
    assert "can't write the session journal" in done.stderr.decode()
    assert "internal error" not in done.stderr.decode()
    assert 1 == done.stderr.count(b"\n")


SESSION = "0d6c2f6e-9b1c-4a08-8f4e-2f6f5b7f0c11"


@pytest.mark.parametrize(
    ("words", "environ", "beginning"),
    [
        (["--bogus"], {}, "flag '--bogus': there is no such flag"),
        (["--resume", SESSION], {}, f"the session '{SESSION}': there is none with this id or name"),
        (["--continue"], {}, "the session to continue: there is none for"),
        ([], {}, "the prompt: it is missing"),
        (["  "], {}, "the prompt: it is missing"),
        (["--tools", "Read", "do it"], {}, "the prompt: it is missing; if 'do it' was meant as one"),
        (["x"], {"ANTHROPIC_BASE_URL": ""}, "ANTHROPIC_API_KEY: no key for the model API is set; "),
        (["x"], {"ANTHROPIC_BASE_URL": "ftp://x"}, "ANTHROPIC_BASE_URL: "),
        (["x"], {"ATRIO_MAX_RETRIES": "many"}, "ATRIO_MAX_RETRIES: "),
        (["x", "--cwd", "missing"], {}, "the working directory: "),
        (["x", "--cwd", "file"], {}, "the working directory: "),
        (["x", "--add-dir", "missing"], {}, "--add-dir: "),
        (["x", "--settings", "missing.json"], {}, "settings file "),
        (["x", "--settings", "bad.json"], {}, "settings file "),
        (["x", "--settings", "{}"], {}, "--settings: it takes a file"),
        (["x", "--settings", "mode.json"], {}, "permissions.defaultMode of the settings: "),
        (["x", "--setting-sources", "mine"], {}, "--setting-sources: "),
        (["x", "--session-id", "12"], {}, "--session-id: '12' is not a UUID"),
        (["x", "--tools", "Raed"], {}, "tool 'Raed': there is no such tool; did you mean Read?"),
        (["x", "--allowedTools", "Bash("], {}, "permission rule 'Bash(': "),
        (["x", "--system-prompt-file", "missing"], {}, "--system-prompt-file: missing can't be read: "),
        (["x", "--append-system-prompt-file", "latin"], {}, "--append-system-prompt-file: latin can't be read: "),
        (["x", "--max-turns", "-1"], {}, "--max-turns: '-1' is no whole number"),
        (["x"], {"ATRIO_HOME": "file/home"}, "ATRIO_HOME: "),
    ],
)
async def test_wrong_settings_are_one_sentence_and_leave_nothing_behind(
    place: Place, words: list[str], environ: dict[str, str], beginning: str
) -> None:
    (place.project / "file").write_text("")
    (place.project / "latin").write_bytes(b"caf\xe9")
    (place.project / "bad.json").write_text("{,}")
    (place.project / "mode.json").write_text('{"permissions": {"defaultMode": "auto"}}')
    before = sorted(place.project.rglob("*"))

    ended = await atrio(place, "run", *words, url="http://127.0.0.1:9", environ=environ)

    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith(f"atrio: {beginning}")
    assert 1 == ended.err.count("\n")
    assert not place.home.exists()
    assert before == sorted(place.project.rglob("*"))


async def test_the_projects_mcp_servers_are_there_unless_they_are_not_wanted(place: Place) -> None:
    server = Path(__file__).parents[1] / "actors" / "mcp" / "sdk_server.py"
    file = place.project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"sums": {"command": sys.executable, "args": [str(server)]}}}))
    words = ("run", "x", "--output-format", "stream-json", "--verbose")
    async with ScriptedModel([Turn(text("ok"))], repeat_last=True).serve() as url:
        inits = [
            (await atrio(place, *words, *more, url=url)).lines[0]
            for more in ((), ("--strict-mcp-config",), ("--setting-sources", "user"))
        ]
        file.write_text("{,}")
        broken = await atrio(place, *words, url=url)

    assert [[{"name": "sums", "status": "connected"}], [], []] == [init["mcp_servers"] for init in inits]
    assert ["general-purpose"] == inits[0]["agents"]
    assert (2, f"atrio: MCP file {file}: ") == (broken.code, broken.err[: len(f"atrio: MCP file {file}: ")])


async def test_too_much_on_stdin_is_refused(place: Place) -> None:
    ended = await atrio(place, "run", "x", url="http://127.0.0.1:9", stdin=b"x" * 10_000_001)

    assert (2, "") == (ended.code, ended.out)
    assert ended.err.startswith("atrio: standard input: it is longer than 10,000,000 bytes; ")


async def test_a_session_id_is_good_for_one_session(place: Place) -> None:
    async with ScriptedModel([Turn(text("ok"))], repeat_last=True).serve() as url:
        first = await atrio(place, "run", "x", "--session-id", SESSION.upper(), url=url)
        before = place.journal(SESSION)
        second = await atrio(place, "run", "x", "--session-id", SESSION, url=url)

    assert (0, 2) == (first.code, second.code)
    assert second.err.startswith(f"atrio: --session-id: {SESSION} is taken by the session in ")
    assert before == place.journal(SESSION)


async def test_a_closed_stdout_is_named(place: Place) -> None:
    with trio.fail_after(LIMIT):
        done = await trio.run_process(
            ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, "run", "x"],
            capture_stderr=True,
            check=False,
            cwd=place.project,
            env=place.environ("http://127.0.0.1:9"),
        )

    assert (2, b"atrio: standard output: it is closed; ") == (done.returncode, done.stderr[:38])


async def test_help_and_version_go_to_stdout(place: Place) -> None:
    help = await atrio(place, "--help")
    version = await atrio(place, "run", "--version")

    assert (0, 0, "", "") == (help.code, version.code, help.err, version.err)
    assert help.out.startswith("usage: atrio run [PROMPT]")
    assert version.out.startswith("atrio ")


# --- readers and signals --------------------------------------------------------------------------

STREAM = ("--output-format", "stream-json", "--include-partial-messages")


class Conversation:
    """A command that is still running: its lines as they come."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._buffer = b""

    async def line(self) -> dict[str, Any] | None:
        """The next line; None when there are no more."""
        assert self.process.stdout is not None
        while b"\n" not in self._buffer:
            piece = await self.process.stdout.receive_some()
            if not piece:
                return None
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        value: dict[str, Any] = json.loads(line)
        return value

    async def until(self, type: str, part: str = "") -> dict[str, Any]:
        """The first line of this type with this text in it."""
        while (line := await self.line()) is not None:
            if line["type"] == type and part in json.dumps(line):
                return line
        raise AssertionError(f"no line {type} with {part}")

    async def rest(self) -> list[dict[str, Any]]:
        lines = []
        while (line := await self.line()) is not None:
            lines.append(line)
        return lines


async def start(nursery: trio.Nursery, place: Place, url: str, *words: str) -> Conversation:
    run = partial(
        trio.run_process,
        [*COMMAND, "run", "x", *STREAM, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
        cwd=place.project,
        env=place.environ(url),
    )
    return Conversation(await nursery.start(run))


async def errors_of(process: trio.Process) -> str:
    assert process.stderr is not None
    return b"".join([piece async for piece in process.stderr]).decode()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_during_the_stream_leaves_result_and_journal_complete(
    place: Place, number: signal.Signals, code: int
) -> None:
    slow = Turn(text("word " * 400, chunk=5), pace=0.05)
    with trio.fail_after(LIMIT):
        async with ScriptedModel([slow]).serve() as url, trio.open_nursery() as nursery:
            talk = await start(nursery, place, url)
            await talk.until("stream_event", "text_delta")
            talk.process.send_signal(number)
            lines = await talk.rest()
            errors = await errors_of(talk.process)
            assert code == await talk.process.wait()

    assert [("result", "error_during_execution")] == kinds([line for line in lines if line["type"] == "result"])
    assert ("result", "aborted_streaming") == (lines[-1]["type"], lines[-1]["terminal_reason"])
    assert f"atrio: stopped by {number.name}\n" == errors
    journal = place.journal(lines[-1]["session_id"])
    assert ("run_ended", "aborted_streaming") == (journal[-1]["subtype"], journal[-1]["data"]["terminalReason"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_a_signal_during_a_command_ends_the_command(place: Place, number: signal.Signals, code: int) -> None:
    # The command tells through a pipe with a name that it runs: to open that waits for both ends.
    os.mkfifo(place.project / "pid")
    command = "echo $$ > pid; sleep 300"
    model = ScriptedModel([Turn(tool("Bash", {"command": command}))])
    with trio.fail_after(LIMIT):
        async with model.serve() as url, trio.open_nursery() as nursery:
            talk = await start(nursery, place, url, "--dangerously-skip-permissions")
            await talk.until("assistant", "sleep 300")
            pid = int(await trio.to_thread.run_sync((place.project / "pid").read_text))
            talk.process.send_signal(number)
            lines = await talk.rest()
            assert code == await talk.process.wait()

    assert [("user", None), ("result", "error_during_execution")] == kinds(
        [line for line in lines if line["type"] in ("user", "result") and not line.get("isSynthetic")]
    )
    assert lines[-1]["terminal_reason"].startswith("aborted_")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_second_signal_ends_a_run_that_waits_for_its_reader(place: Place) -> None:
    # More than a pipe holds, and nobody reads it: the result line can't be written.
    big = Turn(text("x" * 600_000, chunk=600_000), text("y" * 600_000, chunk=600_000), text("z" * 4000), pace=0.05)
    with trio.fail_after(LIMIT):
        async with ScriptedModel([big], repeat_last=True).serve() as url, trio.open_nursery() as nursery:
            talk = await start(nursery, place, url)
            await talk.until("system", "init")
            talk.process.send_signal(signal.SIGTERM)
            while talk.process.returncode is None:
                talk.process.send_signal(signal.SIGTERM)
                with trio.move_on_after(0.2):
                    await talk.process.wait()

    assert talk.process.returncode in (143, -signal.SIGTERM)


async def test_a_reader_that_goes_away_ends_the_run_without_a_traceback(place: Place) -> None:
    slow = Turn(text("word " * 400, chunk=5), pace=0.05)
    with trio.fail_after(LIMIT):
        async with ScriptedModel([slow]).serve() as url, trio.open_nursery() as nursery:
            talk = await start(nursery, place, url)
            first = await talk.until("system", "init")
            assert talk.process.stdout is not None
            await talk.process.stdout.aclose()
            errors = await errors_of(talk.process)
            assert 1 == await talk.process.wait()

    assert "atrio: the output can't be written (Broken pipe); the run was ended\n" == errors
    assert "run_ended" == place.journal(first["session_id"])[-1]["subtype"]


async def test_head_takes_one_line_and_the_rest_ends_quietly(place: Place) -> None:
    slow = Turn(text("word " * 400, chunk=5), pace=0.05)
    words = " ".join([*COMMAND, "run", "x", *STREAM])
    async with ScriptedModel([slow]).serve() as url:
        with trio.fail_after(LIMIT):
            done = await trio.run_process(
                ["sh", "-c", f"{words} 2>err | head -1"],
                capture_stdout=True,
                cwd=place.project,
                env=place.environ(url),
            )

    assert [("system", "init")] == kinds([json.loads(line) for line in done.stdout.splitlines()])
    assert 1 == (place.project / "err").read_text().count("\n")


async def test_a_terminal_gets_a_live_view_that_goes_away(place: Place) -> None:
    model = ScriptedModel([Turn(tool("Bash", {"command": "sleep 0.3"})), Turn(text("All \x1b[31mdone."))])
    ours, theirs = os.openpty()
    try:
        async with model.serve() as url:
            with trio.fail_after(LIMIT):
                done = await trio.run_process(
                    [*COMMAND, "run", "x", "--allowedTools", "Bash(sleep *)"],
                    capture_stdout=True,
                    stderr=theirs,
                    cwd=place.project,
                    env=place.environ(url, TERM="xterm-256color"),
                )
        seen = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)

    assert "All \x1b[31mdone.\n" == done.stdout.decode()
    assert "\x1b[?25l" in seen
    assert "Bash(sleep 0.3)" in seen
    assert "\x1b[?25h" in seen.rpartition("\x1b[?25l")[2]
    assert "2 turns, " in seen.splitlines()[-1]


async def test_a_session_in_use_is_refused(place: Place) -> None:
    slow = Turn(text("word " * 400, chunk=5), pace=0.05)
    with trio.fail_after(LIMIT):
        async with ScriptedModel([slow], repeat_last=True).serve() as url, trio.open_nursery() as nursery:
            talk = await start(nursery, place, url, "--session-id", SESSION)
            await talk.until("stream_event")
            second = await atrio(place, "run", "x", "--session-id", SESSION, url=url)
            talk.process.send_signal(signal.SIGINT)
            lines = await talk.rest()

    assert (2, "") == (second.code, second.out)
    assert "aborted_streaming" == lines[-1]["terminal_reason"]
