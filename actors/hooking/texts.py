"""Keeps what hooks say short: a longer text goes to a file, and a preview takes its place."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import attrs
import trio

from atrio.runtime.preview import clip_error, preview

from .verdicts import HookAnswer, HookNotice

__all__ = ["TEXT_LIMIT_CHARS", "fit_answer"]

TEXT_LIMIT_CHARS: Final = 10_000
"""The longest text of a hook that the model or the user sees."""


async def fit_answer(answer: HookAnswer, folder: Path | None) -> HookAnswer:
    """
    The answer with no text over `TEXT_LIMIT_CHARS`. Whole texts are kept in ``folder``, which is made if need be; None,
    or trouble with it: they are cut.

    Cancelled: a file may be there for nothing.
    """
    return attrs.evolve(
        answer,
        reason=await _fit_optional(answer.reason, folder),
        block=await _fit_optional(answer.block, folder),
        stop=await _fit_optional(answer.stop, folder),
        context=tuple([await _fit(text, folder) for text in answer.context]),
        notices=tuple([HookNotice(await _fit(each.text, folder), each.level) for each in answer.notices]),
    )


async def _fit_optional(text: str | None, folder: Path | None) -> str | None:
    return None if text is None else await _fit(text, folder)


async def _fit(text: str, folder: Path | None) -> str:
    if len(text) <= TEXT_LIMIT_CHARS:
        return text
    if folder is not None:
        data = text.encode("utf-8", "replace")
        path = folder / f"hook-{hashlib.sha256(data).hexdigest()[:32]}.txt"
        try:
            await trio.to_thread.run_sync(_write, path, data)
        except OSError:
            return clip_error(text)
        return preview(text, path=str(path))
    return clip_error(text)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(data)
