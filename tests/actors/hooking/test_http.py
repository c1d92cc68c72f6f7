"""Hooks that are web addresses: what they get, and that no answer, however bad, does more than say nothing."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from atrio.actors.hooking.answers import OUTPUT_LIMIT_BYTES
from atrio.actors.hooking.config import parse_hooks
from atrio.actors.hooking.engine import HookEngine
from atrio.actors.hooking.payloads import HookSession, pre_tool_use
from atrio.actors.hooking.verdicts import HookOutcome, Permission

CALL = pre_tool_use("Bash", {"command": "ls"}, "c1")
DENY = json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}).encode()


@attrs.define
class Server:
    """Answers every request with the same bytes, and remembers what it got."""

    reply: bytes
    hang: bool = False
    port: int = 0
    got: list[bytes] = attrs.field(factory=list)
    asked: trio.Event = attrs.field(factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            if end and len(body) >= _length(head):
                break
            chunk = await stream.receive_some()
            if not chunk:
                return
            data += bytes(chunk)
        self.got.append(data)
        self.asked.set()
        if self.reply:
            try:
                await stream.send_all(self.reply)
            except trio.BrokenResourceError:
                return
        if self.hang:
            await trio.sleep_forever()


def _length(head: bytes) -> int:
    fields = (line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:])
    return next((int(value) for name, value in fields if name == b"content-length"), 0)


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, server.serve, 0)
        server.port = listeners[0].socket.getsockname()[1]
        yield server
        nursery.cancel_scope.cancel()


def engine_for(url: str, cwd: Path, **more: Any) -> HookEngine:
    return HookEngine(
        config=parse_hooks({"PreToolUse": [{"hooks": [{"type": "http", "url": url, **more}]}]}),
        session=HookSession(session_id="s", transcript_path="", cwd=str(cwd)),
        cwd=cwd,
        environ={"TOKEN": "t0k", "OTHER": "hidden"},
    )


async def fire(server: Server, cwd: Path, **more: Any) -> HookOutcome:
    async with serving(server):
        return await engine_for(f"http://127.0.0.1:{server.port}/hook?x=1", cwd, **more).fire(CALL)


async def test_the_event_is_posted_as_json_and_the_body_is_heard(tmp_path: Path) -> None:
    server = Server(answer(DENY))
    headers = {"Authorization": "Bearer $TOKEN", "X-Other": "a${OTHER}b"}
    outcome = await fire(server, tmp_path, headers=headers, allowedEnvVars=["TOKEN"])
    assert outcome.permission is Permission.DENY
    ((head, _, body),) = [data.partition(b"\r\n\r\n") for data in server.got]
    assert head.startswith(b"POST /hook?x=1 HTTP/1.1\r\n")
    lines = head.lower().split(b"\r\n")
    assert {b"content-type: application/json", b"authorization: bearer t0k", b"x-other: ab"} <= set(lines)
    assert "PreToolUse" == json.loads(body)["hook_event_name"]


async def test_no_body_says_nothing(tmp_path: Path) -> None:
    assert HookOutcome() == await fire(Server(answer(b"", "204 No Content")), tmp_path)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (answer(DENY, "500 Internal Server Error"), "answered with status 500"),
        (answer(DENY, "302 Found", "Location: http://127.0.0.1:1/"), "answered with status 302"),
        (answer(b"{broken"), "no JSON"),
        (answer(DENY, "200 OK", "Content-Encoding: gzip"), "compressed"),
        (answer(DENY)[:-5], "no answer"),
        (b"nonsense\r\n\r\n", "no answer"),
        (b"", "no answer"),
    ],
)
async def test_a_bad_answer_is_a_notice_and_has_no_say(tmp_path: Path, reply: bytes, problem: str) -> None:
    outcome = await fire(Server(reply), tmp_path)
    assert HookOutcome(notices=outcome.notices) == outcome
    (notice,) = outcome.notices
    assert problem in notice.text
    assert notice.text.startswith("hook address http://127.0.0.1:")


async def test_a_flood_is_not_read_to_its_end(tmp_path: Path) -> None:
    flood = answer(b"{" + b"x" * (OUTPUT_LIMIT_BYTES + 500_000))
    outcome = await fire(Server(flood, hang=True), tmp_path)
    assert "more than 4,194,304 bytes" in outcome.notices[0].text


async def test_nobody_listening_is_a_notice(tmp_path: Path) -> None:
    async with serving(Server(b"")) as server:
        port = server.port
    outcome = await engine_for(f"http://127.0.0.1:{port}/", tmp_path).fire(CALL)
    assert HookOutcome(notices=outcome.notices) == outcome
    assert "no answer: " in outcome.notices[0].text


@pytest.mark.parametrize("value", ["a\r\nb: c", "\u2028", "a\0b"])
async def test_a_header_that_cannot_be_sent_is_a_notice(tmp_path: Path, value: str) -> None:
    outcome = await fire(Server(answer(DENY)), tmp_path, headers={"X-A": value})
    assert HookOutcome(notices=outcome.notices) == outcome
    assert 1 == len(outcome.notices)


@pytest.mark.slow
@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\n", answer(DENY)[:-5]])
async def test_an_address_that_hangs_is_left_at_its_deadline(tmp_path: Path, reply: bytes) -> None:
    with trio.fail_after(3):
        outcome = await fire(Server(reply, hang=True), tmp_path, timeout=0.2)
    assert HookOutcome(notices=outcome.notices) == outcome
    assert "said nothing within 0.2 s" in outcome.notices[0].text


async def test_cancelling_closes_the_connection(tmp_path: Path) -> None:
    server = Server(b"", hang=True)
    async with serving(server):
        before = _descriptors()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(engine_for(f"http://127.0.0.1:{server.port}/", tmp_path).fire, CALL)
            await server.asked.wait()
            nursery.cancel_scope.cancel()
        # The server's own end of it is left: it hangs.
        assert _descriptors() - before <= 1


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
