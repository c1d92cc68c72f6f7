"""What a service manager hears: real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from atrio.runtime.notify import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(5)
        yield listener, path


def test_messages_arrive_as_datagrams(manager: tuple[socket.socket, str]) -> None:
    listener, path = manager
    notifier = Notifier.from_environ({"NOTIFY_SOCKET": path})
    assert all((notifier.ready("session\n1"), notifier.alive(), notifier.status("works"), notifier.stopping()))
    expected = [b"READY=1\nSTATUS=session 1", b"WATCHDOG=1", b"STATUS=works", b"STOPPING=1"]
    assert expected == [listener.recv(4096) for _ in expected]


def test_abstract_sockets_are_reached() -> None:
    name = f"atrio-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name)
        assert Notifier.from_environ({"NOTIFY_SOCKET": "@" + name}).alive()
        assert b"WATCHDOG=1" == listener.recv(100)


@pytest.mark.parametrize("path", ["", "@", "relative", "/no/such/socket"])
def test_without_a_manager_nothing_happens(path: str) -> None:
    assert not Notifier.from_environ({"NOTIFY_SOCKET": path}).ready("x")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [
        ("30000000", "", 30.0),
        ("30000000", "own", 30.0),
        ("30000000", "1", None),
        ("0", "", None),
        ("soon", "", None),
    ],
)
def test_the_watchdog_is_this_process_own(usec: str, pid: str, seconds: float | None) -> None:
    # A number known only while the test runs, so that every process collects the same tests.
    watched = str(os.getpid()) if pid == "own" else pid
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": usec, "WATCHDOG_PID": watched}
    assert seconds == Notifier.from_environ(environ).watchdog
