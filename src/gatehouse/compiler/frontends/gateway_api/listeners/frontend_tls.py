"""Client certificates: ``tls.frontend`` of a Gateway, by port."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.ir.gateway import ClientValidation, TrustBundle
from gatehouse.incremental.query import Ask, Key

Which = tuple[Key, int]
"""A Gateway and one of its ports."""


def asked(ask: Ask, which: Which) -> tuple[gateway.ClientValidation | None, str]:
    """Give how clients of a port are to be checked, and where that is said."""
    found = ask.read(which[0])
    if not isinstance(found, gateway.Gateway):
        return None, ""
    frontend = found.spec.tls.frontend
    for index, entry in enumerate(frontend.per_port):
        if entry.port == which[1]:
            return entry.tls.validation, f"tls.frontend.perPort[{index}].tls"
    return frontend.default.validation, "tls.frontend.default"


def client_trust(ask: Ask, which: Which) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Give the authorities of clients' certificates, and what is wrong with the references."""
    validation, place = ask(asked, which)
    if validation is None:
        return None, ()
    where = f"spec.{place}.validation.caCertificateRefs"
    return ca_certificates.bundle(
        ask, which[0], gateway.GROUP, validation.ca_certificate_refs, where
    )


def validation_findings(ask: Ask, which: Which) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Give what is wrong with a port's validation, and why its HTTPS listeners are refused."""
    validation, place = ask(asked, which)
    if validation is None:
        return (), ()
    found, findings = ask(client_trust, which)
    if found is not None:
        return findings, ()
    message = f"spec.{place}.validation: there is no valid CA certificate to check clients by"
    return findings, (Finding(Reason.NO_VALID_CA, message),)


def client_validation(ask: Ask, which: Which) -> ClientValidation | None:
    """Give how a port checks clients."""
    validation, _ = ask(asked, which)
    found, _ = ask(client_trust, which)
    if validation is None or found is None:
        return None
    return ClientValidation(found.name, required=validation.mode != "AllowInsecureFallback")


def insecure(ask: Ask, key: Key) -> tuple[str, ...]:
    """Give where a Gateway takes clients without a good certificate although it could check."""
    found = ask.read(key)
    frontend = found.spec.tls.frontend
    named = [("default", frontend.default)]
    named += [(f"perPort[{i}].tls", entry.tls) for i, entry in enumerate(frontend.per_port)]
    return tuple(
        f"spec.tls.frontend.{place}.validation.mode"
        for place, tls in named
        if tls.validation is not None and tls.validation.mode == "AllowInsecureFallback"
    )
