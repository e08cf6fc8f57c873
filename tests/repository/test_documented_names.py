"""Every name that a user sees in a status, an Event or a page of metrics is documented."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference

from gatehouse.apis.event_reasons import EventReason
from gatehouse.compiler.frontends.external_load_balancer import findings as load_balancer_findings

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gatehouse"
PAGES = ROOT / "docs" / "reference"

REASONS = [reasons for *_, reasons in reference.CONDITION_REASONS]
EVENT_TYPES = ("Normal", "Warning")


def modules(package: str = "") -> Iterator[tuple[Path, ast.Module]]:
    paths = sorted((SOURCE / package).rglob("*.py"))
    assert paths, package
    for path in paths:
        if "wire" not in path.relative_to(SOURCE).parts:
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("reasons", [*REASONS, load_balancer_findings.Reason, EventReason])
def test_reason_has_a_meaning(reasons: type[enum.Enum]) -> None:
    for name, text in reference.meanings(reasons).items():
        assert re.match(r"[A-Z`].*\.$", text), name


@pytest.mark.parametrize("reasons", REASONS)
def test_condition_reason_is_documented(reasons: type[enum.Enum]) -> None:
    for each in reasons:
        kind, holds, name = each.value
        assert f"| `{kind}` | {holds} | `{name}` |" in page("conditions.md")


def test_reason_without_a_docstring_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "undocumented.py"
    module.write_text("import enum\nclass Reason(enum.Enum):\n    A = 'A'\n    B = 'B'\n    'B.'\n")
    monkeypatch.syspath_prepend(tmp_path)
    import undocumented  # type: ignore[import-not-found]

    with pytest.raises(KeyError, match="A"):
        reference.meanings(undocumented.Reason)


def test_event_reasons_are_members_of_an_enum() -> None:
    literals, seen = [], 0
    for path, tree in modules("controller"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            for type_, reason in zip(node.args, node.args[1:], strict=False):
                if isinstance(type_, ast.Constant) and type_.value in EVENT_TYPES:
                    seen += 1
                    if isinstance(reason, ast.Constant | ast.JoinedStr):
                        literals.append(f"{path.name}:{node.lineno}")
    assert seen > 5, "the walk finds calls"
    assert not literals


def test_condition_reasons_are_members_of_an_enum() -> None:
    types = {each.value[0] for reasons in REASONS for each in reasons}
    literals = [
        f"{path.name}:{node.lineno}"
        for path, tree in modules("compiler/frontends")
        if path.name != "findings.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value in types
        and any(isinstance(each, ast.Constant) for each in node.args[2:3])
    ]
    assert not literals
