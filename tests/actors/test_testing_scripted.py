"""The scripted model picks its turns, keeps count, records what it was asked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from atrio.actors.testing import Fault, ScriptedModel, Turn, check_history, text, thinking, tool
from atrio.actors.testing.replies import Reply
from atrio.runtime.messages import AssistantMessage, TextBlock, ToolUseBlock, UserMessage

Object = dict[str, Any]

URL = "http://model.test/v1/messages"
FIRST: Object = {"role": "user", "content": "hello"}


def request(*messages: Object, **fields: object) -> Object:
    return {"model": "m", "max_tokens": 100, "messages": [FIRST, *messages], **fields}


def ask(model: ScriptedModel, body: Object, *, deliver: bool = True) -> Reply:
    reply = model.respond("POST", "/v1/messages", {}, json.dumps(body).encode())
    if deliver:
        reply.delivered()
    return reply


def said(reply: Reply) -> list[Object]:
    content: list[Object] = json.loads(reply.body)["content"]
    return content


def words(reply: Reply) -> str:
    return "".join(block.get("text", "") for block in said(reply))


def refusal(reply: Reply) -> str:
    assert 400 == reply.status
    message: str = json.loads(reply.body)["error"]["message"]
    return message


def test_turns_come_in_order() -> None:
    model = ScriptedModel([Turn(text("one")), Turn(text("two"))])
    assert ["one", "two"] == [words(ask(model, request())) for _ in range(2)]
    assert 2 == model.position


def test_a_request_beyond_the_script_is_told_so() -> None:
    model = ScriptedModel([Turn(text("one"))])
    ask(model, request())
    assert "the script has 1 turns and all were delivered" in refusal(ask(model, request()))
    assert [] == model.violations


def test_the_last_turn_repeats_where_so_wanted() -> None:
    model = ScriptedModel([Turn(text("one")), Turn(text("two"))], repeat_last=True)
    assert ["one", "two", "two", "two"] == [words(ask(model, request())) for _ in range(4)]


def test_a_response_that_was_not_delivered_is_given_again_with_new_ids() -> None:
    model = ScriptedModel([Turn(text("one"), tool("Read")), Turn(text("two"))])
    first = said(ask(model, request(), deliver=False))
    again = said(ask(model, request()))
    assert ["toolu_0001", "toolu_0002"] == [first[1]["id"], again[1]["id"]]
    assert first[0] == again[0]


def test_a_call_that_comes_back_has_been_delivered() -> None:
    model = ScriptedModel([Turn(text("one"), tool("Read")), Turn(text("two"))])
    call = said(ask(model, request(), deliver=False))[1]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "x"}
    later = request({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
    assert "two" == words(ask(model, later))


def test_a_text_that_comes_back_has_been_delivered() -> None:
    model = ScriptedModel([Turn(text("one"), text("more")), Turn(text("two"))])
    ask(model, request(), deliver=False)
    kept = {"role": "assistant", "content": [{"type": "text", "text": "one"}]}
    assert "two" == words(ask(model, request(kept, {"role": "user", "content": "go on"})))


def test_a_text_that_was_there_before_says_nothing() -> None:
    model = ScriptedModel([Turn(text("one")), Turn(text("two"))])
    kept = {"role": "assistant", "content": [{"type": "text", "text": "one"}]}
    body = request(kept, {"role": "user", "content": "go on"})
    ask(model, body, deliver=False)
    assert "one" == words(ask(model, body))


def test_a_late_delivery_of_an_old_attempt_counts_once() -> None:
    model = ScriptedModel([Turn(text("one")), Turn(text("two"))])
    early = ask(model, request(), deliver=False)
    ask(model, request())
    early.delivered()
    assert "two" == words(ask(model, request()))


def test_a_function_picks_the_turn_from_the_request() -> None:
    model = ScriptedModel(by=lambda body: Turn(text(body["messages"][0]["content"].upper())))
    assert ["HELLO", "HELLO"] == [words(ask(model, request())) for _ in range(2)]


def test_new_ids_avoid_those_that_the_conversation_has() -> None:
    call = {"type": "tool_use", "id": "toolu_0001", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_0001", "content": "x"}
    body = request({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
    model = ScriptedModel([Turn(tool("Read"), tool("Read", id="mine"), tool("Read"))])
    assert ["toolu_0002", "mine", "toolu_0003"] == [block["id"] for block in said(ask(model, body))]


def test_message_ids_differ_between_responses_and_between_models() -> None:
    one, two = (ScriptedModel([Turn()], repeat_last=True) for _ in range(2))
    bodies = [request(), request(), request(temperature=1)]
    ids = {json.loads(ask(one, body).body)["id"] for body in bodies}
    ids |= {json.loads(ask(two, request(top_k=3)).body)["id"]}
    assert 4 == len(ids)


def test_requests_are_recorded_as_they_came() -> None:
    fault = Fault.status(529)
    model = ScriptedModel([Turn()], faults={2: fault})
    body = request(stream=True)
    model.respond("POST", "/prefix/v1/messages", {"x-api-key": "k"}, json.dumps(body).encode(), at=1.5)
    ask(model, request())
    first, second = model.requests
    assert (1, body, {"x-api-key": "k"}, 1.5, None) == (first.number, first.body, first.headers, first.at, first.fault)
    assert [FIRST] == first.messages
    assert [True, False] == [first.streaming, second.streaming]
    assert fault is second.fault


def test_a_strict_model_refuses_and_remembers() -> None:
    model = ScriptedModel([Turn(text("one"))])
    problem = "max_tokens: Input should be greater than or equal to 1"
    assert problem == refusal(ask(model, request(max_tokens=0)))
    assert [f"request 1: {problem}"] == model.violations
    assert "one" == words(ask(model, request()))


def test_a_lenient_model_answers_and_remembers() -> None:
    model = ScriptedModel([Turn(text("one"))], strict=False)
    assert "one" == words(ask(model, request(max_tokens=0)))
    assert 1 == len(model.violations)


def test_a_model_that_does_not_validate_sees_nothing() -> None:
    model = ScriptedModel([Turn(text("one"))], validate=False)
    assert "one" == words(ask(model, request(max_tokens=0)))
    assert [] == model.violations


def test_a_body_that_is_no_json_object_is_refused_even_by_a_lenient_model() -> None:
    model = ScriptedModel([Turn(text("one"))], strict=False)
    reply = model.respond("POST", "/v1/messages", {}, b"{nope")
    assert "the request body is not a JSON object" == refusal(reply)
    assert [{}] == [request.body for request in model.requests]


@pytest.mark.parametrize("signature", [None, "signed by hand"])
def test_thinking_must_come_back_as_it_was(signature: str | None) -> None:
    model = ScriptedModel([Turn(thinking("hm", signature=signature), text("one"))], repeat_last=True)
    blocks = said(ask(model, request()))
    go_on = {"role": "user", "content": "go on"}
    ask(model, request({"role": "assistant", "content": blocks}, go_on))
    assert [] == model.violations
    edited = [blocks[0] | {"thinking": "hmm"}, blocks[1]]
    assert "Invalid `signature`" in refusal(ask(model, request({"role": "assistant", "content": edited}, go_on)))
    forged = [blocks[0] | {"signature": "other"}, blocks[1]]
    assert "Invalid `signature`" in refusal(ask(model, request({"role": "assistant", "content": forged}, go_on)))


def test_thinking_of_another_scripted_model_is_known_by_its_derived_signature() -> None:
    blocks = said(ask(ScriptedModel([Turn(thinking("hm"), text("one"))]), request()))
    model = ScriptedModel([Turn()])
    ask(model, request({"role": "assistant", "content": blocks}, {"role": "user", "content": "go on"}))
    assert [] == model.violations


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/messages"), ("POST", "/v1/messages/count_tokens")])
def test_other_paths_do_not_exist_and_do_not_count(method: str, path: str) -> None:
    model = ScriptedModel([Turn()])
    reply = model.respond(method, path, {}, b"")
    assert 404 == reply.status
    assert "not_found_error" == json.loads(reply.body)["error"]["type"]
    assert [] == model.requests


def test_a_whole_body_comes_when_the_stream_would_have_ended() -> None:
    model = ScriptedModel([Turn(text("one"), delay=1, at=3)])
    assert 4 == ask(model, request()).delay


# --- in memory ------------------------------------------------------------------------------------


async def test_frames_come_one_by_one_at_their_times(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([Turn(tool("A", after=0.5), tool("B", after=1.5), delay=2, at=4)])
    start = trio.current_time()
    times: list[tuple[float, str]] = []
    async with (
        httpx.AsyncClient(transport=model.transport()) as client,
        client.stream("POST", URL, json=request(stream=True)) as response,
    ):
        assert 2 == trio.current_time() - start
        async for chunk in response.aiter_raw():
            times.append((trio.current_time() - start, chunk.split(b"\n")[0].decode()))
    assert (2, "event: message_start") == times[0]
    assert [2.5, 3.5] == [at for at, name in times if name == "event: content_block_stop"]
    assert (6, "event: message_stop") == times[-1]


async def test_a_cancelled_response_is_not_delivered(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([Turn(text("one"), at=60), Turn(text("two"))])
    async with httpx.AsyncClient(transport=model.transport(), timeout=None) as client:
        with trio.move_on_after(1) as scope:
            async with client.stream("POST", URL, json=request(stream=True)) as response:
                async for _ in response.aiter_raw():
                    pass
        assert scope.cancelled_caught
        assert 0 == model.position
        async with client.stream("POST", URL, json=request(stream=True)) as response:
            assert b"one" in await response.aread()
    assert 1 == model.position


async def test_a_stream_without_pauses_still_lets_others_run(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([Turn(text("x" * 400, chunk=1))])
    with trio.CancelScope() as scope:
        async with (
            httpx.AsyncClient(transport=model.transport()) as client,
            client.stream("POST", URL, json=request(stream=True)) as response,
        ):
            async for chunk in response.aiter_raw():
                assert not scope.cancel_called
                if b"content_block_delta" in chunk:
                    scope.cancel()
    assert scope.cancelled_caught


async def test_the_read_timeout_of_the_client_holds(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel([Turn(delay=60)])
    start = trio.current_time()
    async with httpx.AsyncClient(transport=model.transport(), timeout=5) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(URL, json=request())
    assert 5 == trio.current_time() - start


async def test_many_clients_share_one_transport(autojump_clock: trio.testing.MockClock) -> None:
    model = ScriptedModel(by=lambda body: Turn(text(body["messages"][0]["content"]), pace=0.1))
    transport = model.transport()
    heard: dict[int, str] = {}

    async def one(number: int) -> None:
        body = request() | {"messages": [{"role": "user", "content": f"I am {number}"}]}
        async with httpx.AsyncClient(transport=transport) as client:
            heard[number] = words_of((await client.post(URL, json=body)).json())

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert {number: f"I am {number}" for number in range(20)} == heard


def words_of(message: Object) -> str:
    return "".join(block["text"] for block in message["content"])


# --- the kit itself -------------------------------------------------------------------------------


def test_a_history_that_breaks_the_law_is_shown_with_all_its_faults() -> None:
    prompt = UserMessage(uuid="1", content=(TextBlock("hello"),))
    call = AssistantMessage(uuid="2", message_id="m", model="m", content=(ToolUseBlock("t", "Read", {}),))
    check_history([prompt])
    with pytest.raises(AssertionError, match="the history is not valid:\n- "):
        check_history([prompt, call])


@pytest.mark.slow
def test_importing_the_kit_brings_no_test_runner() -> None:
    code = "import sys, atrio.actors.testing; sys.exit('pytest' in sys.modules or 'hypothesis' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
