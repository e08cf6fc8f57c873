"""BackendTLSPolicies: which of them holds for a Service's port, and what it asks for."""

from __future__ import annotations

import msgspec

from gatehouse.apis import policies
from gatehouse.apis.gateway import GROUP
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.compiler.ir.http import BackendTls, SubjectName
from gatehouse.incremental.query import Ask, Key

Port = tuple[str, str, str]
"""Namespace and name of a Service, and the name of one of its ports."""


class Resolved(msgspec.Struct, frozen=True):
    """What a policy asks for, as far as it can be had."""

    tls: BackendTls | None = None
    """None: the backends cannot be spoken to as asked, and so not at all."""
    trust: TrustBundle | None = None
    findings: tuple[Finding, ...] = ()


def effective(ask: Ask, port: Port) -> Key | None:
    """Give the policy of a Service's port: that of the port before that of the whole Service.

    Of several the oldest, then the first by name (BackendTLSPolicy, conflict resolution).
    """
    namespace, service, section = port
    found: list[tuple[bool, str, str, Key]] = []
    for key in ask.read(("@policies", namespace, service)):
        policy = ask.read(key)
        for target in policy.spec.target_refs:
            if target.name == service and target.section_name in ("", section):
                age = policy.metadata.creation_timestamp
                found.append((not target.section_name, age, key[2], key))
    return min(found)[3] if found else None


def resolve(ask: Ask, key: Key) -> Resolved:
    """Give what a policy asks for."""
    policy = ask.read(key)
    if not isinstance(policy, policies.BackendTLSPolicy):
        message = f"BackendTLSPolicy {key[1]}/{key[2]} cannot be read"
        return Resolved(findings=(Finding(Reason.NO_VALID_CA, message),))
    wanted = policy.spec.validation
    names = tuple(
        SubjectName("uri", name.uri)
        if name.type == "URI"
        else SubjectName("dns", name.hostname.lower())
        for name in wanted.subject_alt_names
    )
    if wanted.well_known_ca_certificates:
        if wanted.well_known_ca_certificates != "System":
            message = (
                f"validation.wellKnownCACertificates: {wanted.well_known_ca_certificates} is not "
                "known; System is"
            )
            return Resolved(findings=(Finding(Reason.POLICY_INVALID, message),))
        return Resolved(BackendTls(wanted.hostname, "", names))
    place = "validation.caCertificateRefs"
    found, findings = ca_certificates.bundle(
        ask, key, GROUP, wanted.ca_certificate_refs, place, Reason.INVALID_KIND
    )
    if found is None:
        message = f"{place}: there is no valid CA certificate"
        return Resolved(findings=(*findings, Finding(Reason.NO_VALID_CA, message)))
    return Resolved(BackendTls(wanted.hostname, found.name, names), found, findings)


def conflicting_policies(ask: Ask, key: Key) -> Finding | None:
    """Say which policy stands before this one at all its targets; None if none does."""
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
        winners.append(f"{target.name} by {first[2]}")
    if not winners:
        return None
    message = f"targetRefs: {', '.join(winners)}, which is older or the first by name"
    return Finding(Reason.POLICY_CONFLICTED, message)
