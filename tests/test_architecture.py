"""Which room may import which, read off the source: runtime <- tools <- actors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest

TOP: Final = Path(__file__).resolve().parents[1]
ROOTS: Final = ("runtime", "tools", "actors")

MAY_IMPORT: Final = {"runtime": {"runtime"}, "tools": {"runtime", "tools"}, "actors": {"runtime", "tools", "actors"}}

FRONT_DOORS: Final = {
    "runtime/cli.py",
    "runtime/context_cli.py",
    "runtime/conversation.py",
    "runtime/demo.py",
    "runtime/headless.py",
    "runtime/job.py",
}
"""They may reach up, inside functions."""

ASYNC_MODULES: Final = {
    "actor",
    "child",
    "cli",
    "commit",
    "context_cli",
    "conversation",
    "demo",
    "doors",
    "headless",
    "mailbox",
    "output",
    "supervisor",
    "tool",
}
"""Modules of runtime that know Trio. All others are pure: no Trio, no httpx, nothing asynchronous."""

DESCRIBES_ACTORS: Final = {"childspec"}
"""Pure by itself, but its values are about actors."""

COMPOSES: Final = "actors/app.py"
"""Alone brings concrete providers into a session."""


@attrs.frozen
class Import:
    """One name that a file imports: ``module`` absolute, ``lazy`` inside a function or for type checkers only."""

    file: str
    line: int
    module: str
    level: int
    lazy: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {'.' * self.level}{self.module}"


def _files() -> list[Path]:
    return sorted(path for root in ROOTS for path in (TOP / root).rglob("*.py"))


def _imports(path: Path) -> Iterator[Import]:
    file = str(path.relative_to(TOP))

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, 0, lazy)
            elif isinstance(child, ast.ImportFrom):
                yield Import(file, child.lineno, child.module or "", child.level, lazy)
                if child.module in (None, "atrio"):  # `from atrio import tools`, `from . import x`
                    for alias in child.names:
                        yield Import(file, child.lineno, f"{child.module or ''}.{alias.name}", child.level, lazy)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or (
                    isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"
                )
                yield from walk(child, lazy or inside)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False)


IMPORTS: Final = [item for path in _files() for item in _imports(path)]


def _root_of(item: Import) -> str | None:
    """The root that an absolute import of this distribution goes to."""
    parts = item.module.split(".")
    return parts[1] if parts[0] == "atrio" and len(parts) > 1 else None


def _asynchronous(path: Path) -> list[int]:
    kinds = ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await
    return [node.lineno for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


def test_there_is_something_to_check() -> None:
    assert {"runtime", "tools", "actors"} == {item.file.split("/")[0] for item in IMPORTS}
    assert any(_root_of(item) == "runtime" for item in IMPORTS)


def test_imports_point_down() -> None:
    assert [] == [
        str(item)
        for item in IMPORTS
        if (root := _root_of(item)) is not None
        and root not in MAY_IMPORT[item.file.split("/")[0]]
        and not (item.file in FRONT_DOORS and item.lazy)
    ]


def test_nothing_imports_a_front_door() -> None:
    doors = {file.removesuffix(".py").replace("/", ".") for file in FRONT_DOORS}
    named = doors | {door.partition(".")[2] for door in doors}
    assert [] == [
        str(item)
        for item in IMPORTS
        if item.module.removeprefix("atrio.").lstrip(".") in named
        and (item.level or item.module.startswith("atrio."))
        and item.file not in FRONT_DOORS | {"runtime/__main__.py"}
    ]


def test_nobody_imports_a_root_as_a_top_level_module() -> None:
    # It would load a second copy of every class, and there is none where the wheel is installed.
    assert [] == [str(item) for item in IMPORTS if item.level == 0 and item.module.split(".")[0] in ROOTS]


def test_relative_imports_stay_within_their_root() -> None:
    assert [] == [str(item) for item in IMPORTS if item.level >= 1 and item.level > len(Path(item.file).parent.parts)]


def test_imports_within_a_package_are_relative() -> None:
    # An absolute one works too, but says less and hides circles. From a package to the one above, it is the only way.
    def own(item: Import) -> str:
        return ".".join(("atrio", *Path(item.file).parent.parts))

    assert [] == [str(item) for item in IMPORTS if item.level == 0 and f"{item.module}.".startswith(f"{own(item)}.")]


def _pure() -> list[Path]:
    return [path for path in sorted((TOP / "runtime").rglob("*.py")) if path.stem not in ASYNC_MODULES]


@pytest.mark.parametrize("path", _pure(), ids=lambda path: path.stem)
def test_pure_modules_know_neither_trio_nor_httpx_and_hold_nothing_asynchronous(path: Path) -> None:
    foreign = {item.module.split(".")[0] for item in _imports(path)} & {"trio", "httpx", "httpx_sse", "anyio"}
    assert (set(), []) == (foreign, _asynchronous(path))


def test_pure_modules_import_no_module_that_knows_trio() -> None:
    pure = {f"runtime/{path.name}" for path in _pure() if path.stem not in {"__init__", "__main__", *DESCRIBES_ACTORS}}
    assert [] == [
        str(item) for item in IMPORTS if item.file in pure and item.level == 1 and item.module in ASYNC_MODULES
    ]


def test_the_list_of_modules_that_know_trio_names_only_modules_that_do() -> None:
    def knows(path: Path) -> bool:
        return any(item.module.split(".")[0] == "trio" for item in _imports(path)) or bool(_asynchronous(path))

    present = [path for name in ASYNC_MODULES if (path := TOP / "runtime" / f"{name}.py").exists()]
    assert [] == [path.stem for path in present if not knows(path)]


def test_the_composition_root_alone_imports_providers() -> None:
    assert [] == [
        str(item)
        for item in IMPORTS
        if "providers" in item.module.split(".")
        and item.file != COMPOSES
        and not item.file.startswith("actors/providers/")
    ]


def test_no_actor_imports_a_concrete_tool() -> None:
    concrete = {"read", "write", "edit", "glob", "grep", "shell"}
    assert [] == [
        str(item)
        for item in IMPORTS
        if item.file.startswith("actors/")
        and item.file != COMPOSES
        and item.module.startswith("atrio.tools.")
        and item.module.split(".")[2] in concrete
    ]
