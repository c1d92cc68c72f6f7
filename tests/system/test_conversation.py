"""A conversation over stdin and stdout, as real processes against a scripted model on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from atrio.actors.testing import ScriptedModel, Turn, text, tool

pytestmark = pytest.mark.slow

FLAGS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
COMMAND = (sys.executable, "-m", "atrio.runtime", "-p", *FLAGS)
LIMIT = 40.0


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def control(id: str, subtype: str, **more: Any) -> dict[str, Any]:
    return {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **more}}


@attrs.define(eq=False)
class Host:
    """The other end of the pipes."""

    process: trio.Process
    lines: list[dict[str, Any]] = attrs.field(factory=list)
    _held: bytes = b""

    async def say(self, *lines: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for line in lines:
            await self.process.stdin.send_all(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line from here on that is wanted."""
        while True:
            line = await self.line()
            assert line is not None, f"stdout ended: {self.lines}"
            if wanted(line):
                return line

    async def line(self) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        while b"\n" not in self._held:
            data = await self.process.stdout.receive_some()
            if not data:
                return None
            self._held += data
        first, _, self._held = self._held.partition(b"\n")
        self.lines.append(json.loads(first))
        return self.lines[-1]

    async def result(self) -> dict[str, Any]:
        return await self.until(lambda line: line["type"] == "result")

    async def end(self) -> int:
        """No more is said; its exit code."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        while await self.line() is not None:
            pass
        return await self.process.wait()


@asynccontextmanager
async def conversation(
    tmp_path: Path, model: ScriptedModel, *flags: str, environ: dict[str, str] | None = None
) -> AsyncIterator[Host]:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    known = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    async with model.serve() as url:
        env = {**known, "HOME": str(tmp_path), "ATRIO_HOME": str(tmp_path / "home"), "ANTHROPIC_BASE_URL": url}
        with trio.fail_after(LIMIT):
            process = await trio.lowlevel.open_process(
                [*COMMAND, *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=project,
                env={**env, **(environ or {})},
            )
            try:
                yield Host(process)
            finally:
                if process.returncode is None:
                    process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()


def is_response(id: str) -> Callable[[dict[str, Any]], bool]:
    def wanted(line: dict[str, Any]) -> bool:
        return "control_response" == line["type"] and id == str(line["response"]["request_id"])

    return wanted


def starts_tool(line: dict[str, Any]) -> bool:
    return line["type"] == "assistant" and "tool_use" == str(line["message"]["content"][0]["type"])


async def test_each_line_is_a_turn_of_one_session(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One.")), Turn(text("Two."))])
    async with conversation(tmp_path, model) as host:
        await host.say(user("first"), user([{"type": "text", "text": "second"}]))
        results = [await host.result(), await host.result()]
        assert 0 == await host.end()

    assert ["One.", "Two."] == [result["result"] for result in results]
    assert 1 == len({line["session_id"] for line in host.lines})
    assert ["user", "assistant", "user"] == [message["role"] for message in model.requests[1].body["messages"]][-3:]


async def test_user_lines_are_repeated_on_demand(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One."))])
    async with conversation(tmp_path, model, "--replay-user-messages") as host:
        await host.say(user("first", uuid="4e2a8a6c-e90e-49ce-b46d-1ec50ea4ef32"))
        await host.result()
        await host.end()

    (repeated,) = [line for line in host.lines if line["type"] == "user"]
    assert (True, "4e2a8a6c-e90e-49ce-b46d-1ec50ea4ef32") == (repeated["isReplay"], repeated["uuid"])
    assert "first" == repeated["message"]["content"]
    assert ["system", "user", "assistant", "result"] == [line["type"] for line in host.lines]


async def test_a_line_with_a_priority_goes_into_the_run_in_progress(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(tool("Bash", {"command": "sleep 1"})), Turn(text("Done."))])
    async with conversation(tmp_path, model, "--allowedTools", "Bash", "--replay-user-messages") as host:
        await host.say(user("first"))
        await host.until(starts_tool)
        await host.say(user("and hurry", priority="next"))
        await host.result()
        await host.end()

    assert 1 == sum(line["type"] == "result" for line in host.lines)
    assert "and hurry" in str(model.requests[1].body["messages"][-1])
    assert 1 == sum("and hurry" in str(line) and line.get("isReplay", False) for line in host.lines)


async def test_an_interrupt_ends_the_turn_and_not_the_conversation(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(tool("Bash", {"command": "sleep 60"})), Turn(text("Here again."))])
    async with conversation(tmp_path, model, "--allowedTools", "Bash") as host:
        await host.say(user("first"))
        await host.until(starts_tool)
        await host.say(control("1", "interrupt"))
        await host.until(is_response("1"))
        first = await host.result()
        await host.say(user("second"))
        second = await host.result()
        assert 0 == await host.end()

    assert ("error_during_execution", "aborted_tools") == (first["subtype"], first["terminal_reason"])
    assert "Here again." == second["result"]


async def test_the_host_sets_model_and_permission_mode_and_hears_what_is_wrong(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One."))])
    async with conversation(tmp_path, model) as host:
        await host.say(
            control("0", "initialize", hooks=None),
            control("1", "set_model", model="m-2"),
            control("2", "set_permission_mode", mode="plan"),
            control("3", "set_permission_mode", mode="sometimes"),
            control("4", "rewind_files"),
            control("5", "initialize", hooks={"Stop": []}),
        )
        answers = [await host.until(is_response(str(number))) for number in range(6)]
        await host.say(user("first"))
        await host.result()
        await host.end()

    said = [answer["response"]["subtype"] for answer in answers]
    assert ["success", "success", "success", "error", "error", "error"] == said
    assert "compact" in [each["name"] for each in answers[0]["response"]["response"]["commands"]]
    assert "choose from default" in answers[3]["response"]["error"]
    assert "'rewind_files' is not available" in answers[4]["response"]["error"]
    assert "m-2" == model.requests[0].body["model"]
    (init,) = [line for line in host.lines if line.get("subtype") == "init"]
    assert ("m-2", "plan") == (init["model"], init["permissionMode"])


async def test_lines_that_are_not_understood_are_named_and_passed_over(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One."))])
    async with conversation(tmp_path, model) as host:
        await host.say(b"nonsense\n", b"\n", user(""), user("first"))
        refused, answered = await host.result(), await host.result()
        assert 0 == await host.end()

    (told,) = [line for line in host.lines if line.get("subtype") == "informational"]
    assert told["content"].startswith("line 1 of stdin was passed over: ")
    assert ("error_during_execution", "success") == (refused["subtype"], answered["subtype"])
    assert "it is empty" in refused["errors"][0]


async def test_a_line_that_asks_for_no_answer_only_joins(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One."))])
    async with conversation(tmp_path, model) as host:
        await host.say(user("the sky is green", shouldQuery=False), user("which colour?"))
        await host.result()
        assert 0 == await host.end()

    assert 1 == len(model.requests)
    assert "the sky is green" in str(model.requests[0].body["messages"])


async def test_input_that_holds_no_prompt_is_said_to(tmp_path: Path) -> None:
    async with conversation(tmp_path, ScriptedModel([])) as host:
        await host.say(b"nonsense")
        assert 2 == await host.end()
    async with conversation(tmp_path, ScriptedModel([])) as host:
        assert 0 == await host.end()


async def test_stdin_may_be_a_file(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text(json.dumps(user("first")) + "\n" + json.dumps(user("second")))
    project = tmp_path / "project"
    project.mkdir()
    model = ScriptedModel([Turn(text("One.")), Turn(text("Two."))])
    known = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    async with model.serve() as url:
        env = {**known, "HOME": str(tmp_path), "ATRIO_HOME": str(tmp_path / "home"), "ANTHROPIC_BASE_URL": url}
        with trio.fail_after(LIMIT), lines.open("rb") as stdin:
            done = await trio.run_process(COMMAND, stdin=stdin, capture_stdout=True, cwd=project, env=env, check=False)

    results = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "result"]
    assert (0, ["One.", "Two."]) == (done.returncode, [line["result"] for line in results])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_ends_the_run_and_the_conversation(tmp_path: Path, number: signal.Signals, code: int) -> None:
    model = ScriptedModel([Turn(tool("Bash", {"command": "sleep 60"}))])
    async with conversation(tmp_path, model, "--allowedTools", "Bash") as host:
        await host.say(user("first"), user("never"))
        await host.until(starts_tool)
        host.process.send_signal(number)
        result = await host.result()
        assert code == await host.process.wait()

    assert "aborted_tools" == result["terminal_reason"]
    assert 1 == len(model.requests)


async def test_a_signal_ends_a_conversation_that_waits(tmp_path: Path) -> None:
    async with conversation(tmp_path, ScriptedModel([Turn(text("One."))])) as host:
        await host.say(user("first"))
        await host.result()
        host.process.send_signal(signal.SIGTERM)
        assert 143 == await host.process.wait()


async def test_sighup_has_the_settings_read_before_the_next_run(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(text("One.")), Turn(text("Two.")), Turn(text("Three."))])
    settings = tmp_path / "project" / ".atrio" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"model": "m-1"}))
    async with conversation(tmp_path, model, environ={}) as host:
        await host.say(user("first"))
        await host.result()
        settings.write_text(json.dumps({"model": "m-2"}))
        host.process.send_signal(signal.SIGHUP)
        await host.say(user("second"))
        await host.result()
        settings.write_text("{")
        host.process.send_signal(signal.SIGHUP)
        await host.say(user("third"))
        await host.result()
        assert 0 == await host.end()

    assert ["m-1", "m-2", "m-2"] == [request.body["model"] for request in model.requests]


async def test_a_service_manager_is_kept_informed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        model = ScriptedModel(
            [Turn(tool("Bash", {"command": 'sleep 0.6; echo "[$NOTIFY_SOCKET]"'})), Turn(text("One."))]
        )
        async with conversation(tmp_path, model, "--allowedTools", "Bash", environ=environ) as host:
            await host.say(user("first"))
            await host.result()
            await host.end()
        manager.setblocking(False)
        heard: list[str] = []
        while not heard or heard[-1] != "STOPPING=1":
            heard.append(manager.recv(4096).decode())

    assert any(said.startswith("READY=1\nSTATUS=session ") for said in heard)
    assert heard.count("WATCHDOG=1") >= 2
    assert "[]" in str(model.requests[1].body["messages"][-1])


async def test_a_message_that_was_accepted_outlives_kill_9(tmp_path: Path) -> None:
    model = ScriptedModel([Turn(tool("Bash", {"command": "sleep 60"}))])
    async with conversation(tmp_path, model, "--allowedTools", "Bash") as host:
        await host.say(user("first"))
        await host.until(starts_tool)
        await host.say(user("and then this", priority="later"))
        journal = next((tmp_path / "home" / "projects").rglob("*.jsonl"))
        while b"message_queued" not in journal.read_bytes():  # noqa: ASYNC110  # another process writes it
            await trio.sleep(0.02)
        host.process.kill()
        await host.process.wait()
    model = ScriptedModel([Turn(text("Both done."))])
    async with conversation(tmp_path, model, "--continue") as host:
        await host.say(user("go on"))
        await host.result()
        assert 0 == await host.end()

    assert 1 == str(model.requests[0].body["messages"]).count("and then this")
