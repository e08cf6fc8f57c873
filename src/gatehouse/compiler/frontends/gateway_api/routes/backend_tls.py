"""TLS to backends: the effective BackendTLSPolicy of a Service's port, and the translation of these
policies and of XBackends to IR."""

from __future__ import annotations

import msgspec

from gatehouse.apis import backends, policies, resources
from gatehouse.apis.gateway import GATEWAY_API_GROUP, ObjectReference
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates, certificates
from gatehouse.compiler.ir.gateway import Certificate, TrustBundle
from gatehouse.compiler.ir.http import BackendTls, SubjectName
from gatehouse.incremental.query import Ask, Key

Port = tuple[str, str, str]
"""Namespace and name of a Service, and the name of one of its ports."""


_FIELD = {"BackendTLSPolicy": "validation", "XBackend": "spec.tls.validation"}
"""Field with the validation, as conditions name it."""


class ResolvedBackendTls(msgspec.Struct, frozen=True):
    """Translation of the TLS settings of a policy or XBackend."""

    tls: BackendTls | None = None
    """None: the settings are invalid, and no connection to the backends is allowed."""
    trust: TrustBundle | None = None
    certificate: Certificate | None = None
    """Client certificate of an XBackend."""
    findings: tuple[Finding, ...] = ()


def effective(ask: Ask, port: Port) -> Key | None:
    """Return the effective policy of a Service's port. One with a sectionName comes first.

    Of several the oldest, then the first by name (BackendTLSPolicy, conflict resolution).
    """
    namespace, service, section = port
    result: list[tuple[bool, str, str, Key]] = []
    for key in ask.read(("@policies", namespace, service)):
        policy = ask.read(key)
        for target in policy.spec.target_refs:
            if target.name == service and target.section_name in ("", section):
                age = policy.metadata.creation_timestamp
                result.append((not target.section_name, age, key[2], key))
    return min(result)[3] if result else None


def backend_tls_at(ask: Ask, gateway: Key, key: Key) -> ResolvedBackendTls:
    """Return the translation of a policy or XBackend at a Gateway, whose proxy may have rejected
    certificates."""
    resolved = _with_client(ask, gateway, key, ask(resolve_backend_tls, key))
    if resolved.trust is None:
        return resolved
    served = ca_certificates.served_trust(ask, gateway, resolved.trust, _references(key))
    if not served.findings:
        return resolved
    findings = (*resolved.findings, *served.findings)
    if served.bundle is None:
        return _invalid(key, *findings)
    return msgspec.structs.replace(resolved, findings=findings)


def client_reference(ask: Ask, key: Key) -> ObjectReference | None:
    """Return the reference of an XBackend to its client certificate; None if it has none."""
    holder = ask.read(key)
    is_backend = isinstance(holder, backends.XBackend)
    return holder.spec.tls.client_certificate_ref if is_backend else None


def _with_client(
    ask: Ask, gateway: Key, key: Key, resolved: ResolvedBackendTls
) -> ResolvedBackendTls:
    """Return the translation with the client certificate of an XBackend."""
    reference = client_reference(ask, key)
    if reference is None or resolved.tls is None:
        return resolved
    group = resources.X_BACKENDS.group
    own = certificates.resolve_certificate(ask, gateway, key, reference, group)
    if isinstance(own, Finding):
        finding = Finding(own.reason, f"spec.tls.clientCertificateRef: {own.message}")
        return ResolvedBackendTls(findings=(*resolved.findings, finding))
    tls = msgspec.structs.replace(resolved.tls, certificate=own.name)
    return msgspec.structs.replace(resolved, tls=tls, certificate=own)


def _references(key: Key) -> str:
    """Return the field with the references to CA certificates."""
    return f"{_FIELD[key[0]]}.caCertificateRefs"


def _invalid(key: Key, *findings: Finding) -> ResolvedBackendTls:
    message = f"{_references(key)}: no valid CA certificate found"
    return ResolvedBackendTls(findings=(*findings, Finding(Reason.NO_VALID_CA, message)))


def resolve_backend_tls(ask: Ask, key: Key) -> ResolvedBackendTls:
    """Return the TLS settings and trust bundle of a policy or XBackend, or its findings."""
    validation, group = _validation(ask.read(key))
    if validation is None:
        message = f"{key[0]} {key[1]}/{key[2]} is invalid"
        return ResolvedBackendTls(findings=(Finding(Reason.NO_VALID_CA, message),))
    names = tuple(
        SubjectName("uri", name.uri)
        if name.type == "URI"
        else SubjectName("dns", name.hostname.lower())
        for name in validation.subject_alt_names
    )
    if validation.well_known_ca_certificates:
        if validation.well_known_ca_certificates != "System":
            message = (
                f"{_FIELD[key[0]]}.wellKnownCACertificates: must be System, not "
                f"{validation.well_known_ca_certificates}"
            )
            return ResolvedBackendTls(findings=(Finding(Reason.POLICY_INVALID, message),))
        return ResolvedBackendTls(BackendTls(validation.hostname, "", names))
    bundle, findings = ca_certificates.trust_bundle(
        ask,
        key,
        group,
        validation.ca_certificate_refs,
        _references(key),
        Reason.INVALID_KIND,
    )
    if bundle is None:
        return _invalid(key, *findings)
    tls = BackendTls(validation.hostname, bundle.name, names)
    return ResolvedBackendTls(tls, bundle, findings=findings)


def _validation(holder: object) -> tuple[policies.BackendValidation | None, str]:
    """Return how the certificates of backends are validated, and the group of the object."""
    match holder:
        case policies.BackendTLSPolicy():
            return holder.spec.validation, GATEWAY_API_GROUP
        case backends.XBackend():
            return holder.spec.tls.validation, resources.X_BACKENDS.group
    return None, ""


def conflicting_policies(ask: Ask, key: Key) -> Finding | None:
    """Return a finding if older policies apply at all targets of this one; else None."""
    policy = ask.read(key)
    winners = []
    for target in policy.spec.target_refs:
        if (target.group, target.kind) != ("", "Service"):
            continue
        rivals = [
            other
            for other in ask.read(("@policies", key[1], target.name))
            if any(
                (ref.name, ref.section_name) == (target.name, target.section_name)
                for ref in ask.read(other).spec.target_refs
            )
        ]
        first = min(rivals, key=lambda k: (ask.read(k).metadata.creation_timestamp, k[2]))
        if first == key:
            return None
        winners.append(f"{target.name} by BackendTLSPolicy {first[1]}/{first[2]}")
    if not winners:
        return None
    message = (
        f"targetRefs: already set for Service {', '.join(winners)}, which is older or first by name"
    )
    return Finding(Reason.POLICY_CONFLICTED, message)
