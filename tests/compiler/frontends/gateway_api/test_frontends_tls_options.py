"""TLS options of listeners: valid values, findings, and listeners that are served beside them."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.field_effects import CASES
from fakes.specified_objects import GATEWAY
from gatehouse.apis import gateway
from gatehouse.apis.gateway import CONTROLLERS, ENVOY_CONTROLLER, NGINX_CONTROLLER
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.listeners.tls_options import (
    CIPHERS_KEY,
    PREFERENCE_KEY,
    PROTOCOLS_KEY,
    tls_options,
)
from gatehouse.compiler.frontends.gateway_api.status import policy_status
from gatehouse.compiler.ir.server_tls import ENVOY_SUITES

GCM = "ECDHE-RSA-AES128-GCM-SHA256"
NGF_EXAMPLE = f"{GCM}:ECDHE-RSA-AES256-GCM-SHA384:HIGH:!aNULL:!MD5"
CREATED = "2026-01-01T00:00:00Z"


def options_of(controller: str, *, mode: str = "Terminate", **options: str) -> Any:
    named = {f"nginx.org/ssl-{key.replace('_', '-')}": value for key, value in options.items()}
    tls = gateway.ListenerTls(mode=mode, options=named)
    return tls_options(gateway.ListenerSpec("l", 443, "HTTPS", tls=tls), controller)


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_options_of_ngf_are_served(controller: str) -> None:
    result = options_of(
        controller, protocols="TLSv1.3 TLSv1.2", ciphers=NGF_EXAMPLE, prefer_server_ciphers="on"
    )
    assert (result.problem, result.unsupported) == ("", ())
    assert result.tls.versions == ("TLSv1.2", "TLSv1.3")
    assert result.tls.ciphers == NGF_EXAMPLE
    assert result.tls.suites[:2] == (GCM, "ECDHE-RSA-AES256-GCM-SHA384")
    assert set(result.tls.suites) == set(ENVOY_SUITES)
    assert result.tls.prefer_server_ciphers == "on"


def test_order_of_suites_is_that_of_openssl() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ciphers = "ECDHE+CHACHA20:ECDHE+AESGCM:!ECDSA:+AES128"
    context.set_ciphers(ciphers)
    expected = [suite["name"] for suite in context.get_ciphers() if suite["name"] in ENVOY_SUITES]
    assert list(options_of(ENVOY_CONTROLLER, ciphers=ciphers).tls.suites) == expected
    assert expected[0] == "ECDHE-RSA-CHACHA20-POLY1305"
    assert expected[-1] == GCM


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocols": ""}, "no version is not supported"),
        ({"protocols": " "}, "no version is not supported"),
        ({"protocols": "TLSv1 TLSv1.1"}, "TLSv1, TLSv1.1 is not supported"),
        ({"protocols": "SSLv3"}, "SSLv3 is not supported"),
        ({"protocols": "tlsv1.3"}, "'tlsv1.3' is not supported"),
        ({"protocols": "TLSv1.3,TLSv1.2"}, "'TLSv1.3,TLSv1.2' is not supported"),
        ({"protocols": "TLSv1.3; return 200"}, "'TLSv1.3;' is not supported"),
        ({"ciphers": ""}, "must be a cipher string"),
        ({"ciphers": "HIGH:"}, "must be a cipher string"),
        ({"ciphers": "unknown!"}, "must be a cipher string"),
        ({"ciphers": "HIGH; return 200 x"}, "must be a cipher string"),
        ({"ciphers": "HIGH\n}"}, "must be a cipher string"),
        ({"ciphers": "$host"}, "must be a cipher string"),
        ({"ciphers": "[AES128|AES256]"}, "must be a cipher string"),
        ({"ciphers": "ALL:@SECLEVEL=0"}, "must be a cipher string"),
        ({"ciphers": "NO-SUCH-SUITE"}, "selects no cipher suite"),
        ({"ciphers": "aNULL"}, "selects no cipher suite"),
        ({"ciphers": "eNULL:NULL-SHA256"}, "selects no cipher suite"),
        ({"ciphers": "PSK"}, "selects no cipher suite"),
        ({"ciphers": "!HIGH"}, "selects no cipher suite"),
        ({"ciphers": "HIGH:" * 250 + "HIGH"}, "must have at most 1024 characters"),
        ({"prefer_server_ciphers": "yes"}, "'yes' is not supported: must be on or off"),
        ({"prefer_server_ciphers": "on;"}, "'on;' is not supported: must be on or off"),
    ],
)
def test_invalid_value_is_a_problem(controller: str, options: dict[str, str], message: str) -> None:
    (key,) = options
    result = options_of(controller, **options)
    assert result.problem.startswith(f"tls.options[nginx.org/ssl-{key.replace('_', '-')}]: ")
    assert message in result.problem


def test_suites_that_only_openssl_has_are_a_problem_with_envoy() -> None:
    ciphers = "DHE-RSA-AES128-GCM-SHA256:AES256-SHA256"
    assert options_of(NGINX_CONTROLLER, ciphers=ciphers).problem == ""
    problem = options_of(ENVOY_CONTROLLER, ciphers=ciphers).problem
    assert "selects no cipher suite that Envoy supports" in problem


@pytest.mark.parametrize(
    ("controller", "options", "message"),
    [
        (NGINX_CONTROLLER, {"protocols": "TLSv1.1 TLSv1.2"}, "TLSv1.1 is not supported"),
        (ENVOY_CONTROLLER, {"protocols": "SSLv3 TLSv1.3"}, "SSLv3 is not supported"),
        (NGINX_CONTROLLER, {"ciphers": f"NO-SUCH:{GCM}:!RC4"}, "'NO-SUCH' not supported"),
        (ENVOY_CONTROLLER, {"ciphers": f"AES256-SHA256:{GCM}"}, "'AES256-SHA256' not supported"),
        (NGINX_CONTROLLER, {"ecdh_curve": "auto"}, f"must be one of {PROTOCOLS_KEY}"),
    ],
)
def test_listener_is_served_without_unsupported_part(
    controller: str, options: dict[str, str], message: str
) -> None:
    result = options_of(controller, **options)
    assert result.problem == ""
    (unsupported,) = result.unsupported
    assert message in unsupported


def test_suite_that_only_openssl_has_is_no_finding_with_nginx() -> None:
    assert options_of(NGINX_CONTROLLER, ciphers=f"AES256-SHA256:{GCM}").unsupported == ()


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_options_of_passthrough_are_reported(controller: str) -> None:
    result = options_of(controller, mode="Passthrough", protocols="nonsense")
    assert result.problem == ""
    assert result.unsupported == ("tls.options: must be empty for tls.mode Passthrough",)


OBJECTS = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: gw}}
spec:
  gatewayClassName: c
  allowedListeners: {{namespaces: {{from: Same}}}}
  listeners:
  - {{name: http, port: 80, protocol: HTTP}}
  - name: other
    port: 443
    protocol: HTTPS
    tls:
      certificateRefs: [{{name: pair}}]
      options: {{example.com/a: b, {PREFERENCE_KEY}: "on"}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: set}}
spec:
  parentRef: {{name: gw}}
  listeners:
  - name: bad
    port: 443
    protocol: HTTPS
    hostname: bad.test
    tls: {{certificateRefs: [{{name: pair}}], options: {{{CIPHERS_KEY}: "ALL;"}}}}
"""


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_invalid_value_concerns_only_its_listener(controller: str) -> None:
    owner = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: c}}
