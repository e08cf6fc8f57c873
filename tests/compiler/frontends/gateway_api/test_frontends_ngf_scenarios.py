"""Statuses that the functional tests of NGINX Gateway Fabric expect, for the same objects.

Its tests (`tests/suite`) apply manifests and wait for conditions. Each scenario has the manifests
of one of these tests. All policies are Accepted, with the exceptions that the test expects.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes import peers
from fakes.admission import NOW
from fakes.ngf_objects import admitted, conditions_in, engine_of
from fakes.peer_differences import (
    NGF_HEADER_NAMES,
    NGF_MISSING_SERVICES,
    NGF_SHARED_HOSTNAMES,
)
from gatehouse.compiler.frontends import combined, gateway_api

MANIFESTS = "tests/suite/manifests/"
CONFLICTED, MISSING = "Conflicted", "TargetNotFound"
NO_STATUS = ""
"""The policy has no ancestor in its status."""


class Scenario(msgspec.Struct, frozen=True):
    """A test of the suite."""

    directory: str
    base: tuple[str, ...]
    """Files of all tests of the directory, without suffix."""
    files: tuple[str, ...]
    exceptions: dict[str, str] = {}
    """Reasons of policies that are not accepted, by name."""


def client(*files: str, **exceptions: str) -> Scenario:
    base = ("cafe", "gateway", "cafe-routes", "grpc-route", "grpc-backend")
    return Scenario("clientsettings", base, files, exceptions)


def proxy(*files: str, **exceptions: str) -> Scenario:
    base = ("app", "gateway", "routes", "grpc-backend")
    return Scenario("proxy-settings-policy", base, files, exceptions)


def limits(*files: str) -> Scenario:
    return Scenario("rate-limit-policy", ("apps", "gateway", "routes"), files)


def upstream(*files: str, **exceptions: str) -> Scenario:
    base = ("cafe", "gateway", "grpc-backend", "routes")
    return Scenario("upstream-settings-policy", base, files, exceptions)


def snippets(*files: str) -> Scenario:
    return Scenario("snippets-policy", ("cafe", "gateway"), files)


def named(reason: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, reason)


SCENARIOS = {
    "client-settings": client("valid-csps"),
    "client-settings-of-missing-targets": client(
        "invalid-route-csp", **named(MISSING, "invalid-route-csp")
    ),
    "client-settings-that-merge": client(
        "merging-csps",
        **named(CONFLICTED, *(f"z-hr-conflict-{number}" for number in (1, 2, 3))),
        **named(CONFLICTED, "z-grpc-conflict", "z-grpc-conflict-2"),
    ),
    "client-settings-beside-overlapping-routes": client(
        "target-conflict-overlapping-routes", "target-conflict-csp"
    ),
    "proxy-settings": proxy("gateway-proxy-settings", "coffee-http-proxy-settings"),
    "proxy-settings-of-grpc": proxy("gateway-and-coffee-enabled-grpc-proxy-settings"),
    "proxy-settings-of-two-targets": proxy("two-targetrefs-http-proxy-settings"),
    "proxy-settings-that-conflict": proxy(
        "conflicting-http-proxy-settings",
        **named(CONFLICTED, "http-proxy-settings-2", "http-proxy-settings-3"),
    ),
    "proxy-settings-with-timeouts": proxy("gateway-timeout-proxy-settings"),
    "rate-limits": limits("gateway-rate-limit-policy", "route-rate-limit-policies"),
    "rate-limits-of-several-targets": limits("rlp-multiple-targetRefs"),
    "rate-limits-with-several-rules": limits("rlp-multiple-rules"),
    "rate-limits-of-a-listener-set": limits("listenerset", "listenerset-route", "listenerset-rlp"),
    "snippets": snippets("valid-sp"),
    "snippets-of-two-policies": snippets("valid-sp", "second-sp"),
    "upstream-settings": upstream("valid-usps"),
    "upstream-settings-that-merge": upstream(
        "valid-merge-usps", **named(CONFLICTED, "z-merge-usp-3", "z-usp")
    ),
    "upstream-settings-of-missing-services": upstream(
        "invalid-svc-usps", **named(NO_STATUS, "usps-target-not-found")
    ),
}


DIFFERENCES = (
    (NGF_HEADER_NAMES, "Accepted"),
    (NGF_SHARED_HOSTNAMES, NO_STATUS),
    (NGF_MISSING_SERVICES, MISSING),
)
"""Accepted differences, each with the reason that Gatehouse gives."""


def objects(scenario: Scenario) -> list[dict[str, Any]]:
    names = (*scenario.base, *scenario.files)
    paths = (f"{MANIFESTS}{scenario.directory}/{name}.yaml" for name in names)
    return admitted(peers.source_file("ngf-v2.6.7", path).decode() for path in paths)


def accepted(raws: list[dict[str, Any]]) -> dict[str, str]:
    """Return the reason of the condition Accepted of each policy, by name."""
    engine = engine_of(raws, gateway_api.NGINX)
    result = {raw["metadata"]["name"]: "" for raw in raws if raw["kind"].endswith("Policy")}
    with engine.compile() as ask:
        for key in ask(combined.status_subjects):
            if not key[0].endswith("Policy"):
                continue
            status = ask(combined.desired_status, key)
            if status is None:
                continue
            merged = combined.merge_combined_status(key[0], None, status, NOW)
            of_type = [one for one in conditions_in(merged) if one["type"] == "Accepted"]
            for one in of_type:
                assert (one["status"] == "True") == (one["reason"] == "Accepted"), one
            result[key[2]] = ", ".join(sorted({one["reason"] for one in of_type}))
    return result


@pytest.mark.peers
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_policies_have_the_reasons_that_tests_of_ngf_expect(scenario: Scenario) -> None:
    raws = objects(scenario)
    reasons = accepted(raws)
    assert reasons
    expected = dict.fromkeys(reasons, "Accepted") | scenario.exceptions
    for difference, reason in DIFFERENCES:
        for name in {*difference.values} & {*reasons}:
            assert expected[name] != reason
            expected[name] = reason
    assert reasons == expected
