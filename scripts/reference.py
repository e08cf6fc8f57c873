"""Write the reference pages that follow from the code: options, values, conditions, names.

Run by `make reference`. A test compares the pages with what this script would write.
"""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import api_server_differences
import click
import compatibility
import known_behaviours
import metric_families
import msgspec
import reference_texts as texts
import served_fields

from gatehouse.agent.option_help import HELP
from gatehouse.agent.options import KEYS
from gatehouse.apis.event_reasons import EventReason
from gatehouse.apis.resource_limits import RESOURCE_LIMITS
from gatehouse.cli.main import command as gatehouse
from gatehouse.compiler.frontends.external_load_balancer import findings as external_load_balancer
from gatehouse.compiler.frontends.gateway_api import findings as gateway_api
from gatehouse.compiler.frontends.upstream_cluster import auth_cache_ttls
from gatehouse.compiler.frontends.upstream_cluster import findings as upstream_cluster
from gatehouse.compiler.ir.kube_apiserver import AuthCacheTTLs

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "src" / "gatehouse", *sorted(ROOT.glob("packages/*/src")))
VALUES = ROOT / "charts" / "gatehouse" / "values.yaml"
PAGES = ROOT / "docs" / "reference"

WIDTH = 100
"""Columns of the help texts."""

NOTE = "<!-- Written by `make reference`. Do not edit. -->"

DOMAINS = ("gatehouse.dev/", "proxy.kubegateway.io/", "nginxinc.io/")
"""Prefixes of the names that Gatehouse reads or writes."""

CONDITION_REASONS: tuple[tuple[str, str, type[enum.Enum]], ...] = (
    (
        "Gateway API, its policies, and HostedAPIServer",
        "Objects of `gateway.networking.k8s.io` and `gateway.nginx.org`, and HostedAPIServers.",
        gateway_api.Reason,
    ),
    (
        "UpstreamCluster",
        "Objects of `proxy.kubegateway.io`.",
        upstream_cluster.ClusterReason,
    ),
    (
        "ExternalLoadBalancer",
        "Objects of `gatehouse.dev`.",
        external_load_balancer.ConditionReason,
    ),
)
"""Enums of (condition type, status, reason), each with a title and its objects."""

_KINDS = {"Annotations": "Annotation of", "Labels": "Label of"}
"""Sections of the page of names, with the first words of the docstrings that belong there."""

_OTHER = "Other names"


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[click.Context]:
    """Yield the contexts of a command and its subcommands."""
    settings = {"max_content_width": WIDTH, "terminal_width": WIDTH, **command.context_settings}
    context = click.Context(command, parent, name, **settings)
    yield context
    if isinstance(command, click.Group):
        for inner_name in command.list_commands(context):
            inner = command.get_command(context, inner_name)
            if inner is not None and not inner.hidden:
                yield from commands(inner, inner_name, context)


def command_line() -> str:
    """Return the page of all commands with their help."""
    lines = ["# Command line", "", NOTE, "", texts.COMMAND_LINE, ""]
    for context in commands(gatehouse, "gatehouse"):
        text = context.get_help().rstrip()
        lines += [f"## {context.command_path}", "", "```text", text, "```", ""]
    return "\n".join(lines)


class Value(msgspec.Struct, frozen=True):
    """A value of the chart."""

    name: str
    default: str
    comment: str


_LINE = re.compile(
    r"(?P<indent> *)(?P<name>[\w-]+):(?: +(?P<value>[^#]*?))?(?: +# *(?P<comment>.*))?"
)


def values(text: str) -> Iterator[Value]:
    """Yield the values of a values file with the comments that stand before or behind them."""
    path: list[tuple[int, str]] = []
    above: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.removeprefix("#").strip())
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            above = []
            continue
        indent = len(match["indent"])
        path = [entry for entry in path if entry[0] < indent] + [(indent, match["name"])]
        comment = " ".join([*above, *([match["comment"]] if match["comment"] else [])])
        above = []
        name, value = ".".join(name for _, name in path), match["value"] or ""
        if value or comment:
            yield Value(name, value, comment)


