"""CA certificates: from references to the objects that hold them to one trust bundle."""

from __future__ import annotations

import base64

import msgspec

from gatehouse.apis import core, gateway, resources
from gatehouse.compiler.frontends import pem
from gatehouse.compiler.frontends.certificate_validity import Validity, validities_of
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    rejected_credential,
    unavailable_kind_key,
)
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.ir.gateway import TrustBundle, content_name
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Ask, Key

CA_CERTIFICATE_KINDS = (resources.CONFIG_MAPS, resources.SECRETS, resources.CLUSTER_TRUST_BUNDLES)
"""Kinds that can hold CA certificates."""

_ENTRY = "data[ca.crt]"
_GROUP_KINDS = {(resource.group, resource.kind) for resource in CA_CERTIFICATE_KINDS}


class ServedTrust(msgspec.Struct, frozen=True):
    """A trust bundle as a Gateway serves it."""

    bundle: TrustBundle | None
    """None: it is left out. It is not while the proxy tests it again."""
    findings: tuple[Finding, ...] = ()
    """The rejection by the proxy, if there is one."""


def authorities(ask: Ask, key: Key) -> bytes | str:
    """Return the PEM certificates in an object, or the problem."""
    holder = ask.read(key)
    where = str(object_of(key))
    if holder is None:
        return f"{where} not found"
    where += ": spec.trustBundle" if isinstance(holder, core.ClusterTrustBundle) else f": {_ENTRY}"
    try:
        content = _content(holder)
    except ValueError:
        return f"{where} must be base64"
    if not content:
        return f"{where} not found"
    try:
        return pem.certificates(content)
    except pem.MALFORMED:
        return f"{where} must be PEM certificates"


def authorities_validities(ask: Ask, key: Key) -> tuple[Validity, ...]:
    """Return the validity of each certificate in an object; empty if there is no valid content."""
    text = ask(authorities, key)
    return () if isinstance(text, str) else validities_of(text)


def _content(holder: object) -> bytes:
    """Return the text of an object; empty if there is none. Raises ValueError for base64."""
    if isinstance(holder, core.ClusterTrustBundle):
        return holder.spec.trust_bundle.encode()
    if isinstance(holder, core.ConfigMap):
        return holder.data.get("ca.crt", "").encode()
    if isinstance(holder, core.Secret):
        return base64.b64decode(holder.data.get("ca.crt", ""), validate=True)
    return b""


def of_certificates(text: bytes, *origins: Origin) -> TrustBundle | None:
    """Return the trust bundle of PEM certificates; None if they are invalid."""
    try:
        return _named(pem.certificates(text), origins)
    except pem.MALFORMED:
        return None


def _named(certificates: bytes, origins: tuple[Origin, ...]) -> TrustBundle:
    return TrustBundle(content_name("ca", certificates), certificates, origins)


def trust_bundle(
    ask: Ask,
    owner: Key,
    group: str,
    references: tuple[gateway.ObjectReference, ...],
    where: str,
    invalid_kind: Reason = Reason.INVALID_CA_KIND,
) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Return the trust bundle that an object refers to, and a finding per unusable reference."""
    results = [
        _part(ask, owner, group, reference, f"{where}[{index}]", invalid_kind)
        for index, reference in enumerate(references)
    ]
    findings = tuple(result for result in results if isinstance(result, Finding))
    parts = [result for result in results if not isinstance(result, Finding)]
    if not parts:
        return None, findings
    contents, origins = zip(*parts, strict=True)
    return _named(b"".join(contents), origins), findings


def _part(
    ask: Ask,
    owner: Key,
    group: str,
    reference: gateway.ObjectReference,
    place: str,
    invalid_kind: Reason,
) -> tuple[bytes, Origin] | Finding:
    """Return the PEM certificates that a reference selects and their origin, or the finding."""
    if problem := _kind_problem(ask, reference):
        return Finding(invalid_kind, f"{place}: {problem}")
    cluster_scoped = reference.kind == resources.CLUSTER_TRUST_BUNDLES.kind
    if cluster_scoped and reference.namespace:
        message = f"{place}.namespace: must not be set, as {reference.kind} is cluster-scoped"
        return Finding(Reason.INVALID_CA_REF, message)
    namespace = "" if cluster_scoped else reference.namespace or owner[1]
    target = (reference.kind, namespace, reference.name)
    requested = Reference(group, owner[0], owner[1], reference.group, *target)
    if not cluster_scoped and not ask(permitted, requested):
        message = f"{place}: {Origin(*target)} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    content = ask(authorities, target)
    if isinstance(content, str):
        return Finding(Reason.INVALID_CA_REF, f"{place}: {content}")
    return content, Origin(*target)


def _kind_problem(ask: Ask, reference: gateway.ObjectReference) -> str:
    """Return why the kind of a reference cannot be used; empty if it can."""
    if (reference.group, reference.kind) not in _GROUP_KINDS:
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        *kinds, last = (resource.kind for resource in CA_CERTIFICATE_KINDS)
        return f"kind {kind} is not supported: must be {', '.join(kinds)} or {last}"
    why = ask.read(unavailable_kind_key(reference.kind))
    return f"kind {reference.kind} is not available: {why}" if why else ""


def served_trust(ask: Ask, gateway_key: Key, bundle: TrustBundle, where: str) -> ServedTrust:
    """Return what a Gateway serves of a trust bundle that its proxy may have rejected.

    The proxy gets all CA certificates as one, so that those of several objects are left out
    together.
    """
    why = rejected_credential(ask, gateway_key, bundle.name, tried=True)
    if not why:
        return ServedTrust(bundle)
    holders = ", ".join(map(str, bundle.origins))
    finding = Finding(Reason.INVALID_CA_REF, f"{where}: {holders}: {why}")
    left_out = rejected_credential(ask, gateway_key, bundle.name)
    return ServedTrust(None if left_out else bundle, (finding,))
