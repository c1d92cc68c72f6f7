"""Skills are loaded by name through a function; unknown ones are told from known ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atrio.runtime.errors import InvalidToolInput, ToolRejected
from atrio.runtime.tool import ToolContext, ToolOutput, Workspace
from atrio.tools.permissions import Behavior, PermissionMode, Rules, decide_permission, parse_rule
from atrio.tools.skill import Skill


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        run_id="r",
        call_id="c",
        workspace=Workspace(cwd=tmp_path),
        results_dir=tmp_path / "results",
        progress=lambda text, data=None: None,
    )


def skills(*names: str, text: str = "{name}: {args}") -> Skill:
    async def load(name: str, args: str) -> str:
        return text.format(name=name, args=args)

    def known() -> Sequence[str]:
        return names

    return Skill(load, known)


async def use(ctx: ToolContext, tool: Skill, **raw: Any) -> ToolOutput:
    input = tool.parse(raw)
    await tool.check(input, ctx)
    return await tool.run(input, ctx)


@pytest.mark.parametrize(
    "raw", [{"name": "deploy", "args": "now"}, {"skill": "deploy", "args": "now"}, {"name": "/deploy", "args": "now"}]
)
async def test_a_skill_is_loaded_with_its_arguments(ctx: ToolContext, raw: dict[str, str]) -> None:
    output = await use(ctx, skills("deploy"), **raw)
    assert "deploy: now" == output.content
    assert {"skill": "deploy", "args": "now"} == output.details


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["deploy", "review"], "Did you mean deploy?"),
        (["zzz", "yyy"], "There are zzz, yyy."),
        ([f"s{number:03}" for number in range(60)], "and 10 more."),
        ([], "There are no skills here"),
    ],
)
async def test_an_unknown_skill_is_refused_with_what_there_is(ctx: ToolContext, known: list[str], hint: str) -> None:
    with pytest.raises(ToolRejected, match="There is no skill 'deplyo'") as caught:
        await use(ctx, skills(*known), name="deplyo")
    assert hint in str(caught.value)


async def test_a_very_long_skill_is_cut(ctx: ToolContext) -> None:
    output = await use(ctx, skills("long", text="x" * 100_007), name="long")
    assert str(output.content).endswith("[... 7 more characters of this skill; read its SKILL.md for the rest]")


def test_a_name_is_needed() -> None:
    with pytest.raises(InvalidToolInput):
        skills().parse({})


@pytest.mark.parametrize("name", ["deploy", "/deploy", " deploy"])
def test_rules_name_single_skills(ctx: ToolContext, name: str) -> None:
    tool = skills("deploy")
    rules = Rules(deny=(parse_rule("Skill(deploy)"),))
    input = tool.parse({"name": name})
    assert Behavior.DENY is decide_permission(tool, input, ctx, rules, PermissionMode.DEFAULT).behavior
    other = tool.parse({"name": "review"})
    assert Behavior.ALLOW is decide_permission(tool, other, ctx, rules, PermissionMode.DEFAULT).behavior
