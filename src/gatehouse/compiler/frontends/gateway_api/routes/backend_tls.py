"""BackendTLSPolicies: the effective policy of a Service's port, and its translation to IR."""

from __future__ import annotations

import msgspec

from gatehouse.apis import policies
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.compiler.ir.http import BackendTls, SubjectName
from gatehouse.incremental.query import Ask, Key

Port = tuple[str, str, str]
"""Namespace and name of a Service, and the name of one of its ports."""


_REFERENCES = "validation.caCertificateRefs"


class ResolvedBackendTls(msgspec.Struct, frozen=True):
    """Translation of a policy."""

    tls: BackendTls | None = None
    """None: the policy is invalid, and no connection to the backends is allowed."""
    trust: TrustBundle | None = None
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
    """Return the translation of a policy at a Gateway, whose proxy may have rejected the CA
    certificates."""
    resolved = ask(resolve_backend_tls, key)
    if resolved.trust is None:
        return resolved
    served = ca_certificates.served_trust(ask, gateway, resolved.trust, _REFERENCES)
    if not served.findings:
        return resolved
    findings = (*resolved.findings, *served.findings)
    if served.bundle is None:
        return _invalid(*findings)
    return msgspec.structs.replace(resolved, findings=findings)


def _invalid(*findings: Finding) -> ResolvedBackendTls:
    message = f"{_REFERENCES}: no valid CA certificate found"
    return ResolvedBackendTls(findings=(*findings, Finding(Reason.NO_VALID_CA, message)))


def resolve_backend_tls(ask: Ask, key: Key) -> ResolvedBackendTls:
    """Return the TLS settings and trust bundle of a policy, or its findings."""
    policy = ask.read(key)
    if not isinstance(policy, policies.BackendTLSPolicy):
        message = f"BackendTLSPolicy {key[1]}/{key[2]} is invalid"
        return ResolvedBackendTls(findings=(Finding(Reason.NO_VALID_CA, message),))
    validation = policy.spec.validation
    names = tuple(
        SubjectName("uri", name.uri)
        if name.type == "URI"
        else SubjectName("dns", name.hostname.lower())
        for name in validation.subject_alt_names
    )
    if validation.well_known_ca_certificates:
        if validation.well_known_ca_certificates != "System":
            message = (
                "validation.wellKnownCACertificates: must be System, not "
                f"{validation.well_known_ca_certificates}"
            )
            return ResolvedBackendTls(findings=(Finding(Reason.POLICY_INVALID, message),))
        return ResolvedBackendTls(BackendTls(validation.hostname, "", names))
    bundle, findings = ca_certificates.trust_bundle(
        ask,
        key,
        GATEWAY_API_GROUP,
        validation.ca_certificate_refs,
        _REFERENCES,
        Reason.INVALID_KIND,
    )
    if bundle is None:
        return _invalid(*findings)
    return ResolvedBackendTls(BackendTls(validation.hostname, bundle.name, names), bundle, findings)


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
