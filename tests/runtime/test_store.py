"""Sessions on disk: found, listed, named, searched, exported, deleted."""

from __future__ import annotations

import html
import os
import re
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from atrio.runtime.errors import ConfigError, JournalLocked
from atrio.runtime.journal import JournalFile, journal_path, results_folder
from atrio.runtime.messages import TextBlock, ToolResultBlock, ToolUseBlock, Usage, UserMessage
from atrio.runtime.records import BlockRecord, Record, ResponseEndRecord, ResultRecord, UserRecord, WithdrawRecord
from atrio.runtime.store import (
    delete_session,
    find_session,
    latest_session,
    list_sessions,
    remove_expired,
    rename_session,
)
from atrio.runtime.store_export import Format, export_session
from atrio.runtime.store_search import search_sessions
from atrio.runtime.transcript import LineWriter

NOW = datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
CWD = Path("/work/project")


def prompt(text: str, *, hidden: bool = False) -> UserRecord:
    return UserRecord(message=UserMessage(uuid=str(uuid4()), content=(TextBlock(text),), hidden=hidden))


def answer(text: str, message_id: str = "m1") -> tuple[Record, Record]:
    block = BlockRecord(uuid=str(uuid4()), message_id=message_id, model="claude", block=TextBlock(text))
    end = ResponseEndRecord(
        uuid=str(uuid4()), message_id=message_id, model="claude", stop_reason="end_turn", usage=Usage()
    )
    return block, end


def session(home: Path, *records: Record, cwd: Path = CWD, id: str | None = None, age: float = 0) -> Path:
    path = journal_path(home, cwd, id or str(uuid4()))
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = LineWriter(session_id=path.stem, cwd=str(cwd), version="1")
    lines = [writer.line(record, NOW + timedelta(seconds=n)) for n, record in enumerate(records)]
    path.write_bytes(b"".join(lines))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


# --- listing --------------------------------------------------------------------------------------


def test_a_list_says_what_a_session_is_about(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("context", hidden=True), prompt(" count the files "), *answer("Three."))
    (info,) = list_sessions(tmp_path, CWD)

    assert (path.stem, path, "count the files", None) == (info.id, info.path, info.prompt, info.title)
    assert (2, True, str(CWD), path.stat().st_size) == (info.messages, info.exact, info.cwd, info.size_bytes)
    assert (NOW, NOW + timedelta(seconds=3)) == (info.started, info.last_used)


def test_a_list_has_the_last_used_first_and_only_what_is_a_session(tmp_path: Path) -> None:
    old = session(tmp_path, prompt("old"), age=20)
    new = session(tmp_path, prompt("new"), age=10)
    other = session(tmp_path, prompt("other"), cwd=Path("/elsewhere"))
    session(tmp_path)  # empty
    (new.parent / "notes.jsonl").write_text("{}\n")
    (new.parent / f"{uuid4()}.jsonl").write_bytes(b"\xff\xfe not a journal\n")

    assert [new, old] == [info.path for info in list_sessions(tmp_path, CWD) if info.prompt]
    assert [other, new, old] == [info.path for info in list_sessions(tmp_path) if info.prompt]


def test_a_long_session_is_listed_from_its_ends(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("first"), *[prompt("x" * 1000) for _ in range(1000)])
    rename_session(path, "a  long\none")
    (info,) = list_sessions(tmp_path)

    assert ("first", "a long one", False) == (info.prompt, info.title, info.exact)
    assert 800 < info.messages < 1200


def test_a_session_is_found_by_id_beginning_title_and_path(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("a"), id="aaaabbbb-0000-4000-8000-000000000001")
    session(tmp_path, prompt("b"), id="aaaacccc-0000-4000-8000-000000000002")
    rename_session(path, "Über alles")

    for text in (path.stem, path.stem.upper(), "aaaab", "über ALLES", str(path)):
        assert path == find_session(tmp_path, text)
    for text in ("aaaa", "aaa", "nobody", "", str(tmp_path / "none.jsonl")):
        with pytest.raises(ConfigError):
            find_session(tmp_path, text)


def test_what_is_in_this_folder_goes_before_what_is_elsewhere(tmp_path: Path) -> None:
    here = session(tmp_path, prompt("a"), id="aaaabbbb-0000-4000-8000-000000000001", age=50)
    session(tmp_path, prompt("b"), id="aaaacccc-0000-4000-8000-000000000002", cwd=Path("/elsewhere"))

    assert here == find_session(tmp_path, "aaaa", CWD)
    assert here == latest_session(tmp_path, CWD)
    with pytest.raises(ConfigError, match="there is none for /nowhere"):
        latest_session(tmp_path, Path("/nowhere"))


# --- changing -------------------------------------------------------------------------------------


def test_the_last_title_counts_and_is_one_line(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("a"))
    rename_session(path, "one")
    rename_session(path, "two")

    assert ["two"] == [info.title for info in list_sessions(tmp_path)]
    assert "two" == orjson.loads(path.read_bytes().splitlines()[-1])["customTitle"]
    for title in ("", " \n", "x" * 201):
        with pytest.raises(ConfigError):
            rename_session(path, title)


def test_a_session_in_use_is_neither_renamed_nor_deleted(tmp_path: Path) -> None:
    path = session(tmp_path, prompt("a"))
    before = path.read_bytes()
    journal = JournalFile.open(path)
    try:
        with pytest.raises(JournalLocked, match=str(os.getpid())):
            delete_session(path)
        with pytest.raises(JournalLocked):
            rename_session(path, "x")
        assert [] == remove_expired(tmp_path, 1, datetime.now(UTC))
    finally:
        journal.close()

    assert before == path.read_bytes()


