"""Words of one layer of the compiler do not appear in another.

Front ends know the APIs, back ends the proxies, and the IR knows neither.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.kinds import known_resources

ROOT = Path(__file__).parents[2]
COMPILER = ROOT / "src" / "gatehouse" / "compiler"
NGINX_SYNTAX = "frontends/gateway_api/extensions/nginx_values.py"
"""The parser of values that the API has in NGINX syntax."""


def modules(*parts: str) -> list[Path]:
    """Return the modules of packages of the compiler."""
    paths = [path for part in parts for path in sorted((COMPILER / part).rglob("*.py"))]
    assert paths, parts
    return paths


def texts(path: Path) -> Iterator[str]:
    """Yield the strings of a module, except docstrings."""
    tree = ast.parse(path.read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = {id(statement.value) for statement in statements}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from () if id(node) in docstrings else (node.value,)


def words(names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of the names as a word."""
    listed = sorted(names, key=len, reverse=True)
    assert len(listed) > 10
    return re.compile(rf"\b(?:{'|'.join(listed)})\b")


def kinds() -> set[str]:
    """Return all Kubernetes kinds that Gatehouse knows."""
    return set(known_resources())


def directives() -> set[str]:
    """Return the directives that the NGINX back end writes, as far as they are no plain words."""
    called = (
        node.args[0].value
        for path in modules("backends/nginx")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in ("simple_directive", "block") and isinstance(node.args[0], ast.Constant)
    )
    return {str(name) for name in called if re.fullmatch(r"[a-z]+(_[a-z]+)+", str(name))}


def enum_values(schema: Any) -> Iterator[str]:
    """Yield all values of enums in a CRD."""
    if isinstance(schema, dict):
        yield from (value for value in schema.get("enum") or () if isinstance(value, str))
        for value in schema.values():
            yield from enum_values(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from enum_values(value)


@pytest.mark.parametrize("path", modules("backends", "ir"), ids=lambda path: str(path.name))
def test_back_ends_and_ir_name_no_kubernetes_kind(path: Path) -> None:
    kind = words(kinds())
    assert [text for text in texts(path) if kind.search(text)] == []


def test_front_ends_and_ir_name_no_directive_of_nginx() -> None:
    crds = (ROOT / "charts" / "gatehouse" / "crds").glob("*.yaml")
    api = {
        value
        for path in crds
        for value in enum_values(yaml.load(path.read_text(), yaml.CSafeLoader))
    }
    assert api
    directive = words(directives())
    names = [
        (str(path.relative_to(COMPILER)), text)
        for path in modules("frontends", "ir")
        for text in texts(path)
        if directive.search(text) and text not in api
    ]
    assert [entry for entry in names if entry[0] != NGINX_SYNTAX] == []