spec: {{controllerName: {controller}}}
"""
    objects = admitted_objects(f"{owner}---{OBJECTS}")
    engine = engine_with(objects, gateway_api.ControllerSettings(bind="any"))
    front_end = gateway_api.GATEWAY_API_FRONT_END
    statuses = {}
    with engine.compile() as ask:
        for key in (GATEWAY, ("ListenerSet", "ns", "set")):
            desired = ask(gateway_api.gateway_api_status, key)
            assert desired is not None
            statuses[key[0]] = front_end.merge_status(None, desired, CREATED) or {}
    accepted = {
        listener["name"]: condition
        for status in statuses.values()
        for listener in status["listeners"]
        for condition in listener["conditions"]
        if condition["type"] == "Accepted"
    }
    assert accepted["http"]["message"] == "the listener is accepted"
    assert (accepted["other"]["status"], accepted["other"]["message"]) == (
        "True",
        "the listener is accepted; not supported: tls.options[example.com/a]: must be one of "
        f"{PROTOCOLS_KEY}, {CIPHERS_KEY}, {PREFERENCE_KEY}",
    )
    assert (accepted["bad"]["status"], accepted["bad"]["reason"]) == ("False", "UnsupportedValue")
    assert accepted["bad"]["message"].startswith(f"listener bad: tls.options[{CIPHERS_KEY}]: ")


def test_options_of_backend_tls_policies_are_reported() -> None:
    text = CASES[0].read_text("utf-8")
    owner = "kind: GatewayClass\nmetadata: {name: gatehouse-nginx}\n"
    owner += f"spec: {{controllerName: {NGINX_CONTROLLER}}}\n"
    objects = admitted_objects(f"{owner}---\n{text}")
    engine = engine_with(objects, gateway_api.ControllerSettings(bind="any"))
    with engine.compile() as ask:
        desired = ask(policy_status.policy_status, ("BackendTLSPolicy", "ns", "p"))
    assert desired is not None
    messages = [
        condition.message
        for ancestor in desired.ancestors
        for condition in ancestor.conditions
        if condition.type == "Accepted"
    ]
    assert messages == ["the policy is accepted; not supported: spec.options[example.com/a]"]
