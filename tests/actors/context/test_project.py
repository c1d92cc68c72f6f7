"""A whole project of another program is picked up unchanged, and told to the model."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import attrs

from atrio.actors.context.project import ProjectContext, load_project_context
from atrio.actors.context.prompt import (
    BOUNDARY,
    SHORT_PROMPT,
    SYSTEM_PROMPT,
    PromptFacts,
    build_system,
)
from atrio.actors.context.user_context import user_context_message, with_user_context
from atrio.runtime.messages import TextBlock, UserMessage, text_of


@attrs.frozen(kw_only=True)
class Speaker:
    """Of an agent, what counts here."""

    system_prompt: str | None = None
    append_system_prompt: str | None = None


async def load(tmp_path: Path) -> ProjectContext:
    return await load_project_context(tmp_path / "proj", (), tmp_path / "user/.atrio", tmp_path / "user", managed=())


def plant(tmp_path: Path) -> None:
    files = {
        "proj/.git/HEAD": "",
        "proj/CLAUDE.md": "# Rules\r\n\r\nRead @docs/style.md  \n",
        "proj/docs/style.md": "Style: short.\n",
        "proj/.claude/skills/deploy/SKILL.md": "---\nname: deploy\ndescription: Use when: shipping\n---\nShip.\n",
        "proj/.claude/rules/all.md": "Always.",
        "user/.claude/CLAUDE.md": "Be brief.",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())


async def test_an_existing_project_is_picked_up(tmp_path: Path) -> None:
    plant(tmp_path)
    project = await load(tmp_path)
    message = user_context_message(project, date(2026, 1, 2))
    assert message is not None
    assert (True, True, "attachment") == (message.hidden, message.pinned, message.origin)
    text = text_of(message.content)
    places = [
        text.index(part)
        for part in (
            "<system-reminder>\n",
            "# instructions\n",
            f"Contents of {tmp_path}/user/.claude/CLAUDE.md (the user's own, for all projects):\n\nBe brief.",
            f"Contents of {tmp_path}/proj/CLAUDE.md (of the project):\n\n# Rules\r\n\r\nRead @docs/style.md  \n",
            f"style.md (of the project, imported by {tmp_path}/proj/CLAUDE.md):\n\nStyle: short.\n",
            "Always.",
            "# currentDate\nToday's date is 2026-01-02.",
            "\n</system-reminder>",
        )
    ]
    assert sorted(places) == places
    (warning,) = project.warnings
    assert warning.startswith(f"{tmp_path}/proj/.claude/skills/deploy/SKILL.md: line 3: description holds a colon")
    skill = project.skill("Deploy")
    assert skill is not None
    assert skill is project.skill("deploy")
    assert project.skill("other") is None


async def test_loading_twice_tells_the_same_to_the_byte(tmp_path: Path) -> None:
    plant(tmp_path)
    first, second = await load(tmp_path), await load(tmp_path)
    assert first == second
    today = date(2026, 1, 2)
    assert user_context_message(first, today) == user_context_message(second, today)
    prompts = [build_system(Speaker(), project, cwd=tmp_path) for project in (first, second)]
    assert prompts[0] == prompts[1]


async def test_an_empty_project_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    project = await load(tmp_path)
    assert () == project.warnings
    assert user_context_message(project, None) is None
    history = (UserMessage(uuid="1", content=(TextBlock("hi"),)),)
    assert history is with_user_context(history, None)


def test_the_context_stands_before_the_history() -> None:
    context = user_context_message(ProjectContext(), date(2026, 1, 2))
    history = (UserMessage(uuid="1", content=(TextBlock("hi"),)),)
    assert [context, *history] == list(with_user_context(history, context))


async def test_the_prompt_has_a_static_and_a_dynamic_part(tmp_path: Path) -> None:
    plant(tmp_path)
    project = await load(tmp_path)
    prompt = build_system(
        Speaker(append_system_prompt="More."), project, cwd=Path("/w"), add_dirs=[Path("/x")], git_status="On main"
    )
    static, dynamic = prompt.parts
    assert SYSTEM_PROMPT == static
    environment, status, skills, more = dynamic.split("\n\n")
    assert environment.startswith("Environment:\n- working directory: /w\n- additional directory: /x\n- platform: ")
    assert "Git status when the session began:\nOn main" == status
    assert skills.endswith(f"In {tmp_path}/proj/.claude/skills:\n- deploy: Use when: shipping")
    assert "More." == more


def test_an_agents_own_prompt_stands_alone() -> None:
    prompt = build_system(Speaker(system_prompt="Mine."), ProjectContext(), cwd=Path("/w"))
    assert (("Mine.",), ()) == (prompt.parts, prompt.notices)


def test_a_builders_sections_are_split_and_the_boundary_is_never_sent() -> None:
    def build(facts: PromptFacts) -> list[str]:
        return ["One", " ", "two", BOUNDARY, f"in {facts.cwd}", f"x{BOUNDARY}y", BOUNDARY, ",".join(facts.tools)]

    prompt = build_system(
        Speaker(system_prompt="no"), ProjectContext(), cwd=Path("/w"), tools=["A", "B"], builder=build
    )
    assert (("One\n\ntwo", "in /w\n\nxy\n\nA,B"), ()) == (prompt.parts, prompt.notices)


def test_a_builder_that_fails_costs_only_its_prompt() -> None:
    def raises(facts: PromptFacts) -> list[str]:
        raise KeyError("x")

    def gives_numbers(facts: PromptFacts) -> list[str]:
        return [1, 2]  # type: ignore[list-item]  # what a host without a type checker does

    def gives_nothing(facts: PromptFacts) -> list[str]:
        return ["", BOUNDARY]

    problems = {raises: "failed (KeyError: 'x')", gives_numbers: "gave no list of texts", gives_nothing: "gave no text"}
    for builder, problem in problems.items():
        prompt = build_system(Speaker(append_system_prompt="More."), ProjectContext(), cwd=Path("/w"), builder=builder)
        assert (SHORT_PROMPT, "More.") == prompt.parts
        notice = f"the prompt builder {builder.__name__} {problem}; a short default prompt is used instead"
        assert (notice,) == prompt.notices
