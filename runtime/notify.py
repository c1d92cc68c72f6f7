"""
Telling a service manager how the process is: the protocol of ``sd_notify``, one datagram a message.

Without ``NOTIFY_SOCKET`` nothing is told. A manager that does not listen any more is no reason to stop working, so
nothing here raises or waits.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import attrs

__all__ = ["Notifier"]


@attrs.frozen(kw_only=True)
class Notifier:
    """
    Speaks to the manager at ``address`` (None: to nobody).

    ``watchdog``: seconds within which it wants to hear that the process lives; None: it doesn't.
    """

    address: str | None = None
    watchdog: float | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Notifier:
        """As the manager has set it. What it set for another process doesn't count."""
        path = environ.get("NOTIFY_SOCKET", "")
        if path[:1] not in ("/", "@") or len(path) < 2:
            return cls()
        return cls(address="\0" + path[1:] if path[0] == "@" else path, watchdog=_watchdog(environ))

    def ready(self, status: str) -> bool:
        """The service works from now on."""
        return self.send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, text: str) -> bool:
        """What it is at."""
        return self.send(f"STATUS={_one_line(text)}")

    def alive(self) -> bool:
        """To be said at least once in each ``watchdog`` seconds."""
        return self.send("WATCHDOG=1")

    def stopping(self) -> bool:
        """It is about to end by itself."""
        return self.send("STOPPING=1")

    def send(self, message: str) -> bool:
        """Whether the manager's socket took it."""
        if self.address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(message.encode("utf-8", "replace"), self.address)
        except OSError:
            return False
        return True


def _watchdog(environ: Mapping[str, str]) -> float | None:
    pid, limit = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    if pid and pid != str(os.getpid()):
        return None
    if not (limit.isascii() and limit.isdigit()) or int(limit) == 0:
        return None
    return int(limit) / 1_000_000


def _one_line(text: str) -> str:
    return " ".join(text.split())
