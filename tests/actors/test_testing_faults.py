"""Each fault is what it promises to be, in memory and on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from atrio.actors.testing import Fault, FaultPlan, ScriptedModel, Turn, text, tool

Object = dict[str, Any]

REQUEST: Object = {
    "model": "m",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
}
TURN = Turn(text("I look at the file."), tool("Read", {"file_path": "a"}))
CARRIERS = ["memory", "loopback"]

Outcome = tuple[int, bytes, type[Exception] | None]


@asynccontextmanager
async def carried(model: ScriptedModel, carrier: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the model."""
    if carrier == "memory":
        async with httpx.AsyncClient(transport=model.transport(), base_url="http://model.test") as client:
            yield client
    else:
        async with model.serve() as url, httpx.AsyncClient(base_url=url) as client:
            yield client


async def ask(client: httpx.AsyncClient, **fields: object) -> Outcome:
    """Status (0: none came), body as far as it came, and how it broke."""
    status, parts = 0, list[bytes]()
    try:
        async with client.stream("POST", "/v1/messages", json=REQUEST | fields) as response:
            status = response.status_code
            async for chunk in response.aiter_raw():
                parts.append(chunk)
    except httpx.TransportError as error:
        return status, b"".join(parts), type(error)
    return status, b"".join(parts), None


async def outcomes(fault: Fault, carrier: str, **fields: object) -> tuple[Outcome, Outcome]:
    """What the request gets, with the fault and then without."""
    model = ScriptedModel([TURN, Turn(text("next"))], faults={1: fault})
    async with carried(model, carrier) as client:
        faulty = await ask(client, **fields)
        whole = await ask(client, **fields)
    assert [] == model.violations
    return faulty, whole


def error_of(body: bytes) -> Object:
    error: Object = json.loads(body)["error"]
    return error


def fresh(body: bytes) -> bytes:
    """The body as the first response would have had it."""
    return body.replace(b"_0002", b"_0001")


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_both_carriers_give_the_same(carrier: str) -> None:
    model = ScriptedModel([TURN, TURN, TURN])
    async with carried(model, carrier) as client:
        first = await ask(client)
        second = await ask(client, stream=False)
        third = (await client.post("/v1/messages", json=REQUEST)).headers
    direct = ScriptedModel([TURN, TURN, TURN])
    body = httpx.Request("POST", "http://x", json=REQUEST).content
    assert (200, direct.respond("POST", "/v1/messages", {}, body).body, None) == first
    assert "tool_use" == json.loads(second[1])["stop_reason"]
    assert "text/event-stream; charset=utf-8" == third["content-type"]
    assert "req_0003" == third["request-id"]


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_status_comes_with_the_error_of_the_api(carrier: str) -> None:
    model = ScriptedModel([TURN], faults={1: Fault.status(529, retry_after=2, headers={"x-should-retry": "true"})})
    async with carried(model, carrier) as client:
        response = await client.post("/v1/messages", json=REQUEST)
        assert 529 == response.status_code
        assert {"type": "overloaded_error", "message": "Overloaded"} == error_of(response.content)
        assert ["2", "true"] == [response.headers["retry-after"], response.headers["x-should-retry"]]
        assert (await client.post("/v1/messages", json=REQUEST)).status_code == 200


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Fault.status(429), "rate_limit_error", "Too Many Requests"),
        (Fault.status(500), "api_error", "Internal Server Error"),
        (Fault.status(418, message="tea"), "invalid_request_error", "tea"),
        (Fault.status(400, type="billing_error"), "billing_error", "Bad Request"),
        (Fault.status(599), "api_error", "Status 599"),
    ],
)
async def test_a_status_has_its_type_and_text(fault: Fault, kind: str, words: str) -> None:
    (_, body, broken), whole = await outcomes(fault, "memory")
    assert ({"type": kind, "message": words}, None) == (error_of(body), broken)
    assert 200 == whole[0]


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("size", [0, 1, 300, 310, 10**6])
async def test_a_cut_keeps_so_many_bytes_and_breaks(carrier: str, size: int) -> None:
    (status, body, broken), (_, whole, _) = await outcomes(Fault.cut(after_bytes=size), carrier)
    assert (200, httpx.RemoteProtocolError) == (status, broken)
    if size < len(whole):
        assert fresh(whole)[:size] == body
    else:
        assert b"event: message_stop" in body
        assert b"next" in whole, "all of the turn was sent, so it is used"


