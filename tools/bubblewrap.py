"""The command line of bubblewrap: what a command sees of the machine, and what it may write. Asks only what exists."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from .paths import is_inside, real_path

__all__ = ["bubblewrap_options", "is_beyond_reach"]

TEMP: Final = Path("/tmp")
RUN: Final = Path("/run")
"""Folders that are replaced: they hold the sockets of other programs, which even a read-only folder lets one use."""

OF_RUN: Final = ("/run/current-system",)
"""What has to stay of /run: on NixOS, all programs."""

OF_RUN_FOR_NETWORK: Final = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
"""Where /etc/resolv.conf leads to."""

STEERING: Final = (".git/hooks", ".git/config", ".atrio", ".claude", ".mcp.json")
"""
What runs programs outside of the sandbox later on stays as it is, where it exists. This stops accidents and the plain
ways; a command may still rename the folder above.
"""


def bubblewrap_options(
    *, roots: Sequence[Path], extra: Sequence[Path], tmp: Path, cwd: Path, needed: Iterable[Path], network: bool
) -> list[str]:
    """
    Read all, write only to ``roots``, ``extra`` and ``tmp`` (which is /tmp as well), in a process table of its own.

    ``needed`` are folders that must be seen even where their place is replaced.
    """
    # No --die-with-parent: the signal comes with the end of the *thread* that started the process, and threads of
    # a pool end when they are idle. The reaper ends all that bubblewrap leaves.
    options = ["--unshare-all", "--new-session", *(["--share-net"] if network else [])]
    options += ["--bind" if Path("/") in roots else "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    options += ["--tmpfs", str(RUN)]
    for path in (*OF_RUN, *(OF_RUN_FOR_NETWORK if network else ())):
        options += ["--ro-bind-try", path, path]
    options += ["--bind", str(tmp), str(TEMP)]
    for path in needed:
        if is_inside(path, (TEMP, RUN)):
            options += ["--ro-bind", str(path), str(path)]
    for root in sorted(roots, key=lambda path: len(path.parts)):
        if root != Path("/"):
            options += ["--bind", str(root), str(root)]
    fixed = [path for root in roots for name in STEERING if _is_real(path := root / name)]
    for path in fixed:
        options += ["--ro-bind", str(path), str(path)]
    for path in (*extra, tmp):
        real = real_path(path)
        if real is not None and (is_beyond_reach(path, roots) or (real == path and is_inside(path, fixed))):
            options += ["--bind-try", str(real), str(real)]
    return [*options, "--chdir", str(cwd), "--"]


def is_beyond_reach(path: Path, roots: Sequence[Path]) -> bool:
    """
    Whether no part of ``path`` lies in a root, where an earlier command could have put a link in its place.

    What does is writable as part of the root, or stays as it is; a grant would hold for wherever the link leads.
    """
    return not any(is_inside(part, roots) for part in map(real_path, (path, *path.parents)) if part is not None)


def _is_real(path: Path) -> bool:
    return path.exists() and os.path.realpath(path) == str(path)
