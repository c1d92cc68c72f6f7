"""
What a resume costs: the same journal end behind more and more that lies before its last compaction.

Each size is measured in a fresh process: seconds from the closed journal to the history, and the peak of its memory
over what it held before. Both should not depend on the size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run by path, not only with -m

from bench.memory import peak_kib, resident_kib

from atrio.runtime.journal import JournalFile
from atrio.runtime.messages import AssistantMessage, Message, TextBlock, ToolResultBlock, ToolUseBlock, UserMessage
from atrio.runtime.records import Record, SystemRecord
from atrio.runtime.rerecord import USAGE_TOTALS, records_of, rerecord
from atrio.runtime.resume import resume_file
from atrio.runtime.transcript import LineWriter

SIZES_MB = (5, 50, 500)
TAIL_MESSAGES = 1_000
"""Messages behind the boundary."""

MESSAGE_BYTES = 4_400
"""Of a call's result; with its lines around it, 100,000 messages make about 500 MB."""

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def conversation(name: str, first: int, count: int) -> list[Message]:
    """Calls and their results, two messages each."""
    messages: list[Message] = []
    for number in range(first, first + count // 2):
        call = ToolUseBlock(f"{name}{number}", "Read", {"file_path": f"/work/{number}"})
        text = (f"line {number} of a file that was read\n" * 200)[: 2 * MESSAGE_BYTES]
        messages += (
            AssistantMessage(uuid=f"{name}a{number}", message_id=f"{name}m{number}", model="c", content=(call,)),
            UserMessage(uuid=f"{name}r{number}", content=(ToolResultBlock(call.id, text),), origin="tool_results"),
        )
    return messages


def write(path: Path, size_mb: int) -> int:
    """A journal of this size; returns the number of its messages."""
    writer = LineWriter(session_id=path.stem, cwd="/work", version="bench")
    start = UserMessage(uuid="start", content=(TextBlock("Read all of it."),))
    written = 0
    with path.open("wb") as file:

        def put(records: tuple[Record, ...]) -> None:
            file.writelines(writer.line(record, NOW) for record in records)

        put(records_of([start]))
        while file.tell() < size_mb * 1_000_000 - TAIL_MESSAGES * MESSAGE_BYTES:
            put(records_of(conversation("old", written, 100)))
            written += 100
        summary = UserMessage(uuid="summary", content=(TextBlock("All was read."),), hidden=True)
        _, records = rerecord([summary], run_id="bench", number=1, data={"trigger": "auto"}, used=())
        put((*records, SystemRecord(uuid="totals", subtype=USAGE_TOTALS, data={})))
        put(records_of(conversation("new", 0, TAIL_MESSAGES)))
    return written + TAIL_MESSAGES


def measure(path: Path) -> dict[str, float]:
    """In this process: open, resume, close."""
    before = resident_kib()
    start = time.perf_counter()
    journal = JournalFile.open(path)
    try:
        resumed, _span = resume_file(path)
    finally:
        journal.close()
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak_kib": peak_kib() - before, "messages": len(resumed.messages)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES_MB), metavar="MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure)))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="atrio-bench-") as folder:
        for size in given.sizes:
            path = Path(folder) / "journal.jsonl"
            count = write(path, size)
            done = subprocess.run(
                [sys.executable, __file__, "--measure", str(path)], check=True, capture_output=True, text=True
            )
            rows.append({"bytes": path.stat().st_size, "journal_messages": count, **json.loads(done.stdout)})
    if given.json:
        print(json.dumps(rows))
        return
    print(f"{'journal':>10}  {'messages':>9}  {'resumed':>8}  {'seconds':>8}  {'peak MiB':>8}")
    for row in rows:
        print(
            f"{row['bytes'] / 1e6:>7.0f} MB  {row['journal_messages']:>9,}  {row['messages']:>8,}"
            f"  {row['seconds']:>8.3f}  {row['peak_kib'] / 1024:>8.1f}"
        )


if __name__ == "__main__":
    main()
