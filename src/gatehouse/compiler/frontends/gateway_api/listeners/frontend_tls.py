"""Client certificate validation: ``tls.frontend`` of a Gateway, by port."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.ir.gateway import ClientValidation, TrustBundle
from gatehouse.incremental.query import Ask, Key

PortKey = tuple[Key, int]
"""A Gateway and one of its ports."""


def validation_of(ask: Ask, which: PortKey) -> tuple[gateway.ClientValidation | None, str]:
    """Return the client certificate validation of a port, and the path of its field."""
    found = ask.read(which[0])
    if not isinstance(found, gateway.Gateway):
        return None, ""
    frontend = found.spec.tls.frontend
    for index, entry in enumerate(frontend.per_port):
        if entry.port == which[1]:
            return entry.tls.validation, f"tls.frontend.perPort[{index}].tls"
    return frontend.default.validation, "tls.frontend.default"


def client_trust(ask: Ask, which: PortKey) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Return the CA certificates for clients of a port, and findings about their references."""
    validation, place = ask(validation_of, which)
    if validation is None:
        return None, ()
    where = f"spec.{place}.validation.caCertificateRefs"
    return ca_certificates.bundle(
        ask, which[0], gateway.GROUP, validation.ca_certificate_refs, where
    )


def validation_findings(
    ask: Ask, which: PortKey
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return findings about a port's CA references, and findings that reject its listeners."""
    validation, place = ask(validation_of, which)
    if validation is None:
        return (), ()
    found, findings = ask(client_trust, which)
    if found is not None:
        return findings, ()
    message = f"spec.{place}.validation: no valid CA certificate found"
    return findings, (Finding(Reason.NO_VALID_CA, message),)


def client_validation(ask: Ask, which: PortKey) -> ClientValidation | None:
    """Return the client certificate validation of a port as IR; None if there is none."""
    validation, _ = ask(validation_of, which)
    found, _ = ask(client_trust, which)
    if validation is None or found is None:
        return None
    return ClientValidation(found.name, required=validation.mode != "AllowInsecureFallback")


def insecure(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the fields by which a Gateway accepts clients without a valid certificate."""
    found = ask.read(key)
    frontend = found.spec.tls.frontend
    named = [("default", frontend.default)]
    named += [(f"perPort[{i}].tls", entry.tls) for i, entry in enumerate(frontend.per_port)]
    return tuple(
        f"spec.tls.frontend.{place}.validation.mode"
        for place, tls in named
        if tls.validation is not None and tls.validation.mode == "AllowInsecureFallback"
    )
