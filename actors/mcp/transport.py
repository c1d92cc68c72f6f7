"""
The pipe to a server that is a child process: lines of JSON out of its stdout and into its stdin.

In place of the SDK's own, since that one ends at the first byte that isn't UTF-8, holds lines of any length, leaves
stderr to the terminal and ends only the process group. Here noise on stdout is skipped, stderr is drained into a
bounded log, and when the block is left, in whichever way, the server's whole process tree is gone.

Beside `atrio.tools.process` the only place that starts processes: commands there have no stdin.
"""

from __future__ import annotations

import errno
import re
import subprocess
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import attrs
import mcp_types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from atrio.tools.process import CommandNotStarted
from atrio.tools.reaper import KILL_LIMIT, TOKEN_VARIABLE, ProcessTree

from .config import StdioServer
from .listing import Incoming, mend_listing
from .server_log import ServerLog

__all__ = ["STOP_LIMIT", "StdioTransport"]

LEAVE_LIMIT: Final = 0.5
"""Seconds that a server has to leave by itself after its stdin was closed. Many never do."""

TERM_GRACE: Final = 1.5
"""Seconds between SIGTERM and SIGKILL."""

STOP_LIMIT: Final = LEAVE_LIMIT + TERM_GRACE + KILL_LIMIT + 2.0
"""Seconds for the whole teardown, which nothing can interrupt."""

DRAIN_LIMIT: Final = 0.2
"""Seconds that output is still awaited for once the process is gone; a child of its own may hold the pipe for ever."""

CHUNK_BYTES: Final = 65_536
MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""A longer message is not kept, and the request that it answers fails."""

THREAD_BYTES: Final = 128 * 1024
"""Longer messages are parsed in a thread: they take milliseconds."""

_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


@attrs.define(eq=False, kw_only=True)
class StdioTransport:
    """
    One run of a server's process.

    Args:
        environ: its environment, to which the configuration's own is added.
        log: takes its stderr, and what is noise on its stdout.
    """

    config: StdioServer
    environ: Mapping[str, str]
    cwd: Path
    log: ServerLog
    ended: str | None = attrs.field(init=False, default=None)
    """How the process ended, for people; None while it runs."""
    gone: trio.Event = attrs.field(init=False, factory=trio.Event)
    """The connection has ended, so nothing more will be answered."""
    pid: int | None = attrs.field(init=False, default=None)
    _stopping: bool = attrs.field(init=False, default=False)

    def _note_end(self, process: trio.Process) -> None:
        """That it ended because it was told to says nothing."""
        if not self._stopping and self.ended is None:
            self.ended = describe_end(process.returncode)

    def _end(self, to_session: MemoryObjectSendStream[Incoming]) -> None:
        self.gone.set()
        to_session.close()

    @asynccontextmanager
    async def running(
        self,
    ) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
        """
        Start it for the length of the block, which gets the two streams that the SDK's client wants.

        Raises `CommandNotStarted`. When cancelled, nothing of it is left once the cancellation goes on, which takes at
        most `STOP_LIMIT` seconds.
        """
        token = uuid.uuid4().hex
        process = await self._start(token)
        self.pid = process.pid
        tree = ProcessTree(process.pid, token, process.poll)
        to_session, incoming = anyio.create_memory_object_stream[Incoming](0)
        outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        pumps = [trio.CancelScope(shield=True), trio.CancelScope(shield=True)]
        drained = [trio.Event(), trio.Event()]
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, process, to_session, pumps[0], drained[0])
                nursery.start_soon(self._drain_errors, process, pumps[1], drained[1])
                nursery.start_soon(self._write, process, from_session, to_session)
                nursery.start_soon(self._watch, process, to_session, drained[0])
                try:
                    yield incoming, outgoing
                finally:
                    with trio.move_on_after(STOP_LIMIT, shield=True):
                        await self._stop(process, tree, drained)
                    for scope in pumps:
                        scope.cancel(reason="the server has ended")
                    nursery.cancel_scope.cancel(reason="the server has ended")
        finally:
            for stream in (to_session, incoming, outgoing, from_session):
                stream.close()

    async def _start(self, token: str) -> trio.Process:
        env = {**self.environ, **self.config.env}
        outer = env.get(TOKEN_VARIABLE)
        env[TOKEN_VARIABLE] = f"{outer}:{token}" if outer else token
        command = self.config.command
        try:
            return await trio.lowlevel.open_process(
                [command, *self.config.args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd=self.cwd,
                env=env,
            )
        except (OSError, ValueError) as error:
            reason = str(error)
            if isinstance(error, OSError):
                reason = error.strerror or reason
                if error.errno == errno.ENOENT and error.filename != str(self.cwd):
                    reason = "there is no such program on the PATH"
            raise CommandNotStarted(command, str(self.cwd), reason) from error

    async def _stop(self, process: trio.Process, tree: ProcessTree, drained: list[trio.Event]) -> None:
        self._stopping = True
        assert process.stdin is not None
        await process.stdin.aclose()
        with trio.move_on_after(LEAVE_LIMIT):
            await process.wait()
        stopped = await tree.stop(TERM_GRACE)
        if stopped.survivors:
            self.log.note(f"processes that could not be stopped: {', '.join(stopped.survivors)}")
        with trio.move_on_after(DRAIN_LIMIT):
            for event in drained:
                await event.wait()

    async def _watch(
        self, process: trio.Process, to_session: MemoryObjectSendStream[Incoming], drained: trio.Event
    ) -> None:
        """When the process is gone, so is the connection, even if a child of its own still holds the pipe."""
        await process.wait()
        self._note_end(process)
        with trio.move_on_after(DRAIN_LIMIT):
            await drained.wait()
        self._end(to_session)

    async def _write(
        self,
        process: trio.Process,
        from_session: MemoryObjectReceiveStream[SessionMessage],
        to_session: MemoryObjectSendStream[Incoming],
    ) -> None:
        assert process.stdin is not None
        try:
            async for item in from_session:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                await process.stdin.send_all(line + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # It reads no more. If it runs on all the same, its answers can't be waited for either.
            with trio.move_on_after(DRAIN_LIMIT):
                await process.wait()
                self._note_end(process)
            self._end(to_session)

    async def _drain_errors(self, process: trio.Process, scope: trio.CancelScope, drained: trio.Event) -> None:
        assert process.stderr is not None
        try:
            with scope:
                while chunk := await process.stderr.receive_some(CHUNK_BYTES):
                    await self.log.write(bytes(chunk))
        finally:
            drained.set()
            with trio.move_on_after(DRAIN_LIMIT, shield=True):
                await process.stderr.aclose()

    async def _read(
        self,
        process: trio.Process,
        to_session: MemoryObjectSendStream[Incoming],
        scope: trio.CancelScope,
        drained: trio.Event,
    ) -> None:
        assert process.stdout is not None
        lines = LineCutter()
        try:
            with scope:
                while chunk := await process.stdout.receive_some(CHUNK_BYTES):
                    for line in lines.feed(bytes(chunk)):
                        await self._take(line, to_session)
                # Its status tells more than the end of its output, and comes a moment later.
                with trio.move_on_after(DRAIN_LIMIT):
                    await process.wait()
                    self._note_end(process)
                self._end(to_session)
        finally:
            drained.set()
            with trio.move_on_after(DRAIN_LIMIT, shield=True):
                await process.stdout.aclose()

    async def _take(self, line: Line, to_session: MemoryObjectSendStream[Incoming]) -> None:
        message = self._too_long(line) if line.cut else await self._parse(line.data)
        if message is None:
            return
        await mend_listing(message, self.log.note)
        try:
            await to_session.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The session is gone; what the server still says is read so that it can end.
            return

    async def _parse(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            if len(line) > THREAD_BYTES:
                return await trio.to_thread.run_sync(parse_line, line)
            return parse_line(line)
        except ValueError:
            self.log.note(f"not a message, on stdout: {line[:300].decode('utf-8', 'replace')}")
            return None

    def _too_long(self, line: Line) -> SessionMessage | None:
        self.log.note(f"a message of {line.length:,} bytes was left out; {MAX_LINE_BYTES:,} are the most")
        found = _FIRST_ID.match(line.data) or _LAST_ID.search(line.tail)
        if found is None:
            return None
        error = mcp_types.ErrorData(
            code=mcp_types.INTERNAL_ERROR,
            message=f"the server's answer has {line.length:,} bytes, of {MAX_LINE_BYTES:,} at most; ask for less",
        )
        return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


def parse_line(line: bytes) -> SessionMessage:
    """One message. Raises ValueError if it is none; bytes that aren't UTF-8 are replaced."""
    text = line.decode("utf-8", "replace")
    return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False))


