"""Every name that a user sees in a status, an Event or a page of metrics is documented."""

from __future__ import annotations

import ast
import enum
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import reference

from fakes import source_trees
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


def modules(package: str = "", word: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """Parse the modules of a package that contain a word."""
    paths = [path for path in source_trees.modules() if (SOURCE / package) in path.parents]
    assert paths, package
    for path in paths if package else source_trees.modules():
        if word in (text := path.read_text(encoding="utf-8")):
            yield path, ast.parse(text)


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "reasons", [*REASONS, load_balancer_findings.LoadBalancerReason, EventReason]
)
def test_reason_has_a_description(reasons: type[enum.Enum]) -> None:
    for name, text in reference.meanings(reasons).items():
        assert re.match(r"[A-Z`].*\.$", text), name


@pytest.mark.parametrize("reasons", REASONS)
def test_condition_reason_is_documented(reasons: type[enum.Enum]) -> None:
    for reason in reasons:
        kind, holds, name = reason.value
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
    literals, count = [], 0
    for path, tree in modules("controller"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            for type_, reason in zip(node.args, node.args[1:], strict=False):
                if isinstance(type_, ast.Constant) and type_.value in EVENT_TYPES:
                    count += 1
                    if isinstance(reason, ast.Constant | ast.JoinedStr):
                        literals.append(f"{path.name}:{node.lineno}")
    assert count > 5, "the walk finds calls"
    assert not literals


CONDITION_TYPES = {reason.value[0] for reasons in REASONS for reason in reasons}


def reason_values(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that become reasons of conditions.

    These are the third positional argument after a condition type, each keyword argument, default
    and assignment with the name `reason`, the value of a key `reason`, and values compared with an
    attribute `reason`.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Call(args=[ast.Constant(value=str(type_)), _, reason, *_]):
                if type_ in CONDITION_TYPES:
                    yield reason
            case ast.AnnAssign(target=ast.Name(id="reason"), value=ast.expr() as reason):
                yield reason
            case ast.Assign(targets=targets, value=reason):
                yield from assigned_reasons(targets, reason)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "reason":
                        yield value
            case ast.Compare(left=ast.Attribute(attr="reason"), comparators=values):
                yield from values
        if isinstance(node, ast.Call):
            yield from (word.value for word in node.keywords if word.arg == "reason")


def assigned_reasons(targets: list[ast.expr], value: ast.expr) -> Iterator[ast.expr]:
    """Yield the value of each variable `reason` and key `reason` among the targets."""
    for target in targets:
        match target:
            case ast.Name(id="reason") | ast.Subscript(slice=ast.Constant(value="reason")):
                yield value
            case ast.Tuple(elts=names) if isinstance(value, ast.Tuple):
                for name, part in zip(names, value.elts, strict=False):
                    yield from assigned_reasons([name], part)


def is_literal(value: ast.expr) -> bool:
    """Return whether an expression is, or may evaluate to, a reason written in place.

    A reason is one word. Text with spaces is a message.
    """
    match value:
        case ast.Constant(value=str(text)):
            return re.fullmatch(r"[A-Za-z]+", text) is not None
        case ast.JoinedStr(values=parts):
            return not any(" " in ast.unparse(part) for part in parts)
        case ast.IfExp(body=first, orelse=second):
            return is_literal(first) or is_literal(second)
        case ast.BoolOp(values=values):
            return any(is_literal(part) for part in values)
    return False


def test_condition_reasons_are_members_of_an_enum() -> None:
    count, literals = 0, []
    for package in ("compiler/frontends", "controller"):
        for path, tree in modules(package):
            if path.name == "findings.py":  # defines the enums
                continue
            reasons = list(reason_values(tree))
            count += len(reasons)
            literals += [f"{path.name}:{r.lineno}" for r in reasons if is_literal(r)]
    assert count > 15, "the walk finds reasons"
    assert literals == []


@pytest.mark.parametrize(
    "source",
    [
        'condition("Accepted", True, "Fine", "message")',
        'Input(reason="Invalid")',
        'Input(reason="Invalid" if broken else Reason.PENDING)',
        'Input(reason=given or "Invalid")',
        'condition = {"type": kind, "reason": "Invalid"}',
        'condition["reason"] = f"{kind}Invalid"',
        'reason, message = "Invalid", "no host"',
        'reason: str = "Pending"',
        'rejected = plane.reason == "Invalid"',
    ],
)
def test_literal_reason_of_a_condition_is_found(source: str) -> None:
    assert any(is_literal(value) for value in reason_values(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "Input(reason=Reason.PENDING)",
        'log.warning("reload failed", reason=str(error))',
        'reason = f"rejected by {proxy}: {message}"',
        'condition("Accepted", True, Reason.ACCEPTED.reason, "message")',
        'service("web", 80, "TCP")',
    ],
)
def test_other_reason_is_no_literal(source: str) -> None:
    assert not any(is_literal(value) for value in reason_values(ast.parse(source)))


@functools.cache
def constants() -> tuple[tuple[str, str], ...]:
    """Return the place and value of every string constant."""
    return tuple(
        (f"{path.name}:{node.lineno}", node.value)
        for path, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_name_with_a_domain_of_gatehouse_is_documented() -> None:
    text, names = page("annotations.md"), set()
    for place, value in constants():
        # "gatehouse.dev/v1alpha1" is a version of an API, "gatehouse.dev/" a prefix.
        if re.fullmatch(r"(gatehouse\.dev|proxy\.kubegateway\.io)/(?!v\d)\S+", value):
            names.add(value)
            assert f"| `{value}" in text, place
    assert len(names) > 10, "the walk finds names"


VARIABLE = re.compile(
    r"(GATEHOUSE|NGINX_AGENT|KUBERNETES|POD|XDG)(_[A-Z]+)+|KUBECONFIG|[A-Z]+_PROXY"
)


def test_environment_variable_is_documented() -> None:
    text, names = page("environment.md"), set()
    for place, value in constants():
        if VARIABLE.fullmatch(value):
            names.add(value)
            assert f"| `{value}` |" in text, place
    assert len(names) > 10, "the walk finds variables"


def read_variables() -> Iterator[tuple[str, str]]:
    """Yield the place and name of every variable that code reads from `environ`."""
    for path, tree in modules(word="environ"):
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
    reads = [(place, name) for place, name in read_variables() if not name.startswith("GRPC_")]
    assert len(reads) > 5, "the walk finds reads"
    for place, name in reads:
        assert f"| `{name}` |" in page("environment.md"), place


def test_option_is_documented() -> None:
    text, count = page("cli.md"), 0
    for context in reference.commands(command, "gatehouse"):
        section = text.partition(f"\n## {context.command_path}\n")[2].partition("\n## ")[0]
        for option in context.command.params:
            if isinstance(option, click.Option) and not option.hidden:
                count += 1
                assert option.opts[-1] in section, context.command_path
                assert option.help, option.opts
                assert re.match(r"[A-Z].*\.", option.help), option.opts
    assert count > 100, "the walk finds options"


def test_agent_option_has_a_help_text() -> None:
    assert HELP.keys() == KEYS.keys()
    for key, text in HELP.items():
        assert re.match(r"[A-Z].*\.$", text), key


def test_helm_value_has_a_description() -> None:
    for value in reference.values(reference.VALUES.read_text(encoding="utf-8")):
        assert f"| `{value.name}` |" in page("helm-values.md")
        assert re.match(r"[A-Z].*\.$", value.comment), value.name


CRDS = sorted((SOURCE / "apiserver_extension" / "bundled").iterdir())
UNDESCRIBED = (".metadata", ".numerator", ".denominator")
"""Ends of the paths of fields without a description: Kubernetes forbids it, Gateway API has none.
"""


def described_fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and description of every field."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field.get("description", "")
        yield from described_fields(field, f"{path}.{name}")
        yield from described_fields(field.get("items", {}), f"{path}.{name}[]")


@pytest.mark.parametrize("file", CRDS, ids=lambda path: path.stem)
def test_field_of_a_bundled_kind_has_a_description(file: Path) -> None:
    crd = json.loads(file.read_text(encoding="utf-8"))
    own = "gateway.networking" not in crd["spec"]["group"]
    for version in crd["spec"]["versions"]:
        fields = list(described_fields(version["schema"]["openAPIV3Schema"], ""))
        assert len(fields) > 5, "the walk finds fields"
        for path, text in fields:
            if path.endswith(UNDESCRIBED):
                continue
            assert text, path
            if own:
                assert re.match(r"[A-Z*].*\.$|on or off\.", text), path
                assert text.count("Default:") <= 1, path
