"""What is drawn for one simulated session: the script, the faults, the agent, the strikes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Literal, TypeAlias, get_args

import attrs

from .faults import Fault
from .sim_faults import draw_faults
from .sim_script import draw_script
from .turns import Turn

__all__ = ["Plan", "Strike", "StrikeKind", "Submission", "draw_plan"]

StrikeKind: TypeAlias = Literal[
    "interrupt",
    "cancel",
    "leave",
    "raise",
    "steer",
    "submit",
    "executor",
    "streamer",
    "streamer_inbox",
    "watchdog",
    "loop",
    "recorder",
]
"""
What hits a run: an abort in one of four ways, a message, a submission too many, or the death of an actor.
"""

ABORTS: tuple[StrikeKind, ...] = ("interrupt", "cancel", "leave", "raise")
DEATHS: tuple[StrikeKind, ...] = ("executor", "streamer", "streamer_inbox", "watchdog")

CompactKind: TypeAlias = Literal["none", "works", "fails", "hangs", "breaks"]
HookKind: TypeAlias = Literal["agrees", "blocks", "blocks_always", "prevents", "crashes", "hangs"]
ApprovalKind: TypeAlias = Literal["none", "allows", "denies", "crashes", "hangs"]
PrepareKind: TypeAlias = Literal["as_it_is", "fails", "slow", "exhausted", "staged", "hangs", "own"]
ToolHookKind: TypeAlias = Literal["denies", "defers", "allows", "changes", "spoils", "crashes", "hangs", "stops"]

HOOKS = get_args(HookKind)
TOOL_HOOKS = get_args(ToolHookKind)
PREPARES = get_args(PrepareKind)[1:]
COMPACTIONS = (*get_args(CompactKind), "works")
APPROVALS = (*get_args(ApprovalKind), "allows")


@attrs.frozen(kw_only=True)
class Strike:
    """Something that hits a run at its n-th step of the scheduler, or so many seconds after its start."""

    kind: StrikeKind
    step: int | None = None
    time: float | None = None

    def __str__(self) -> str:
        return f"{self.kind} at {f'step {self.step}' if self.step is not None else f'{self.time:g} s'}"


@attrs.frozen(kw_only=True)
class Submission:
    """One run of the session and what hits it."""

    strikes: tuple[Strike, ...] = ()


@attrs.frozen(kw_only=True)
class Plan:
    """
    Everything about one simulated session. The same seed makes the same plan.

    ``scheduler``, ``ids`` and ``jitter`` are seeds of their own, so that one doesn't shift the other.
    """

    seed: int
    script: tuple[Turn, ...]
    faults: Mapping[int, Fault]
    submissions: tuple[Submission, ...]
    scheduler: int = 0
    ids: int = 1
    jitter: int = 2
    max_turns: int | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_budget_usd: float | None = None
    max_repeats: int | None = 10
    fallbacks: tuple[str, ...] = ()
    unattended: bool = False
    schema: bool = False
    hooks: tuple[HookKind, ...] = ()
    tool_hooks: tuple[ToolHookKind, ...] = ()
    token_target: int | None = None
    task_budget: int | None = None
    compact: CompactKind = "none"
    prepare: PrepareKind = "as_it_is"
    approval: ApprovalKind = "none"
    concurrency: int = 10

    @property
    def strikes(self) -> tuple[Strike, ...]:
        return tuple(strike for submission in self.submissions for strike in submission.strikes)

    def describe(self) -> list[str]:
        """The plan in lines, for people."""
        options = [
            f"{name}={getattr(self, name)}"
            for name in (each.name for each in attrs.fields(Plan))
            if name not in ("seed", "script", "faults", "submissions", "scheduler", "ids", "jitter")
            and getattr(self, name) != attrs.fields_dict(Plan)[name].default
        ]
        lines = [f"seed {self.seed}: {', '.join(options) or 'a plain agent'}"]
        lines += [f"  turn {number}: {_shown(turn)}" for number, turn in enumerate(self.script, 1)]
        lines += [f"  request {number}: {fault.name}" for number, fault in sorted(self.faults.items())]
        for number, submission in enumerate(self.submissions, 1):
            lines.append(f"  submission {number}: {', '.join(map(str, submission.strikes)) or 'nothing hits it'}")
        return lines


def draw_plan(seed: int) -> Plan:
    """The plan of ``seed``."""
    rng = Random(seed)
    schema = rng.random() < 0.1
    script = draw_script(rng, schema=schema)
    plan = Plan(
        seed=seed,
        scheduler=rng.getrandbits(64),
        ids=rng.getrandbits(64),
        jitter=rng.getrandbits(64),
        script=script,
        faults=draw_faults(rng),
        submissions=tuple(Submission(strikes=_strikes(rng)) for _ in range(rng.choice((1, 1, 1, 2, 3)))),
        schema=schema,
        max_turns=rng.randrange(1, 12) if rng.random() < 0.25 else None,
        max_tokens=rng.choice((1, 4096)) if rng.random() < 0.2 else None,
        max_seconds=_seconds(rng) if rng.random() < 0.2 else None,
        max_budget_usd=rng.choice((0.0001, 0.002, 0.02)) if rng.random() < 0.1 else None,
        max_repeats=rng.choice((None, 2, 10, 10, 10)),
        fallbacks=("claude-haiku-4-5", "claude-opus-4-5")[: rng.randrange(3)] if rng.random() < 0.4 else (),
        unattended=rng.random() < 0.2,
        hooks=tuple(rng.choice(HOOKS) for _ in range(rng.randrange(1, 3))) if rng.random() < 0.2 else (),
        tool_hooks=tuple(rng.choice(TOOL_HOOKS) for _ in range(rng.randrange(1, 3))) if rng.random() < 0.15 else (),
        token_target=rng.choice((100, 3000)) if rng.random() < 0.1 else None,
        task_budget=20_000 if rng.random() < 0.1 else None,
        compact=rng.choice(COMPACTIONS),
        prepare=rng.choice(PREPARES) if rng.random() < 0.1 else rng.choice(("as_it_is", "own")),
        approval=rng.choice(APPROVALS),
        concurrency=rng.choice((1, 2, 10, 10)),
    )
    return _sure_to_end(plan, rng)


def _seconds(rng: Random) -> float:
    return round(rng.choice((0.001, 5.0, 100.0, 5000.0)) * rng.random() + 0.001, 4)


def _strikes(rng: Random) -> tuple[Strike, ...]:
    if rng.random() < 0.35:
        return ()
    strikes = []
    if rng.random() < 0.45:
        strikes += [_strike(rng, "steer") for _ in range(rng.choice((1, 1, 2, 6)))]
    if rng.random() < 0.45:
        strikes.append(_strike(rng, rng.choice(ABORTS)))
    if rng.random() < 0.4:
        strikes += [_strike(rng, rng.choice(DEATHS)) for _ in range(rng.choice((1, 1, 2, 7)))]
    if rng.random() < 0.05:
        strikes.append(_strike(rng, "loop"))
    if rng.random() < 0.04:
        strikes.append(_strike(rng, "recorder"))
    if rng.random() < 0.05:
        strikes.append(_strike(rng, "submit"))
    return tuple(strikes)


def _strike(rng: Random, kind: StrikeKind) -> Strike:
    if rng.random() < 0.65:
        return Strike(kind=kind, step=int(2 ** rng.uniform(0, 11)))
    return Strike(kind=kind, time=round(2 ** rng.uniform(-4, 8), 3))


def _sure_to_end(plan: Plan, rng: Random) -> Plan:
    """A tool may hang for ever, and nobody but the user has a say in that: each run gets an end from outside."""
    if plan.max_seconds is not None or not any('"hang"' in str(turn).replace("'", '"') for turn in plan.script):
        return plan
    end = Strike(kind=rng.choice(("interrupt", "cancel")), time=round(rng.uniform(50, 3000), 2))
    submissions = tuple(attrs.evolve(each, strikes=(*each.strikes, end)) for each in plan.submissions)
    return attrs.evolve(plan, submissions=submissions)


def _shown(turn: Turn) -> str:
    parts = []
    for part in turn.blocks:
        data = attrs.asdict(part)
        name = type(part).__name__.removesuffix("Part").lower()
        value = next((data[key] for key in ("input", "thinking", "text", "data") if key in data), "")
        named = f" {data['name'][:20]}" if "name" in data else ""
        parts.append(f"{name}{named} {str(value)[:60]!r}" + (" (unfinished)" if part.unfinished else ""))
    timing = f" delay={turn.delay:g} pace={turn.pace:g}" if turn.delay or turn.pace else ""
    return f"{turn.reason}{timing}: {'; '.join(parts)}"
