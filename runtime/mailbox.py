"""
Mailboxes: how actors talk. One bounded queue between many senders and the one actor that reads it.

Ordinary messages fill at most ``capacity`` places: ``send`` waits for one, ``offer`` gives up. Answers that the
reader asked for use ``reserve`` further places, so that ``reply`` never blocks and never fails while no more
answers are owed than places reserved. Both kinds share one queue: messages arrive in the order they were put in.

A mailbox belongs to whoever opened it, not to the actor that reads it: a restarted actor finds its messages where
the crashed one left them.

**Circles.** An actor that waits for a place in its own full mailbox, or actors that wait for places in one
another's, would wait for ever. Such a ``send`` raises `MailboxDeadlock` at once, in the actor that would have
closed the circle; the others go on. Use ``offer`` or ``reply`` for messages that flow back.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Generic, TypeVar

import attrs
import trio

from .errors import ConfigError, InvariantError, MailboxDeadlock, MailboxOverflow, PeerGone, ReplyDropped

__all__ = ["Address", "Inbox", "MailboxStatistics", "Pending", "Reply", "open_mailbox", "open_reply"]

T = TypeVar("T")
Self = TypeVar("Self", bound="_Closable")

_current_task: Final[Callable[[], trio.lowlevel.Task]] = trio.lowlevel.current_task


class _Closable:
    """A plain ``with`` that closes at its end, without a checkpoint, whatever happened inside."""

    __slots__ = ()

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Owed(Generic[T]):
    """Marks an answer in the queue, whose place goes back to the reserve."""

    __slots__ = ("message",)

    def __init__(self, message: T) -> None:
        self.message = message


@attrs.define(eq=False)
class _Box:
    """
    What all ends of one mailbox share.

    ``free`` counts the ordinary places that nobody has; it is 0 while anyone waits, since a place that becomes free
    is handed to the first who waits. ``reader`` is the Trio task that took a message last.
    """

    name: str
    capacity: int
    reserve: int
    free: int
    owed: int = 0
    open: bool = True
    reader: trio.lowlevel.Task | None = None
    waiting: deque[trio.Event] = attrs.field(factory=deque)

    def free_place(self) -> None:
        if self.waiting:
            self.waiting.popleft().set()
        else:
            self.free += 1

    def close(self) -> None:
        self.open = False
        self.free = 0
        while self.waiting:
            self.waiting.popleft().set()


@attrs.frozen
class _Wait:
    """One send that waits for a place in ``box``; it was given one when ``placed`` is set."""

    box: _Box
    placed: trio.Event


# What each Trio task that waits for a place waits for. Entries live only while the wait lasts.
_waits: dict[trio.lowlevel.Task, _Wait] = {}


def _refuse_circle(sender: trio.lowlevel.Task, box: _Box) -> None:
    """Raise `MailboxDeadlock` if the reader of ``box`` waits, directly or through others, for ``sender``."""
    names = [box.name]
    seen: set[trio.lowlevel.Task] = set()
    reader = box.reader
    while reader is not None and reader not in seen:
        if reader is sender:
            raise MailboxDeadlock(names)
        seen.add(reader)
        wait = _waits.get(reader)
        if wait is None or wait.placed.is_set():
            return
        names.append(wait.box.name)
        reader = wait.box.reader


@attrs.frozen(kw_only=True)
class MailboxStatistics:
    """One look at a mailbox. ``depth`` counts ordinary messages and answers, ``owed`` the answers among them."""

    name: str
    capacity: int
    reserve: int
    depth: int
    owed: int
    peak_depth: int
    open_addresses: int
    waiting_senders: int
    waiting_readers: int


class Address(_Closable, Generic[T]):
    """
    The sending end. Each sender holds its own (`clone`), in a plain ``with``.

    Once the inbox or this address is closed, nothing more is delivered: `send` and `reply` raise `PeerGone`,
    `offer` returns False, whichever of them was running when it happened.
    """

    __slots__ = ("_box", "_channel", "_closed")

    def __init__(self, box: _Box, channel: trio.MemorySendChannel[T | _Owed[T]]) -> None:
        self._box = box
        self._channel = channel
        self._closed = False

    def __repr__(self) -> str:
        return f"<Address of {self._box.name!r}>"

    @property
    def name(self) -> str:
        """The mailbox's name."""
        return self._box.name

    async def send(self, message: T) -> None:
        """
        Put an ordinary message in, waiting while all of them are taken.

        If cancelled, the message was not put in.

        Raises:
            PeerGone: the mailbox is closed, or was closed while this waited.
            MailboxDeadlock: the place could only be freed by this very task.
        """
        box = self._box
        await trio.lowlevel.checkpoint()
        self._refuse_closed()
        if box.free:
            box.free -= 1
        else:
            await self._wait_for_place()
        try:
            self._channel.send_nowait(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            box.free_place()
            raise self._gone() from None

    async def _wait_for_place(self) -> None:
        box = self._box
        sender = _current_task()
        _refuse_circle(sender, box)
        wait = _Wait(box, trio.Event())
        box.waiting.append(wait.placed)
        _waits[sender] = wait
        used = False
        try:
            await wait.placed.wait()
            used = True
        finally:
            del _waits[sender]
            if not used:
                if wait.placed.is_set():
                    box.free_place()
                else:
                    box.waiting.remove(wait.placed)

    def offer(self, message: T) -> bool:
        """Put an ordinary message in if there is a place now; False if there is none or nobody will read it."""
        box = self._box
        if not box.free:
            return False
        try:
            self._channel.send_nowait(message)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        box.free -= 1
        return True

    def reply(self, message: T) -> None:
        """
        Put an answer in, at once.

        Raises:
            MailboxOverflow: more answers lie unread than the mailbox has reserved places for.
            PeerGone: the mailbox is closed.
        """
        box = self._box
        self._refuse_closed()
        if box.owed >= box.reserve:
            raise MailboxOverflow(f"mailbox {box.name!r} holds {box.owed} unread answers, all it has reserved room for")
        box.owed += 1
        try:
            self._channel.send_nowait(_Owed(message))
        except trio.BrokenResourceError:
            box.owed -= 1
            raise self._gone() from None

    def clone(self) -> Address[T]:
        """
        A further address of the same mailbox, to be closed on its own.

        Raises:
            PeerGone: this address is closed already.
        """
        if self._closed:
            raise self._gone()
        return Address(self._box, self._channel.clone())

    def close(self) -> None:
        """Stop sending. When the last address is closed, the reader gets what is left and then the end."""
        self._closed = True
        self._channel.close()

    def _refuse_closed(self) -> None:
        if self._closed or not self._box.open:
            raise self._gone()

    def _gone(self) -> PeerGone:
        which = "this address of it" if self._box.open else "the inbox"
        return PeerGone(f"mailbox {self._box.name!r} takes no more messages: {which} is closed")


class Inbox(_Closable, Generic[T]):
    """
    The receiving end. One task reads it at a time; the one that opened the mailbox closes it (plain ``with``).

    Closing drops what lies unread. A message that carries the end of an answer in an attribute ``reply`` has that
    answer dropped, so that whoever waits for it gets `ReplyDropped` instead of waiting for ever.
    """

    __slots__ = ("_box", "_channel")

    def __init__(self, box: _Box, channel: trio.MemoryReceiveChannel[T | _Owed[T]]) -> None:
        self._box = box
        self._channel = channel

    def __repr__(self) -> str:
        return f"<Inbox {self._box.name!r} depth={self.depth}>"

    @property
    def name(self) -> str:
        """The mailbox's name."""
        return self._box.name

    @property
    def depth(self) -> int:
        """How many messages lie unread."""
        return self._channel.statistics().current_buffer_used

    async def receive(self) -> T:
        """
        The next message. If cancelled, none was taken.

        Raises:
            trio.EndOfChannel: every address is closed and nothing is left.
            trio.ClosedResourceError: this inbox is closed.
        """
        box = self._box
        box.reader = _current_task()
        item = await self._channel.receive()
        if isinstance(item, _Owed):
            box.owed -= 1
            return item.message
        box.free_place()
        return item

    def receive_nowait(self) -> T:
        """
        The next message, if one is there.

        Raises:
            trio.WouldBlock: nothing is there now.
            trio.EndOfChannel, trio.ClosedResourceError: as `receive`.
        """
        item = self._channel.receive_nowait()
        box = self._box
        box.reader = _current_task()
        if isinstance(item, _Owed):
            box.owed -= 1
            return item.message
        if box.waiting:
            box.free_place()
        else:
            box.free += 1
        return item

    def drain(self) -> list[T]:
        """Everything that is there now, in order; an empty list if nothing is, or if the senders are gone."""
        messages: list[T] = []
        try:
            while True:
                messages.append(self.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel):
            return messages

    def __aiter__(self) -> Inbox[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def statistics(self) -> MailboxStatistics:
        """Numbers for inspection and benches."""
        channel = self._channel.statistics()
        return MailboxStatistics(
            name=self._box.name,
            capacity=self._box.capacity,
            reserve=self._box.reserve,
            depth=channel.current_buffer_used,
            owed=self._box.owed,
            peak_depth=channel.peak_buffer_used,
            open_addresses=channel.open_send_channels,
            waiting_senders=len(self._box.waiting),
            waiting_readers=channel.tasks_waiting_receive,
        )

    def close(self) -> None:
        """Read no more. Waiting senders get `PeerGone`; unread requests have their answers dropped."""
        if not self._box.open:
            return
        unread = self.drain()
        self._box.close()
        self._channel.close()
        for message in unread:
            answer: object = getattr(message, "reply", None)
            if isinstance(answer, Reply):
                answer.close()


def open_mailbox(capacity: int, *, reserve: int = 0, name: str) -> tuple[Address[T], Inbox[T]]:
    """
    Open a mailbox and give out its two ends.

    Args:
        capacity: places for ordinary messages, at least 1.
        reserve: further places that only `Address.reply` uses: as many as answers can be owed at once.
        name: for errors and inspection.
    """
    if capacity < 1 or reserve < 0:
        raise ConfigError(f"mailbox {name!r}", f"capacity {capacity} and reserve {reserve} leave no room")
    send_end, receive_end = trio.open_memory_channel[T | _Owed[T]](capacity + reserve)
    box = _Box(name=name, capacity=capacity, reserve=reserve, free=capacity)
    return Address(box, send_end), Inbox(box, receive_end)


class _Fate(enum.Enum):
    OPEN = "open"
    DROPPED = "dropped"


class _Slot(Generic[T]):
    """Where a one-shot answer lies: its value, or its fate while there is none."""

    __slots__ = ("content", "settled")

    def __init__(self) -> None:
        self.content: T | _Fate = _Fate.OPEN
        self.settled = trio.Event()


class Reply(_Closable, Generic[T]):
    """
    The end of an answer that whoever owes it holds, in a plain ``with`` around the work.

    Leaving the block without an answer, by a crash or otherwise, drops it, and the other side learns of that.
    """

    __slots__ = ("_slot",)

    def __init__(self, slot: _Slot[T]) -> None:
        self._slot = slot

    def put(self, value: T) -> None:
        """
        Answer, once.

        Raises:
            InvariantError: there is an answer already, or it was dropped.
        """
        slot = self._slot
        if slot.content is not _Fate.OPEN:
            how = "dropped" if slot.content is _Fate.DROPPED else "given"
            raise InvariantError(f"a reply is put exactly once, and this one was {how} already")
        slot.content = value
        slot.settled.set()

    @property
    def settled(self) -> bool:
        """True once the answer was given or dropped."""
        return self._slot.settled.is_set()

    def close(self) -> None:
        """Drop the answer if none was given."""
        if self._slot.content is _Fate.OPEN:
            self._slot.content = _Fate.DROPPED
            self._slot.settled.set()


class Pending(Generic[T]):
    """The end of an answer that whoever asked holds."""

    __slots__ = ("_slot",)

    def __init__(self, slot: _Slot[T]) -> None:
        self._slot = slot

    @property
    def settled(self) -> bool:
        """True once the answer was given or dropped: `get_nowait` won't raise ``WouldBlock``."""
        return self._slot.settled.is_set()

    async def get(self) -> T:
        """
        The answer, as soon as there is one. May be asked again, also after a cancelled attempt.

        Raises:
            ReplyDropped: whoever owed the answer ended without giving it.
        """
        await self._slot.settled.wait()
        return self.get_nowait()

    def get_nowait(self) -> T:
        """
        The answer, if it is there.

        Raises:
            trio.WouldBlock: not yet.
            ReplyDropped: as `get`.
        """
        content = self._slot.content
        if isinstance(content, _Fate):
            if content is _Fate.OPEN:
                raise trio.WouldBlock
            raise ReplyDropped("whoever owed this answer ended without giving it")
        return content


def open_reply() -> tuple[Reply[T], Pending[T]]:
    """A one-shot answer: the end to put it in, and the end to wait for it."""
    slot: _Slot[T] = _Slot()
    return Reply(slot), Pending(slot)
