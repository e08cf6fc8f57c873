"""Every name that a user sees in a status, an Event or a page of metrics is documented."""

from __future__ import annotations

import ast
import enum
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import reference

from gatehouse.agent.option_help import HELP
from gatehouse.agent.options import KEYS
from gatehouse.apis.event_reasons import EventReason
from gatehouse.cli.main import command
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
def test_reason_has_a_description(reasons: type[enum.Enum]) -> None:
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


def constants() -> Iterator[tuple[str, str]]:
    """Yield the place and value of every string constant."""
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.name}:{node.lineno}", node.value


def test_name_with_a_domain_of_gatehouse_is_documented() -> None:
    text, seen = page("annotations.md"), set()
    for place, value in constants():
        # "gatehouse.dev/v1alpha1" is a version of an API, "gatehouse.dev/" a prefix.
        if re.fullmatch(r"(gatehouse\.dev|proxy\.kubegateway\.io)/(?!v\d)\S+", value):
            seen.add(value)
            assert f"| `{value}" in text, place
    assert len(seen) > 10, "the walk finds names"


VARIABLE = re.compile(
    r"(GATEHOUSE|NGINX_AGENT|KUBERNETES|POD|XDG)(_[A-Z]+)+|KUBECONFIG|[A-Z]+_PROXY"
)


def test_environment_variable_is_documented() -> None:
    text, seen = page("environment.md"), set()
    for place, value in constants():
        if VARIABLE.fullmatch(value):
            seen.add(value)
            assert f"| `{value}` |" in text, place
    assert len(seen) > 10, "the walk finds variables"


def read_variables() -> Iterator[tuple[str, str]]:
    """Yield the place and name of every variable that code reads from `environ`."""
    for path, tree in modules():
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(value=source, slice=ast.Constant(value=str(name))):
                    pass
                case ast.Call(
                    func=ast.Attribute(value=source, attr="get"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    pass
                case _:
                    continue
            if ast.unparse(source).endswith("environ"):
                yield f"{path.name}:{node.lineno}", name


def test_variable_read_from_environ_is_documented() -> None:
    # gRPC reads this variable, and Gatehouse sets it for its own process.
    found = [(place, name) for place, name in read_variables() if not name.startswith("GRPC_")]
    assert len(found) > 5, "the walk finds reads"
    for place, name in found:
        assert f"| `{name}` |" in page("environment.md"), place


def test_option_is_documented() -> None:
    text, seen = page("cli.md"), 0
    for context in reference.commands(command, "gatehouse"):
        section = text.partition(f"\n## {context.command_path}\n")[2].partition("\n## ")[0]
        for option in context.command.params:
            if isinstance(option, click.Option) and not option.hidden:
                seen += 1
                assert option.opts[-1] in section, context.command_path
                assert option.help, option.opts
                assert re.match(r"[A-Z].*\.", option.help), option.opts
    assert seen > 100, "the walk finds options"


def test_agent_option_has_a_help_text() -> None:
    assert HELP.keys() == KEYS.keys()
    for key, text in HELP.items():
        assert re.match(r"[A-Z].*\.$", text), key


def test_helm_value_has_a_description() -> None:
    for value in reference.values(reference.VALUES.read_text(encoding="utf-8")):
        assert f"| `{value.name}` |" in page("helm-values.md")
        assert re.match(r"[A-Z].*\.$", value.comment), value.name


OWN_CRDS = sorted((SOURCE / "apiserver" / "bundled").glob("*.gatehouse.dev.json"))


def described_fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and description of every field."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field.get("description", "")
        yield from described_fields(field, f"{path}.{name}")
        yield from described_fields(field.get("items", {}), f"{path}.{name}[]")


@pytest.mark.parametrize("file", OWN_CRDS, ids=lambda path: path.stem)
def test_field_of_own_kind_has_a_description(file: Path) -> None:
    crd = json.loads(file.read_text(encoding="utf-8"))
    for version in crd["spec"]["versions"]:
        fields = list(described_fields(version["schema"]["openAPIV3Schema"], ""))
        assert len(fields) > 20, "the walk finds fields"
        # Kubernetes forbids a description of metadata.
        for path, text in fields:
            if path == ".metadata":
                continue
            assert re.match(r"[A-Z*].*\.$", text), path
            assert text.count("Default:") <= 1, path
