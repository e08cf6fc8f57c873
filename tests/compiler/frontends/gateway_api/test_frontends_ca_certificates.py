"""CA certificates of backends and clients are in ConfigMaps or Secrets."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fakes.upstream_worlds import authority
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.ca_certificates import trust_bundle
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key, Snapshot

PEM = authority().pem
OWNER = ("Gateway", "n", "gw")
GROUP = "gateway.networking.k8s.io"
REFERENCE: dict[str, Any] = {"group": "", "kind": "Secret", "name": "ca"}


def data_of(kind: str, content: bytes) -> dict[str, str]:
    text = base64.b64encode(content) if kind == "Secret" else content
    return {"ca.crt": text.decode()}


def resolve(
    *objects: tuple[Key, dict[str, Any]], **reference: str
) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Return what a Gateway gets for one reference."""
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    validation = {"caCertificateRefs": [{**REFERENCE, **reference}]}
    tls = {"frontend": {"default": {"validation": validation}}}
    spec = {"gatewayClassName": "c", "listeners": [], "tls": tls}
    for key, content in ((OWNER, {"spec": spec}), *objects):
        metadata = {"name": key[2], "namespace": key[1]}
        value = gateway_api.decode_gateway_api_object(key[0], {"metadata": metadata, **content})
        engine.commit({key: value})
    with engine.compile() as ask:
        gateway: Any = ask.read(OWNER)
        references = gateway.spec.tls.frontend.default.validation.ca_certificate_refs
        return trust_bundle(ask, OWNER, GROUP, references, "refs")


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_both_kinds_hold_ca_certificates(kind: str) -> None:
    bundle, findings = resolve(((kind, "n", "ca"), {"data": data_of(kind, PEM)}), kind=kind)
    assert findings == ()
    assert bundle is not None
    assert (bundle.pem, bundle.origins) == (PEM, (Origin(kind, "n", "ca"),))


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"no PEM", "data[ca.crt] must be PEM certificates"), (b"", "data[ca.crt] not found")],
)
def test_content_without_certificates_is_rejected(kind: str, content: bytes, problem: str) -> None:
    objects = ((kind, "n", "ca"), {"data": data_of(kind, content)})
    finding = Finding(Reason.INVALID_CA_REF, f"refs[0]: {kind} n/ca: {problem}")
    assert resolve(objects, kind=kind) == (None, (finding,))


def test_secret_that_is_not_base64_is_rejected() -> None:
    bundle, (finding,) = resolve((("Secret", "n", "ca"), {"data": {"ca.crt": "???"}}))
    assert bundle is None
    assert finding.message == "refs[0]: Secret n/ca: data[ca.crt] must be base64"


def test_missing_secret_is_named() -> None:
    assert resolve() == (None, (Finding(Reason.INVALID_CA_REF, "refs[0]: Secret n/ca not found"),))


def test_other_kinds_are_rejected() -> None:
    bundle, (finding,) = resolve(kind="Service")
    assert (bundle, finding.reason) == (None, Reason.INVALID_CA_KIND)
    assert finding.message == (
        "refs[0]: kind Service is not supported: must be ConfigMap or Secret"
    )


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_secret_of_another_namespace_needs_a_grant_for_secrets(kind: str) -> None:
    grant = {
        "from": [{"group": GROUP, "kind": "Gateway", "namespace": "n"}],
        "to": [{"group": "", "kind": kind}],
    }
    bundle, findings = resolve(
        (("Secret", "m", "ca"), {"data": data_of("Secret", PEM)}),
        (("ReferenceGrant", "m", "g"), {"spec": grant}),
        namespace="m",
    )
    if kind == "Secret":
        assert bundle is not None
        assert findings == ()
    else:
        message = "refs[0]: Secret m/ca not allowed by any ReferenceGrant"
        assert (bundle, findings) == (None, (Finding(Reason.REF_NOT_PERMITTED, message),))
