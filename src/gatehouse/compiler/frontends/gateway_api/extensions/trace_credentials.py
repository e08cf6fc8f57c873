"""CA certificates and client certificate that parameters set for TLS to a collector of traces."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.apis import data_plane_parameters as api
from gatehouse.apis import gateway_parameters, nginx_gateway
from gatehouse.compiler.frontends.gateway_api.findings import Finding
from gatehouse.compiler.frontends.gateway_api.listeners import ca_certificates
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import resolve_certificate
from gatehouse.compiler.ir.gateway import Certificate, TrustBundle
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.incremental.query import Ask, Key

TLS = "telemetry.exporter.tls"

_GROUPS = {
    "NginxProxy": nginx_gateway.NGINX_GATEWAY_GROUP,
    "GatewayParameters": gateway_parameters.GATEHOUSE_GROUP,
}


class ExporterCredentials(msgspec.Struct, frozen=True):
    """Credentials for TLS to a collector. Without usable ones, nothing may be exported."""

    trust: TrustBundle | None = None
    """None: CA certificates of the system."""
    certificate: Certificate | None = None
    """None: no client certificate."""
    usable: bool = True
    """False if a field is set and has no usable value."""
    problems: tuple[str, ...] = ()

    def apply(self, export: TraceExport) -> TraceExport | None:
        """Return an export with the credentials; None if they are not usable."""
        if not self.usable:
            return None
        return msgspec.structs.replace(
            export,
            trust=self.trust.name if self.trust is not None else "",
            certificate=self.certificate.name if self.certificate is not None else "",
        )


def exporter_credentials(ask: Ask, key: Key, owner: Key) -> ExporterCredentials:
    """Return the credentials that parameters set for the exporter of a Gateway."""
    tls = _requested(ask.read(owner))
    if tls is None:
        return ExporterCredentials()
    group, problems = _GROUPS[owner[0]], list[str]()
    where = f"spec.{TLS}.caCertificateRefs"
    trust, findings = ca_certificates.trust_bundle(
        ask, owner, group, tls.ca_certificate_refs, where
    )
    if trust is not None:
        served = ca_certificates.served_trust(ask, key, trust, where)
        trust, findings = served.bundle, (*findings, *served.findings)
    problems += [finding.message for finding in findings]
    certificate: Certificate | Finding | None = None
    if tls.client_certificate_ref is not None:
        certificate = resolve_certificate(ask, key, owner, tls.client_certificate_ref, group)
        if isinstance(certificate, Finding):
            problems.append(f"spec.{TLS}.clientCertificateRef: {certificate.message}")
    if isinstance(certificate, Finding) or (trust is None and tls.ca_certificate_refs):
        return ExporterCredentials(usable=False, problems=tuple(problems))
    return ExporterCredentials(trust, certificate, problems=tuple(problems))


def tls_problems(exporter: api.TraceExporterSpec, *, secure: bool) -> Iterator[str]:
    """Yield the problems of ``tls``. ``secure``: the same object sets an endpoint with TLS.

    The fields belong to the endpoint: another author must not choose who may receive its spans,
    or use its client certificate elsewhere.
    """
    if exporter.tls is not None and not secure:
        yield f"spec.{TLS}: may be set with an exporter.endpoint of https:// only"


def _requested(parameters: object) -> api.ExporterTlsSpec | None:
    if not isinstance(parameters, nginx_gateway.NginxProxy | gateway_parameters.GatewayParameters):
        return None
    telemetry = parameters.spec.telemetry
    exporter = telemetry.exporter if telemetry is not None else None
    return exporter.tls if exporter is not None else None
