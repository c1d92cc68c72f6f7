"""What holds for every test: nobody talks to the network."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest


class NetworkRefused(AssertionError):
    """A test tried to reach something that is not on this machine."""


def _is_local(sock: socket.socket, address: object) -> bool:
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return True  # a socket in the file system, or a pair
    host = address[0] if isinstance(address, tuple) else address
    try:
        return host in ("localhost", "") or ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to connect beyond loopback fails the test that makes it, in whichever thread."""

    def guarded(name: str) -> None:
        original = getattr(socket.socket, name)

        def connect(sock: socket.socket, address: Any) -> Any:
            if not _is_local(sock, address):
                raise NetworkRefused(f"{name} to {address!r}: tests reach loopback only")
            return original(sock, address)

        monkeypatch.setattr(socket.socket, name, connect)

    guarded("connect")
    guarded("connect_ex")
