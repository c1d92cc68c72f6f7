"""Rules, modes and what tools declare decide on a call, the restricting ones first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import ConfigError
from atrio.runtime.tool import Tool, ToolContext, ToolOutput, Workspace
from atrio.tools.permissions import (
    Behavior,
    PermissionMode,
    Rule,
    Rules,
    decide_permission,
    denied_reads,
    parse_rule,
    parse_rule_list,
)

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY
Permission = Literal["allow", "read", "edit", "ask"]


class Fake(Tool):
    """A tool whose input is the text that rules are matched with."""

    description = ""
    input_schema = {"type": "object"}  # noqa: RUF012

    def __init__(self, name: str, permission: Permission = "ask", *, read_only: bool = False, path: bool = False):
        self.name, self.permission, self.read_only, self.has_path = name, permission, read_only, path

    def parse(self, raw: Mapping[str, Any]) -> Any:
        return raw

    def paths(self, input: Any, ctx: ToolContext) -> tuple[Path, ...]:
        return (ctx.cwd / input,) if self.has_path else ()

    def specifier(self, input: Any) -> str | None:
        return None if input is None else str(input)

    async def run(self, input: Any, ctx: ToolContext) -> ToolOutput:
        return ToolOutput("")


BASH = Fake("Bash")
READ = Fake("Read", "read", read_only=True, path=True)
GREP = Fake("Grep", "read", read_only=True, path=True)
EDIT = Fake("Edit", "edit", path=True)
WRITE = Fake("Write", "edit", path=True)


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    (tmp_path / "w" / "a").mkdir(parents=True)
    (tmp_path / "w" / "add").mkdir()
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path / "w" / "a", add_dirs=(tmp_path / "w" / "add",)),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


def rules(*, allow: str = "", deny: str = "", ask: str = "") -> Rules:
    return Rules(parse_rule_list([allow]), parse_rule_list([deny]), parse_rule_list([ask]))


def decide(
    ctx: ToolContext, tool: Tool, input: Any, given: Rules | None = None, mode: PermissionMode = PermissionMode.DEFAULT
) -> Behavior:
    return decide_permission(tool, input, ctx, given or Rules(), mode).behavior


# --- the text of rules ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Read", Rule("Read")),
        (" Bash(git diff *) ", Rule("Bash", "git diff *")),
        ("Bash(npm run test:*)", Rule("Bash", "npm run test:*")),
        ("Edit(//abs/path/**)", Rule("Edit", "//abs/path/**")),
        ("Bash(echo (a) b)", Rule("Bash", "echo (a) b")),
        ("mcp__server", Rule("mcp__server")),
        ("*", Rule("*")),
    ],
)
def test_a_rule_is_a_name_and_perhaps_a_specifier(text: str, rule: Rule) -> None:
    assert rule == parse_rule(text)
    assert text.strip() == str(rule)


@pytest.mark.parametrize(
    "text", ["", "Bash(", "Bash()", "Bash( )", "(x)", "Bash(x) y", "Ba sh", "Bash)x(", "Read(a\0b)"]
)
def test_malformed_text_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rule(text)
    assert repr(text) in str(caught.value)


def test_lists_are_split_at_commas_and_spaces_outside_of_parentheses() -> None:
    found = parse_rule_list(["Read,Bash(git add *, git diff), Edit(a b)  Write", "", "Bash(echo \\))"])
    texts = ["Read", "Bash(git add *, git diff)", "Edit(a b)", "Write", "Bash(echo \\))"]
    assert texts == [str(rule) for rule in found]


@given(st.text())
def test_any_text_is_rules_or_a_config_error(text: str) -> None:
    try:
        found = parse_rule_list([text])
    except ConfigError:
        return
    assert found == parse_rule_list([str(rule) for rule in found])


def test_merged_rules_hold_both_without_repeating() -> None:
    merged = rules(allow="Read,Edit", deny="Bash").merged(rules(allow="Edit,Glob", ask="Write"))
    assert rules(allow="Read,Edit,Glob", deny="Bash", ask="Write") == merged


# --- order and modes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (PermissionMode.DEFAULT, [ALLOW, ASK, ASK, ALLOW]),
        (PermissionMode.ACCEPT_EDITS, [ALLOW, ALLOW, ASK, ALLOW]),
        (PermissionMode.PLAN, [ALLOW, DENY, DENY, DENY]),
        (PermissionMode.DONT_ASK, [ALLOW, DENY, DENY, ALLOW]),
        (PermissionMode.BYPASS, [ALLOW, ALLOW, ALLOW, ALLOW]),
    ],
)
def test_without_rules_mode_and_tool_decide(ctx: ToolContext, mode: PermissionMode, expected: list[Behavior]) -> None:
    tools = [READ, EDIT, BASH, Fake("Vouched", "allow")]
    assert expected == [decide(ctx, tool, "x", mode=mode) for tool in tools]


@pytest.mark.parametrize("mode", PermissionMode)
def test_a_deny_rule_holds_in_every_mode(ctx: ToolContext, mode: PermissionMode) -> None:
    given = rules(allow="Bash", deny="Bash(rm *)")
    assert DENY == decide(ctx, BASH, "rm x", given, mode)


def test_an_ask_rule_holds_in_bypass_mode_and_before_allow_rules(ctx: ToolContext) -> None:
    given = rules(allow="Bash", ask="Bash(git push *)")
    assert ASK == decide(ctx, BASH, "git push origin", given, PermissionMode.BYPASS)
    assert ASK == decide(ctx, BASH, "git push origin", given)
    assert DENY == decide(ctx, BASH, "git push origin", given, PermissionMode.DONT_ASK)
    assert ALLOW == decide(ctx, BASH, "git pull", given)


def test_plan_mode_denies_even_what_rules_allow(ctx: ToolContext) -> None:
    assert DENY == decide(ctx, EDIT, "x", rules(allow="Edit"), PermissionMode.PLAN)


def test_reasons_name_the_call_and_the_rule(ctx: ToolContext) -> None:
    decision = decide_permission(BASH, "rm -rf /", ctx, Rules(), PermissionMode.DONT_ASK)
    assert (
        "No rule allows Bash(rm -rf /), and permission mode dontAsk denies what would be asked for." == decision.reason
    )
    decision = decide_permission(BASH, "a; b", ctx, rules(allow="Bash(a),Bash(b)"), PermissionMode.DEFAULT)
    assert "Allowed by Bash(a), Bash(b): Bash(a; b)." == decision.reason
    decision = decide_permission(BASH, "rm x", ctx, rules(deny="Bash(rm *)"), PermissionMode.BYPASS)
    assert "The rule Bash(rm *) denies Bash(rm x)" in decision.reason
    assert len(decide_permission(BASH, "x" * 9999, ctx, Rules(), PermissionMode.DEFAULT).reason) < 400


def test_names_are_exact_but_for_stars_servers_and_aliases(ctx: ToolContext) -> None:
    tool = Fake("mcp__files__get")
    for text in ("mcp__files", "mcp__files__get", "mcp__files__*", "mcp__*", "*"):
        assert ALLOW == decide(ctx, tool, None, rules(allow=text)), text
    for text in ("mcp__file", "mcp__files__ge", "MCP__files", "bash"):
        assert ASK == decide(ctx, tool, None, rules(allow=text)), text
    tool.aliases = ("OldName",)
    assert DENY == decide(ctx, tool, None, rules(deny="OldName"))


def test_other_tools_are_matched_by_their_specifier(ctx: ToolContext) -> None:
    fetch = Fake("WebFetch")
    given = rules(allow="WebFetch(domain:*.example.com)", deny="WebFetch(domain:evil.example.com)")
    assert ALLOW == decide(ctx, fetch, "domain:docs.example.com", given)
    assert ASK == decide(ctx, fetch, "domain:example.org", given)
    assert DENY == decide(ctx, fetch, "domain:evil.example.com", given)


# --- paths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/w/a/../b/x", "../ab/x", "a/../../b", "..", "/etc/passwd", "~/x/../../y"])
def test_reading_outside_of_the_workspace_is_asked_for(ctx: ToolContext, path: str) -> None:
    (ctx.cwd.parent / "ab").mkdir()
    assert ASK == decide(
        ctx, READ, path.replace("/w/a", str(ctx.cwd)) if path.startswith("/w/a") else path.replace("~", "/root")
    )


def test_reading_added_folders_and_kept_results_is_allowed(ctx: ToolContext) -> None:
    assert ALLOW == decide(ctx, READ, "../add/x")
    assert ALLOW == decide(ctx, READ, str(ctx.results_dir / "call.txt"))
    assert ALLOW == decide(ctx, READ, str(ctx.results_dir.parent / "tmp" / "x"))


def test_a_path_with_a_nul_is_denied(ctx: ToolContext) -> None:
    assert DENY == decide(ctx, READ, "a\0b", mode=PermissionMode.BYPASS)


def test_a_link_out_of_the_workspace_is_outside_and_one_within_is_inside(ctx: ToolContext) -> None:
    (ctx.cwd / "esc").symlink_to("/")
    (ctx.cwd / "sub").mkdir()
    (ctx.cwd / "in").symlink_to(ctx.cwd / "sub")
    assert ASK == decide(ctx, READ, "esc/etc/passwd")
    assert ASK == decide(ctx, WRITE, "esc/tmp/x", mode=PermissionMode.ACCEPT_EDITS)
    assert ALLOW == decide(ctx, READ, "in/x")
    assert ALLOW == decide(ctx, WRITE, "in/x", mode=PermissionMode.ACCEPT_EDITS)


def test_a_deny_rule_matches_link_and_target(ctx: ToolContext) -> None:
    (ctx.cwd / "secrets").mkdir()
    (ctx.cwd / "link").symlink_to(ctx.cwd / "secrets")
    for text in ("Read(secrets/**)", "Read(secrets/)", "Read(./secrets)", f"Read(/{ctx.cwd}/secrets/**)"):
        assert DENY == decide(ctx, READ, "link/key", rules(deny=text)), text
        assert DENY == decide(ctx, GREP, "secrets", rules(deny=text)), text
    assert DENY == decide(ctx, READ, "link/key", rules(deny="Read(link/**)"))
    assert DENY == decide(ctx, READ, "secrets/key", rules(deny="Read(link/**)"))


def test_an_allow_rule_matches_only_where_a_path_really_leads(ctx: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert ALLOW == decide(ctx, WRITE, str(tmp_path / "link/x"), rules(allow=f"Edit(/{tmp_path}/link/**)"))
    (ctx.cwd / "src").mkdir()
    (ctx.cwd / "src" / "out").symlink_to(tmp_path)
    assert ASK == decide(ctx, WRITE, "src/out/x", rules(allow="Edit(src/**)"))
    assert ALLOW == decide(ctx, WRITE, "src/x", rules(allow="Edit(src/**)"))


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        (".env", "deep/down/.env", True),
        (".env", ".env.local", False),
        (".env*", "a/.env.local", True),
        ("*.key", "a/b.key", True),
        ("/top.txt", "top.txt", True),
        ("/top.txt", "a/top.txt", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a/b.py", False),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("src/**/*.py", "src/c.py", True),
        ("src", "src/a/b", True),
        ("src", "src2/a", False),
        ("**", "x/y", True),
        ("//etc/**", "/etc/passwd", True),
        ("../add/**", "../add/x", True),
    ],
)
def test_path_patterns_are_those_of_gitignore(ctx: ToolContext, pattern: str, path: str, matches: bool) -> None:
    assert matches == (DENY == decide(ctx, READ, path, rules(deny=f"Read({pattern})"), PermissionMode.BYPASS))


def test_home_patterns_are_in_the_home_folder(
    ctx: ToolContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert ALLOW == decide(ctx, READ, str(tmp_path / "home/notes/x"), rules(allow="Read(~/notes/**)"))
    assert ASK == decide(ctx, READ, str(tmp_path / "home/other"), rules(allow="Read(~/notes/**)"))


def test_read_rules_cover_searches_and_edit_rules_cover_writing(ctx: ToolContext) -> None:
    assert DENY == decide(ctx, GREP, "x/y", rules(deny="Read(x/**)"))
    assert DENY == decide(ctx, WRITE, "x/y", rules(deny="Edit(x/**)"))
    assert ALLOW == decide(ctx, READ, "x/y", rules(deny="Edit(x/**)"))
    assert ASK == decide(ctx, WRITE, "x", rules(allow="Edit"))


@pytest.mark.parametrize(
    "path",
    [".git/config", "sub/.git/hooks/pre-commit", ".claude/settings.json", ".atrio/x", ".bashrc", "a/.GIT/x", ".envrc"],
)
def test_accept_edits_leaves_out_what_programs_take_orders_from(ctx: ToolContext, path: str) -> None:
    assert ASK == decide(ctx, WRITE, path, mode=PermissionMode.ACCEPT_EDITS)
    assert ALLOW == decide(ctx, WRITE, path, rules(allow=f"Edit({path})"), PermissionMode.ACCEPT_EDITS)


def test_denied_reads_tells_of_the_paths_that_searches_leave_out(ctx: ToolContext) -> None:
    assert denied_reads("Grep", rules(deny="Bash,Edit(x)"), ctx) is None
    hides = denied_reads("Grep", rules(deny="Read(.env),Read(secrets/)"), ctx)
    assert hides is not None
    names = (".env", "a/.env", "secrets", "x")
    assert [True, True, True, False] == [hides(ctx.cwd / name) for name in names]


@given(st.text(alphabet="ab/*?[]!-^{}\\.~ ", min_size=1), st.text(alphabet="ab/[]-.", min_size=1))
def test_any_pattern_can_be_matched(pattern: str, path: str) -> None:
    there = Path("/w")
    ctx = ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=there),
        results_dir=there / "results",
        progress=lambda text, data=None: None,
    )
    decide(ctx, READ, path, Rules(deny=(Rule("Read", pattern),)))


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "command", "allowed"),
    [
        ("git status", "git status", True),
        ("git status", "git status -s", False),
        ("git status:*", "git status", True),
        ("git status:*", "git status -s", True),
        ("git status:*", "git statusfoo", False),
        ("git diff *", "git diff", True),
        ("git diff *", "git diff HEAD~1 -- a.py", True),
        ("git diff *", "git difftool", False),
        ("git * main", "git push origin main", True),
        ("ls*", "ls -l", True),
        ("ls*", "lsof", False),
        ("./scripts/*", "./scripts/build.sh", True),
        ("*", "anything | sh > x", True),
        ("if true; then ls; fi", "if true; then ls; fi", True),
    ],
)
def test_command_patterns(ctx: ToolContext, pattern: str, command: str, allowed: bool) -> None:
    assert (ALLOW if allowed else ASK) == decide(ctx, BASH, command, Rules(allow=(Rule("Bash", pattern),)))


@pytest.mark.parametrize("pattern", ["git status*", "git status *", "git status:*"])
@pytest.mark.parametrize(
    "command",
    [
        "git status && rm x",
        "git status; rm x",
        "git status | sh",
        "git status || rm x",
        "git status & rm x",
        "git status $(rm x)",
        'git status "$(rm x)"',
        "git status `rm x`",
        "git status\nrm x",
        "git status>f",
        "git status 2> f",
        "git status >> f",
        "git status <(rm x)",
        "git statusfoo",
        "X=1 git status",
        "(git status; rm x)",
        "git status 'unclosed",
        "if git status; then rm x; fi",
    ],
)
def test_what_is_chained_to_an_allowed_command_is_not_allowed(ctx: ToolContext, pattern: str, command: str) -> None:
    assert ASK == decide(ctx, BASH, command, Rules(allow=(Rule("Bash", pattern),)))


def test_rules_together_allow_what_is_chained(ctx: ToolContext) -> None:
    given = rules(allow="Bash(git status *),Bash(rm *)")
    assert ALLOW == decide(ctx, BASH, "git status -s && rm x 2>&1 2>/dev/null", given)
    assert ALLOW == decide(ctx, BASH, "git status $(rm x)", given)


@pytest.mark.parametrize("pattern", ["rm *", "rm:*", "rm*"])
@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm",
        "ls && rm x",
        "ls; (rm x)",
        "echo $(rm x)",
        "FOO=1 rm x",
        "/bin/rm x",
        "sudo -u bob rm x",
        "env A=b rm x",
        "timeout 5 rm x",
        "find . -exec rm {} +",
        "bash -c 'rm x'",
        "if true; then rm x; fi",
        "for f in *; do rm $f; done",
        "r\\m x",
        "  rm   x",
        "xargs rm < list",
    ],
)
def test_a_deny_rule_finds_its_command_in_others(ctx: ToolContext, pattern: str, command: str) -> None:
    given = Rules(allow=(Rule("Bash"),), deny=(Rule("Bash", pattern),))
    assert DENY == decide(ctx, BASH, command, given, PermissionMode.BYPASS)


def test_a_deny_rule_leaves_other_commands_alone(ctx: ToolContext) -> None:
    given = rules(allow="Bash", deny="Bash(rm *),Bash(git push:*)")
    for command in ("ls rm x", "git pull", "format x", "echo 'rm x'"):
        assert ALLOW == decide(ctx, BASH, command, given), command


@given(st.text(max_size=60))
def test_no_command_gets_around_a_bare_deny(command: str) -> None:
    there = Path("/w")
    ctx = ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=there),
        results_dir=there / "results",
        progress=lambda text, data=None: None,
    )
    given = rules(allow="Bash(*)", deny="Bash(*)")
    assert DENY == decide(ctx, BASH, command, given, PermissionMode.BYPASS)
    assert ASK == decide(ctx, BASH, f"{command}; zz", rules(allow="Bash(aa bb *)"))
