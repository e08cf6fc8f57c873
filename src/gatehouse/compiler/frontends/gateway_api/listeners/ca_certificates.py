"""CA certificates: from references to ConfigMaps to one trust bundle."""

from __future__ import annotations

import hashlib

from cryptography import x509

from gatehouse.apis import core, gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.incremental.query import Ask, Key


def authorities(ask: Ask, name: tuple[str, str]) -> bytes | str:
    """Return the PEM certificates in the ConfigMap ``(namespace, name)``, or the problem."""
    found = ask.read(("ConfigMap", *name))
    where = f"ConfigMap {name[0]}/{name[1]}"
    if found is None:
        return f"{where} not found"
    text = found.data.get("ca.crt", "") if isinstance(found, core.ConfigMap) else ""
    if not text:
        return f"{where}: data[ca.crt] not found"
    if of_certificates(text.encode()) is None:
        return f"{where}: data[ca.crt] must be PEM certificates"
    return text.encode().rstrip() + b"\n"


def of_certificates(pem: bytes) -> TrustBundle | None:
    """Return the trust bundle of PEM certificates; None if they are invalid."""
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError:
        return None
    return _named(pem.rstrip() + b"\n")


def _named(pem: bytes) -> TrustBundle:
    digest = hashlib.sha256(pem).hexdigest()[:24]
    return TrustBundle(f"ca-{digest}", pem)


def bundle(
    ask: Ask,
    owner: Key,
    group: str,
    references: tuple[gateway.ObjectReference, ...],
    where: str,
    invalid_kind: Reason = Reason.INVALID_CA_KIND,
) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Return the trust bundle that an object refers to, and a finding per unusable reference."""
    parts: list[bytes] = []
    findings: list[Finding] = []
    for index, reference in enumerate(references):
        place = f"{where}[{index}]"
        if (reference.group, reference.kind) != ("", "ConfigMap"):
            kind = f"{reference.group}/{reference.kind}".lstrip("/")
            findings.append(
                Finding(invalid_kind, f"{place}: kind {kind} is not supported: must be ConfigMap")
            )
            continue
        target = (reference.namespace or owner[1], reference.name)
        if not ask(permitted, Reference(group, owner[0], owner[1], "", "ConfigMap", *target)):
            message = f"ConfigMap {target[0]}/{target[1]} not allowed by any ReferenceGrant"
            findings.append(Finding(Reason.REF_NOT_PERMITTED, f"{place}: {message}"))
            continue
        found = ask(authorities, target)
        if isinstance(found, str):
            findings.append(Finding(Reason.INVALID_CA_REF, f"{place}: {found}"))
        else:
            parts.append(found)
    if not parts:
        return None, tuple(findings)
    return _named(b"".join(parts)), tuple(findings)
