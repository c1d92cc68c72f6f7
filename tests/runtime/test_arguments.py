"""The command line as a value: what each form comes to, and what is refused in which words."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.arguments import Options, help_text, parse_arguments
from atrio.runtime.errors import ConfigError
from atrio.runtime.flags import BY_NAME, LATER


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], {}),
        (["run", "do it"], {"prompt": "do it"}),
        (["do it"], {"prompt": "do it"}),
        (["-p", "do it"], {"prompt": "do it", "print": True}),
        (["do it", "--print"], {"prompt": "do it", "print": True}),
        (["run", "run"], {"prompt": "run"}),
        (["-p", "--model", "m", "do it"], {"prompt": "do it", "print": True, "model": "m"}),
        (["--", "-p"], {"prompt": "-p"}),
        (["--model=a=b", "x"], {"prompt": "x", "model": "a=b"}),
        (["--output-format", "json"], {"output_format": "json"}),
        (["--input-format", "text"], {}),
        (["--output-format", "stream-json"], {"output_format": "stream-json"}),
        (
            ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"],
            {"print": True, "output_format": "stream-json", "verbose": True, "partial_messages": True},
        ),
        (["--system-prompt", ""], {"system_prompt": ""}),
        (["--system-prompt", "- be brief"], {"system_prompt": "- be brief"}),
        (["--append-system-prompt", "-x"], {"append_system_prompt": "-x"}),
        (["--tools", ""], {"tools": (), "swallowed": ""}),
        (["--tools=default"], {"tools": ("default",)}),
        (
            ["--tools", "Read,Grep", "Bash", "-p"],
            {"tools": ("Read", "Grep", "Bash"), "swallowed": "Bash", "print": True},
        ),
        (
            ["--allowedTools", "Read,Bash(git log -n 1, x)", "Edit(a b)"],
            {"allowed_tools": ("Read,Bash(git log -n 1, x)", "Edit(a b)"), "swallowed": "Edit(a b)"},
        ),
        (["--allowed-tools=Read", "--allowedTools=Edit"], {"allowed_tools": ("Read", "Edit")}),
        (["--disallowed-tools=Bash", "--disallowedTools=Edit"], {"disallowed_tools": ("Bash", "Edit")}),
        (["--permission-mode", "acceptEdits"], {"permission_mode": "acceptEdits"}),
        (["--dangerously-skip-permissions"], {"permission_mode": "bypassPermissions"}),
        (["--max-turns", "3"], {"max_turns": 3}),
        (["--add-dir", "a", "b", "--add-dir=c"], {"add_dirs": ("a", "b", "c"), "swallowed": "b"}),
        (["--setting-sources", "user, local"], {"setting_sources": ("user", "local")}),
        (["--setting-sources", ""], {"setting_sources": ()}),
        (["--settings", "s.json", "--cwd", "d"], {"settings": "s.json", "cwd": "d"}),
        (["--session-id", "x"], {"session_id": "x"}),
        (
            ["--help", "--output-format", "stream-json", "-p"],
            {"action": "help", "output_format": "stream-json", "print": True},
        ),
        (["-v"], {"action": "version"}),
        (["caf\udce9"], {"prompt": "caf\N{REPLACEMENT CHARACTER}"}),
    ],
)
def test_words_become_options(argv: list[str], expected: dict[str, Any]) -> None:
    assert Options(**expected) == parse_arguments(argv)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--modle", "x"], "flag '--modle': there is no such flag; did you mean --model?"),
        (["-x"], "flag '-x': there is no such flag; see atrio --help; "),
        (["--zzzzzzzzzz"], "flag '--zzzzzzzzzz': there is no such flag; see atrio --help; "),
        (["--bare"], "--bare: it is not available yet in this version; leave it out"),
        (["--effort=high"], "--effort: it is not available yet in this version; leave it out"),
        (["-c", "--resume", "abc"], "--continue: it doesn't go with --resume SESSION; give one of them"),
        (["--fork-session"], "--fork-session: it needs --resume or --continue; add one, or leave it out"),
        (
            ["--resume-session-at", "x"],
            "--resume-session-at: it needs --resume or --continue; add one, or leave it out",
        ),
        (
            ["-c", "--session-id", "x"],
            "--session-id: a resumed session keeps its own; add --fork-session, or leave it out",
        ),
        (["--input-format", "stream-json"], "--input-format stream-json: it needs --output-format stream-json; "),
        (["--replay-user-messages"], "--replay-user-messages: it needs --input-format stream-json; add that, or "),
        (["--input-format", "xml"], "--input-format: 'xml' is not known; choose from text"),
        (["--output-format", "xml"], "--output-format: 'xml' is not known; choose from text, json, stream-json"),
        (["--model"], "--model: its value is missing; write --model NAME"),
        (["--model", "--verbose"], "--model: its value is missing; write --model NAME"),
        (["--model", " "], "--model: it is empty; "),
        (["--tools", "--verbose"], "--tools: its value is missing; write --tools NAME..."),
        (["--verbose=1"], "--verbose: it takes no value, but was given '1'; leave the value out"),
        (["--max-turns", "0"], "--max-turns: '0' is no whole number of at least 1; "),
        (["--max-turns", "x"], "--max-turns: 'x' is no whole number of at least 1; "),
        (["--max-turns", "9" * 5000], "--max-turns: "),
        (["--permission-mode", "auto"], "--permission-mode: 'auto' is not known; choose from default, acceptEdits, "),
        (["a", "b"], "argument 'b': one prompt is enough; put the whole prompt in quotes"),
        (["-p", "--output-format", "stream-json"], "--output-format stream-json: with --print it needs --verbose; "),
        (["--include-partial-messages"], "--include-partial-messages: it needs --output-format stream-json; "),
        (["--system-prompt", "a", "--system-prompt-file", "b"], "--system-prompt: it doesn't go with "),
        (["--add-dir", ""], "--add-dir: '' is no path; "),
    ],
)
def test_what_is_wrong_is_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(argv)

    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("flag", sorted(LATER))
def test_flags_of_later_versions_are_refused_by_name(flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag}: it is not available yet in this version"):
        parse_arguments(["-p", "x", flag, "value"])


def test_no_flag_is_both_here_and_later() -> None:
    assert set() == LATER & set(BY_NAME)


def test_resume_takes_a_word_if_there_is_one() -> None:
    cases: list[tuple[list[str], tuple[str | None, str | None, bool]]] = [
        (["--resume"], ("", None, True)),
        (["-r", "abc", "go on"], ("abc", "go on", True)),
        (["--resume", "--verbose", "go on"], ("", "go on", True)),
        (["--resume=abc"], ("abc", None, True)),
        (["go on"], (None, "go on", False)),
    ]
    found = [(argv, parse_arguments(argv)) for argv, _ in cases]

    assert [expected for _, expected in cases] == [(o.resume, o.prompt, o.resumes) for _, o in found]


def test_help_names_every_flag() -> None:
    text = help_text()

    assert [] == [name for name in BY_NAME if name not in text]
    assert [] == [line for line in text.splitlines() if len(line) > 120]


@given(st.lists(st.one_of(st.sampled_from(sorted((*BY_NAME, *LATER, "--", "-", "", "run"))), st.text(max_size=20))))
def test_any_words_give_options_or_a_sentence(argv: list[str]) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_arguments(argv), Options)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["--max-budget-usd", "1.5"], "max_budget_usd", 1.5),
        (["--max-seconds", "90"], "max_seconds", 90.0),
        (["--max-repeats", "0"], "max_repeats", None),
        (["--max-repeats", "4"], "max_repeats", 4),
        (["--task-budget", "50000"], "task_budget", 50_000),
        (["--token-target", "2000"], "token_target", 2_000),
        (["--fallback-model", "a, b"], "fallback_models", ("a", "b")),
        (["--json-schema", "{}"], "json_schema", "{}"),
        (["--unattended"], "unattended", True),
        (["--sandbox", "auto"], "sandbox", "auto"),
        (["--mcp-config", "a.json", "b.json"], "mcp_config", ("a.json", "b.json")),
    ],
)
def test_limits_and_helpers_of_long_runs(words: list[str], field: str, value: object) -> None:
    assert value == getattr(parse_arguments(["-p", "go", *words]), field)


@pytest.mark.parametrize(
    "words",
    [
        ["--max-budget-usd", "0"],
        ["--max-budget-usd", "much"],
        ["--max-seconds", "-1"],
        ["--max-repeats", "1"],
        ["--fallback-model", "a,b,c,d"],
        ["--fallback-model", ","],
        ["--sandbox", "maybe"],
        ["--task-budget", "1.5"],
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=words[0]):
        parse_arguments(["-p", "go", *words])
