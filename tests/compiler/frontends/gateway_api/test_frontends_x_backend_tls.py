"""TLS to XBackends: verification of the server, and the client certificate."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography import x509

from fakes.authority import Authority
from fakes.one_route import GATEWAY
from fakes.x_backend_world import (
    BACKEND,
    GROUP,
    LISTENERS,
    SELECTOR,
    SERVER_ONLY,
    SYSTEM,
    Object,
    XBackendWorld,
)
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.certificate_names import validity_of
from gatehouse.compiler.frontends.inputs import deadline_key
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin


@pytest.fixture
def pair(tmp_path: Path) -> Object:
    """A Secret with a certificate, its key, and the CA that issued it."""
    authority = Authority(tmp_path)
    chain, key = (path.read_bytes() for path in authority.issue("client"))
    data = {"tls.crt": chain, "tls.key": key, "ca.crt": authority.pem}
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return {"type": "kubernetes.io/tls", "data": encoded}


def test_server_is_verified_with_the_names_and_authorities_of_the_backend(pair: Object) -> None:
    names = [{"type": "URI", "uri": "spiffe://a/b"}, {"type": "Hostname", "hostname": "B.example"}]
    validation = {
        "hostname": "a.example",
        "caCertificateRefs": [{"group": "", "kind": "Secret", "name": "pair"}],
        "subjectAltNames": names,
    }
    world = XBackendWorld(SELECTOR | {"tls": {"mode": "ServerOnly", "validation": validation}})
    unresolved = [one for one in world.status() if " False " in one]
    assert [one.split()[:3] for one in unresolved] == [
        ["Accepted", "False", "NoValidCACertificate"],
        ["ResolvedRefs", "False", "InvalidCACertificateRef"],
    ]
    assert world.clusters == []
    assert world.actions() == [ir.Respond(500)]
    world.put(("Secret", "n", "pair"), {}, **pair)
    tls = world.cluster().tls
    assert tls is not None
    (bundle,) = world.compiled.trust_bundles
    subjects = (ir.SubjectName("uri", "spiffe://a/b"), ir.SubjectName("dns", "b.example"))
    assert tls == ir.BackendTls("a.example", bundle.name, subjects)
    assert [one.split()[1] for one in world.status()] == ["True", "True"]


def test_backend_without_validation_of_its_own_gets_no_policy_of_a_service_of_the_name() -> None:
    world = XBackendWorld()
    target = {"group": "", "kind": "Service", "name": "b"}
    world.put(("BackendTLSPolicy", "n", "p"), {"targetRefs": [target], "validation": SYSTEM})
    assert world.cluster().tls is None


def mutual(**reference: str) -> Object:
    own = {"name": "pair", **reference}
    tls = {"mode": "ClientAndServer", "validation": SYSTEM, "clientCertificateRef": own}
    return SELECTOR | {"tls": tls}


def test_client_certificate_is_that_of_the_backend(pair: Object) -> None:
    world = XBackendWorld(mutual())
    world.put(("Secret", "n", "pair"), {}, **pair)
    tls = world.cluster().tls
    assert tls is not None
    (certificate,) = world.compiled.certificates
    assert tls.certificate == certificate.name
    assert certificate.origin == Origin("Secret", "n", "pair")


def test_server_gets_no_client_certificate_of_the_gateway(pair: Object) -> None:
    world = XBackendWorld(SELECTOR | {"tls": SERVER_ONLY})
    world.put(("Secret", "n", "pair"), {}, **pair)
    tls = {"backend": {"clientCertificateRef": {"name": "pair"}}}
    world.put(GATEWAY, {"gatewayClassName": "c", "listeners": LISTENERS, "tls": tls})
    assert world.cluster().tls == ir.BackendTls("a.example", "")
    assert world.compiled.certificates == ()


@pytest.mark.parametrize(
    ("reference", "condition"),
    [
        ({}, "InvalidCertificateRef spec.tls.clientCertificateRef: Secret n/pair not found"),
        (
            {"namespace": "other"},
            "RefNotPermitted spec.tls.clientCertificateRef: Secret other/pair not allowed",
        ),
        ({"kind": "ConfigMap"}, "InvalidCertificateRef spec.tls.clientCertificateRef: kind Conf"),
    ],
)
def test_unresolved_client_certificate_is_named_and_nothing_is_forwarded(
    reference: dict[str, str], condition: str, pair: Object
) -> None:
    world = XBackendWorld(mutual(**reference))
    world.put(("Secret", "other", "pair"), {}, **pair)
    assert world.clusters == []
    assert world.actions() == [ir.Respond(500)]
    assert any(one.startswith(f"ResolvedRefs False {condition}") for one in world.status())


def test_client_certificate_of_another_namespace_needs_a_grant_to_the_backend(pair: Object) -> None:
    world = XBackendWorld(mutual(namespace="other"))
    world.put(("Secret", "other", "pair"), {}, **pair)
    source = {"group": GROUP, "kind": "XBackend", "namespace": "n"}
    to = {"from": [source], "to": [{"group": "", "kind": "Secret"}]}
    world.put(("ReferenceGrant", "other", "g"), to)
    tls = world.cluster().tls
    assert tls is not None
    assert tls.certificate


@pytest.mark.parametrize("spec", [None, {"port": "x"}])
def test_backend_that_goes_or_becomes_malformed_gets_nothing(spec: Object | None) -> None:
    world = XBackendWorld(SELECTOR | {"tls": SERVER_ONLY})
    assert world.cluster().tls is not None
    if spec is None:
        world.remove(BACKEND)
    else:
        world.put(BACKEND, spec)
    assert world.actions() == [ir.Respond(500)]
    assert world.clusters == []


def test_validity_of_a_certificate_of_another_namespace_needs_a_grant(pair: Object) -> None:
    world = XBackendWorld(mutual(namespace="other"))
    world.put(("Secret", "other", "pair"), {}, **pair)
    chain = x509.load_pem_x509_certificate(base64.b64decode(pair["data"]["tls.crt"]))
    _, ends = validity_of(chain)

    def reported() -> tuple[bool, bool]:
        """Return whether the end is a time of change, and whether a condition reports it."""
        with world.engine.compile() as ask:
            is_awaited = ends in (combined.deadlines(ask, BACKEND) or ())
        return is_awaited, any(" Expired " in one for one in world.status())

    world.engine.commit({deadline_key(ends): True})
    assert reported() == (False, False)
    source = {"group": GROUP, "kind": "XBackend", "namespace": "n"}
    to = {"from": [source], "to": [{"group": "", "kind": "Secret"}]}
    world.put(("ReferenceGrant", "other", "g"), to)
    assert reported() == (True, True)
