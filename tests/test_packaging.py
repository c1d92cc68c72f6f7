"""What is installed: only atrio/..., typed, and what the README shows of it works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

TOP: Final = Path(__file__).resolve().parents[1]
ROOTS: Final = ("runtime", "tools", "actors")
PROJECT: Final[dict[str, Any]] = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS: Final[dict[str, Any]] = PROJECT["tool"]["setuptools"]
LIMIT: Final = 240.0


def folders_with_code(root: str) -> set[str]:
    inits = (TOP / root).rglob("__init__.py")
    return {".".join(("atrio", *path.parent.relative_to(TOP).parts)) for path in inits}


def test_every_package_is_listed_and_no_other() -> None:
    assert set().union(*(folders_with_code(root) for root in ROOTS)) == set(SETUPTOOLS["packages"])


def test_every_module_is_in_a_package() -> None:
    files = [path for root in ROOTS for path in (TOP / root).rglob("*.py")]
    assert [] == [str(path) for path in files if not (path.parent / "__init__.py").exists()]


def test_the_roots_are_mapped_below_atrio_and_nothing_is_importable_beside_it() -> None:
    assert {f"atrio.{root}": root for root in ROOTS} == SETUPTOOLS["package-dir"]
    assert [] == [name for name in SETUPTOOLS["packages"] if not name.startswith("atrio.")]
    assert not (TOP / "atrio").exists()  # a folder of this name would hide the namespace


@pytest.mark.parametrize("root", ROOTS)
def test_each_root_is_typed_and_linked_for_type_checkers(root: str) -> None:
    assert (TOP / root / "py.typed").is_file()
    assert "py.typed" in SETUPTOOLS["package-data"][f"atrio.{root}"]
    link = TOP / "typings" / "atrio" / root
    assert link.is_symlink()
    assert Path("../..", root) == link.readlink()


def test_every_data_file_is_shipped() -> None:
    data = [
        path
        for root in ROOTS
        for path in (TOP / root).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and "__pycache__" not in path.parts
    ]
    missing = []
    for path in data:
        package = ".".join(("atrio", *path.parent.relative_to(TOP).parts))
        if not any(path.match(pattern) for pattern in SETUPTOOLS["package-data"].get(package, ())):
            missing.append(str(path.relative_to(TOP)))
    assert [] == missing


def test_dependencies_have_lower_bounds() -> None:
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    assert [] == [name for group in groups for name in group if ">=" not in name]


# --- installed somewhere else ---------------------------------------------------------------------

USER_PROGRAM: Final = '''
from pathlib import Path

import trio

from atrio.actors import Agent, open_session
from atrio.actors.testing import ScriptedModel, Turn, text
from atrio.runtime.config import Config
from atrio.runtime.events import TextDelta
from atrio.runtime.result import Result
from atrio.tools import default_tools, tool


@tool(concurrency_safe=True)
async def population(city: str) -> str:
    """Look up a city's population.  Args: city: name in English"""
    return "700,000"


async def ask(home: Path) -> Result:
    agent = Agent(model="scripted-1", tools=[population, *default_tools()], allowed_tools=["Bash"])
    model = ScriptedModel([Turn(text("Oslo."))])
    config = Config(home=home, api_key="none")
    async with open_session(agent, cwd=".", config=config, transport=model.transport()) as session:
        async with session.submit("Oslo or Bergen?") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    print(event.text, end="")
        result: Result = run.result
    return result


def main() -> None:
    result = trio.run(ask, Path("home"))
    assert result.terminal_reason == "completed", result


if __name__ == "__main__":
    main()
'''


def run(*argv: str | Path, cwd: Path) -> str:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@attrs.frozen
class Outside:
    """A folder with a virtual environment into which atrio alone was installed, by a wheel made of ``modules``."""

    folder: Path
    modules: frozenset[str]

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        (found,) = (self.folder / "venv").glob("lib/python*/site-packages")
        return found


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    folder = tmp_path_factory.mktemp("outside")
    # From a copy, so that no build folder appears in the tree.
    source = folder / "source"
    shutil.copytree(
        TOP, source, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "bench", "tests")
    )
    modules = frozenset(str(path.relative_to(source)) for root in ROOTS for path in (source / root).rglob("*.py"))
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "wheels", source, cwd=folder)
    shutil.rmtree(source)
    run(sys.executable, "-m", "venv", "venv", cwd=folder)
    (wheel,) = (folder / "wheels").iterdir()
    run(folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=folder)
    return Outside(folder, modules)


@pytest.mark.soak
@pytest.mark.timeout(LIMIT)
def test_a_wheel_brings_only_atrio(outside: Outside) -> None:
    before = {"pip", "setuptools", "wheel", "_distutils_hack", "pkg_resources", "distutils-precedence.pth"}
    names = {path.name for path in outside.site_packages.iterdir()}
    brought = {name for name in names if name not in before and not re.match(r"(pip|setuptools|wheel)-", name)}
    version = PROJECT["project"]["version"]
    assert {"atrio", f"atrio-{version}.dist-info"} == brought
    shipped = outside.site_packages / "atrio"
    assert set(ROOTS) == {path.name for path in shipped.iterdir()}
    assert outside.modules == {str(path.relative_to(shipped)) for path in shipped.rglob("*.py")}


@pytest.mark.soak
@pytest.mark.timeout(LIMIT)
def test_a_users_program_runs_and_type_checks_against_the_installed_package(outside: Outside) -> None:
    # What atrio depends on is taken from this environment, by a path file: atrio itself comes from the wheel.
    own = next(path for path in map(Path, sys.path) if path.name == "site-packages" and (path / "trio").is_dir())
    dependencies = outside.folder / "dependencies"
    dependencies.mkdir()
    for entry in own.iterdir():
        if not entry.name.startswith(("__editable__", "atrio", "_distutils", "distutils")) and entry.suffix != ".pth":
            (dependencies / entry.name).symlink_to(entry)
    (outside.site_packages / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    program = outside.folder / "program.py"
    program.write_text(USER_PROGRAM, encoding="utf-8")
    assert "Oslo." == run(outside.python, program, cwd=outside.folder)
    where = run(outside.python, "-c", "import atrio.actors.session as m; print(m.__file__)", cwd=outside.folder).strip()
    assert Path(where).is_relative_to(outside.site_packages)
    strict = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache"]
    run(*strict, "--python-executable", outside.python, program, cwd=outside.folder)
