"""Options, metrics, variables and Helm values that documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import metric_families
import pytest
import reference
from reference_texts import VARIABLES

from gatehouse.agent.options import KEYS
from gatehouse.agent.sidecars import ENVOY_SIDECARS, NGINX_SIDECARS
from gatehouse.cli.main import command

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    document
    for document in sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    )
    # The changelog also names what was removed.
    if document.name != "CHANGELOG.md"
]

OPTIONS = {
    spelling
    for context in reference.commands(command, "gatehouse")
    for option in context.command.params
    if isinstance(option, click.Option)
    for spelling in (*option.opts, *option.secondary_opts)
} | {"--help", "--version"}
# Helm commands name a release and a chart that are called like the program.
COMMAND = re.compile(r"(?<!install )(?<!charts/)\bgatehouse [a-z-][^`\n|;&]*")
FAMILIES = [family for families in metric_families.by_process().values() for family in families]
SERIES = {family.series for family in FAMILIES} | {
    f"{family.name}_{ending}"
    for family in FAMILIES
    if family.kind == "histogram"
    for ending in ("bucket", "sum", "count")
}
VALUES = {
    name
    for value in reference.values(reference.VALUES.read_text(encoding="utf-8"))
    for parts in [value.name.split(".")]
    for name in (".".join(parts[: end + 1]) for end in range(len(parts)))
}
# Keys of lists and objects that are empty by default.
VALUES |= {f"dataPlanes.networkPolicy.{name}" for name in ("metricsFrom", "egressTo")}
# `service.type` and `networkPolicy.enable` are also fields of GatewayParameters.
FIELDS = {"service", "networkPolicy"}
ROOTS = "|".join(sorted({name.split(".")[0] for name in VALUES if "." in name} - FIELDS))

parametrize = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def joined(document: Path) -> str:
    """Return the text with continued lines of commands in one line."""
    return document.read_text(encoding="utf-8").replace("\\\n", " ")


@parametrize
def test_options_of_gatehouse_in_document_exist(document: Path) -> None:
    for quoted_command in COMMAND.findall(joined(document)):
        for option in re.findall(r"(?<=\s)--?[a-z][\w-]*", quoted_command):
            assert option in OPTIONS, quoted_command


@parametrize
def test_metrics_in_document_exist(document: Path) -> None:
    for name in re.findall(r"\bgatehouse_[a-z_]+\b(?!_?…|\.py)", document.read_text("utf-8")):
        assert name in SERIES, name


@parametrize
def test_variables_in_document_exist(document: Path) -> None:
    known = {*KEYS.values(), *VARIABLES, "GATEHOUSE_REDIS", "GATEHOUSE_LOG_LEVEL"}
    of_tests = {"GATEHOUSE_KUBERNETES", "GATEHOUSE_PEERS", "GATEHOUSE_TEST_NGINX"}
    for name in re.findall(r"\b(?:GATEHOUSE|NGINX_AGENT)_[A-Z_]*[A-Z]\b", joined(document)):
        # NGINX Agent v2 has variables of its own.
        if document.name != "agent-v2.md":
            assert name in known | of_tests, name


@parametrize
def test_helm_values_in_document_exist(document: Path) -> None:
    text = joined(document)
    set_ = [
        part.partition("=")[0]
        for words in re.findall(r"--set(?:-\w+)? ['\"]?([^\s'\"`]+)", text)
        for part in words.split(",")
    ]
    named = re.findall(rf"`((?:{ROOTS})\.[\w.]+)`", text)
    for name in (*set_, *named):
        plain = re.sub(r"\[\d+\].*", "", name)
        assert plain in VALUES, name


def test_table_of_sidecars_has_each_of_them_and_its_proxies() -> None:
    text = (ROOT / "docs/concepts/sidecars.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| (NGINX|Envoy|NGINX, Envoy) \|", text, re.M)
    listed = {name.lower().replace(" ", "_"): set(proxies.split(", ")) for name, proxies in rows}
    beside = {"NGINX": NGINX_SIDECARS, "Envoy": ENVOY_SIDECARS}
    configs = (ROOT / "src/gatehouse/sidecars").glob("*/config.py")
    assert listed == {
        package: {
            proxy
            for proxy, specs in beside.items()
            if any(spec.package == package for spec in specs)
        }
        for package in (path.parent.name for path in configs)
    }
