"""Redaction: secrets go, everything else stays to the byte."""

from __future__ import annotations

import base64
import os
import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.redact import Redactor

NOTHING = Redactor.for_environment({})
ANTHROPIC = "sk-ant-api03-" + "Ab1_" * 20
KEYS = {
    "anthropic": ANTHROPIC,
    "openai": "sk-proj-" + "aB3-" * 12,
    "openai, old": "sk-" + "aB3d" * 12,
    "github": "ghp_" + "aB3d" * 9,
    "github, fine": "github_pat_" + "aB3_" * 20,
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "slack": "xoxb-123456789012-abcdefABCDEF",
    "gitlab": "glpat-" + "aB3_" * 5,
}


def cleaned(text: str, redactor: Redactor = NOTHING) -> str:
    """The text after a way through a redacted JSON line."""
    value: str = orjson.loads(redactor.clean(orjson.dumps({"text": text})))["text"]
    return value


# --- shapes of keys -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "KEY={}",
        "a\n{}\nb",
        "\t{}",
        "a {} b",
        '"{}"',
        "'{}'",
        "key:{}",
        "\x1b{}",
        "Bearer {}",
        "\\{}",
        "({})",
        "é{}",
    ],
)
def test_a_key_is_found_wherever_it_stands(kind: str, around: str) -> None:
    text = around.format(KEYS[kind])
    assert around.format("[redacted]") == cleaned(text)
    assert around.format("[redacted]") == NOTHING.clean_text(text)


def test_a_private_key_goes_as_a_whole() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1\nkZXktdjEA\n-----END OPENSSH PRIVATE KEY-----"
    assert "a\n[redacted]\nb" == cleaned(f"a\n{key}\nb")


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdef0123456789abcdef",
        "disk-ant-0123456789abcdef0123456789",
        "my_ghp_" + "a" * 36,
        "sk-learn",
        "sk-ant-",
        "XAKIAIOSFODNN7EXAMPLE",
        "AKIAIOSFODNN7EXAMPLEX",
        "-----BEGIN PRIVATE KEY-----",
        "ghp_short",
    ],
)
def test_what_only_looks_like_a_key_stays(text: str) -> None:
    assert text == cleaned(text)


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("key", ["AKIAIOSFODNN7EXAMPLE", "skant", "ghp", "xoxb"])
def test_base64_is_never_touched(shift: int, key: str) -> None:
    # Built such that the decoded bytes encode to the key's own letters, with base64 on both sides.
    letters = base64.b64encode(b"\x03" * 6)[:4].decode() * shift + "A" * (-len(key) % 4) + key
    padded = letters + "A" * (-len(letters) % 4) + "QUJD"
    line = orjson.dumps({"signature": padded, "source": {"data": base64.b64encode(b"x" * 100).decode() + padded}})
    assert line == NOTHING.clean(line)


@pytest.mark.slow
@given(st.binary(min_size=200, max_size=2000))
def test_random_signatures_stay_as_they_are(data: bytes) -> None:
    redactor = Redactor.for_environment({"MY_TOKEN": "aB3dE5gH7jK9"})
    line = orjson.dumps({"signature": base64.b64encode(data).decode()})
    assert line == redactor.clean(line)


# --- secrets of the environment -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "apikey",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "MYSQL_PWD",
        "GITHUB_PAT",
        "HF_TOKEN",
        "TOKEN",
        "CLIENT_SECRETS",
        "REDIS_AUTH",
        "db_passwd",
    ],
)
def test_variables_named_like_secrets_are_secrets(name: str) -> None:
    redactor = Redactor.for_environment({name: "hunter2hunter2"})
    assert f"{name}=[redacted:{name}]" == cleaned(f"{name}=hunter2hunter2", redactor)
    assert f"{name}=[redacted:{name}]" == redactor.clean_text(f"{name}=hunter2hunter2")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH_TO_DATA", "hunter2hunter2"),
        ("TOKENIZERS_PARALLELISM", "sometimes"),
        ("KEYBOARD", "international"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-x/agent.1"),
        ("KEY_FILE", "~/.ssh/id_rsa"),
        ("TOKEN_URL", "https://example.org/oauth/token"),
        ("API_KEY", "short"),
        ("API_KEY", ""),
        ("TYPE_TOKEN", "assistant"),
        ("KEY_FIELD", "sessionId"),
        ("ID_KEY", "tool_use_id"),
        ("MARK_SECRET", "redacted"),
        ("MY_PASSWORD", "PASSWORD"),
        ("SOME_TOKEN", "SOME_TOKEN"),
    ],
)
def test_other_variables_and_values_are_none(name: str, value: str) -> None:
    redactor = Redactor.for_environment({name: value})
    line = orjson.dumps({"type": "assistant", "sessionId": "s", "text": f"{name}={value}", "tool_use_id": 1})
    assert line == redactor.clean(line)