@pytest.mark.parametrize("size", [0, 300])
async def test_a_stall_sends_nothing_more(size: int, autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([TURN], faults={1: Fault.stall(after_bytes=size)})
    parts: list[bytes] = []
    async with carried(model, "memory") as client:
        with trio.move_on_after(3600) as scope:
            async with client.stream("POST", "/v1/messages", json=REQUEST, timeout=None) as response:
                async for chunk in response.aiter_raw():
                    parts.append(chunk)
    assert scope.cancelled_caught
    assert size == len(b"".join(parts))


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_stall_ends_with_the_patience_of_the_client(carrier: str) -> None:
    model = ScriptedModel([TURN], faults={1: Fault.stall(after_bytes=300)})
    async with carried(model, carrier) as client:
        client.timeout = httpx.Timeout(5, read=0.02)
        status, body, broken = await ask(client)
    assert (200, 300, httpx.ReadTimeout) == (status, len(body), broken)


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_an_error_event_ends_a_stream_that_began_well(carrier: str) -> None:
    (status, body, broken), (_, whole, _) = await outcomes(Fault.error_event(after_frames=3), carrier)
    assert (200, None) == (status, broken)
    error = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'
    assert b"".join(part + b"\n\n" for part in fresh(whole).split(b"\n\n")[:3]) + error == body


@pytest.mark.parametrize("fault", [Fault.error_event(after_frames=99), Fault.garbage(after_frames=99)])
async def test_what_goes_wrong_after_the_last_frame_spoils_nothing(fault: Fault) -> None:
    (_, body, _), (_, later, _) = await outcomes(fault, "memory")
    assert b"event: message_stop" in body
    assert b"next" in later


async def test_an_error_event_without_streaming_is_a_status() -> None:
    (status, body, _), _ = await outcomes(Fault.error_event(type="rate_limit_error"), "memory", stream=False)
    assert (429, "rate_limit_error") == (status, error_of(body)["type"])


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_garbage_stands_among_the_frames(carrier: str) -> None:
    (_, body, broken), (_, whole, _) = await outcomes(Fault.garbage(after_frames=2, data=b"data: {\n\n"), carrier)
    frames = fresh(whole).split(b"\n\n")
    assert (b"\n\n".join([*frames[:2], b"data: {", *frames[2:]]), None) == (body, broken)


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_refused_connection_gives_no_answer(carrier: str) -> None:
    (status, body, broken), (again, _, _) = await outcomes(Fault.refuse(), carrier)
    assert (0, b"", 200) == (status, body, again)
    assert broken is (httpx.ConnectError if carrier == "memory" else httpx.ReadError)


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_page_comes_instead_of_a_stream(carrier: str) -> None:
    model = ScriptedModel([TURN], faults={1: Fault.html(status=200)})
    async with carried(model, carrier) as client:
        response = await client.post("/v1/messages", json=REQUEST)
    assert (200, "text/html; charset=utf-8") == (response.status_code, response.headers["content-type"])
    assert "<html>" in response.text


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_dropped_frames_are_gone(carrier: str) -> None:
    (_, body, _), (_, whole, _) = await outcomes(Fault.drop_frames({1, -1}), carrier)
    frames = fresh(whole).split(b"\n\n")
    assert b"\n\n".join([frames[0], *frames[2:-2], b""]) == body


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_doubled_frames_come_twice_and_count_as_delivered(carrier: str) -> None:
    (_, body, _), (_, later, _) = await outcomes(Fault.duplicate_frames({0}), carrier)
    assert 2 == body.count(b"event: message_start")
    assert b"next" in later


async def test_a_slow_response_is_late_and_whole(autojump_clock: trio.testing.MockClock) -> None:
    start = trio.current_time()
    model = ScriptedModel([Turn(text("a")), Turn(text("next"))], faults={1: Fault.slow(delay=5, pace=1)})
    async with carried(model, "memory") as client:
        client.timeout = httpx.Timeout(None)
        _, body, broken = await ask(client)
    frames = body.count(b"\n\n")
    assert (5 + frames - 1, None) == (trio.current_time() - start, broken)
    assert 1 == model.position


@pytest.mark.slow
async def test_a_slow_response_is_late_on_loopback_too() -> None:
    start = trio.current_time()
    await outcomes(Fault.slow(delay=0.05), "loopback")
    assert 0.05 <= trio.current_time() - start


async def test_a_plan_may_be_a_function_of_number_and_request() -> None:
    seen: list[tuple[int, Object]] = []

    def plan(number: int, request: Object) -> Fault | None:
        seen.append((number, request))
        return Fault.status(503) if number == 2 else None

    model = ScriptedModel([TURN], repeat_last=True, faults=FaultPlan(plan))
    async with carried(model, "memory") as client:
        assert [200, 503, 200] == [(await ask(client))[0] for _ in range(3)]
    assert [(1, REQUEST), (2, REQUEST), (3, REQUEST)] == seen


async def test_a_fault_comes_before_the_judgement_of_the_request() -> None:
    model = ScriptedModel([TURN], faults={1: Fault.status(529)})
    async with carried(model, "memory") as client:
        assert 529 == (await ask(client, max_tokens=0))[0]
    assert 1 == len(model.violations)


def test_requests_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        FaultPlan({0: Fault.refuse()})