def test_deleting_takes_what_belongs_to_the_session_and_follows_no_link(tmp_path: Path) -> None:
    path, other = session(tmp_path, prompt("a")), session(tmp_path, prompt("b"))
    results_folder(path).mkdir(parents=True)
    (results_folder(path) / "r.txt").write_text("long")
    precious = tmp_path / "precious"
    precious.mkdir()
    other.with_suffix("").symlink_to(precious)
    delete_session(path)
    delete_session(other)

    assert [] == list(path.parent.iterdir())
    assert precious.is_dir()


def test_sessions_that_nobody_has_used_for_long_go(tmp_path: Path) -> None:
    now = datetime.fromtimestamp(1e9, UTC)
    old = session(tmp_path, prompt("a"), age=31 * 86400)
    new = session(tmp_path, prompt("b"), age=29 * 86400)

    assert [old] == remove_expired(tmp_path, 30, now)
    assert [new] == [info.path for info in list_sessions(tmp_path)]


# --- search ---------------------------------------------------------------------------------------


def test_a_text_is_found_wherever_it_was_said(tmp_path: Path) -> None:
    call = BlockRecord(
        uuid="b", message_id="m2", model="claude", block=ToolUseBlock("c", "Bash", {"command": 'echo "needle"'})
    )
    result = ResultRecord(uuid="r", block=ToolResultBlock("c", "a NEEDLE, a straße"), name="Bash")
    path = session(tmp_path, prompt("where is the needle?"), *answer("No idea."), call, result)
    found = list(search_sessions(tmp_path, "Needle"))

    assert [(path, "user"), (path, "assistant"), (path, "user")] == [(hit.path, hit.role) for hit in found]
    assert "where is the needle?" == found[0].excerpt
    assert ["r"] == [hit.uuid for hit in search_sessions(tmp_path, "Straße")]
    assert ["b"] == [hit.uuid for hit in search_sessions(tmp_path, '"needle"')]
    assert [] == list(search_sessions(tmp_path, "sessionId"))
    assert [] == list(search_sessions(tmp_path, " "))


# --- export ---------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script> </pre></details> ```\n# Fake heading\n````\n</style><img src=x onerror=1> & \x00"


def hostile(home: Path) -> Path:
    call = BlockRecord(uuid="b", message_id="m1", model="c", block=ToolUseBlock("c1", HOSTILE, {"x": HOSTILE}))
    result = ResultRecord(uuid="r", block=ToolResultBlock("c1", HOSTILE, is_error=True), name=HOSTILE)
    void = WithdrawRecord(uuid="w", message_id="m9", reason="x")
    return session(home, prompt(HOSTILE), *answer(HOSTILE), call, result, *answer("void", "m9"), void)


def test_nothing_that_was_said_becomes_a_tag_of_the_page(tmp_path: Path) -> None:
    page = "".join(export_session(hostile(tmp_path), "html"))
    tags = set(re.findall(r"<\s*/?\s*([a-zA-Z!][\w]*)", page))

    assert tags <= {"!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "div", "details"} | {
        "summary",
        "pre",
        "p",
    }
    assert 1 == page.count("</style>")
    assert "default-src 'none'" in html.unescape(page)
    assert ">void<" not in page


def test_markdown_holds_no_tags_and_no_fence_that_stays_open(tmp_path: Path) -> None:
    document = "".join(export_session(hostile(tmp_path), "markdown"))
    outside = _outside_fences(document)

    assert "<script>" not in outside
    assert "Fake heading" not in [line.removeprefix("# ") for line in outside.splitlines() if line.startswith("# F")]
    assert "\n## Assistant\n" in outside
    assert "void" not in document


@given(st.lists(st.text(alphabet="`~<a> \n#-=*1.\\", max_size=40), min_size=1, max_size=4))
@example(["```<`"])
@example(["`\nx` <a> `y`"])
@example(["\\` <a> `"])
@example(["- x\n  ```\nfoo <a>"])
@example(["a\n---"])
@example(["  ## a"])
@example(["- ## a"])
@example(["1. a\n\t==="])
def test_whatever_was_said_a_reader_of_markdown_sees_no_tags_and_no_headings_but_ours(
    tmp_path_factory: pytest.TempPathFactory, texts: Sequence[str]
) -> None:
    home = tmp_path_factory.mktemp("home")
    records = [record for n, text in enumerate(texts) for record in answer(text, f"m{n}")]
    document = "".join(export_session(session(home, *records, prompt("THE END")), "markdown"))

    tokens = MarkdownIt("commonmark").parse(document)
    everything = [*tokens, *(child for token in tokens for child in token.children or ())]
    headings = [
        tokens[n + 1].content for n, token in enumerate(tokens) if token.tag in ("h1", "h2") and token.nesting == 1
    ]
    assert {"Assistant", "User"} >= set(headings[1:])
    assert headings[0].startswith("Session ")
    assert "THE END" == tokens[-2].content
    assert (0, "paragraph_close") == (tokens[-1].level, tokens[-1].type)
    assert [] == [token.content for token in everything if token.type in ("html_block", "html_inline")]


def _outside_fences(document: str) -> str:
    """The lines that are no code, as CommonMark reads them."""
    tokens = MarkdownIt("commonmark").parse(document)
    code = {line for token in tokens if token.type == "fence" and token.map for line in range(*token.map)}
    return "\n".join(line for number, line in enumerate(document.split("\n")) if number not in code)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["markdown", "html"])
def test_an_export_takes_no_more_memory_for_a_longer_session(tmp_path: Path, format: Format) -> None:
    def peak(count: int) -> int:
        path = session(tmp_path, *[prompt("x" * 1000) for _ in range(count)])
        tracemalloc.start()
        try:
            for _ in export_session(path, format):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)
    assert peak(4000) < peak(200) + 200_000
