"""Client certificate validation: ``tls.frontend`` of a Gateway, by port."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.ir.gateway import ClientValidation, TrustBundle
from gatehouse.incremental.query import Ask, Key


def validation_of(ask: Ask, key: Key, port: int) -> tuple[gateway.ClientValidationSpec | None, str]:
    """Return the client certificate validation of a port, and the path of its field."""
    gateway_object = ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway):
        return None, ""
    frontend = gateway_object.spec.tls.frontend
    for index, entry in enumerate(frontend.per_port):
        if entry.port == port:
            return entry.tls.validation, f"tls.frontend.perPort[{index}].tls"
    return frontend.default.validation, "tls.frontend.default"


def client_trust_of_port(
    ask: Ask, key: Key, port: int
) -> tuple[TrustBundle | None, tuple[Finding, ...]]:
    """Return the CA certificates for clients of a port, and findings about their references."""
    validation, place = ask(validation_of, key, port)
    if validation is None:
        return None, ()
    where = f"spec.{place}.validation.caCertificateRefs"
    bundle, findings = ca_certificates.trust_bundle(
        ask, key, gateway.GATEWAY_API_GROUP, validation.ca_certificate_refs, where
    )
    if bundle is None:
        return None, findings
    served = ca_certificates.served_trust(ask, key, bundle, where)
    return served.bundle, (*findings, *served.findings)


def validation_findings(
    ask: Ask, key: Key, port: int
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return findings about a port's CA references, and findings that reject its listeners."""
    validation, place = ask(validation_of, key, port)
    if validation is None:
        return (), ()
    bundle, findings = ask(client_trust_of_port, key, port)
    if bundle is not None:
        return findings, ()
    message = f"spec.{place}.validation: no valid CA certificate found"
    return findings, (Finding(Reason.NO_VALID_CA, message),)


def client_validation(ask: Ask, key: Key, port: int) -> ClientValidation | None:
    """Return the client certificate validation of a port as IR; None if there is none."""
    validation, _ = ask(validation_of, key, port)
    bundle, _ = ask(client_trust_of_port, key, port)
    if validation is None or bundle is None:
        return None
    return ClientValidation(bundle.name, required=validation.mode != "AllowInsecureFallback")


def insecure(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the fields by which a Gateway accepts clients without a valid certificate."""
    gateway_object = ask.read(key)
    frontend = gateway_object.spec.tls.frontend
    named = [("default", frontend.default)]
    named += [(f"perPort[{i}].tls", entry.tls) for i, entry in enumerate(frontend.per_port)]
    return tuple(
        f"spec.tls.frontend.{place}.validation.mode"
        for place, tls in named
        if tls.validation is not None and tls.validation.mode == "AllowInsecureFallback"
    )
