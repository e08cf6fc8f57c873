"""Public names of modules have one meaning."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pytest

from fakes import source_trees

SHARED_CONSTANTS = {
    # gatehouse.cli.main imports the module of a command and takes the command from COMMANDS.
    "COMMANDS": {
        f"cli/{name}.py"
        for name in (
            *(
                "agent",
                "agent_config",
                "apiserver",
                "certs",
                "check",
                "config",
                "console",
                "controller",
                "demo",
            ),
            *("dns", "explain", "node", "node_proxy", "ratelimit", "status", "support", "top"),
            *("up", "version"),
        )
    },
}
SHARED_FUNCTIONS = {
    # Entry points of processes.
    "main": {"cli/main.py", "kube_api_server/__main__.py", "sidecars/__main__.py"},
}
"""Names that several modules must define, with these modules: a caller finds them by the name."""

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those below ``if`` and ``try``."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from statements([*statement.body, *statement.orelse])


def values(statement: ast.stmt) -> Iterator[str]:
    """Yield the names of constants, type aliases and other capitalised values."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or is_type_variable(statement.value):
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        if isinstance(target, ast.Name) and target.id[:1].isupper():
            yield target.id


def is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("TypeVar", "ParamSpec")


def public_names(source: str) -> tuple[set[str], set[str]]:
    """Return classes with other values, and functions."""
    classes: set[str] = set()
    functions: set[str] = set()
    for statement in statements(ast.parse(source).body):
        classes.update(values(statement))
        if isinstance(statement, Definition) and not statement.name.startswith("_"):
            group = classes if isinstance(statement, ast.ClassDef) else functions
            group.add(statement.name)
    return classes, functions


def homonyms(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the names that several modules define, with these modules."""
    definers = defaultdict(set)
    for module, names in modules.items():
        for name in names:
            definers[name].add(module)
    return {name: places for name, places in definers.items() if len(places) > 1}


@functools.cache
def names_of_modules() -> dict[str, tuple[set[str], set[str]]]:
    return {
        source_trees.short_name(path): public_names(path.read_text(encoding="utf-8"))
        for path in source_trees.modules()
    }


def test_public_classes_aliases_and_constants_have_one_module() -> None:
    assert (
        homonyms({module: names for module, (names, _) in names_of_modules().items()})
        == SHARED_CONSTANTS
    )


def test_public_functions_have_one_module() -> None:
    assert (
        homonyms({module: names for module, (_, names) in names_of_modules().items()})
        == SHARED_FUNCTIONS
    )


@pytest.mark.parametrize(
    ("source", "classes", "functions"),
    [
        ("class Options: ...\nclass _Options: ...", {"Options"}, set()),
        ("if True:\n    Key = tuple[str, str]\nelse:\n    MAX: int = 1", {"Key", "MAX"}, set()),
        ("async def read(): ...\ndef _read(): ...", set(), {"read"}),
        ('T = TypeVar("T")\nlog = logger()', set(), set()),
    ],
)
def test_public_names_of_source(source: str, classes: set[str], functions: set[str]) -> None:
    assert public_names(source) == (classes, functions)


def test_homonyms_name_all_modules() -> None:
    modules = {"a.py": {"read", "Key"}, "b.py": {"read"}, "c.py": {"write"}}
    assert homonyms(modules) == {"read": {"a.py", "b.py"}}
