"""CA certificates of all kinds of objects: what the conditions say as they expire one by one."""

from __future__ import annotations

import base64
import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from fakes.authority import DAY, Authority, self_signed
from gatehouse.apis.condition_parts import condition_parts
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.controller.compilation import Compilation
from gatehouse.incremental.query import Key

Object = dict[str, Any]

TYPES = ("CertificateValid", "gatehouse.dev/CertificateValid")
GATEWAY: Key = ("Gateway", "ns", "web")
CLUSTER: Key = ("UpstreamCluster", "", "a.example")
HTTPS = {
    "name": "https",
    "port": 443,
    "protocol": "HTTPS",
    "tls": {"certificateRefs": [{"name": "tls"}]},
}
REFERENCES = [{"group": "", "kind": "Secret", "name": "ca"}]
LATE = 4000 * DAY

_TEXT = re.compile(r"CA certificates [^,]*|the certificate [a-z ]*[a-z]")
"""Message about certificates, without times."""


@cache
def authorities(*ends: timedelta) -> str:
    """Return CA certificates in base64 that expire after so much time."""
    return base64.b64encode("".join(self_signed("ca", end) for end in ends).encode()).decode()


@cache
def key_pair() -> Object:
    files = Authority(Path(mkdtemp(prefix="gatehouse-validity-"))).issue("a.example", ends=LATE)
    chain, key = (base64.b64encode(file.read_bytes()).decode() for file in files)
    return {"tls.crt": chain, "tls.key": key}


def spec_of_client(ca: str) -> list[tuple[Key, Object]]:
    frontend = {"default": {"validation": {"caCertificateRefs": REFERENCES}}}
    return [
        (("Secret", "ns", "ca"), {"data": {"ca.crt": ca}}),
        (GATEWAY, gateway(tls={"frontend": frontend})),
    ]


def spec_of_backend(ca: str) -> list[tuple[Key, Object]]:
    validation = {"hostname": "app.example", "caCertificateRefs": REFERENCES}
    target = {"group": "", "kind": "Service", "name": "app"}
    rule = {"backendRefs": [{"name": "app", "port": 443}]}
    return [
        (("Secret", "ns", "ca"), {"data": {"ca.crt": ca}}),
        (("Service", "ns", "app"), {"spec": {"ports": [{"port": 443}]}}),
        (("HTTPRoute", "ns", "r"), {"spec": {"parentRefs": [{"name": "web"}], "rules": [rule]}}),
        (GATEWAY, gateway()),
        (
            ("BackendTLSPolicy", "ns", "app"),
            {"spec": {"targetRefs": [target], "validation": validation}},
        ),
    ]


def spec_of_collector(ca: str) -> list[tuple[Key, Object]]:
    exporter = {"endpoint": "https://c.ns.svc:4317", "tls": {"caCertificateRefs": REFERENCES}}
    reference = {"group": "gatehouse.dev", "kind": "GatewayParameters", "name": "own"}
    return [
        (("Secret", "ns", "ca"), {"data": {"ca.crt": ca}}),
        (("Service", "ns", "c"), {"spec": {"ports": []}}),
        (
            ("GatewayParameters", "ns", "own"),
            {"spec": {"telemetry": {"exporter": exporter}}},
        ),
        (GATEWAY, gateway(infrastructure={"parametersRef": reference})),
    ]


def spec_of_filter(part: Object, ca: str) -> list[tuple[Key, Object]]:
    return [
        (("Secret", "ns", "ca"), {"data": {"ca.crt": ca}}),
        (("AuthenticationFilter", "ns", "users"), {"spec": part}),
    ]


def spec_of_tokens(ca: str) -> list[tuple[Key, Object]]:
    remote = {"uri": "https://keys.example/jwks", "caCertificateRefs": [{"name": "ca"}]}
    return spec_of_filter(
        {"type": "JWT", "jwt": {"realm": "x", "source": "Remote", "remote": remote}}, ca
    )


