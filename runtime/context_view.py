"""A window report as text: a table of what fills the context, and a bar. Pure."""

from __future__ import annotations

from .context.report import WindowReport

__all__ = ["render_report"]

MAX_ITEMS = 5
GLYPHS = "█▓▒░▚▞▙▟▛▜▀▄"
FREE = "·"


def render_report(report: WindowReport, *, width: int = 78) -> str:
    """
    The report for a person: the bar shows the whole window, with ``|`` where a compaction starts by itself.
    """
    how = "measured" if report.measured else "estimated"
    lines = [
        f"{report.tokens:,} of {report.levels.window:,} tokens ({how}); "
        f"{report.free:,} until the context is compacted, at {report.levels.auto:,}",
        _bar(report, width),
        "",
    ]
    for glyph, part in zip(GLYPHS, report.parts, strict=False):
        share = part.tokens / report.levels.window
        lines.append(f"{glyph} {part.name:<16}{part.tokens:>10,}{share:>8.1%}")
        shown = part.items[:MAX_ITEMS]
        lines += [f"    {item.name[:40]:<42}{item.tokens:>10,}" for item in shown]
        if len(part.items) > len(shown):
            rest = sum(item.tokens for item in part.items[len(shown) :])
            lines.append(f"    {f'({len(part.items) - len(shown)} more)':<42}{rest:>10,}")
    free = max(0, report.levels.window - report.tokens)
    lines.append(f"{FREE} {'free':<16}{free:>10,}{free / report.levels.window:>8.1%}")
    return "\n".join(lines)


def _bar(report: WindowReport, width: int) -> str:
    cells: list[str] = []
    filled = 0.0
    for glyph, part in zip(GLYPHS, report.parts, strict=False):
        filled += part.tokens / report.levels.window * width
        cells += glyph * max(0, round(filled) - len(cells))
    cells = (cells + [FREE] * width)[:width]
    mark = min(width - 1, round(report.levels.auto / report.levels.window * width))
    cells[mark] = "|"
    return "".join(cells)
