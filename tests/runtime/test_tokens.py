"""Estimates of tokens: texts, blocks, pictures; what the server reported comes first."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.media_size import IMAGE_TOKENS, image_size
from atrio.runtime.messages import (
    AssistantMessage,
    Block,
    DocumentBlock,
    ImageBlock,
    Message,
    RawBlock,
    RedactedThinkingBlock,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from atrio.runtime.tokens import (
    Calibration,
    Estimates,
    Measurement,
    estimate_block,
    estimate_message,
    estimate_schemas,
    estimate_text,
    measure,
)

ENGLISH = (
    "The session keeps its whole history in a journal. When the context is nearly full, the older part is replaced by "
    "a summary, and the agent goes on with what it was doing. Nothing that the user has asked for may get lost. "
) * 20
CODE = (
    '''def first(items: list[str], *, default: str = "") -> str:
    """The first item that isn't empty."""
    for item in items:
        if item.strip():
            return item
    return default

'''
    * 20
)
JSON = '{"id": 48213907, "user_name": "anna", "created_at": "2025-11-29T10:22:03.120Z", "tags": ["a1", "b2"]}\n' * 20
CHINESE = "在这个会话中。模型需要读取文件并修改代码。我们先检查上下文窗口的大小。然后决定是否压缩历史记录。" * 20

# Counted with a tokenizer (o200k_base) once.
COUNTED = {"english": (ENGLISH, 961), "code": (CODE, 880), "json": (JSON, 940), "chinese": (CHINESE, 581)}


def user(text: str, uuid: str = "u") -> UserMessage:
    return UserMessage(uuid=uuid, content=(TextBlock(text),))


def response(uuid: str, text: str, *tokens: int, error: str | None = None) -> AssistantMessage:
    took, gave = tokens or (0, 0)
    return AssistantMessage(
        uuid=uuid,
        message_id=uuid,
        model="m",
        content=(TextBlock(text),),
        usage=Usage(input_tokens=took, output_tokens=gave, reported=bool(tokens)),
        api_error=error,
    )


@pytest.mark.parametrize(("text", "tokens"), COUNTED.values(), ids=COUNTED)
def test_an_estimate_is_near_what_a_tokenizer_counts(text: str, tokens: int) -> None:
    assert tokens == pytest.approx(estimate_text(text), rel=0.25)


def test_base64_counts_far_more_than_a_quarter_of_its_characters() -> None:
    data = base64.b64encode(bytes(n * 89 % 251 for n in range(30_000))).decode()
    assert len(data) * 0.5 < estimate_text(data) < len(data) * 0.9


@given(st.text())
def test_any_text_has_an_estimate_and_a_longer_one_none_smaller(text: str) -> None:
    tokens = estimate_text(text)
    assert (tokens == 0) == (text == "")
    assert tokens <= 2 * len(text) + 1
    assert tokens <= estimate_text(text + " more")


def test_half_surrogate_pairs_are_estimated_too() -> None:
    assert estimate_text("\ud800 broken") > 0


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)


def jpeg(width: int, height: int) -> bytes:
    metadata = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
    return b"\xff\xd8" + metadata + b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


LOSSLESS = struct.pack("<BI", 0x2F, (640 - 1) | (480 - 1) << 14)
EXTENDED = bytes(4) + (640 - 1).to_bytes(3, "little") + (480 - 1).to_bytes(3, "little")
PICTURES = {
    "png": png(640, 480),
    "jpeg": jpeg(640, 480),
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480),
    "webp lossy": webp(b"VP8 ", bytes(6) + struct.pack("<HH", 640, 480)),
    "webp lossless": webp(b"VP8L", LOSSLESS),
    "webp extended": webp(b"VP8X", EXTENDED),
}


@pytest.mark.parametrize("data", PICTURES.values(), ids=PICTURES)
def test_the_size_of_a_picture_is_read_off_its_head(data: bytes) -> None:
    assert (640, 480) == image_size(data)
    block = ImageBlock({"type": "base64", "data": base64.b64encode(data).decode()})
    assert 410 == estimate_block(block)


@given(st.binary(max_size=40), st.sampled_from([*PICTURES.values(), b"\xff\xd8\xff"]), st.integers(0, 60))
def test_a_damaged_picture_has_some_size_or_none(noise: bytes, data: bytes, cut: int) -> None:
    size = image_size(data[:cut] + noise)
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    "source",
    [
        {"type": "url", "url": "https://x/y.png"},
        {"type": "base64", "data": "!"},
        {"type": "base64", "data": "é"},
        {"type": "base64", "data": base64.b64encode(png(9_000, 9_000)).decode()},
        {},
    ],
)
def test_a_picture_that_is_huge_or_unreadable_counts_the_most_there_is(source: dict[str, str]) -> None:
    assert IMAGE_TOKENS == estimate_block(ImageBlock(source))


def test_a_long_narrow_picture_is_scaled_by_its_longer_edge() -> None:
    data = base64.b64encode(png(15_680, 100)).decode()
    assert 21 == estimate_block(ImageBlock({"type": "base64", "data": data}))


def test_documents_count_by_their_text_or_length() -> None:
    text = estimate_block(DocumentBlock({"type": "text", "data": ENGLISH}))
    parts = estimate_block(DocumentBlock({"type": "content", "content": [{"type": "text", "text": ENGLISH}]}))
    assert estimate_text(ENGLISH) == text == parts
    assert 4_500 == estimate_block(DocumentBlock({"type": "base64", "data": "A" * 80_000}))
    assert estimate_block(DocumentBlock({"type": "url", "url": "https://x/y.pdf"})) > 0


def test_every_kind_of_block_counts() -> None:
    call = ToolUseBlock("c", "Read", {"file_path": "/a/b.py", "deep": {"x": [1, 2, float("nan")]}})
    inner = (TextBlock("a b"), ImageBlock({"type": "base64", "data": base64.b64encode(png(75, 10)).decode()}))
    blocks: list[Block] = [
        ThinkingBlock("So, first.", "c2ln"),
        RedactedThinkingBlock("A" * 160),
        call,
        ToolResultBlock("c", "text"),
        ToolResultBlock("c", inner),
        RawBlock({"type": "web_search_tool_result", "content": [{"title": "T"}]}),
    ]
    assert all(estimate_block(block) > 0 for block in blocks)
    assert 30 == estimate_block(blocks[1])


def test_what_is_never_sent_counts_nothing() -> None:
    assert 0 == estimate_message(SystemMessage(uuid="s", subtype="compact_boundary", text=ENGLISH))
    assert 0 == estimate_message(response("a", ENGLISH, error="server_error"))


def test_tools_count_with_what_the_api_adds_for_the_first() -> None:
    tool = {"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}
    one, two = estimate_schemas([tool]), estimate_schemas([tool, tool])
    assert 0 == estimate_schemas([])
    assert 0 < two - one < one


def test_estimates_are_remembered_for_the_same_message_and_not_for_another_of_its_uuid() -> None:
    estimates = Estimates()
    short, long = user("a"), user(ENGLISH)
    assert estimate_message(short) == estimates.of(short) == estimates.of(short)
    assert estimate_message(long) == estimates.of(long)
    made: list[Message] = []

    def make() -> Message:
        made.append(user("b"))
        return made[-1]

    assert estimates.variant(short, "k", make) is estimates.variant(short, "k", make)
    assert estimates.variant(long, "k", make) is made[-1]
    assert 2 == len(made)


def test_forgetting_keeps_what_is_in_use() -> None:
    estimates = Estimates()
    messages = [user("a", uuid=f"u{n}") for n in range(2_000)]
    assert estimates.total(messages) > 0
    estimates.forget_others(messages[:10])
    assert 10 == len(estimates._known)


def test_the_newest_usage_is_the_anchor_and_only_what_came_after_is_estimated() -> None:
    messages: list[Message] = [
        user(ENGLISH),
        response("a", "x", 1_000, 10),
        user("more"),
        response("b", "y", 2_000, 20),
        user(CODE),
    ]
    after = estimate_message(messages[-1])
    assert measure(messages, overhead=500, ratio=2.0) == Measurement(
        tokens=2_020 + round(after * 2 * 1.05), reported=2_020, estimated=after * 2, anchor=3
    )


def test_without_usage_everything_is_estimated_with_what_is_sent_beside() -> None:
    messages: list[Message] = [user(ENGLISH), response("a", "x"), response("e", "failed", 9_000, 0, error="overloaded")]
    whole = 500 + sum(map(estimate_message, messages))
    expected = Measurement(tokens=round(whole * 1.05), reported=0, estimated=whole, anchor=None)
    assert expected == measure(messages, overhead=500)


def test_usage_of_before_a_compaction_is_not_believed() -> None:
    """B058: the context was judged over the limit by a number from before."""
    messages: list[Message] = [user("summary"), response("tail", "x", 190_000, 10), user("go on")]
    assert 190_010 == measure(messages).reported
    assert 0 == measure(messages, since=2).reported


def test_a_usage_without_input_is_no_anchor() -> None:
    """Some servers report output tokens only."""
    assert 0 == measure([user(ENGLISH), response("a", "x", 0, 10)]).reported


def test_calibration_moves_towards_what_is_reported() -> None:
    calibration = Calibration()
    for _ in range(20):
        calibration = calibration.observed("m", estimated=1_000, reported=1_300)
    assert 1.3 == pytest.approx(calibration.ratio("m"), rel=0.01)
    assert 1.0 == calibration.ratio("other")
    one_off = calibration.observed("m", estimated=1_000, reported=2_600)
    assert 1.3 < one_off.ratio("m") < 1.8


@pytest.mark.parametrize(("estimated", "reported"), [(0, 100), (10, 30), (1_000, 0), (1_000, 50_000)])
def test_pairs_that_cannot_be_right_teach_nothing(estimated: int, reported: int) -> None:
    calibration = Calibration()
    assert calibration is calibration.observed("m", estimated=estimated, reported=reported)
