"""Certificates of listeners and CAs that expire: conditions and Events without other changes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import DAY, Authority, self_signed
from fakes.inprocess import Server
from fakes.replica import Replica
from gatehouse.apis.resources import (
    BACKEND_TLS_POLICIES,
    CONFIG_MAPS,
    EVENTS,
    GATEWAYS,
    HTTP_ROUTES,
    LISTENER_SETS,
    SECRETS,
    SERVICES,
)
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.certificate_validity import WARNING_SECONDS
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.options import ControllerOptions, frontend_settings
from gatehouse.controller.provisioner.copied_secrets import SecretSource, Use
from gatehouse.incremental.query import Key
from gatehouse.inspection.condition_summary import bad_conditions
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

TYPE = "gatehouse.dev/CertificateValid"
GATEWAY: Key = ("Gateway", "default", "web")


def secret(authority: Authority, ends: timedelta, name: str = "tls") -> dict[str, Any]:
    files = authority.issue(name, x509.DNSName("a.example"), ends=ends)
    data = [base64.b64encode(file.read_bytes()).decode() for file in files]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": dict(zip(("tls.crt", "tls.key"), data, strict=True)),
    }


def listener(name: str, port: int, reference: str = "tls") -> dict[str, Any]:
    tls = {"certificateRefs": [{"name": reference}]}
    return {"name": name, "port": port, "protocol": "HTTPS", "tls": tls}


def gateway(class_name: str, *listeners: dict[str, Any], **spec: Any) -> dict[str, Any]:
    plain = {"name": "http", "port": 80, "protocol": "HTTP"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"gatewayClassName": class_name, "listeners": [plain, *listeners], **spec},
    }


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[kube.Client]:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as client:
        replica = Replica(server)
        await replica.until_ready()
        yield client
        await replica.stop()


def found(status: dict[str, Any], name: str) -> dict[str, str] | None:
    """Return the condition of a listener, or of the whole object if the name is empty."""
    part = status
    if name:
        entries = status.get("listeners") or ()
        part = next((entry for entry in entries if entry["name"] == name), {})
    conditions = part.get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == TYPE), None)


@pytest.mark.parametrize("class_name", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_certificates_of_a_gateway_are_reported_when_they_expire(
    client: kube.Client, tmp_path: Path, class_name: str
) -> None:
    authority = Authority(tmp_path)
    await client.create(SECRETS, secret(authority, timedelta(seconds=4)))
    await client.create(SECRETS, secret(authority, DAY, "good"))
    backend = {"backend": {"clientCertificateRef": {"name": "tls"}}}
    allowed = {"namespaces": {"from": "Same"}}
    obj = gateway(
        class_name,
        listener("https", 443),
        listener("fine", 8443, "good"),
        tls=backend,
        allowedListeners=allowed,
    )
    await client.create(GATEWAYS, obj)
    parent = {"name": "web", "kind": "Gateway", "group": "gateway.networking.k8s.io"}
    set_spec = {"parentRef": parent, "listeners": [listener("more", 9443)]}
    metadata = {"name": "more", "namespace": "default"}
    await client.create(LISTENER_SETS, {"metadata": metadata, "spec": set_spec})

    async def reasons() -> list[str]:
        web = (await client.get(GATEWAYS, "web", "default")).get("status", {})
        more = (await client.get(LISTENER_SETS, "more", "default")).get("status", {})
        conditions = [found(web, "https"), found(web, ""), found(more, "more")]
        assert not found(web, "fine")
        assert not found(web, "http")
        return [condition["reason"] if condition else "" for condition in conditions]

    async def until(*expected: str) -> None:
        async with patience.limit():
            while await reasons() != list(expected):
                await patience.pause()

    await until(*["ExpiresSoon"] * 3)
    await until(*["Expired"] * 3)
    web = await client.get(GATEWAYS, "web", "default")
    condition = found(web["status"], "https")
    assert condition is not None
    assert condition["status"] == "False"
    text = "listener https: tls.certificateRefs: Secret default/tls: the certificate expired at 20"
    assert condition["message"].startswith(text)
    bad = {entry.part: entry for entry in bad_conditions(web) if entry.type == TYPE}
    assert set(bad) == {"", "listener https"}

    async def events() -> set[tuple[str, str, str]]:
        listed = (await client.list(EVENTS, "default")).items
        return {
            (event["involvedObject"]["kind"], event["reason"], event["message"].partition(":")[0])
            for event in listed
            if event["reason"] in ("Expired", "ExpiresSoon")
        }

    expected = {
        ("Gateway", "ExpiresSoon", "listener https"),
        ("Gateway", "Expired", "listener https"),
        ("Gateway", "ExpiresSoon", f"{TYPE} is True"),
        ("Gateway", "Expired", f"{TYPE} is False"),
        ("ListenerSet", "ExpiresSoon", "listener more"),
        ("ListenerSet", "Expired", "listener more"),
    }
    async with patience.limit():
        while await events() < expected:
            await patience.pause()
    assert await events() == expected
    renewed = secret(authority, DAY)
    await client.patch(SECRETS, "tls", renewed, "default")
    await until("", "", "")


def authority_holder(name: str, *ends: timedelta) -> dict[str, Any]:
    """Return a ConfigMap with certificates that expire after so much time."""
    text = "".join(self_signed(name, end) for end in ends)
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "data": {"ca.crt": text}}


@pytest.mark.parametrize("class_name", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_ca_certificates_are_reported_when_they_expire(
    client: kube.Client, tmp_path: Path, class_name: str
) -> None:
    await client.create(SECRETS, secret(Authority(tmp_path), 88 * DAY))
    await client.create(CONFIG_MAPS, authority_holder("own", -DAY, timedelta(seconds=4)))
    validation = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "own"}]}
    frontend = {"default": {"validation": validation}}
    obj = gateway(class_name, listener("https", 443), tls={"frontend": frontend})
    await client.create(GATEWAYS, obj)
    for resource, content in backend_with_policy("own"):
        await client.create(resource, content)

    async def reasons() -> list[str]:
        web = (await client.get(GATEWAYS, "web", "default")).get("status", {})
        policy = await client.get(BACKEND_TLS_POLICIES, "app", "default")
        ancestors = policy.get("status", {}).get("ancestors") or [{}]
        conditions = [found(web, "https"), found(ancestors[0], "")]
        return [condition["reason"] if condition else "" for condition in conditions]

    async def until(reason: str) -> None:
        async with patience.limit():
            while await reasons() != [reason] * 2:
                await patience.pause()

    await until("ExpiresSoon")
    await until("Expired")
    web = await client.get(GATEWAYS, "web", "default")
    condition = found(web["status"], "https")
    assert condition is not None
    text = (
        "listener https: spec.tls.frontend.default.validation.caCertificateRefs: "
        "ConfigMap default/own: CA certificates expired: 2 of 2, the last at 20"
    )
    assert condition["message"].startswith(text)

    async def events() -> set[tuple[str, str]]:
        listed = (await client.list(EVENTS, "default")).items
        return {
            (event["involvedObject"]["kind"], event["reason"])
            for event in listed
            if event["reason"] in ("Expired", "ExpiresSoon")
        }

    kinds = ("Gateway", "BackendTLSPolicy")
    expected = {(kind, reason) for kind in kinds for reason in ("ExpiresSoon", "Expired")}
    async with patience.limit():
        while await events() < expected:
            await patience.pause()
    assert await events() == expected
    renewed = authority_holder("own", -DAY, DAY)
    await client.patch(CONFIG_MAPS, "own", renewed, "default")
    await until("SomeExpired")
    await client.patch(CONFIG_MAPS, "own", authority_holder("own", DAY), "default")
    await until("")


def backend_with_policy(holder: str) -> list[tuple[Resource, dict[str, Any]]]:
    """Return a Service, a route to it, and its BackendTLSPolicy."""
    metadata = {"name": "app", "namespace": "default"}
    backend = {"name": "app", "port": 443}
    validation = {
        "hostname": "app.example",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": holder}],
    }
    target = {"group": "", "kind": "Service", "name": "app"}
    route = {"parentRefs": [{"name": "web"}], "rules": [{"backendRefs": [backend]}]}
    return [
        (SERVICES, {"metadata": metadata, "spec": {"ports": [{"port": 443}]}}),
        (HTTP_ROUTES, {"metadata": metadata, "spec": route}),
        (
            BACKEND_TLS_POLICIES,
            {"metadata": metadata, "spec": {"targetRefs": [target], "validation": validation}},
        ),
    ]


class Compiled:
    """A compilation with one Gateway, and a clock that a test sets by deadlines."""

    def __init__(self, authority: Authority, ends: timedelta) -> None:
        self.compilation = Compilation(gateway_api.ControllerSettings())
        spec = {"controllerName": gateway_api.NGINX}
        gateway_class = {"metadata": {"name": "c"}, "spec": spec}
        self.compilation.put("GatewayClass", ("", "c"), gateway_class)
        self.compilation.put("Secret", ("default", "tls"), secret(authority, ends))
        self.compilation.put("Gateway", ("default", "web"), gateway("c", listener("https", 443)))

    @property
    def deadlines(self) -> tuple[int, ...]:
        return self.compilation.run().deadlines[GATEWAY]

    def reason(self, now: int) -> str:
        """Return the reason of the listener's condition at a time; empty without condition."""
        for deadline in self.deadlines:
            self.compilation.put_input(deadline_key(deadline), deadline <= now)
        status = self.compilation.run().statuses[GATEWAY]
        assert isinstance(status, GatewayStatus)
        (own,) = (entry for entry in status.listeners if entry.name == "https")
        return next((entry.reason for entry in own.conditions if entry.type == TYPE), "")


