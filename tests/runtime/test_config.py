"""Configuration: from the environment and settings files, wrong values named, the home folder made or refused."""

from __future__ import annotations

import json
import os
import pwd
import stat
from pathlib import Path

import pytest

from atrio.runtime.config import Config, Durability, prepare_home
from atrio.runtime.errors import ConfigError


def config(tmp_path: Path, **environ: str) -> Config:
    return Config.from_env({"HOME": str(tmp_path / "user"), **environ}, cwd=tmp_path)


# --- values ---------------------------------------------------------------------------------------


def test_an_empty_environment_gives_the_defaults(tmp_path: Path) -> None:
    got = config(tmp_path)
    assert tmp_path / "user" / ".atrio" == got.home
    assert (None, None, None) == (got.api_key, got.auth_token, got.base_url)
    assert (Durability.BATCH, 10, 10) == (got.durability, got.max_retries, got.tool_concurrency)


def test_variables_are_read(tmp_path: Path) -> None:
    got = config(
        tmp_path,
        ANTHROPIC_API_KEY=" k\n",
        ANTHROPIC_BASE_URL="http://h",
        ATRIO_DURABILITY="always",
        ATRIO_MAX_RETRIES="0",
        ATRIO_IDLE_EVENT="1.5",
    )
    assert ("k", "http://h", Durability.ALWAYS, 0) == (got.api_key, got.base_url, got.durability, got.max_retries)
    assert 1.5 == got.idle_event


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    got = config(tmp_path, ATRIO_MAX_RETRIES="", ATRIO_DURABILITY=" ", ANTHROPIC_API_KEY=" ", ATRIO_HOME=" ")
    assert (10, Durability.BATCH, None) == (got.max_retries, got.durability, got.api_key)
    assert tmp_path / "user" / ".atrio" == got.home


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("ATRIO_DURABILITY", "never", "'never' is not known; choose from os, batch, always"),
        ("ATRIO_MAX_RETRIES", "-1", "'-1' is no whole number of at least 0"),
        ("ATRIO_MAX_RETRIES", "1.5", "no whole number"),
        ("ATRIO_TOOL_CONCURRENCY", "0", "at least 1"),
        ("ATRIO_TOOL_CONCURRENCY", "9" * 5000, "no whole number"),
        ("ATRIO_IDLE_EVENT", "0", "no number of seconds above 0"),
        ("ATRIO_IDLE_EVENT", "nan", "no number of seconds"),
        ("ATRIO_IDLE_BYTE", "inf", "no number of seconds"),
        ("ATRIO_IDLE_BYTE", "1 min", "no number of seconds"),
        ("ATRIO_MAX_EVENT_BYTES", "12", "at least 1024"),
        ("ANTHROPIC_API_KEY", "a\nb", "characters that no key has"),
        ("ANTHROPIC_AUTH_TOKEN", "schlüssel", "characters that no key has"),
        ("ATRIO_HOME", "~nobody-of-this-name/x", "names a user who is not known"),
    ],
)
def test_what_is_set_but_wrong_is_named(tmp_path: Path, name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        config(tmp_path, **{name: value})
    assert name == caught.value.thing
    assert caught.value.remedy
    if "KEY" in name or "AUTH" in name:
        assert value not in str(caught.value)


def test_the_environment_is_stronger_than_settings_and_a_named_file_stronger_than_the_others(tmp_path: Path) -> None:
    def write(path: Path, model: str, **env: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"model": model, "env": env}))
        return path

    write(tmp_path / ".atrio" / "settings.json", "project", A="1", B="1", C="1", ATRIO_MAX_RETRIES="3")
    named = write(tmp_path / "named.json", "named", B="2", C="2")
    environ = {"HOME": str(tmp_path / "user"), "C": "3"}
    got = Config.from_env(environ, cwd=tmp_path, settings_file=named)
    assert "named" == got.settings.model
    assert ("1", "2", "3") == (got.environ["A"], got.environ["B"], got.environ["C"])
    assert 3 == got.max_retries


def test_a_wrong_settings_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text("{oops")
    with pytest.raises(ConfigError, match=r"\.claude/settings\.json: it is no valid JSON at line 1, column 2"):
        config(tmp_path)


def test_keys_are_not_shown(tmp_path: Path) -> None:
    got = config(tmp_path, ANTHROPIC_API_KEY="hunter2hunter2", OTHER_TOKEN="hunter3hunter3")
    assert "hunter" not in repr(got)
    redactor = got.redactor()
    assert "hunter" not in repr(redactor.clean(b'"hunter2hunter2 hunter3hunter3"'))


def test_a_key_given_directly_is_redacted_too() -> None:
    assert b'"[redacted:ANTHROPIC_API_KEY]"' == Config(api_key="hunter2hunter2").redactor().clean(b'"hunter2hunter2"')


# --- the home folder ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [("~/a", "user/a"), ("~", "user"), ("a/b", "a/b"), ("./a", "a"), ("/abs/a", "/abs/a")],
)
def test_the_home_folder_may_be_relative_or_begin_with_a_tilde(tmp_path: Path, given: str, expected: str) -> None:
    assert tmp_path / expected == config(tmp_path, ATRIO_HOME=given).home


def test_the_home_folder_is_absolute_even_if_the_working_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    got = Config.from_env({"HOME": "/u", "ATRIO_HOME": "h"}, cwd=Path("."))
    assert tmp_path / "h" == got.home


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}])
def test_without_home_the_accounts_folder_counts(tmp_path: Path, environ: dict[str, str]) -> None:
    account = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert account / ".atrio" == Config.from_env(environ, cwd=tmp_path, sources=()).home


def test_without_any_home_atrio_home_is_needed_and_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert Path("/h") == Config.from_env({"ATRIO_HOME": "/h"}, cwd=tmp_path).home
    for environ, thing in (({}, "HOME"), ({"ATRIO_HOME": "~/x"}, "ATRIO_HOME")):
        with pytest.raises(ConfigError, match="set ATRIO_HOME to a folder") as caught:
            Config.from_env(environ, cwd=tmp_path)
        assert thing == caught.value.thing


def test_the_home_folder_is_made_private(tmp_path: Path) -> None:
    home = tmp_path / "a" / "b"
    prepare_home(Config(home=home))
    prepare_home(Config(home=home))
    folders = [home / "projects", home, home.parent]
    assert [0o700] * 3 == [stat.S_IMODE(folder.stat().st_mode) for folder in folders]


@pytest.mark.parametrize("where", ["a", "a/b", "a/b/projects"])
def test_a_file_in_the_way_of_the_home_folder_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).touch()
    with pytest.raises(
        ConfigError, match=rf"ATRIO_HOME: {tmp_path}/a/b can't be used: .*; point ATRIO_HOME at a folder"
    ):
        prepare_home(Config(home=tmp_path / "a" / "b"))


def test_a_home_folder_where_nothing_can_be_made_is_refused() -> None:
    with pytest.raises(ConfigError, match="/proc/nowhere can't be used"):
        prepare_home(Config(home=Path("/proc/nowhere")))