def helm_values() -> str:
    """Return the page of the chart's values."""
    rows = [
        f"| `{value.name}` | {_code(value.default)} | {_cell(value.comment)} |"
        for value in values(VALUES.read_text(encoding="utf-8"))
    ]
    head = ["# Helm values", "", NOTE, "", "Values of the chart `charts/gatehouse`.", ""]
    return "\n".join([*head, "| value | default | meaning |", "| --- | --- | --- |", *rows, ""])


def conditions() -> str:
    """Return the page of condition types, condition reasons and Event reasons."""
    lines = ["# Conditions and Events", "", NOTE, "", texts.CONDITIONS, ""]
    for title, kinds, reasons in CONDITION_REASONS:
        lines += [f"## {title}", "", kinds, "", "| type | status | reason | meaning |"]
        lines += ["| --- | --- | --- | --- |"]
        meaning = meanings(reasons)
        rows = sorted((*_triple(reason), meaning[reason.name]) for reason in reasons)
        lines += [
            f"| `{kind}` | {holds} | `{name}` | {_cell(m)} |" for kind, holds, name, m in rows
        ]
        lines.append("")
    lines += ["Findings set the reason of `Accepted`, which is `True` while a host is usable:", ""]
    lines += _reason_table(external_load_balancer.LoadBalancerReason)
    lines += ["", "## Events", "", texts.EVENTS, "", *_reason_table(EventReason)]
    return "\n".join([*lines, ""])


def meanings(reasons: type[enum.Enum]) -> dict[str, str]:
    """Return the docstring of each member of an enum, in one line, by the member's name.

    Raises KeyError if a member has none.
    """
    tree = ast.parse(Path(inspect.getfile(reasons)).read_text(encoding="utf-8"))
    body = next(
        node.body
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == reasons.__name__
    )
    texts_by_name = {
        target.id: " ".join(text.split())
        for node, after in itertools.pairwise(body)
        if isinstance(node, ast.Assign) and isinstance(after, ast.Expr)
        for target in node.targets
        if isinstance(target, ast.Name) and (text := _string(after.value))
    }
    return {reason.name: texts_by_name[reason.name] for reason in reasons}


def _triple(reason: enum.Enum) -> tuple[str, str, str]:
    kind, holds, name = reason.value
    return kind, str(holds), name


def _reason_table(reasons: type[enum.Enum]) -> list[str]:
    meaning = meanings(reasons)
    rows = sorted((reason.value, meaning[reason.name]) for reason in reasons)
    table = [f"| `{name}` | {_cell(text)} |" for name, text in rows]
    return ["| reason | meaning |", "| --- | --- |", *table]


def metrics() -> str:
    """Return the page of the metrics of all processes."""
    lines = ["# Metrics", "", NOTE, "", texts.METRICS, ""]
    for title, families in metric_families.by_process().items():
        lines += [f"## {title}", "", texts.PROCESSES[title], ""]
        lines += ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
        for metric_family in sorted(families, key=lambda family: family.series):
            labels = ", ".join(f"`{label}`" for label in metric_family.labels)
            cells = (f"`{metric_family.series}`", metric_family.kind, labels)
            lines.append(f"| {' | '.join(cells)} | {_cell(metric_family.help)} |")
        lines.append("")
    return "\n".join(lines)