LOGIN = {
    "issuer": "https://issuer.example",
    "clientID": "me",
    "clientSecretRef": {"name": "client"},
    "caCertificateRefs": [{"name": "ca"}],
}


def spec_of_users(ca: str) -> list[tuple[Key, Object]]:
    return spec_of_filter({"type": "OIDC", "oidc": LOGIN}, ca)


def spec_of_policy(ca: str) -> list[tuple[Key, Object]]:
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    return [
        (("Secret", "ns", "ca"), {"data": {"ca.crt": ca}}),
        (GATEWAY, gateway()),
        (("SecurityPolicy", "ns", "users"), {"spec": {"targetRefs": [target], "oidc": LOGIN}}),
    ]


def spec_of_servers(ca: str) -> list[tuple[Key, Object]]:
    servers = [{"endpoint": "https://10.0.0.1:6443"}]
    return [(CLUSTER, {"spec": {"servers": servers, "clientConfig": {"caData": ca}}})]


def spec_of_clients(ca: str) -> list[tuple[Key, Object]]:
    servers = [{"endpoint": "http://10.0.0.1:8080"}]
    return [(CLUSTER, {"spec": {"servers": servers, "secureServing": {"clientCAData": ca}}})]


def spec_of_secret(ca: str) -> list[tuple[Key, Object]]:
    servers = [{"endpoint": "http://10.0.0.1:8080"}]
    serving = {"secretRef": {"namespace": "ns", "name": "ca"}}
    return [
        (("Secret", "ns", "ca"), {"data": {"ca.crt": ca}}),
        (CLUSTER, {"spec": {"servers": servers, "secureServing": serving}}),
    ]


def gateway(**spec: Any) -> Object:
    return {"spec": {"gatewayClassName": "c", "listeners": [HTTPS], **spec}}


KINDS = [
    pytest.param(GATEWAY, spec_of_client, "listener https: spec.tls.frontend", id="clients"),
    pytest.param(
        ("BackendTLSPolicy", "ns", "app"),
        spec_of_backend,
        "validation.caCertificateRefs",
        id="backends",
    ),
    pytest.param(
        GATEWAY,
        spec_of_collector,
        "GatewayParameters ns/own: spec.telemetry.exporter.tls.caCertificateRefs",
        id="collector",
    ),
    pytest.param(
        ("AuthenticationFilter", "ns", "users"),
        spec_of_tokens,
        "spec.jwt.remote.caCertificateRefs: Secret ns/ca",
        id="tokens",
    ),
    pytest.param(
        ("AuthenticationFilter", "ns", "users"),
        spec_of_users,
        "spec.oidc.caCertificateRefs: Secret ns/ca",
        id="users",
    ),
    pytest.param(
        ("SecurityPolicy", "ns", "users"),
        spec_of_policy,
        "spec.oidc.caCertificateRefs: Secret ns/ca",
        id="users of a policy",
    ),
    pytest.param(CLUSTER, spec_of_servers, "spec.clientConfig.caData", id="servers"),
    pytest.param(CLUSTER, spec_of_clients, "spec.secureServing.clientCAData", id="cluster"),
    pytest.param(
        CLUSTER, spec_of_secret, "spec.secureServing.secretRef: Secret ns/ca ca.crt", id="secret"
    ),
]


