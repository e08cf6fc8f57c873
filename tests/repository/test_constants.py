"""Names of constants: limits start with MAX or MIN, and durations end with their unit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for folder in ("src", "packages", "tests", "bench", "scripts")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "wire" not in path.relative_to(ROOT).parts
]

LIMIT = re.compile(
    r"_?([A-Z0-9]+_)+(MAX|MIN|LIMIT)|_?([A-Z0-9]+_)*(LONGEST|SHORTEST|MOST|PATIENCE)"
)
DURATION = re.compile(
    r"_?([A-Z0-9]+_)*"
    r"(AGE|DEADLINE|DELAY|EVERY|EXPIRY|GRACE|INTERVAL|LIFETIME|PAUSE|PERIOD|TIMEOUT|TTL|WAIT)"
)


def numbers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each constant of a module whose value is a number."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, part in zip(targets, values, strict=False):
                    if isinstance(target, ast.Name) and is_number(part):
                        yield target.id, statement.lineno
                continue
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if name.isupper() and is_number(value):
            yield name, statement.lineno


def is_number(value: ast.expr) -> bool:
    """Return whether an expression contains a number and nothing but arithmetic and scaling."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "scaled":
        value = value.args[0]
    parts = list(ast.walk(value))
    permitted = ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.Name
    return all(isinstance(part, permitted | ast.Load) for part in parts) and any(
        isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in parts
    )


def problem(name: str) -> str:
    """Return what is wrong with the name of a number, or an empty string."""
    if LIMIT.fullmatch(name):
        return f"{name}: write MAX_ or MIN_ first, and the unit last"
    if DURATION.fullmatch(name):
        return f"{name}: write the unit last, such as _SECONDS"
    return ""


def test_numbers_are_named_by_limit_and_unit() -> None:
    count, problems = 0, []
    for path in MODULES:
        for name, line in numbers(ast.parse(path.read_text(encoding="utf-8"))):
            count += 1
            if text := problem(name):
                problems.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert count > 300, "the walk finds constants"
    assert problems == []


@pytest.mark.parametrize(
    "source",
    [
        "MESSAGES_MAX = 16",
        "_BODY_LIMIT = 1 << 20",
        "LONGEST = 60.0",
        "PATIENCE: float = 30.0",
        "REQUEST_TIMEOUT = 30.0",
        "REQUEST_TIMEOUT = scaled(30.0)",
        "TTL, PAGE = 30, 500",
        "FETCH_EVERY = 5 * 60.0",
    ],
)
def test_name_without_limit_or_unit_is_found(source: str) -> None:
    assert [name for name, _ in numbers(ast.parse(source)) if problem(name)]


@pytest.mark.parametrize(
    "source",
    [
        "MAX_MESSAGES = 16",
        "MAX_BODY_BYTES = 1 << 20",
        "REQUEST_TIMEOUT_SECONDS = 30.0",
        "TIMEOUT = aiohttp.ClientTimeout(total=10.0)",
        'BODY_LIMIT = "bodyBufferBytes"',
        "CA_LIFETIME = timedelta(days=3650)",
    ],
)
def test_other_name_is_permitted(source: str) -> None:
    assert not [name for name, _ in numbers(ast.parse(source)) if problem(name)]
