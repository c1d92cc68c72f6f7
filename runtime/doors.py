"""
What leaves a public door: the one real error, not a nest of groups.

Trio's nurseries wrap every error in an exception group. Inside, groups are right; a user who wrote
``except JournalError`` must get a JournalError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from .groups import collapse

__all__ = ["single_error"]


@asynccontextmanager
async def single_error() -> AsyncIterator[None]:
    """
    Re-raise a group that holds one error as that error.

    Several real errors stay a group. Cancellations in it go on alone when nothing else was raised, and are
    left out when something was: the error ends the block at least as surely.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        _cancelled, rest = group.split(trio.Cancelled)
        if rest is None:
            raise
        error = collapse(rest)
        raise error from error.__cause__
