"""
The system call filter of the sandbox, as the BPF program that the kernel takes. Pure.

It closes what Landlock has no word for: sockets other than Unix ones, connections to the Unix sockets of other
programs (a container daemon's gives away the machine), and io_uring, whose requests no filter sees.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from typing import Final

import attrs

__all__ = ["MACHINES", "Machine", "filter_program"]

AF_UNIX: Final = 1

LOAD: Final = 0x20
JUMP_IF_EQUAL: Final = 0x15
JUMP_IF_AT_LEAST: Final = 0x35
RETURN: Final = 0x06

ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
REFUSE: Final = 0x00050000
"""Plus the error number that the caller gets."""

NUMBER_OFFSET: Final = 0
MACHINE_OFFSET: Final = 4
FIRST_ARGUMENT_OFFSET: Final = 16
"""Where these stand in the kernel's ``struct seccomp_data``, on machines that store the low half first."""

SECOND_ABI: Final = 0x40000000
"""From here on, x86-64 counts the same calls once more (x32): a way around any filter that knows one number only."""

IO_URING: Final = (425, 426, 427)
"""io_uring_setup, _enter, _register: the same numbers everywhere."""


@attrs.frozen
class Machine:
    """A processor: the kernel's number of it, and of the calls that matter."""

    audit: int
    socket: int
    connect: int


MACHINES: Final[Mapping[str, Machine]] = {
    "x86_64": Machine(0xC000003E, 41, 42),
    "aarch64": Machine(0xC00000B7, 198, 203),
}
"""By the name that ``uname -m`` gives. No other has a filter, and so none has this kind of sandbox."""


def filter_program(machine: Machine, *, network: bool) -> bytes:
    """
    The program for a process that may use the network or not.

    A 32-bit program, whose calls have other numbers, is killed at its first one.
    """
    steps = [
        _step(LOAD, MACHINE_OFFSET),
        _step(JUMP_IF_EQUAL, machine.audit, yes=1),
        _step(RETURN, KILL),
        _step(LOAD, NUMBER_OFFSET),
        _step(JUMP_IF_AT_LEAST, SECOND_ABI, no=1),
        _step(RETURN, REFUSE | errno.EPERM),
    ]
    for number in IO_URING:  # "not there" makes programs take the ordinary calls instead
        steps += [_step(JUMP_IF_EQUAL, number, no=1), _step(RETURN, REFUSE | errno.ENOSYS)]
    if not network:
        steps += [
            _step(JUMP_IF_EQUAL, machine.connect, no=1),
            _step(RETURN, REFUSE | errno.EPERM),
            _step(JUMP_IF_EQUAL, machine.socket, no=3),
            _step(LOAD, FIRST_ARGUMENT_OFFSET),
            _step(JUMP_IF_EQUAL, AF_UNIX, yes=1),
            _step(RETURN, REFUSE | errno.EPERM),
        ]
    return b"".join([*steps, _step(RETURN, ALLOW)])


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; ``yes`` and ``no`` are how many of the next ones a jump leaves out."""
    return struct.pack("=HBBI", code, yes, no, value)
