"""The tables of the documented access log, compared with what both back ends generate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import resource_fields
from fakes.envoy_serving import host, plain
from fakes.logged_gateways import ABLE
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir.access_log import (
    CONNECTION_FIELDS,
    NUMBER_FIELDS,
    REQUEST_FIELDS,
    LocalReason,
)
from gatehouse.dataplane.backend_failures import BACKEND_FAILURES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/tasks/access-logs.md").read_text(encoding="utf-8")
BACKENDS = ROOT / "src/gatehouse/compiler/backends"

ONLY_ENVOY = {LocalReason.REJECTED, LocalReason.BACKEND_CERTIFICATE, LocalReason.BACKEND_TLS}
"""Reasons that the page assigns to Envoy only."""


def documented(heading: str) -> tuple[str, ...]:
    """Return the names in the first column of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", section, re.MULTILINE)
    names = tuple(name for cell in cells for name in re.findall(r"`(\w+)`", cell))
    return names[names[0] == "reason" and heading == "Reasons" :]


def gateway() -> ir_gateway.GatewayConfiguration:
    """Return a gateway with a port for requests, and one for connections."""
    tcp = ir_gateway.L4Listener(9000, "TCP", (ir_gateway.L4Host(""),))
    return plain([host("a.example")], l4_listeners=(tcp,))


def nginx_lines() -> Iterator[tuple[str, ...]]:
    """Yield the names of the fields of requests and of connections."""
    files = nginx.NginxGenerator(ABLE).generate(gateway()).file_set.files
    for name in ("access_log.conf", "stream_access_log.conf"):
        text = files[f"gatehouse/{name}"].content.decode()
        definition = text[text.index("log_format gatehouse") :].split(";")[0]
        yield tuple(re.findall(r'"(\w+)":', definition))


def _formats(value: Any) -> Iterator[set[str]]:
    """Yield the names of the fields of all logs in a resource."""
    if isinstance(value, dict):
        if "json_format" in value:
            yield {*value["json_format"]}
        for inner in value.values():
            yield from _formats(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _formats(inner)


def envoy_lines() -> list[set[str]]:
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway())
    listeners = resource_fields.format_resources(generated.resources, whole=True)["Listener"]
    return list(_formats(listeners))


def test_documented_fields_are_those_of_both_back_ends() -> None:
    requests, connections = documented("Fields of requests"), documented("Fields of connections")
    assert requests == REQUEST_FIELDS
    assert connections == CONNECTION_FIELDS
    without_destination = tuple(name for name in connections if name != "destination")
    assert tuple(nginx_lines()) == (requests, without_destination)
    written = envoy_lines()
    assert {*requests} in written
    assert all(names in ({*requests}, {*without_destination}) for names in written)


def test_numbers_are_fields() -> None:
    assert {*NUMBER_FIELDS} <= {*REQUEST_FIELDS, *CONNECTION_FIELDS}


def test_documented_reasons_are_those_of_the_code() -> None:
    assert documented("Reasons") == tuple(map(str, LocalReason))


@pytest.mark.parametrize("proxy", ["nginx", "envoy"])
def test_each_reason_is_used_by_both_back_ends(proxy: str) -> None:
    code = "".join(
        path.read_text(encoding="utf-8") for path in sorted((BACKENDS / proxy).glob("*.py"))
    )
    used = {LocalReason[name] for name in re.findall(r"LocalReason\.([A-Z_]+)", code)}
    if proxy == "envoy":
        used |= {LocalReason(failure.reason) for failure in BACKEND_FAILURES}
    assert used == {*LocalReason} - (ONLY_ENVOY if proxy == "nginx" else set())
