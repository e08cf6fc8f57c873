"""Write the reference pages that follow from the code: command line, Helm values, conditions.

Run by `make reference`. A test compares the pages with what this script would write.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from gatehouse.cli.main import command as gatehouse
from gatehouse.compiler.frontends.external_load_balancer import findings as external_load_balancer
from gatehouse.compiler.frontends.gateway_api import findings as gateway_api
from gatehouse.compiler.frontends.upstream_cluster import auth_cache_ttls
from gatehouse.compiler.frontends.upstream_cluster import findings as upstream_cluster

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gatehouse"
VALUES = ROOT / "charts" / "gatehouse" / "values.yaml"
PAGES = ROOT / "docs" / "reference"

WIDTH = 100
"""Columns of the help texts."""

NOTE = "<!-- Written by `make reference`. Do not edit. -->"

DOMAINS = ("gatehouse.dev/", "proxy.kubegateway.io/")
"""Prefixes of the annotations and labels that Gatehouse reads or writes."""

_KEY = re.compile(r"\b(annotation|label)\b", re.IGNORECASE)
"""Word for a key of an annotation or label in the docstring of its constant."""


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
    lines = ["# Command line", "", NOTE, "", "Every command with its `--help`.", ""]
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
    """Return the page of condition types and reasons."""
    lines = ["# Conditions and reasons", "", NOTE, ""]
    for title, reasons in (
        ("Gateway API and its policies", gateway_api.Reason),
        ("UpstreamCluster", upstream_cluster.Reason),
    ):
        lines += [f"## {title}", "", "| type | status | reason |", "| --- | --- | --- |"]
        rows = {(kind, str(holds), reason) for kind, holds, reason in (r.value for r in reasons)}
        lines += [f"| `{kind}` | {holds} | `{reason}` |" for kind, holds, reason in sorted(rows)]
        lines.append("")
    lines += ["## ExternalLoadBalancer", "", "Reasons of `Accepted=False` and of Events.", ""]
    lines += [f"- `{reason.value}`" for reason in external_load_balancer.Reason]
    return "\n".join([*lines, ""])


def annotation_keys() -> str:
    """Return the page of annotations and labels."""
    rows = sorted(dict(sorted(_constants(), reverse=True)).items())
    head = ["# Annotations and labels", "", NOTE, ""]
    table = ["| key | meaning |", "| --- | --- |"]
    return "\n".join([*head, *table, *(f"| `{key}` | {_cell(text)} |" for key, text in rows), ""])


def _constants() -> Iterator[tuple[str, str]]:
    """Yield documented constants of annotation keys with their docstrings."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "wire" in path.parts:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, after in itertools.pairwise(body):
            key = _string(node.value) if isinstance(node, ast.Assign) else ""
            text = _string(after.value) if isinstance(after, ast.Expr) else ""
            if key.startswith(DOMAINS) and _KEY.search(text):
                yield key, " ".join(text.split())
    for name in auth_cache_ttls.FIELDS:
        yield auth_cache_ttls.PREFIX + name, "Annotation of an UpstreamCluster: a duration."


def _string(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


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
    }


def main(directory: Path) -> None:
    """Write the pages."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES)
