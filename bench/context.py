"""
Context management: what preparing a request costs, how far token counts are off, and how a window fills.

Speed: 10,000 messages of 20 MB are prepared for the first time, then turn by turn; and turns again with as much lying
before a boundary, which must cost no more than none.

Fill: a simulated session of 2,000 turns with results of up to 120,000 characters in a window of 200,000 tokens. The
server's counts are synthetic: 1.25 times the estimate, 3 % noise. The picture goes to out/.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from atrio.runtime.context import (
    CompactHistory,
    ContextLimits,
    ContextPlan,
    NewHistory,
    Projection,
    Summary,
    Verdict,
    autocompact,
    new_history,
    project,
)
from atrio.runtime.history import wire_messages
from atrio.runtime.messages import (
    AssistantMessage,
    JsonObject,
    Message,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from atrio.runtime.tokens import Calibration, Estimates
from atrio.runtime.window import ModelWindow, WindowLevels, levels_of

__all__ = ["Session", "draw"]

PICTURES = Path(__file__).resolve().parent / "out"

WINDOW = 200_000
LEVELS = levels_of(ModelWindow(tokens=WINDOW))
LIMITS = ContextLimits(results_dir="/s/tool-results")
OVERHEAD = 12_000
TRUTH = 1.25
"""The server counts a quarter more than is estimated."""


@attrs.define
class Session:
    """
    A loop as simple as can be, against a server that counts for itself: a quarter more than is estimated, with noise.
    """

    random: random.Random
    levels: WindowLevels = LEVELS
    result_chars: tuple[int, ...] = (200, 2_000, 8_000, 30_000, 120_000)
    history: tuple[Message, ...] = (UserMessage(uuid="u", content=(TextBlock("Make the tests pass."),)),)
    plan: ContextPlan = attrs.field(factory=ContextPlan)
    compactions: CompactHistory = attrs.field(factory=CompactHistory)
    calibration: Calibration = attrs.field(factory=Calibration)
    estimates: Estimates = attrs.field(factory=Estimates)
    fills: list[int] = attrs.field(factory=list)
    """What the server counted, by turn."""
    errors: list[float] = attrs.field(factory=list)
    """How far the measurement was off, of the window."""
    compacted_at: list[int] = attrs.field(factory=list)
    prefix_breaks: list[int] = attrs.field(factory=list)
    sent: list[JsonObject] = attrs.field(factory=list)

    def run(self, turns: int) -> None:
        for number in range(turns):
            self.turn(number)

    def view(self) -> Projection:
        view = project(
            self.history,
            self.plan,
            limits=LIMITS,
            levels=self.levels,
            estimates=self.estimates,
            overhead=OVERHEAD,
            ratio=self.calibration.ratio("m"),
        )
        self.plan = view.plan
        return view

    def turn(self, number: int) -> Verdict:
        view = self.view()
        verdict = autocompact(view.tokens, self.levels, self.compactions, turn=number, fixed_tokens=OVERHEAD).verdict
        broken = view.prefix_broken
        if verdict is Verdict.COMPACT:
            self.compact(number, view)
            view, broken = self.view(), True
        self.request(number, view, broken)
        return verdict

    def compact(self, number: int, view: Projection) -> None:
        built = new_history(
            self.history,
            Summary("What was done, in many words. " * 400),
            boundary_uuid=f"00000000-0000-0000-0000-{number:012}",
            trigger="auto",
            pre_tokens=view.tokens,
            plan=self.plan,
            shown=view.messages,
            limits=LIMITS,
            levels=self.levels,
            estimates=self.estimates,
            fixed_tokens=OVERHEAD,
            ratio=self.calibration.ratio("m"),
        )
        assert isinstance(built, NewHistory)
        self.history, self.plan = built.messages, built.plan
        self.compactions = self.compactions.succeeded(number)
        self.compacted_at.append(number)

    def request(self, number: int, view: Projection, broken: bool) -> None:
        wire = wire_messages(view.messages, model="m")
        if not broken and self.sent[:-1] != wire[: max(0, len(self.sent) - 1)]:
            self.prefix_breaks.append(number)
        self.sent = wire
        noise = self.random.uniform(0.97, 1.03)
        truth = round(TRUTH * noise * (OVERHEAD + self.estimates.total(view.messages)))
        self.fills.append(truth)
        self.errors.append((view.tokens - truth) / self.levels.window)
        self.calibration = self.calibration.observed("m", estimated=view.estimated, reported=truth)
        self.history = (*self.history, *self.answer(number, truth))

    def answer(self, number: int, tokens: int) -> Sequence[Message]:
        calls = [
            ToolUseBlock(f"c{number}-{n}", "Bash", {"command": f"make test-{number}-{n}"})
            for n in range(self.random.choice([1, 1, 1, 2, 4]))
        ]
        results = tuple(
            ToolResultBlock(call.id, "a line of output\n" * (self.random.choice(self.result_chars) // 17))
            for call in calls
        )
        usage = Usage(cache_read_input_tokens=tokens, input_tokens=3, output_tokens=60, reported=True)
        return (
            AssistantMessage(
                uuid=f"a{number}", message_id=f"a{number}", model="m", content=(TextBlock("Next."), *calls), usage=usage
            ),
            UserMessage(uuid=f"r{number}", content=results, origin="tool_results"),
        )


# --- speed ------------------------------------------------------------------------------------------


def conversation(messages: int, total_bytes: int, name: str) -> list[Message]:
    """A prompt, then calls and results in turn, of ordinary code-like text."""
    size = max(1, total_bytes // max(1, messages // 2))
    text = ("def handle(self, request: Request) -> Response:  # 12345\n" * (size // 56 + 1))[:size]
    history: list[Message] = [UserMessage(uuid=f"{name}-u", content=(TextBlock("Do it."),))]
    for number in range(messages // 2):
        history += exchange(f"{name}-{number}", text)
    return history


def exchange(name: str, text: str) -> list[Message]:
    """A response with one call, and its result."""
    call = ToolUseBlock(f"c-{name}", "Bash", {"command": f"run {name}"})
    answer = ToolResultBlock(call.id, f"{name}\n{text}")
    return [
        AssistantMessage(uuid=f"a-{name}", message_id=name, model="m", content=(call,)),
        UserMessage(uuid=f"r-{name}", content=(answer,), origin="tool_results"),
    ]


def turn_costs(history: Sequence[Message], turns: int) -> tuple[float, list[float]]:
    """Seconds of the first projection, and of each of the turns after it."""
    messages, plan, estimates = tuple(history), ContextPlan(), Estimates()
    # So large a window that no step has to act: what is measured is what every request pays.
    levels = levels_of(ModelWindow(tokens=100_000_000))
    costs: list[float] = []
    for number in range(turns + 1):
        begun = time.perf_counter()
        plan = project(messages, plan, limits=LIMITS, levels=levels, estimates=estimates, overhead=OVERHEAD).plan
        costs.append(time.perf_counter() - begun)
        messages = (*messages, *exchange(f"t{number}", "new output\n" * 100))
    return costs[0], costs[1:]


def measure_speed(messages: int, total_bytes: int, turns: int) -> dict[str, float]:
    """Milliseconds: the first projection, a turn after it, and a turn with and without all that before a boundary."""
    old = conversation(messages, total_bytes, "old")
    boundary: Message = SystemMessage(uuid="b", subtype="compact_boundary")
    recent = conversation(100, 200_000, "new")
    first, later = turn_costs(old, turns)
    _, alone = turn_costs([boundary, *recent], turns)
    _, behind = turn_costs([*old, boundary, *recent], turns)
    return {
        "first_ms": first * 1_000,
        "turn_ms": statistics.median(later) * 1_000,
        "turn_alone_ms": statistics.median(alone) * 1_000,
        "turn_behind_boundary_ms": statistics.median(behind) * 1_000,
    }


# --- picture ----------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP = 1_000, 300, 60, 30


def draw(fills: Sequence[int], levels: WindowLevels) -> str:
    """The fill of the window over turns as an SVG picture, with the marks that matter."""

    def y(tokens: float) -> float:
        return TOP + HEIGHT * (1 - tokens / levels.window)

    step = WIDTH / max(1, len(fills) - 1)
    points = " ".join(f"{LEFT + n * step:.1f},{y(tokens):.1f}" for n, tokens in enumerate(fills))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 100} {TOP + HEIGHT + 40}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="18">Tokens in the context over {len(fills)} turns</text>',
    ]
    marks = {"window": levels.window, "hard limit": levels.blocking, "compaction": levels.auto, "0": 0}
    for number, (name, tokens) in enumerate(marks.items()):
        # The two upper marks are close to each other.
        shift = 4 + (6 if number == 2 else 0)
        lines.append(
            f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(tokens):.1f}" y2="{y(tokens):.1f}" stroke="#bbb"/>'
            f'<text x="{LEFT + WIDTH + 6}" y="{y(tokens) + shift:.1f}">{name}</text>'
            f'<text x="{LEFT - 6}" y="{y(tokens) + shift:.1f}" text-anchor="end">{tokens // 1_000}k</text>'
        )
    lines.append(f'<polyline points="{points}" fill="none" stroke="#0a6fb8" stroke-width="1"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def measure_fill(turns: int, pictures: Path) -> dict[str, float]:
    """Compactions, the fullest the window was, and the error of the measurement as a share of the window."""
    session = Session(random.Random(7))
    begun = time.perf_counter()
    session.run(turns)
    spent = time.perf_counter() - begun
    pictures.mkdir(parents=True, exist_ok=True)
    (pictures / "context-fill.svg").write_text(draw(session.fills, LEVELS), encoding="utf-8")
    errors = [abs(error) for error in session.errors[20:]] or [0.0]
    return {
        "turns": turns,
        "compactions": len(session.compacted_at),
        "fullest_tokens": max(session.fills),
        "limit_tokens": LEVELS.blocking,
        "unannounced_prefix_breaks": len(session.prefix_breaks),
        "mean_error": statistics.fmean(errors),
        "max_error": max(errors),
        "turn_ms": spent / turns * 1_000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--turns", type=int, default=2_000, help="of the simulated session")
    parser.add_argument("--rounds", type=int, default=20, help="turns that are timed")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="the folder for the picture")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    speed = measure_speed(options.messages, int(options.megabytes * 1e6), options.rounds)
    fill = measure_fill(options.turns, options.pictures)
    if options.json:
        print(json.dumps({"speed": speed, "fill": fill}))
        return
    print(f"{options.messages:,} messages, {options.megabytes:g} MB")
    print(f"  first projection           {speed['first_ms']:10.1f} ms")
    print(f"  each turn after it         {speed['turn_ms']:10.1f} ms")
    print(f"100 messages, each turn      {speed['turn_alone_ms']:10.2f} ms")
    print(f"  with all that before them  {speed['turn_behind_boundary_ms']:10.2f} ms  (target: no more)")
    print(f"{fill['turns']:,} turns: {fill['compactions']} compactions, at most {fill['fullest_tokens']:,} tokens")
    print(f"  (hard limit {fill['limit_tokens']:,}), {fill['unannounced_prefix_breaks']} unannounced prefix breaks,")
    print(f"  counts off by {fill['mean_error']:.1%} of the window on average, {fill['max_error']:.1%} at most")


if __name__ == "__main__":
    main()