def describe_end(status: int | None) -> str:
    """How a process ended, for people."""
    if status is None:
        return "it has ended"
    return f"it was killed by signal {-status}" if status < 0 else f"it exited with status {status}"


@attrs.frozen(kw_only=True)
class Line:
    """A line without its end. Of one that is ``cut``, only ``data`` (its beginning) and ``tail`` are kept."""

    data: bytes
    length: int
    cut: bool = False
    tail: bytes = b""


@attrs.define(eq=False)
class LineCutter:
    """Cuts chunks into lines, in time linear in their length, and holds no more than ``limit`` bytes."""

    limit: int = MAX_LINE_BYTES
    _pieces: list[bytes] = attrs.field(init=False, factory=list)
    _length: int = attrs.field(init=False, default=0)
    _tail: bytes = attrs.field(init=False, default=b"")

    def feed(self, chunk: bytes) -> list[Line]:
        """The lines that end in this chunk."""
        *ends, rest = chunk.split(b"\n")
        lines: list[Line] = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length <= self.limit:
            self._pieces.append(piece)
        else:
            self._pieces = [b"".join(self._pieces)[:1024]] if len(self._pieces) > 1 else self._pieces
            self._tail = (self._tail + piece)[-1024:]

    def _line(self) -> Line:
        data, cut = b"".join(self._pieces), self._length > self.limit
        line = Line(data=data[:1024] if cut else data, length=self._length, cut=cut, tail=self._tail)
        self._pieces, self._length, self._tail = [], 0, b""
        return line
