"""Expressions that select devices are compiled, with Kubernetes' functions."""

from __future__ import annotations

import pytest

from kube_api_server.builtin.device_classes import check_device_class
from kube_api_server.builtin.device_selectors import compile_selector
from kube_api_server.builtin.resource_claims import check_claim
from kube_base.types.objects import Object

VALID = (
    'semver("1.0.0") == device.attributes["a"].v',
    'isSemver("1.0.0", true) && semver("1.2.3").minor() == 2',
    "sets.equivalent([1], [1]) || sets.intersects([1], [2])",
    'quantity("3").sub(quantity("1")).sign() == 1',
    'ip.isCanonical("192.0.2.1") && ip("192.0.2.1").isGlobalUnicast()',
    'cidr("192.0.2.0/24").containsCIDR("192.0.2.0/25")',
    'url("http://a.example?b=c").getQuery() == {"b": ["c"]}',
    "device.attributes.exists(domain, name, true)",
)


@pytest.mark.parametrize("expression", VALID)
def test_functions_of_kubernetes_are_known(expression: str) -> None:
    assert compile_selector(expression) == ""


@pytest.mark.parametrize(
    "expression",
    ["(" * 5000 + "1" + ")" * 5000, "[" * 5000, "device" + ".a" * 5000, "[1].all(x," * 900, "\0"],
)
def test_hostile_expression_does_not_compile(expression: str) -> None:
    assert compile_selector(expression).startswith("compilation failed: ")


def device_class(expression: str, **spec: object) -> Object:
    return {"spec": {"selectors": [{"cel": {"expression": expression}}], **spec}}


def test_invalid_selector_of_an_earlier_version_may_stay() -> None:
    old = device_class("device.foo")
    assert not list(check_device_class(device_class("device.foo", config=[]), old))
    (cause,) = check_device_class(device_class("device.bar"), old)
    assert cause.field == "spec.selectors[0].cel.expression"


def test_claim_with_an_invalid_selector_of_an_earlier_version_has_a_status() -> None:
    selectors = device_class("device.foo")["spec"]["selectors"]
    exactly = {"deviceClassName": "c", "allocationMode": "All", "selectors": selectors}
    claim = {"spec": {"devices": {"requests": [{"name": "a", "exactly": exactly}]}}}
    (cause,) = check_claim(claim, None)
    assert cause.field == "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert not list(check_claim({**claim, "status": {"devices": []}}, claim))
