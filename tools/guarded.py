"""
Which files are more than plain ones, so that writing them is more than an edit. Only asks which files exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from atrio.runtime.tool import ToolContext

from .paths import is_inside, real_path

__all__ = ["are_plain", "is_guarded"]

GUARDED_DIRS: Final = frozenset({".git", ".hg", ".svn", ".atrio", ".claude", ".vscode", ".idea", ".husky", ".ssh"})
"""What lies in these runs or steers programs, so a write there is never a mere edit."""

GUARDED_FILES: Final = frozenset(
    {".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv"}
    | {".zprofile", ".zlogin", ".zlogout", ".cshrc", ".tcshrc", ".kshrc", ".inputrc", "config.fish", ".envrc"}
    | {".gitconfig", ".gitmodules", ".gitattributes", ".npmrc", ".ripgreprc", ".mcp.json", ".claude.json"}
)
"""The same for single files, wherever they lie."""


def are_plain(paths: Iterable[Path], ctx: ToolContext, *, through_links: bool = False) -> bool:
    """
    Whether all lie in the workspace, wherever symlinks lead, and none steers programs or is a session's record.

    ``through_links``: they are written in place, so that a hard link in the workspace changes a file elsewhere.
    """
    roots = ctx.workspace.roots
    for path in paths:
        real = real_path(path)
        if real is None or not is_inside(real, roots):
            return False
        if any(is_guarded(each, roots) or _is_record(each, ctx) for each in (path, real)):
            return False
        if through_links and _has_other_names(real):
            return False
    return True


def is_guarded(path: Path, roots: Iterable[Path]) -> bool:
    """Whether programs take orders from this file, or from one below this folder."""
    root = next((root for root in roots if path.is_relative_to(root)), None)
    inner = path.relative_to(root) if root is not None else path
    parts = [part.lower() for part in inner.parts]
    return ".git" in path.parts or not GUARDED_DIRS.isdisjoint(parts) or bool(parts and parts[-1] in GUARDED_FILES)


def _is_record(path: Path, ctx: ToolContext) -> bool:
    """It belongs to the journals of this project, where these are kept inside of the workspace."""
    journals = real_path(ctx.results_dir.parent.parent)
    if journals is None or journals in ctx.workspace.roots or not is_inside(journals, ctx.workspace.roots):
        return False
    return is_inside(path, (journals,))


def _has_other_names(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_nlink > 1
    except OSError:
        return False
