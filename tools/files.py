"""
What the file tools share: reading whole files, what a session knows of a file, atomic writing.

The functions here block; tools call them through `in_thread`. What can't be done raises `ToolRejected`, or
`ToolError` when the system failed in the middle of it, always with the path and a way out.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final, TypeAlias, TypeVar, TypeVarTuple

import attrs
import trio

from atrio.runtime.errors import ToolError, ToolRejected
from atrio.runtime.tool import FileState

from .schema import Field
from .shapes import close_names

__all__ = [
    "LOAD_LIMIT_BYTES",
    "FilePath",
    "Loaded",
    "check_path",
    "in_thread",
    "load",
    "missing",
    "open_regular",
    "require_current",
    "size_words",
    "write_atomic",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LOAD_LIMIT_BYTES: Final = 20 * 2**20
"""A file up to here is held in memory as a whole; a larger one is only streamed, and has no digest."""

HEAD_BYTES: Final = 65_536
LISTED_NAMES: Final = 5_000
"""How many names of a folder are looked at for similar ones."""

# A file that is a mount point can't be replaced, only written into; a folder may forbid new files.
_IN_PLACE: Final = frozenset({errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM})


FilePath: TypeAlias = Annotated[
    str, Field(min_length=1, description="path of the file, absolute or relative to the cwd")
]
"""The hint of an input's path; its field also gets the validator `check_path`."""


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """
    Run ``function`` in a worker thread. Once begun it is never abandoned: when cancelled, this waits for its end, so
    long functions ask ``trio.from_thread.check_cancelled``.
    """
    # A limiter of its own: the executor bounds how many calls run, and a shared one would tie event loops together.
    return await trio.to_thread.run_sync(function, *args, limiter=trio.CapacityLimiter(1))


def check_path(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    """A validator for inputs. Raises ValueError for what can be no file's path."""
    try:
        bad = b"\0" in os.fsencode(value)
    except UnicodeEncodeError:
        bad = True
    if bad:
        raise ValueError(f"{attribute.name}: {value!r} can't be a path (it holds a NUL or half a surrogate pair)")


# --- reading --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Loaded:
    """
    A regular file as it was found.

    ``path`` has its links resolved; ``data`` is None if the file is larger than `LOAD_LIMIT_BYTES`.
    """

    path: Path
    head: bytes
    data: bytes | None
    size: int
    mtime_ns: int

    def state(self, *, partial: bool = False) -> FileState:
        """What a session keeps of it."""
        digest = "" if self.data is None else hashlib.sha256(self.data).hexdigest()
        return FileState(mtime_ns=self.mtime_ns, size=self.size, digest=digest, partial=partial)


def open_regular(path: Path, cwd: Path) -> BinaryIO:
    """Open a file for reading. Raises `ToolRejected` for what is missing, no regular file, or not permitted."""
    try:
        _refuse_special(path, os.stat(path).st_mode)
        # Between the two calls a pipe could have taken the file's place; opening it must not wait for a writer.
        return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path, cwd) from None
    except (OSError, ValueError) as error:
        raise ToolRejected(f"Can't read {path}: {_reason(error)}.") from error


def load(path: Path, cwd: Path) -> Loaded:
    """Read a file as a whole, if it isn't too large. Raises as `open_regular` does."""
    with open_regular(path, cwd) as file:
        try:
            found = os.fstat(file.fileno())
            _refuse_special(path, found.st_mode)
            data = _read_up_to(file, LOAD_LIMIT_BYTES + 1)  # not by the size: files of /proc have none
        except OSError as error:
            raise ToolError(f"Can't read {path}: {_reason(error)}.") from error
    return Loaded(
        path=Path(os.path.realpath(path)),
        head=data[:HEAD_BYTES],
        data=data if len(data) <= LOAD_LIMIT_BYTES else None,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
    )


def _read_up_to(file: BinaryIO, limit: int) -> bytes:
    data = bytearray()
    while len(data) < limit and (chunk := file.read(min(2**20, limit - len(data)))):
        data += chunk
        trio.from_thread.check_cancelled()
    return bytes(data)


def _refuse_special(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise ToolRejected(f"{path} is a directory, not a file. List its files with Glob (or `ls` in Bash).")
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "a special file")
    raise ToolRejected(f"{path} is {kind}, not a regular file; only regular files can be used.")


def missing(path: Path, cwd: Path) -> ToolRejected:
    """The error about a file that isn't there: what is there, and where relative paths begin."""
    text = f"File does not exist: {path}."
    parent = path.parent
    if parent.is_dir():
        with suppress(OSError), os.scandir(parent) as entries:
            close = close_names(path.name, [entry.name for entry in itertools.islice(entries, LISTED_NAMES)])
            if close:
                text += f" Did you mean {' or '.join(str(parent / name) for name in close)}?"
    else:
        there = next((folder for folder in parent.parents if folder.is_dir()), Path("/"))
        text += f" Its folder does not exist either; the path is good up to {there}."
    return ToolRejected(f"{text} The working directory is {cwd}.")


def require_current(path: Path, known: FileState | None, found: Loaded) -> None:
    """Raise `ToolRejected` unless the session knows the file, and knows it as it is now."""
    if known is None:
        raise ToolRejected(f"{path} has not been read in this session. Read it first, then change it.")
    now = found.state()
    if now.digest and known.digest:  # the bytes decide: a mere touch is no change
        same = now.digest == known.digest
    else:
        same = (now.size, now.mtime_ns) == (known.size, known.mtime_ns)
    if not same:
        raise ToolRejected(
            f"{path} has been changed since it was read (by the user, a formatter or a command). "
            "Read it again, then change it."
        )


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def size_words(size_bytes: int) -> str:
    """A size for people."""
    return f"{size_bytes:,} bytes" if size_bytes < 10_000 else f"{size_bytes / 2**20:,.2f} MiB"


# --- writing --------------------------------------------------------------------------------------


def write_atomic(path: Path, data: bytes) -> FileState:
    """
    Make ``data`` the whole content of the file at ``path``; its links are followed, missing folders are made.

    Until the end the old content stands, then at once the new one; mode and owner stay. Only where the system lets
    no new file take the place of the old one is it written into. Raises `ToolError`.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        old = os.stat(real) if real.exists() else None
        if old is not None:
            _refuse_special(path, old.st_mode)
            if not os.access(real, os.W_OK):  # replacing would get around that
                raise ToolRejected(f"{path} is write-protected; change its mode first if you are meant to.")
        try:
            _replace(real, data, old)
        except OSError as error:
            if old is None or error.errno not in _IN_PLACE:
                raise
            real.write_bytes(data)
        now = os.stat(real)
    except (OSError, ValueError) as error:
        raise ToolError(f"Can't write {path}: {_reason(error)}.") from error
    return FileState(mtime_ns=now.st_mtime_ns, size=now.st_size, digest=hashlib.sha256(data).hexdigest())


def _replace(real: Path, data: bytes, old: os.stat_result | None) -> None:
    temporary = real.parent / f".atrio-{secrets.token_hex(8)}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            if old is not None:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))  # after the owner, whose change clears bits
        os.replace(temporary, real)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
