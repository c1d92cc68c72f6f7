"""The loopback server behaves as a server should, whatever its clients do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from atrio.actors.testing import Fault, ScriptedModel, Turn, raw, text
from atrio.actors.testing import scripted as scripted_module
from atrio.actors.testing import server as server_module

BODY = json.dumps(
    {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "stream": True}
).encode()
REQUEST = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def connect(url: str) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))


async def read_until(stream: trio.SocketStream, end: bytes) -> bytes:
    data = b""
    with trio.fail_after(5):
        while not data.endswith(end):
            more = bytes(await stream.receive_some())
            assert more, data
            data += more
    return data


async def read_all(stream: trio.SocketStream) -> bytes:
    with trio.fail_after(5):
        return b"".join([bytes(part) async for part in stream])


async def test_each_frame_is_one_chunk() -> None:
    async with ScriptedModel([Turn(raw([b"one", b"", b"three"]))]).serve() as url, await connect(url) as stream:
        await stream.send_all(REQUEST)
        head, _, body = (await read_until(stream, b"0\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n" == body


async def test_a_connection_serves_many_requests() -> None:
    model = ScriptedModel([Turn(raw(b"x"))], repeat_last=True)
    async with model.serve() as url, await connect(url) as stream:
        for _ in range(3):
            await stream.send_all(REQUEST)
            await read_until(stream, b"0\r\n\r\n")
    assert 3 == len(model.requests)


async def test_requests_that_come_early_are_answered_in_order() -> None:
    model = ScriptedModel([Turn(raw(b"one"), delay=0.02), Turn(raw(b"two"))])
    async with model.serve() as url, await connect(url) as stream:
        await stream.send_all(REQUEST + REQUEST[:40])
        await read_until(stream, b"one\r\n0\r\n\r\n")
        await stream.send_all(REQUEST[40:])
        await read_until(stream, b"two\r\n0\r\n\r\n")


async def test_no_response_at_all_is_two_lines() -> None:
    async with ScriptedModel([Turn(raw(()))]).serve() as url, await connect(url) as stream:
        await stream.send_all(REQUEST)
        assert (await read_until(stream, b"\r\n\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with ScriptedModel([Turn(raw(b"x"))]).serve() as url, await connect(url) as stream:
        await stream.send_all(REQUEST.replace(b"host: x", b"host: x\r\nexpect: 100-continue").removesuffix(BODY))
        await read_until(stream, b"HTTP/1.1 100 Continue\r\n\r\n")
        await stream.send_all(BODY)
        await read_until(stream, b"0\r\n\r\n")


async def test_a_client_that_leaves_ends_a_stall() -> None:
    async with ScriptedModel([Turn(text("x"))], faults={1: Fault.stall(after_bytes=10)}).serve() as url:
        idle = trio.lowlevel.current_statistics().tasks_living
        stream = await connect(url)
        await stream.send_all(REQUEST)
        await stream.receive_some()
        assert trio.lowlevel.current_statistics().tasks_living > idle
        await stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert idle == trio.lowlevel.current_statistics().tasks_living


async def test_a_client_that_resets_is_its_own_affair() -> None:
    model = ScriptedModel([Turn(text("x" * 1_000, chunk=1)), Turn(raw(b"two"))], faults={1: Fault.garbage()})
    async with model.serve() as url:
        stream = await connect(url)
        await stream.send_all(REQUEST)
        await stream.receive_some(10)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await stream.aclose()
        async with httpx.AsyncClient() as client:
            assert 200 == (await client.post(f"{url}/v1/messages", content=BODY)).status_code


async def test_what_is_no_http_is_told_so_and_closed() -> None:
    async with ScriptedModel().serve() as url, await connect(url) as stream:
        await stream.send_all(b"hello\r\n\r\n")
        answer = await read_all(stream)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"not a proper HTTP request" in answer


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    limit = len(BODY) - 1
    monkeypatch.setattr(scripted_module, "BODY_LIMIT", limit)
    monkeypatch.setattr(server_module, "BODY_LIMIT", limit)
    return limit


async def test_a_body_that_is_too_large_is_refused_and_the_connection_lives(small_limit: int) -> None:
    model = ScriptedModel()
    async with model.serve() as url, await connect(url) as stream:
        for _ in range(2):
            await stream.send_all(REQUEST)
            assert (await read_until(stream, b"0\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
    assert [] == model.requests


async def test_a_body_without_end_closes_the_connection(small_limit: int) -> None:
    async with ScriptedModel().serve() as url, await connect(url) as stream:
        await stream.send_all(REQUEST.replace(b"content-length: %d" % len(BODY), b"content-length: 999999") + BODY * 4)
        assert b"" == await read_all(stream)


def test_a_body_has_a_limit_in_memory_too(small_limit: int) -> None:
    assert 413 == ScriptedModel().respond("POST", "/v1/messages", {}, BODY).status


async def test_everything_is_closed_with_the_block() -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with ScriptedModel([Turn(text("x"), delay=60)]).serve() as url:
        stream = await connect(url)
        await stream.send_all(REQUEST)
        await trio.testing.wait_all_tasks_blocked()
    assert tasks == trio.lowlevel.current_statistics().tasks_living
    async with stream:
        with trio.fail_after(5):
            with suppress(trio.BrokenResourceError):
                assert b"" == await stream.receive_some()
    with pytest.raises(OSError, match="connect"):
        await connect(url)


async def test_the_error_of_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine") as caught:
        async with ScriptedModel().serve():
            raise KeyError("mine") from ValueError("cause")
    assert isinstance(caught.value.__cause__, ValueError)


async def test_an_error_of_the_script_ends_the_block() -> None:
    def broken(request: object) -> Turn:
        raise LookupError("no turn for this")

    async def ask_and_wait() -> None:
        async with ScriptedModel(by=broken).serve() as url, await connect(url) as stream:
            await stream.send_all(REQUEST)
            await trio.sleep_forever()

    with pytest.raises(LookupError, match="no turn for this"):
        await ask_and_wait()


async def test_a_cancelled_block_closes_too() -> None:
    with trio.move_on_after(5) as scope:
        async with ScriptedModel().serve() as url:
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    with pytest.raises(OSError, match="connect"):
        await connect(url)


@pytest.mark.slow
async def test_the_module_serves_a_small_scenario() -> None:
    command = [sys.executable, "-m", "atrio.actors.testing", "--port", "0"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        with trio.fail_after(20):
            assert process.stdout is not None
            url = bytes(await process.stdout.receive_some()).decode().strip()
            tools = [{"name": "Bash", "input_schema": {"type": "object"}}]
            ask: dict[str, Any] = {
                "model": "m",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "hi"}],
                "tools": tools,
            }
            async with httpx.AsyncClient(base_url=url) as client:
                said = (await client.post("/v1/messages", json=ask)).json()["content"]
                call = said[-1]
                assert ("tool_use", "Bash") == (call["type"], call["name"])
                result = {"type": "tool_result", "tool_use_id": call["id"], "content": "hello"}
                later = [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
                last = (await client.post("/v1/messages", json=ask | {"messages": [*ask["messages"], *later]})).json()
                assert "end_turn" == last["stop_reason"]
    finally:
        process.kill()
        with trio.move_on_after(5, shield=True):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
