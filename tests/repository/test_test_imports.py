"""Test modules import nothing from each other.

What several of them need is in ``fakes``: there it is no test that changes for a reason of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TEST_MODULE = re.compile(r"\btest_\w+")


def imports(source: str) -> Iterator[str]:
    """Yield the dotted names that a module imports, each with the name taken from it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_tests(source: str, tests: Path) -> set[str]:
    """Return the test modules below a directory that a module imports."""
    modules = set()
    for name in imports(source):
        parts = name.split(".")
        for end, part in enumerate(parts, 1):
            module = Path(*parts[:end]).with_suffix(".py")
            if part.startswith("test_") and (tests / module).exists():
                modules.add(str(module))
    return modules


def test_modules_import_no_test_module() -> None:
    test_modules = {path.stem for path in TESTS.rglob("test_*.py")}
    assert "test_test_imports" in test_modules
    importers = {}
    for name in ("bench", "packages", "tests"):
        for path in (TESTS.parent / name).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if test_modules.isdisjoint(TEST_MODULE.findall(source)):
                continue
            if modules := imported_tests(source, TESTS):
                importers[str(path)] = modules
    assert not importers


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("from agent.test_agent import Load", {"agent/test_agent.py"}),
        ("from agent import test_agent as other", {"agent/test_agent.py"}),
        ("def load():\n    import agent.test_agent", {"agent/test_agent.py"}),
        ("from aiohttp.test_utils import TestServer\nimport pytest", set()),
    ],
)
def test_imports_of_test_modules_are_found(tmp_path: Path, source: str, modules: set[str]) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "test_agent.py").touch()
    assert imported_tests(source, tmp_path) == modules