def annotation_keys() -> str:
    """Return the page of annotations, labels and other names with a domain of Gatehouse."""
    constants = dict(sorted(_constants(), key=lambda entry: len(entry[1])))
    groups: dict[str, dict[str, str]] = {title: {} for title in (*_KINDS, _OTHER)}
    for key, text in sorted(constants.items()):
        title = next((kind for kind, start in _KINDS.items() if text.startswith(start)), _OTHER)
        groups[title][key] = text
    lines = ["# Annotations and labels", "", NOTE, "", texts.NAMES, ""]
    for title, keys in groups.items():
        object_of = _KINDS.get(title, "")
        lines += [f"## {title}", "", "| name | object | meaning |", "| --- | --- | --- |"]
        for key, text in keys.items():
            where, _, meaning = text.removeprefix(object_of).partition(": ")
            whole = f"{key}PORT" if key.endswith((".", "/")) else key
            lines.append(f"| `{whole}` | {where.strip()} | {_sentence(meaning)} |")
        lines.append("")
    return "\n".join(lines)


def _constants() -> Iterator[tuple[str, str]]:
    """Yield keys of metadata and names with a domain of Gatehouse, each with its docstring."""
    for path in (path for source in SOURCES for path in sorted(source.rglob("*.py"))):
        if "wire" in path.parts:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in itertools.pairwise(body):
            key = _string(node.value) if isinstance(node, ast.Assign) else ""
            text = _string(after.value) if isinstance(after, ast.Expr) else ""
            described = text.startswith(tuple(_KINDS.values()))
            if key and text and key not in DOMAINS[:2] and (key.startswith(DOMAINS) or described):
                yield key, " ".join(text.split())
    ttls = AuthCacheTTLs()
    for name, field in auth_cache_ttls.FIELDS.items():
        text = f"Annotation of an UpstreamCluster: {texts.TTLS[field]}, up to 1h."
        yield (
            auth_cache_ttls.ANNOTATION_PREFIX + name,
            f"{text} Default: {getattr(ttls, field):g}s.",
        )


def environment() -> str:
    """Return the page of environment variables."""
    rows = {name: (program, text) for name, (program, text) in texts.VARIABLES.items()}
    for context in commands(gatehouse, "gatehouse"):
        for option in context.command.params:
            if isinstance(option, click.Option) and isinstance(option.envvar, str):
                command = context.command_path.removeprefix("gatehouse").strip()
                text = f"`{option.opts[0]}`: {option.help}"
                rows[option.envvar] = (command or "all", text)
    lines = ["# Environment variables", "", NOTE, "", texts.ENVIRONMENT, ""]
    lines += ["| variable | programs | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {rows[name][0]} | {_cell(rows[name][1])} |" for name in sorted(rows)]
    lines += ["", "## Agent", "", texts.AGENT_ENVIRONMENT, ""]
    lines += ["| variable | key | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | `{key}` | {_cell(HELP[key])} |" for key, name in KEYS.items()]
    return "\n".join([*lines, ""])


def resource_limits() -> str:
    """Return the page of the ceilings of what objects may claim."""
    lines = ["# Resource limits", "", NOTE, "", texts.RESOURCE_LIMITS, ""]
    lines += ["| name | unit | default | claims | memory of one unit |"]
    lines += ["| --- | --- | ---: | --- | ---: |"]
    for name, limit in RESOURCE_LIMITS.items():
        memory = "" if limit.bytes_per_unit is None else f"{limit.bytes_per_unit:,} B"
        row = (f"`{name}`", limit.unit, f"{limit.default:,}", _cell(limit.subject), memory)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, "", texts.RESOURCE_LIMIT_RULES, ""])


def _string(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _sentence(text: str) -> str:
    return _cell(text[:1].upper() + text[1:]).replace("``", "`")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {
        "cli.md": command_line(),
        "helm-values.md": helm_values(),
        "conditions.md": conditions(),
        "annotations.md": annotation_keys(),
        "metrics.md": metrics(),
        "environment.md": environment(),
        "resource-limits.md": resource_limits(),
        "compatibility.md": compatibility.page(NOTE),
        "fields.md": served_fields.page(NOTE),
        "api-server-differences.md": api_server_differences.page(NOTE),
        "known-behaviours.md": known_behaviours.page(NOTE),
    }


def main(directory: Path) -> None:
    """Write the pages."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES)