@pytest.mark.parametrize("value", ["https://me:pass@example.org/", "/wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"])
def test_logins_in_addresses_and_keys_that_begin_like_paths_are_secrets(value: str) -> None:
    assert "[redacted:A_TOKEN]" == cleaned(value, Redactor.for_environment({"A_TOKEN": value}))


def test_the_longer_of_two_secrets_goes_first() -> None:
    redactor = Redactor.for_environment({"A_KEY": "abcdefgh", "B_KEY": "abcdefghijkl"})
    assert "[redacted:B_KEY] [redacted:A_KEY]" == cleaned("abcdefghijkl abcdefgh", redactor)


def test_a_secret_is_found_in_json_within_json() -> None:
    secret = 'a"b\\c\td"e'
    redactor = Redactor.for_environment({"A_KEY": secret})
    inner = orjson.dumps({"key": secret}).decode()
    assert '{"key":"[redacted:A_KEY]"}' == cleaned(inner, redactor)


def test_a_secret_is_found_in_plain_text_whatever_it_is_made_of() -> None:
    secret = 'a"b\\c\td"e'
    assert "x[redacted:A_KEY]y" == Redactor.for_environment({"A_KEY": secret}).clean_text(f"x{secret}y")


@pytest.mark.parametrize("secret", ["ntoken-1234", "001btoken-1", "bcdefghij", '"},{"a":"b'])
def test_an_escape_is_never_torn(secret: str) -> None:
    redactor = Redactor.for_environment({"A_KEY": secret})
    for text in ("\n" + secret[1:], "\x1b" + secret[4:], "\x00" + secret, "\\" + secret, "\b" + secret[1:]):
        expected = text.replace(secret, "[redacted:A_KEY]")
        assert expected == cleaned(text, redactor)
    line = orjson.dumps([{"x": ""}, {"a": "b"}, secret[1:]])
    orjson.loads(redactor.clean(line))


SECRETS = st.text(st.sampled_from('abnu01\\"\n{}:,é'), min_size=8, max_size=10)


@pytest.mark.slow
@given(SECRETS, st.lists(SECRETS | st.text(st.sampled_from('abnu01\\"\n\x00é'), max_size=12), max_size=4))
def test_a_cleaned_line_is_json_and_cleaning_it_again_changes_nothing(secret: str, texts: list[str]) -> None:
    redactor = Redactor.for_environment({"A_KEY": secret})
    value: Any = {"texts": texts, "joined": secret.join(texts)}
    once = redactor.clean(orjson.dumps(value))
    orjson.loads(once)
    assert once == redactor.clean(once)


def test_odd_names_and_odd_bytes_do_no_harm() -> None:
    redactor = Redactor.for_environment({'A"\\\n_KEY': "hunter2\udcffhunter2"})
    assert "[redacted:A____KEY]" == cleaned("hunter2\ufffdhunter2", redactor)
    assert "[redacted:A____KEY]" == redactor.clean_text("hunter2\udcffhunter2")


def test_values_that_mark_their_own_name_are_left_alone_in_marks() -> None:
    redactor = Redactor.for_environment({"SUPER_PASSWORD_KEY": "PASSWORD_K", "B_KEY": "hunter2hunter2"})
    once = cleaned("hunter2hunter2 PASSWORD_K", redactor)
    assert once == cleaned(once, redactor)


# --- speed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(b"\x17\x9a\x55" * 250_000).decode(),
        "task- " * 170_000,
        "-----BEGIN PRIVATE KEY-----" * 37_000,
        "sk-ant-" * 140_000,
        "\\" * 500_000,
    ],
    ids=["base64", "sk-", "begin", "ant", "backslashes"],
)
def test_a_megabyte_takes_milliseconds(text: str) -> None:
    environ = {f"V{n}_TOKEN": base64.b64encode(os.urandom(24)).decode() for n in range(5)}
    redactor = Redactor.for_environment(environ)
    line = orjson.dumps({"text": text})
    times = []
    for _ in range(3):
        start = time.perf_counter()
        redactor.clean(line)
        times.append(time.perf_counter() - start)
    # Five to twenty on an idle machine; a pattern that goes quadratic takes seconds.
    assert min(times) < 0.25
