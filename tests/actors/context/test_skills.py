"""Skills are found, listed within limits and loaded; bad ones are named and skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.actors.context import skills as module
from atrio.actors.context.skills import LoadedSkill, Skill, find_skills, load_skill, skill_listing
from atrio.runtime.errors import ToolRejected


def plant(folder: Path, name: str, text: str) -> Path:
    path = folder / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def find(tmp_path: Path, cwd: str = "proj") -> tuple[tuple[Skill, ...], list[str]]:
    user_home = tmp_path / "user"
    (tmp_path / cwd).mkdir(parents=True, exist_ok=True)
    skills, warnings = find_skills(tmp_path / cwd, user_home / ".atrio", user_home)
    return skills, [warning.replace(f"{tmp_path}/", "") for warning in warnings]


def test_skills_of_all_places_sorted_by_name(tmp_path: Path) -> None:
    (tmp_path / "proj" / ".git").mkdir(parents=True)
    plant(tmp_path / "proj/.claude/skills", "deploy", "---\nname: deploy\ndescription: ships it\n---\nDo.")
    plant(tmp_path / "proj/sub/.atrio/skills", "test", "---\ndescription: >\n  runs\n  tests\npaths: [t/**]\n---\nDo.")
    plant(tmp_path / "user/.claude/skills", "notes", "# Notes\n\nTake notes\nwell.\n\nMore.")
    plant(tmp_path / "user/.atrio/skills", "quiet", "---\ndescription: q\ndisable-model-invocation: true\n---\nDo.")
    plant(tmp_path / ".claude/skills", "above", "---\ndescription: outside of the repository\n---\n")
    skills, warnings = find(tmp_path, "proj/sub")
    assert [] == warnings
    assert [
        ("deploy", "ships it", True, ()),
        ("notes", "Take notes well.", True, ()),
        ("quiet", "q", False, ()),
        ("test", "runs tests", True, ("t/**",)),
    ] == [(skill.name, skill.description, skill.listed, skill.globs) for skill in skills]


def test_of_two_with_one_name_the_users_wins_then_the_nearer(tmp_path: Path) -> None:
    text = "---\nname: same\ndescription: {}\n---\n"
    for place in ("proj/.atrio/skills", "proj/.claude/skills", "user/.claude/skills"):
        plant(tmp_path / place, "same", text.format(place))
    skills, warnings = find(tmp_path)
    assert ["user/.claude/skills"] == [skill.description for skill in skills]
    hidden = "hidden by the skill of the same name, user/.claude/skills/same/SKILL.md"
    assert [
        f"proj/.atrio/skills/same/SKILL.md: {hidden}",
        f"proj/.claude/skills/same/SKILL.md: {hidden}",
    ] == warnings


def test_linked_skills_come_once_and_without_a_warning(tmp_path: Path) -> None:
    plant(tmp_path / "proj/.claude/skills", "one", "---\ndescription: d\n---\n")
    (tmp_path / "proj/.atrio").mkdir()
    (tmp_path / "proj/.atrio/skills").symlink_to("../.claude/skills")
    skills, warnings = find(tmp_path)
    assert (["one"], []) == ([skill.name for skill in skills], warnings)


def test_bad_skills_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_LIMIT_BYTES", 1_000)
    folder = tmp_path / "proj/.claude/skills"
    plant(folder, "a", "---\ndescription: Use when: it rains\n---\n")
    plant(folder, "b", "---\nname: b\n---\n# Title\n")
    plant(folder, "c", "x" * 1_001)
    plant(folder, "d d", "---\nname: not a name!\ndescription: d\n---\n")
    (folder / "e").mkdir()
    (folder / "f.md").touch()
    skills, warnings = find(tmp_path)
    assert [("a", "Use when: it rains"), ("d-d", "d")] == [(skill.name, skill.description) for skill in skills]
    at = "proj/.claude/skills"
    assert [
        f"{at}/a/SKILL.md: line 2: description holds a colon and should stand in quotes; it was taken as it is",
        f"{at}/b/SKILL.md: skipped, as it says nothing; give it a description and a text",
        f"{at}/c/SKILL.md: skipped: it is larger than 1,000 bytes; split it or shorten it",
        f"{at}/d d/SKILL.md: 'not a name!' is no name for a skill; its folder's name is used",
    ] == warnings


def make(name: str, description: str = "d", folder: str = "/s", listed: bool = True) -> Skill:
    return Skill(name=name, description=description, path=Path(folder, name, "SKILL.md"), listed=listed)


def test_listing_shows_names_descriptions_and_where_they_are() -> None:
    other = Skill(name="odd", description="o", path=Path("/t/folder/SKILL.md"))
    listing = skill_listing([make("b", "bb"), other, make("a"), make("hidden", listed=False)])
    assert "In /s:\n- b: bb\n- a: d\nIn /t:\n- odd (in folder/): o" == listing
    assert "" == skill_listing([make("hidden", listed=False)])


def test_listing_gets_shorter_and_counts_what_is_missing() -> None:
    skills = [make(f"skill{number:03}", "word " * 200) for number in range(100)]
    shortened = skill_listing(skills, 16_000)
    assert all(f"- skill{number:03}: word" in shortened for number in range(100))
    names = skill_listing(skills, 1_500)
    assert "In /s:\n- skill000\n- skill001\n" == names[:29]
    assert names.endswith("- skill099")
    few = skill_listing(skills, 300)
    assert few.endswith("more, whose names found no room here")
    assert 100 == few.count("- skill") + int(few.split("and ")[1].split()[0])


@given(
    st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.text("ab ", max_size=400)), max_size=30),
    st.integers(100, 5_000),
)
def test_listing_stays_within_its_limit(items: list[tuple[str, str]], limit: int) -> None:
    skills = [make(f"s{number}", text, folder) for number, (folder, text) in enumerate(items)]
    assert len(skill_listing(skills, limit)) <= limit


async def test_a_loaded_skill_is_its_whole_text_with_the_arguments(tmp_path: Path) -> None:
    text = "---\ndescription: d\n---\n\nRun ${CLAUDE_SKILL_DIR}/x.py with $ARGUMENTS\r\n"
    path = plant(tmp_path / "proj/.claude/skills", "one", text)
    ((skill,), _) = find(tmp_path)
    loaded = await load_skill(skill, "a b")
    opening = f"Base directory of this skill: {path.parent}\n\n"
    assert f"{opening}\nRun {path.parent}/x.py with a b\r\n" == loaded.text
    path.write_text("Do.\n")
    assert f"{opening}Do.\n\nARGUMENTS: a b\n" == (await load_skill(skill, "a b")).text
    path.unlink()
    with pytest.raises(ToolRejected, match="The skill one is gone: there is no file"):
        await load_skill(skill)


def test_a_skills_beginning_points_to_the_rest() -> None:
    loaded = LoadedSkill(skill=make("a"), text="x" * 1_000)
    assert loaded.text == loaded.within(1_000)
    assert loaded.within(500).endswith("x\n[The rest was left out; it is in /s/a/SKILL.md.]")
    assert 500 == len(loaded.within(500))
