"""The filter's program, run by a small machine of the test's own."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from atrio.tools.seccomp import ALLOW, KILL, MACHINES, REFUSE, Machine, filter_program

REFUSED = REFUSE | errno.EPERM


def verdict(program: bytes, machine: int, call: int, first: int = 0) -> int:
    """What the program says of a call."""
    data = struct.pack("=IIQ6Q", call, machine, 0, first, 0, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        code, yes, no, value = steps[position]
        position += 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("=I", data, value)[0]
            case 0x15:
                position += yes if accumulator == value else no
            case 0x35:
                position += yes if accumulator >= value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]


def test_without_network_only_unix_sockets_can_be_made_and_none_connected(machine: Machine) -> None:
    program = filter_program(machine, network=False)
    families = {socket.AF_UNIX: ALLOW, socket.AF_INET: REFUSED, socket.AF_INET6: REFUSED, 16: REFUSED, 40: REFUSED}
    assert families == {family: verdict(program, machine.audit, machine.socket, family) for family in families}
    assert REFUSED == verdict(program, machine.audit, machine.connect)


def test_with_network_sockets_are_free(machine: Machine) -> None:
    program = filter_program(machine, network=True)
    calls = (machine.socket, machine.connect)
    assert [ALLOW, ALLOW] == [verdict(program, machine.audit, call, socket.AF_INET) for call in calls]


@pytest.mark.parametrize("network", [False, True])
def test_ways_around_the_filter_are_shut_and_other_calls_are_free(machine: Machine, network: bool) -> None:
    program = filter_program(machine, network=network)
    assert [REFUSE | errno.ENOSYS] * 3 == [verdict(program, machine.audit, call) for call in (425, 426, 427)]
    assert REFUSED == verdict(program, machine.audit, 0x40000000 + machine.socket)
    assert KILL == verdict(program, 0x40000003, machine.socket)
    others = [call for call in range(424) if call not in (machine.socket, machine.connect)]
    assert {ALLOW} == {verdict(program, machine.audit, call) for call in others}
