"""
Confines its own process for good, then turns into the command. Its text runs by itself, on the standard library
alone: ``python -I -S -c TEXT PLAN COMMAND...``, where PLAN is the JSON of a `Plan`.

If any step fails, the command isn't run: it says why on stderr and exits with `NOT_CONFINED`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
from typing import Final, NoReturn, TypedDict

__all__ = ["NOT_CONFINED", "NOT_FOUND", "Plan", "landlock_version"]

NOT_CONFINED: Final = 126
NOT_FOUND: Final = 127
"""Exit statuses, those that shells use for "can't be run" and "not found"."""


class Plan(TypedDict):
    """
    What to do.

    ``limits`` are names of the module `resource` and numbers. ``writable``: the paths that may be written, by way of
    Landlock; None: somebody else sees to that. ``network``: TCP is left open. ``filter``: a seccomp program in hex.
    """

    limits: dict[str, int]
    writable: list[str] | None
    network: bool
    filter: str


PR_CAPBSET_DROP: Final = 24
PR_SET_NO_NEW_PRIVS: Final = 38
PR_SET_SECCOMP: Final = 22
SECCOMP_MODE_FILTER: Final = 2

LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_ADD_RULE: Final = 445
LANDLOCK_RESTRICT_SELF: Final = 446
LANDLOCK_VERSION: Final = 1
PATH_BENEATH: Final = 1

WRITE_FILE: Final = 1 << 1
MAKE_CHAR_DEVICE: Final = 1 << 6
MAKE_BLOCK_DEVICE: Final = 1 << 11
REFER: Final = 1 << 13
TRUNCATE: Final = 1 << 14
IOCTL_DEVICE: Final = 1 << 15
TCP: Final = 0b11
SCOPE: Final = 0b11
"""Abstract Unix sockets, and signals."""

ALL_WRITES: Final = sum(1 << bit for bit in range(1, 13)) - (1 << 2) - (1 << 3)
"""Landlock's rights of version 1 but for executing (bit 0), reading files (2) and listing folders (3)."""

DEVICES: Final = MAKE_CHAR_DEVICE | MAKE_BLOCK_DEVICE
"""Granted nowhere: whoever may make the node of a disk may write the whole disk."""

FOR_FILES: Final = WRITE_FILE | TRUNCATE | IOCTL_DEVICE
"""The rights that the kernel takes for something that is no folder."""

KEPT_CAPABILITIES: Final = frozenset(range(9))
"""Those of root over files, users and its own processes (chown to setpcap); none over the machine."""
LAST_CAPABILITY: Final = 63

CPU_MARGIN: Final = 2
"""Seconds of processor time between the warning and the end."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Which version of Landlock the kernel has; 0: none."""
    return max(0, int(_libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)))


def main(plan_text: str, command: list[str]) -> NoReturn:
    """Become the command, confined."""
    try:
        plan: Plan = json.loads(plan_text)
        _drop_capabilities()
        _limit(plan["limits"])
        _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "forgo new privileges")
        if plan["writable"] is not None:
            _confine_writes(plan["writable"], plan["network"])
        if plan["filter"]:
            _filter_calls(bytes.fromhex(plan["filter"]))
        # Python ignores these, and what is ignored stays so in the command: `yes | head` would never end.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    except Exception as error:
        _give_up(NOT_CONFINED, f"the sandbox could not be set up, so nothing was run: {error}")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _give_up(NOT_FOUND, f"can't run {command[0]}: {error.strerror}")


def _give_up(status: int, text: str) -> NoReturn:
    sys.stderr.write(f"atrio: {text}\n")
    sys.stderr.flush()
    os._exit(status)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"can't {what}: {os.strerror(number)}")
    return result


def _drop_capabilities() -> None:
    """Not even root in the sandbox may mount, load modules, set limits or reach into other processes."""
    if os.geteuid() != 0:
        return
    for number in range(LAST_CAPABILITY + 1):
        if number not in KEPT_CAPABILITIES and _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel knows no more of them, or others took this right from us already


def _limit(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, name)
        if name == "RLIMIT_NPROC":
            value += _processes_of_user()
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At the soft limit on time there is a signal that tells what happened, at the hard one only death.
        soft = max(1, bound - CPU_MARGIN) if name == "RLIMIT_CPU" else bound
        resource.setrlimit(kind, (soft, bound))


def _processes_of_user() -> int:
    """The threads that the user has now: the kernel's limit counts all of them, and ours is for those to come."""
    user = os.getuid()
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                if os.stat(f"/proc/{entry}").st_uid == user:
                    count += len(os.listdir(f"/proc/{entry}/task"))
            except OSError:  # it has just ended
                continue
    return count


def _confine_writes(paths: list[str], network: bool) -> None:
    version = landlock_version()
    if version < 1:
        raise OSError(f"the kernel has no Landlock: {os.strerror(ctypes.get_errno())}")
    rights = ALL_WRITES
    for since, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE)):
        rights |= right if version >= since else 0
    fields = [rights]
    if version >= 4:
        fields.append(0 if network else TCP)
    if version >= 6:
        fields.append(SCOPE)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _check(_libc.syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0), "make Landlock rules")
    for path in paths:
        _grant(ruleset, path, rights & ~DEVICES)
    _check(_libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0), "put Landlock into force")
    os.close(ruleset)


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:  # what isn't there can't be made either
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= FOR_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _check(_libc.syscall(LANDLOCK_ADD_RULE, ruleset, PATH_BENEATH, rule, 0), f"make {path} writable")
    finally:
        os.close(descriptor)


def _filter_calls(steps: bytes) -> None:
    buffer = ctypes.create_string_buffer(steps)
    program = struct.pack("@HP", len(steps) // 8, ctypes.addressof(buffer))
    _check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "filter system calls")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