class World:
    """A compilation with one subject, and a clock that a test sets by deadlines."""

    def __init__(self, controller: str, subject: Key, objects: list[tuple[Key, Object]]) -> None:
        self._subject = subject
        self._compilation = Compilation(gateway_api.ControllerSettings())
        self._put(("GatewayClass", "", "c"), {"spec": {"controllerName": controller}})
        self._put(("Secret", "ns", "tls"), {"data": key_pair()})
        for key, content in objects:
            self._put(key, content)

    def _put(self, key: Key, content: Object) -> None:
        kind, namespace, name = key
        metadata = {"name": name, "namespace": namespace, "generation": 1}
        self._compilation.put(kind, (namespace, name), {"metadata": metadata, **content})

    @property
    def deadlines(self) -> tuple[int, ...]:
        return self._compilation.run().deadlines[self._subject]

    def condition(self, now: float, where: str) -> tuple[str, str, str]:
        """Return status and reason of the condition at a time, and its message about a place."""
        for deadline in self.deadlines:
            self._compilation.put_input(deadline_key(deadline), deadline <= now)
        status = self._compilation.run().statuses[self._subject]
        merged = combined.merge_combined_status(self._subject[0], None, status, "") or {}
        for _, conditions in condition_parts(merged):
            for entry in conditions:
                named = [text for text in entry["message"].split("; ") if where in text]
                if entry["type"] in TYPES and named:
                    return entry["status"], entry["reason"], named[0]
        return "", "", ""

    def history(self, where: str) -> list[tuple[str, str, str]]:
        """Return the conditions about a place as time passes, without the times in messages."""
        result: list[tuple[str, str, str]] = []
        first, *_ = deadlines = self.deadlines
        for moment in (first - 1, *deadlines):
            status, reason, message = self.condition(moment, where)
            text = _TEXT.search(message)
            entry = status, reason, text[0] if text else ""
            if not result or result[-1] != entry:
                result.append(entry)
        return result


@pytest.mark.parametrize("controller", [gateway_api.NGINX, gateway_api.ENVOY])
@pytest.mark.parametrize(("subject", "objects", "where"), KINDS)
def test_ca_certificates_are_reported_one_by_one(
    controller: str, subject: Key, objects: Any, where: str
) -> None:
    world = World(controller, subject, objects(authorities(-DAY, 20 * DAY, 400 * DAY)))
    assert world.history(where) == [
        ("False", "NotYetValid", "CA certificates valid: 0 of 3"),
        ("", "", ""),
        ("True", "ExpiresSoon", "CA certificates that expire soon: 1 of 3"),
        ("True", "SomeExpired", "CA certificates expired: 1 of 3"),
        ("True", "ExpiresSoon", "CA certificates that expire soon: 1 of 3"),
        ("True", "SomeExpired", "CA certificates expired: 2 of 3"),
        ("True", "ExpiresSoon", "CA certificates that expire soon: 1 of 3"),
        ("False", "Expired", "CA certificates expired: 3 of 3"),
    ]


@pytest.mark.parametrize(("subject", "objects", "where"), KINDS)
def test_only_ca_certificate_is_reported_without_count(
    subject: Key, objects: Any, where: str
) -> None:
    world = World(gateway_api.ENVOY, subject, objects(authorities(20 * DAY)))
    assert world.history(where) == [
        ("False", "NotYetValid", "the certificate is not valid before"),
        ("", "", ""),
        ("True", "ExpiresSoon", "the certificate expires at"),
        ("False", "Expired", "the certificate expired at"),
    ]


def test_hostname_mismatch_comes_before_a_warning() -> None:
    serving = {"certData": key_pair()["tls.crt"], "keyData": key_pair()["tls.key"]}
    serving["clientCAData"] = authorities(20 * DAY)
    servers = [{"endpoint": "http://10.0.0.1:8080"}]
    listener = {"name": "api", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer"}
    objects: list[tuple[Key, Object]] = [
        (CLUSTER, {"spec": {"servers": servers, "secureServing": serving}}),
        (GATEWAY, {"spec": {"gatewayClassName": "c", "listeners": [listener]}}),
    ]
    world = World(gateway_api.ENVOY, CLUSTER, objects)
    history = world.history("spec.secureServing")
    reasons = ["NotYetValid", "HostnameMismatch", "Expired"]
    assert list(dict.fromkeys(reason for _, reason, _ in history)) == reasons
