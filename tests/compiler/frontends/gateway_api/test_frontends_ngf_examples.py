"""Examples of NGINX Gateway Fabric, applied unchanged: each object is accepted and served.

Each directory is admitted as the API server admits it, and compiled for NGINX and for Envoy. The
controller has the options that the examples need: ``--snippets`` and ``--allow-external-name '*'``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import nginx_check, peers
from fakes.ngf_objects import admitted, bad_conditions, engine_of, problems_of
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.controller.outputs import by_subject
from gatehouse.incremental.query import Engine

NO_OBJECTS = {"helm"}
"""Directories that only have values of a Helm chart."""

EXAMPLES = (
    "advanced-routing", "basic-authentication", "cafe-example", "client-settings-policy",
    "cors-filter", "cross-namespace-routing", "externalname-service", "grpc-routing",
    "http-request-header-filter", "http-response-header-filter", "https-termination",
    "proxy-settings-policy", "rate-limit-policy", "secure-backend", "snippets", "tcp-routing",
    "traffic-splitting", "udp-routing", "upstream-settings-policy", "waf-policy",
)  # fmt: skip

PLACEHOLDERS = {
    ("waf-policy", "n1c-creds.yaml"): "data.token",
}
"""Files whose values users must replace, and the field that no API server admits before."""

BUFFERS = "Envoy has no buffers for a route"
SNIPPETS = "snippets are in NGINX's syntax"
OF_OTHER_EXAMPLE = "the target is in the example grpc-routing, not in this one"
_CLIENT = {"ClientSettingsPolicy grpc-client-settings: Accepted=TargetNotFound": OF_OTHER_EXAMPLE}
_WAF = dict.fromkeys(
    (
        "Gateway gateway: Accepted=Accepted",
        "WAFPolicy customers-strict-protection: Accepted=UnsupportedKind",
        "WAFPolicy gateway-base-protection: Accepted=UnsupportedKind",
        "WAFPolicy route-protection-http: Accepted=UnsupportedKind",
    ),
    "needs F5 WAF for NGINX",
)
EXCEPTIONS: dict[tuple[str, str], dict[str, str]] = {
    ("client-settings-policy", "nginx"): _CLIENT,
    ("client-settings-policy", "envoy"): _CLIENT,
    ("proxy-settings-policy", "envoy"): {
        "HTTPRoute coffee: Accepted=Accepted": BUFFERS,
        "HTTPRoute tea: Accepted=Accepted": BUFFERS,
    },
    ("rate-limit-policy", "envoy"): {
        "GRPCRoute grpc-route: Accepted=Accepted": "Envoy does not delay a burst",
        "HTTPRoute coffee: Accepted=Accepted": "Envoy does not delay a burst",
    },
    ("snippets", "envoy"): {
        "HTTPRoute coffee: Accepted=UnsupportedValue": SNIPPETS,
        "HTTPRoute tea: Accepted=UnsupportedValue": SNIPPETS,
        "SnippetsPolicy limit-conn-sp: Accepted=Invalid": SNIPPETS,
    },
    ("upstream-settings-policy", "envoy"): {
        "HTTPRoute coffee: Accepted=Accepted": "Envoy keeps connections until their idle timeout",
    },
    ("waf-policy", "nginx"): _WAF,
    ("waf-policy", "envoy"): _WAF,
}
"""Conditions that do not hold, by example and proxy: object and condition, and why that is so."""


def sources() -> dict[str, dict[str, str]]:
    """Return the files of each example by name."""
    files: dict[str, dict[str, str]] = {}
    for path, content in peers.source_files("ngf-v2.6.7", "examples/").items():
        top, _, below = path.partition("/")
        example, _, name = below.partition("/")
        if top == "examples" and name:
            files.setdefault(example, {})[name] = content.decode()
    return files


def objects(example: str) -> list[dict[str, Any]]:
    """Return the objects of an example in the order of ``kubectl apply -f``, admitted."""
    files = sorted(sources()[example].items())
    return admitted(
        text
        for name, text in files
        if name.endswith(".yaml") and (example, name) not in PLACEHOLDERS
    )


def generate(engine: Engine, controller: str, directory: Path) -> int:
    """Let the back end report what it does not support. Return the number of served Gateways.

    A real NGINX reads the files.
    """
    with engine.compile() as ask:
        gateways = {
            key: ask(combined.compile_combined_gateway, key) for key in ask(gateway_api.gateways)
        }
    for key, gateway in gateways.items():
        assert gateway is not None, key
        if controller == gateway_api.NGINX:
            modules = ("http_auth_request_module", "nginx-auth-jwt-0.14.2")
            able = nginx.NginxCapabilities.parse(
                "1.31.3", modules, named_endpoints=True, connectors=True, authenticators=True
            )
            own = directory / key[2]
            own.mkdir()
            generated = nginx.NginxGenerator(able).generate(gateway)
            unsupported = generated.unsupported
            result = nginx_check.check(generated.file_set, own)
            assert result.accepted, result.output
        else:
            features = envoy.EnvoyCapabilities("/system.pem", authenticators=True)
            unsupported = envoy.EnvoyGenerator(features).generate(gateway).unsupported
        engine.commit(by_subject(key, unsupported))
    return len(gateways)


@pytest.mark.peers
@pytest.mark.parametrize("place", PLACEHOLDERS)
def test_file_with_placeholders_is_admitted_nowhere(place: tuple[str, str]) -> None:
    problems = problems_of(yaml.load(sources()[place[0]][place[1]], yaml.CSafeLoader))
    assert any(PLACEHOLDERS[place] in problem for problem in problems), problems


CONTROLLERS = {"nginx": gateway_api.NGINX, "envoy": gateway_api.ENVOY}


SERVED_IN_FULL = {"nginx": 18, "envoy": 14}
"""Number of the 20 examples without an exception."""


@pytest.mark.parametrize("proxy", CONTROLLERS)
def test_number_of_examples_served_in_full(proxy: str) -> None:
    served = [example for example in EXAMPLES if (example, proxy) not in EXCEPTIONS]
    assert len(served) == SERVED_IN_FULL[proxy]


@pytest.mark.peers
def test_every_example_is_listed() -> None:
    assert {*sources()} - NO_OBJECTS == {*EXAMPLES}
    assert {example for example, _ in EXCEPTIONS} <= {*EXAMPLES}


@pytest.mark.peers
@pytest.mark.process
@pytest.mark.parametrize("proxy", CONTROLLERS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_served_unchanged(example: str, proxy: str, tmp_path: Path) -> None:
    engine = engine_of(objects(example), CONTROLLERS[proxy])
    gateways = generate(engine, CONTROLLERS[proxy], tmp_path)
    expected = {raw["metadata"]["name"] for raw in objects(example) if raw["kind"] == "Gateway"}
    assert gateways == len(expected)
    reported = bad_conditions(engine)
    exceptions = EXCEPTIONS.get((example, proxy), {})
    assert {*reported} == {*exceptions}, reported
