"""What the model sees of a result that is too long for it: a preview, and where the rest is. Pure."""

from __future__ import annotations

import hashlib
import re

__all__ = ["PREVIEW_BYTES", "clip_error", "preview", "result_file_name"]

PREVIEW_BYTES = 2_000

ERROR_HEAD_CHARS = 5_000
ERROR_TAIL_CHARS = 5_000


def preview(text: str, *, path: str) -> str:
    """
    The replacement for a long ``text`` that is kept at ``path``: its first 2,000 bytes or so, cut at a line's end
    where one is in the second half.
    """
    head = text.encode("utf-8", "replace")[:PREVIEW_BYTES].decode("utf-8", "ignore")
    cut = head.rfind("\n")
    if cut > len(head) // 2:
        head = head[:cut]
    return (
        f"The output is {len(text):,} characters long and was saved in full to {path}; "
        f"use Read with offset and limit, or Grep, to see more of it. It begins:\n\n{head}\n[...]"
    )


def clip_error(text: str) -> str:
    """An error text within bounds: its head and its tail, since the cause tends to be at one of the two."""
    if len(text) <= ERROR_HEAD_CHARS + ERROR_TAIL_CHARS:
        return text
    left_out = len(text) - ERROR_HEAD_CHARS - ERROR_TAIL_CHARS
    return f"{text[:ERROR_HEAD_CHARS]}\n[... {left_out:,} characters left out ...]\n{text[-ERROR_TAIL_CHARS:]}"


def result_file_name(call_id: str) -> str:
    """A file name for a call's output. The id comes from the model, so it is not trusted to be one."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", call_id):
        return f"{call_id}.txt"
    return f"call-{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:32]}.txt"
