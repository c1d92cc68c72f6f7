"""Settings files: what they say, what is wrong with them, which one wins."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atrio.runtime.errors import ConfigError
from atrio.runtime.settings import Settings, load_settings, read_settings


@attrs.frozen
class Place:
    root: Path

    @property
    def cwd(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home" / ".atrio"

    @property
    def user(self) -> Path:
        return self.root / "home"

    def write(self, path: Path, **data: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data))

    def load(self, *sources: str) -> Settings:
        return load_settings(self.cwd, self.home, self.user, *([sources] if sources else []))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def file(tmp_path: Path, data: bytes | str) -> Path:
    path = tmp_path / "settings.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


# --- what a file says -----------------------------------------------------------------------------


def test_a_whole_file_is_read_and_what_is_unknown_is_left_alone(tmp_path: Path) -> None:
    data = {
        "model": "m",
        "permissions": {
            "allow": ["Read"],
            "deny": ["Bash(rm *)"],
            "ask": ["Edit"],
            "defaultMode": "acceptEdits",
            "additionalDirectories": ["../b"],
            "later": 1,
        },
        "env": {"A": "x", "B": 1, "C": True, "D": 1.5},
        "hooks": {"Stop": [{"hooks": []}]},
    }
    expected = Settings(
        model="m",
        allow=("Read",),
        deny=("Bash(rm *)",),
        ask=("Edit",),
        default_mode="acceptEdits",
        additional_directories=("../b",),
        env={"A": "x", "B": "1", "C": "true", "D": "1.5"},
        hooks={"Stop": ({"hooks": []},)},
        hook_files={"Stop": (f"settings file {tmp_path / 'settings.json'}",)},
    )
    assert expected == read_settings(file(tmp_path, json.dumps(data)))


@pytest.mark.parametrize("text", ["", "  \n", "{}", '{"model": null, "permissions": null, "env": null}'])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    assert Settings() == read_settings(file(tmp_path, text))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    assert Settings(model="m") == read_settings(file(tmp_path, b'\xef\xbb\xbf{"model": "m"}'))


# --- what is wrong with it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", r"the file must be an object, it is \[\]"),
        ("null", "the file must be an object, it is null"),
        ('{"model": 1}', "model must be a text, it is 1"),
        ('{"model": " "}', "model must be a text"),
        ('{"permissions": []}', "permissions must be an object"),
        ('{"permissions": {"allow": "Read"}}', r'permissions\.allow must be a list of texts, it is "Read"'),
        ('{"permissions": {"deny": ["a", 2]}}', r"permissions\.deny\[1\] must be a text, it is 2"),
        ('{"permissions": {"ask": {}}}', r"permissions\.ask must be a list"),
        ('{"permissions": {"defaultMode": []}}', r"permissions\.defaultMode must be a text"),
        (
            '{"permissions": {"additionalDirectories": [null]}}',
            r"additionalDirectories\[0\] must be a text, it is null",
        ),
        ('{"env": "A=1"}', "env must be an object"),
        ('{"hooks": []}', "hooks must be an object"),
        ('{"hooks": {"Stop": {"hooks": []}}}', r"hooks\.Stop must be a list, it is"),
        ('{"env": {"A": null}}', r"env\.A must be a text, it is null"),
        ('{"env": {"A": ["x"]}}', r"env\.A must be a text"),
        ('{"env": {"A=B": "x"}}', r"'A=B', which can't name a variable"),
        ('{"env": {"": "x"}}', r"'', which can't name a variable"),
        ('{"env": {"A": "a\\u0000b"}}', r"env\.A must be a text"),
        ('{"model": "m",\n "x" 1}', "line 2, column 6"),
        ("{", "line 1"),
        ("// comment\n{}", "line 1, column 1"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "no valid JSON"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_place(tmp_path: Path, text: str, problem: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_settings(path)
    assert f"settings file {path}" == caught.value.thing
    assert caught.value.remedy
    assert len(str(caught.value).replace(str(path), "")) < 250


@pytest.mark.parametrize("data", [b"\xff\xfe{\x00}\x00", b'{"model": "\xe4"}'])
def test_a_file_that_is_no_text_is_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ConfigError, match="no UTF-8 text"):
        read_settings(file(tmp_path, data))


def test_a_folder_of_that_name_is_an_error_and_a_missing_file_is_only_if_asked_for(place: Place) -> None:
    (place.cwd / ".claude" / "settings.json").mkdir(parents=True)
    with pytest.raises(ConfigError, match="Is a directory"):
        place.load()
    assert Settings() == place.load("user", "local")
    with pytest.raises(ConfigError, match="does not exist"):
        read_settings(place.cwd / "nowhere.json")


def test_a_file_in_place_of_the_folder_is_no_settings(place: Place) -> None:
    place.cwd.mkdir()
    (place.cwd / ".claude").touch()
    assert Settings() == place.load()


def test_a_circle_of_links_is_named(place: Place) -> None:
    path = place.cwd / ".claude" / "settings.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    with pytest.raises(ConfigError, match=r"settings\.json.*can't be read"):
        place.load()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, "{}")
    path.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        read_settings(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["allow", "defaultMode", "A", "permissions", "env"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["model", "permissions", "env", "hooks"]), JSON))
def test_any_object_is_settings_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    path = file(tmp_path_factory.getbasetemp(), json.dumps(data))
    problem = ""
    try:
        settings = read_settings(path)
    except ConfigError as error:
        problem = str(error)
        settings = Settings()
    assert not problem or str(path) in problem
    assert all(isinstance(text, str) for text in (*settings.env.values(), *settings.allow))


# --- which one wins -------------------------------------------------------------------------------


def test_single_values_come_from_the_strongest_and_lists_are_joined(place: Place) -> None:
    files = [
        place.user / ".claude" / "settings.json",
        place.home / "settings.json",
        place.cwd / ".claude" / "settings.json",
        place.cwd / ".atrio" / "settings.json",
        place.cwd / ".claude" / "settings.local.json",
        place.cwd / ".atrio" / "settings.local.json",
    ]
    for number, path in enumerate(files):
        place.write(
            path, model=f"m{number}", permissions={"allow": [f"T{number}"]}, env={"A": str(number), f"V{number}": "x"}
        )
        settings = place.load()
        assert f"m{number}" == settings.model
        assert tuple(f"T{n}" for n in range(number + 1)) == settings.allow
        assert {"A": str(number), **{f"V{n}": "x" for n in range(number + 1)}} == settings.env
    assert "m1" == place.load("user").model
    assert "m3" == place.load("project", "user").model
    assert Settings() == load_settings(place.cwd, place.home, place.user, ())


def test_hooks_of_all_files_are_joined_and_each_is_known_by_its_file(place: Place) -> None:
    own, project = place.home / "settings.json", place.cwd / ".claude" / "settings.json"
    place.write(own, hooks={"Stop": [1, 2], "Notification": [3]})
    place.write(project, hooks={"Stop": [4], "SessionEnd": [5]})
    settings = place.load()
    assert {"Stop": (1, 2, 4), "Notification": (3,), "SessionEnd": (5,)} == settings.hooks
    files = tuple(f"settings file {path}" for path in (own, own, project))
    assert {"Stop": files, "Notification": files[:1], "SessionEnd": files[2:]} == settings.hook_files


def test_hooks_of_a_project_are_read_only_where_its_settings_are(place: Place) -> None:
    place.write(place.cwd / ".claude" / "settings.json", hooks={"Stop": [1]})
    place.write(place.cwd / ".atrio" / "settings.local.json", hooks={"Stop": [2]})
    assert {} == place.load("user").hooks
    assert {"Stop": (1,)} == place.load("user", "project").hooks


def test_how_long_sessions_are_kept_is_a_number_of_days(tmp_path: Path) -> None:
    assert 7 == read_settings(file(tmp_path, '{"cleanupPeriodDays": 7}')).cleanup_period_days
    for wrong in ("0", "-1", "true", '"30"', "1.5", "99999999"):
        with pytest.raises(ConfigError, match="cleanupPeriodDays must be a whole number of days"):
            read_settings(file(tmp_path, f'{{"cleanupPeriodDays": {wrong}}}'))


def test_without_a_home_folder_there_are_no_users_settings(place: Place) -> None:
    place.write(place.home / "settings.json", model="m")
    assert Settings(model="m") == load_settings(place.cwd, place.home, None)


def test_an_unknown_source_is_refused_with_the_known_ones(place: Place) -> None:
    with pytest.raises(ConfigError, match="'managed' is no source; choose from user, project, local"):
        place.load("user", "managed")


@pytest.mark.parametrize("name", ["ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "https_proxy", "LD_PRELOAD", "ATRIO_HOME"])
def test_a_project_cannot_say_where_keys_are_sent(tmp_path: Path, name: str) -> None:
    for folder in ("project", "user"):
        place = tmp_path / folder / ".claude"
        place.mkdir(parents=True)
        (place / "settings.json").write_text(json.dumps({"env": {name: f"of {folder}", "BUILD": folder}}))
    project = load_settings(tmp_path / "project", tmp_path / "home", tmp_path / "user", ("project",))
    assert {"BUILD": "project"} == project.env
    user = load_settings(tmp_path / "project", tmp_path / "home", tmp_path / "user", ("user",))
    assert "of user" == user.env[name]
