"""
Exception groups for people: a group that holds one error is that error. Pure.

Trio wraps every error that leaves a nursery, so one failure four nurseries deep arrives as four groups of one.
Inside, groups pass as they are; at a boundary that users see, `collapse` takes the wrapping off.
"""

from __future__ import annotations

from typing import TypeVar, overload

__all__ = ["collapse", "find_error"]

E = TypeVar("E", bound=BaseException)


@overload
def collapse(error: Exception) -> Exception: ...
@overload
def collapse(error: BaseException) -> BaseException: ...
def collapse(error: BaseException) -> BaseException:
    """
    The one error inside groups of one, or a group whose members are themselves collapsed.

    Notes and an explicit cause of a removed group move to what was inside it. Nothing is ever dropped.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    members: list[BaseException] = [collapse(member) for member in error.exceptions]
    if len(members) == 1:
        inner = members[0]
        for note in _notes(error):
            inner.add_note(note)
        if inner.__cause__ is None and error.__cause__ is not None:
            inner.__cause__ = error.__cause__
        return inner
    if all(new is old for new, old in zip(members, error.exceptions, strict=True)):
        return error
    group = error.derive(members)
    group.__traceback__ = error.__traceback__
    group.__cause__ = error.__cause__
    group.__context__ = error.__context__
    for note in _notes(error):
        group.add_note(note)
    return group


def find_error(error: BaseException, kind: type[E]) -> E | None:
    """The first error of this kind: this one, one that it groups, or one that either was raised from."""
    seen: set[int] = set()
    open: list[BaseException | None] = [error]
    while open:
        each = open.pop(0)
        if each is None or id(each) in seen:
            continue
        if isinstance(each, kind):
            return each
        seen.add(id(each))
        open += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        open.append(each.__cause__)
    return None


def _notes(error: BaseException) -> list[str]:
    notes: list[str] = getattr(error, "__notes__", [])
    return list(notes)
