"""Mailboxes and one-shot replies."""

from __future__ import annotations

import random
from contextlib import suppress

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from atrio.runtime.errors import (
    ConfigError,
    InvariantError,
    MailboxDeadlock,
    MailboxOverflow,
    PeerGone,
    ReplyDropped,
)
from atrio.runtime.mailbox import Address, Inbox, MailboxStatistics, Pending, Reply, open_mailbox, open_reply


def small(capacity: int = 1, reserve: int = 0) -> tuple[Address[int], Inbox[int]]:
    return open_mailbox(capacity, reserve=reserve, name="small")


def answer() -> tuple[Reply[str], Pending[str]]:
    return open_reply()


# --- ordinary messages ----------------------------------------------------------------------------


async def test_messages_arrive_in_order_whatever_their_kind() -> None:
    address, inbox = small(capacity=3, reserve=2)
    await address.send(1)
    address.reply(2)
    assert address.offer(3)
    address.reply(4)
    await address.send(5)
    assert inbox.drain() == [1, 2, 3, 4, 5]
    assert inbox.drain() == []


async def test_offer_is_refused_while_all_ordinary_places_are_taken() -> None:
    address, inbox = small(capacity=2, reserve=5)
    assert [address.offer(n) for n in range(3)] == [True, True, False]
    assert inbox.depth == 2
    assert await inbox.receive() == 0
    assert address.offer(9)
    assert inbox.drain() == [1, 9]


async def test_send_waits_for_a_place_and_takes_turns() -> None:
    address, inbox = small()
    await address.send(0)
    async with trio.open_nursery() as nursery:
        for number in (1, 2):
            nursery.start_soon(address.send, number)
            await trio.testing.wait_all_tasks_blocked()
        assert not address.offer(99)
        assert inbox.statistics().waiting_senders == 2
        assert [await inbox.receive() for _ in range(3)] == [0, 1, 2]