@pytest.mark.parametrize(
    ("ends", "warning"),
    [(88 * DAY, WARNING_SECONDS), (8 * DAY, 2 * 86400)],
    ids=["90 days", "10 days"],
)
def test_condition_warns_before_a_certificate_expires(
    tmp_path: Path, ends: timedelta, warning: int
) -> None:
    compiled = Compiled(Authority(tmp_path), ends)
    starts, warns, expires = compiled.deadlines
    assert expires - warns == pytest.approx(warning, abs=1)
    assert compiled.reason(starts - 1) == "NotYetValid"
    assert compiled.reason(starts) == ""
    assert compiled.reason(warns - 1) == ""
    assert compiled.reason(warns) == "ExpiresSoon"
    assert compiled.reason(expires - 1) == "ExpiresSoon"
    assert compiled.reason(expires) == "Expired"


@pytest.mark.parametrize(
    ("controller", "reasons"),
    [(gateway_api.NGINX, ["Expired", "ExpiresSoon", ""]), (gateway_api.ENVOY, ["", "", ""])],
    ids=["NGINX", "Envoy"],
)
def test_certificates_of_usage_reports_are_reported_at_gateways_of_nginx(
    tmp_path: Path, controller: str, reasons: list[str]
) -> None:
    """Only NGINX Plus reports its usage."""
    uses: tuple[Use, ...] = ("license", "usage-client", "usage-ca")
    copies = tuple(SecretSource(use, "default", use) for use in uses)
    nowhere = tmp_path / "nothing"
    options = ControllerOptions(
        kubeconfig=nowhere, agent_bind="127.0.0.1:1", agent_advertise="127.0.0.1:1",
        tls_cert=nowhere, tls_key=nowhere, ca=nowhere, copies=copies,
    )  # fmt: skip
    compilation = Compilation(frontend_settings(options))
    spec = {"controllerName": controller}
    compilation.put("GatewayClass", ("", "c"), {"metadata": {"name": "c"}, "spec": spec})
    compilation.put("Gateway", ("default", "web"), gateway("c"))
    client = secret(Authority(tmp_path), 8 * DAY, "usage-client")
    compilation.put("Secret", ("default", "usage-client"), client)
    text = base64.b64encode(self_signed("ca", 300 * DAY).encode()).decode()
    metadata = {"name": "usage-ca", "namespace": "default"}
    authorities = {"metadata": metadata, "data": {"ca.crt": text}}
    compilation.put("Secret", ("default", "usage-ca"), authorities)

    def reported(future: int) -> tuple[str, str]:
        """Return the reason and the message before the last deadlines, or empty texts."""
        deadlines = compilation.run().deadlines.get(GATEWAY, ())
        for number, deadline in enumerate(deadlines):
            compilation.put_input(deadline_key(deadline), number < len(deadlines) - future)
        status = compilation.run().statuses[GATEWAY]
        assert isinstance(status, GatewayStatus)
        conditions = (entry for entry in status.conditions if entry.type == TYPE)
        return next(((entry.reason, entry.message) for entry in conditions), ("", ""))

    # The client certificate warns and expires, and then that of the CA.
    assert [reported(future)[0] for future in (2, 3, 4)] == reasons
    _, message = reported(0)
    for holder in ("client of usage reports: Secret default/usage-client",
                   "CA of usage reports: Secret default/usage-ca"):  # fmt: skip
        expired = f"{holder}: the certificate expired"
        assert (expired in message) is (controller == gateway_api.NGINX)
