"""CA certificates of backends and clients are in ConfigMaps, Secrets or ClusterTrustBundles."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from fakes.upstream_worlds import authority
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.ca_certificates import trust_bundle
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Engine, Key, Snapshot

PEM = authority().pem
OWNER = ("Gateway", "n", "gw")
GROUP = "gateway.networking.k8s.io"
REFERENCE: dict[str, Any] = {"group": "", "kind": "Secret", "name": "ca"}
BUNDLE: Key = ("ClusterTrustBundle", "", "example.com:ca:v1")
BUNDLE_REFERENCE = {"group": "certificates.k8s.io", "kind": BUNDLE[0], "name": BUNDLE[2]}


def data_of(kind: str, content: bytes) -> dict[str, str]:
    text = base64.b64encode(content) if kind == "Secret" else content
    return {"ca.crt": text.decode()}


def resolve(
    *objects: tuple[Key, dict[str, Any]], unavailable: str = "", **reference: str
) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Return what a Gateway gets for one reference.

    ``unavailable``: why the API server does not serve ClusterTrustBundles.
    """
    engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
    validation = {"caCertificateRefs": [{**REFERENCE, **reference}]}
    tls = {"frontend": {"default": {"validation": validation}}}
    spec = {"gatewayClassName": "c", "listeners": [], "tls": tls}
    for key, content in ((OWNER, {"spec": spec}), *objects):
        metadata = {"name": key[2], "namespace": key[1]}
        value = gateway_api.decode_gateway_api_object(key[0], {"metadata": metadata, **content})
        engine.commit({key: value})
    engine.commit({gateway_api.unavailable_kind_key(BUNDLE[0]): unavailable or None})
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
        "refs[0]: kind Service is not supported: must be ConfigMap, Secret or ClusterTrustBundle"
    )


def test_cluster_trust_bundle_needs_no_grant() -> None:
    """GEP-5075: "Not require a `ReferenceGrant` for a valid ClusterTrustBundle reference"."""
    bundle, findings = resolve(
        (BUNDLE, {"spec": {"trustBundle": PEM.decode()}}), **BUNDLE_REFERENCE
    )
    assert findings == ()
    assert bundle is not None
    assert (bundle.pem, bundle.origins) == (PEM, (object_of(BUNDLE),))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("no PEM", ": spec.trustBundle must be PEM certificates"),
        ("", ": spec.trustBundle not found"),
        (None, " not found"),
    ],
)
def test_cluster_trust_bundle_without_certificates_is_rejected(
    content: str | None, problem: str
) -> None:
    """GEP-5075: "a nonexistent bundle, […] a bundle whose `spec.trustBundle` cannot be parsed […],
    or a bundle with an empty `spec.trustBundle`" is an invalid reference."""
    objects = () if content is None else ((BUNDLE, {"spec": {"trustBundle": content}}),)
    message = f"refs[0]: ClusterTrustBundle example.com:ca:v1{problem}"
    expected = (None, (Finding(Reason.INVALID_CA_REF, message),))
    assert resolve(*objects, **BUNDLE_REFERENCE) == expected


def test_cluster_trust_bundle_has_no_namespace() -> None:
    """FrontendTLSValidation: "the `namespace` field MUST be unset"."""
    bundle, (finding,) = resolve(
        (BUNDLE, {"spec": {"trustBundle": PEM.decode()}}), namespace="n", **BUNDLE_REFERENCE
    )
    assert (bundle, finding.reason) == (None, Reason.INVALID_CA_REF)
    assert finding.message == (
        "refs[0].namespace: must not be set, as ClusterTrustBundle is cluster-scoped"
    )


def test_kind_is_invalid_where_the_cluster_does_not_serve_it() -> None:
    """GEP-5075: "while the API is unavailable, set `ResolvedRefs=False` with reason
    `InvalidKind`"; Gateways have the reason of their own for it."""
    bundle, (finding,) = resolve(unavailable="it is not served", **BUNDLE_REFERENCE)
    assert (bundle, finding.reason) == (None, Reason.INVALID_CA_KIND)
    assert finding.message == (
        "refs[0]: kind ClusterTrustBundle is not available: it is not served"
    )


def test_bundle_of_another_group_is_no_trust_bundle() -> None:
    _, (finding,) = resolve(kind=BUNDLE[0])
    assert finding.message.startswith("refs[0]: kind ClusterTrustBundle is not supported")


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