async def test_a_cancelled_send_puts_nothing_in_and_keeps_no_place() -> None:
    address, inbox = small()
    await address.send(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(address.send, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel(reason="test")
    assert inbox.drain() == [0]
    assert address.offer(2)
    assert inbox.drain() == [2]


async def test_a_cancelled_receive_takes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    address, inbox = small()
    with trio.move_on_after(1):
        await inbox.receive()
    await address.send(7)
    assert await inbox.receive() == 7


async def test_receive_nowait_says_so_when_nothing_is_there() -> None:
    address, inbox = small()
    await address.send(1)
    assert inbox.receive_nowait() == 1
    with pytest.raises(trio.WouldBlock):
        inbox.receive_nowait()
    address.close()
    with pytest.raises(trio.EndOfChannel):
        inbox.receive_nowait()


async def test_iteration_ends_when_the_last_address_is_closed() -> None:
    address, inbox = small(capacity=3)
    with address, address.clone() as second:
        await address.send(1)
        address.close()
        await second.send(2)
    assert [message async for message in inbox] == [1, 2]


# --- answers --------------------------------------------------------------------------------------


async def test_an_answer_finds_its_place_in_a_full_mailbox() -> None:
    address, inbox = small(capacity=1, reserve=2)
    await address.send(1)
    address.reply(2)
    address.reply(3)
    assert not address.offer(4)
    with pytest.raises(MailboxOverflow, match="'small' holds 2 unread answers"):
        address.reply(4)
    assert inbox.drain() == [1, 2, 3]
    address.reply(5)
    assert inbox.drain() == [5]


async def test_answers_leave_the_ordinary_places_alone() -> None:
    address, inbox = small(capacity=1, reserve=1)
    address.reply(1)
    assert address.offer(2)
    assert [await inbox.receive(), await inbox.receive()] == [1, 2]


# --- closing --------------------------------------------------------------------------------------


async def test_a_closed_inbox_is_the_same_news_to_every_way_of_sending() -> None:
    address, inbox = small(reserve=1)
    inbox.close()
    inbox.close()
    with pytest.raises(PeerGone, match="the inbox is closed"):
        await address.send(1)
    with pytest.raises(PeerGone):
        address.reply(1)
    assert not address.offer(1)


async def test_a_closed_address_is_news_of_the_same_kind_and_costs_no_place() -> None:
    address, inbox = small(reserve=1)
    other = address.clone()
    address.close()
    with pytest.raises(PeerGone, match="this address of it is closed"):
        await address.send(1)
    with pytest.raises(PeerGone):
        address.reply(1)
    with pytest.raises(PeerGone):
        address.clone()
    assert not address.offer(1)
    assert other.offer(2)
    assert inbox.drain() == [2]


async def test_closing_the_inbox_wakes_every_waiting_sender() -> None:
    address, inbox = small()
    await address.send(0)
    gone: list[int] = []

    async def send(number: int) -> None:
        try:
            await address.send(number)
        except PeerGone:
            gone.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(send, number)
        await trio.testing.wait_all_tasks_blocked()
        inbox.close()
    assert sorted(gone) == [0, 1, 2, 3]


@attrs.frozen
class Request:
    text: str
    reply: Reply[str]


async def test_closing_the_inbox_drops_the_answers_that_unread_requests_wait_for() -> None:
    address: Address[Request]
    address, inbox = open_mailbox(2, name="requests")
    reply, pending = answer()
    await address.send(Request("a", reply))
    inbox.close()
    with pytest.raises(ReplyDropped):
        await pending.get()


@pytest.mark.parametrize("seed", range(60))
async def test_cancel_or_close_at_any_moment_never_shows_a_channel_error(seed: int) -> None:
    chance = random.Random(seed)
    address, inbox = small(capacity=chance.choice([1, 2]), reserve=2)
    sent: list[int] = []
    got: list[int] = []

    async def sender(own: Address[int], number: int) -> None:
        with own:
            for n in range(number, number + 5):
                try:
                    await own.send(n)
                except PeerGone:
                    return
                sent.append(n)

    async def reader() -> None:
        with inbox:
            for _ in range(chance.randrange(12)):
                try:
                    got.append(await inbox.receive())
                except trio.EndOfChannel:
                    return

    async def canceller(scope: trio.CancelScope) -> None:
        for _ in range(chance.randrange(25)):
            await trio.lowlevel.checkpoint()
        chance.choice([lambda: scope.cancel(reason="test"), inbox.close])()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(canceller, nursery.cancel_scope)
        for number in (0, 100, 200):
            nursery.start_soon(sender, address.clone(), number)
        address.close()
        with suppress(trio.ClosedResourceError):  # the reader's own end, closed under it on purpose
            await reader()
    for start in (0, 100, 200):
        mine = [n for n in got if start <= n < start + 100]
        assert list(range(start, start + len(mine))) == mine


# --- circles --------------------------------------------------------------------------------------


async def test_an_actor_that_fills_its_own_mailbox_is_told_instead_of_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    address, inbox = small()
    with trio.fail_after(1):
        await address.send(1)
        assert await inbox.receive() == 1
        await address.send(2)
        with pytest.raises(MailboxDeadlock, match="its own mailbox 'small' while it was full"):
            await address.send(3)
        assert not address.offer(3)
    assert inbox.drain() == [2]


async def test_a_circle_of_full_mailboxes_is_refused_to_the_one_who_closes_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    parent_address: Address[int]
    child_address: Address[int]
    parent_address, parent_inbox = open_mailbox(1, name="parent")
    child_address, child_inbox = open_mailbox(1, name="child")
    refused: list[tuple[str, ...]] = []

    async def post_back(inbox: Inbox[int], address: Address[int]) -> None:
        await inbox.receive()
        try:
            for n in range(3):
                await address.send(n)
        except MailboxDeadlock as error:
            refused.append(tuple(error.names))
            inbox.drain()

    with trio.fail_after(10):
        await parent_address.send(0)
        await child_address.send(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(post_back, parent_inbox, child_address)
            nursery.start_soon(post_back, child_inbox, parent_address)
            await trio.testing.wait_all_tasks_blocked()
            child_inbox.drain()
            parent_inbox.drain()
    assert refused
    assert {"parent", "child"} == set(refused[0])


async def test_a_full_mailbox_whose_reader_is_only_busy_is_simply_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    address, inbox = small()

    async def read() -> list[int]:
        first = await inbox.receive()
        await trio.sleep(5)
        return [first, await inbox.receive(), await inbox.receive()]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        for n in range(3):
            await address.send(n)
    assert trio.current_time() == 5


# --- replies --------------------------------------------------------------------------------------


async def test_a_reply_is_given_once_and_read_as_often_as_wanted() -> None:
    reply, pending = answer()
    with pytest.raises(trio.WouldBlock):
        pending.get_nowait()
    assert not pending.settled
    with reply:
        reply.put("yes")
    assert reply.settled
    assert pending.settled
    assert (await pending.get(), pending.get_nowait()) == ("yes", "yes")
    with pytest.raises(InvariantError, match="this one was given already"):
        reply.put("no")


async def test_a_reply_is_dropped_by_a_crash_before_the_answer() -> None:
    reply, pending = answer()
    with pytest.raises(ValueError, match="boom"), reply:
        raise ValueError("boom")
    with pytest.raises(ReplyDropped):
        await pending.get()
    with pytest.raises(ReplyDropped):
        pending.get_nowait()
    with pytest.raises(InvariantError, match="dropped already"):
        reply.put("no")


async def test_whoever_waits_for_a_reply_gets_it_and_may_give_up_and_ask_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reply, pending = answer()
    with trio.move_on_after(1) as patience:
        await pending.get()
    assert patience.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pending.get)
        await trio.testing.wait_all_tasks_blocked()
        reply.put("late")
    assert await pending.get() == "late"


# --- the rest -------------------------------------------------------------------------------------


async def test_statistics_tell_depth_answers_and_peak() -> None:
    address, inbox = small(capacity=3, reserve=2)
    await address.send(1)
    address.reply(2)
    assert (
        MailboxStatistics(
            name="small",
            capacity=3,
            reserve=2,
            depth=2,
            owed=1,
            peak_depth=2,
            open_addresses=1,
            waiting_senders=0,
            waiting_readers=0,
        )
        == inbox.statistics()
    )
    assert repr(inbox) == "<Inbox 'small' depth=2>"
    assert repr(address) == "<Address of 'small'>"
    assert (address.name, inbox.name) == ("small", "small")


@pytest.mark.parametrize(("capacity", "reserve"), [(0, 0), (-1, 0), (1, -1)])
def test_a_mailbox_without_room_is_refused(capacity: int, reserve: int) -> None:
    with pytest.raises(ConfigError, match="'small'"):
        small(capacity, reserve)


@settings(max_examples=60, deadline=None)
@given(
    capacity=st.integers(1, 3),
    reserve=st.integers(0, 3),
    steps=st.lists(st.sampled_from(["offer", "reply", "take", "drain"]), max_size=60),
)
def test_a_mailbox_is_a_queue_with_two_limits(capacity: int, reserve: int, steps: list[str]) -> None:
    async def compare() -> None:
        await trio.lowlevel.checkpoint()
        address, inbox = small(capacity, reserve)
        model: list[tuple[str, int]] = []

        def room(kind: str, limit: int) -> bool:
            return sum(k == kind for k, _ in model) < limit

        for number, step in enumerate(steps):
            if step == "offer":
                fits = room("offer", capacity)
                assert fits is address.offer(number)
                model += [("offer", number)] * fits
            elif step == "reply":
                if room("reply", reserve):
                    address.reply(number)
                    model.append(("reply", number))
                else:
                    with pytest.raises(MailboxOverflow):
                        address.reply(number)
            elif step == "take" and model:
                assert model.pop(0)[1] == inbox.receive_nowait()
            else:
                assert [n for _, n in model] == inbox.drain()
                model.clear()
            assert len(model) == inbox.depth

    trio.run(compare)
