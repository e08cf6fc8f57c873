"""Certificates and CA certificates as secrets, named by use: a renewal changes nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2

from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.protobufs import ads, packed, truth, written
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.server_tls import DEFAULT_TLS, ServerTls
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.dataplane.xds.resources import SECRET_TYPE_URL, XdsResource

_VERSIONS = {
    "TLSv1.2": common_pb2.TlsParameters.TLSv1_2,
    "TLSv1.3": common_pb2.TlsParameters.TLSv1_3,
}


def certificate_secret(name: str, source: ir.Certificate) -> XdsResource:
    """Build the secret of a certificate with its key."""
    proto = common_pb2.TlsCertificate(
        certificate_chain=base_pb2.DataSource(inline_bytes=source.chain),
        private_key=base_pb2.DataSource(inline_bytes=source.key.reveal()),
    )
    body = written(secret_pb2.Secret(name=name, tls_certificate=proto))
    return XdsResource.make(SECRET_TYPE_URL, name, body, origins=source.origins, secret=True)


def trust_secret(
    name: str, bundle: ir.TrustBundle | None, *, optional: bool = False
) -> XdsResource:
    """Build the secret of CA certificates.

    ``optional``: clients without a valid certificate are accepted, and there may be no CA
    certificates.
    """
    proto = common_pb2.CertificateValidationContext()
    if bundle is not None:
        proto.trusted_ca.inline_bytes = bundle.pem
    if optional and bundle is not None:
        proto.trust_chain_verification = common_pb2.CertificateValidationContext.ACCEPT_UNTRUSTED
    body = written(secret_pb2.Secret(name=name, validation_context=proto))
    origins = bundle.origins if bundle is not None else ()
    return XdsResource.make(SECRET_TYPE_URL, name, body, origins=origins)


def cluster_secrets(
    cluster: str,
    tls: http.BackendTls | TraceExport | None,
    certificates: Mapping[str, ir.Certificate],
    bundles: Mapping[str, ir.TrustBundle],
) -> Iterator[XdsResource]:
    """Yield the client certificate and the CA certificates of a cluster."""
    if tls is None:
        return
    client_certificate = certificates.get(tls.certificate)
    if client_certificate is not None:
        yield certificate_secret(names.backend_certificate(cluster), client_certificate)
    bundle = bundles.get(tls.trust)
    if bundle is not None:
        yield trust_secret(names.backend_trust(cluster), bundle)


def cluster_tls(
    cluster: str,
    tls: http.BackendTls | TraceExport,
    subjects: Iterable[common_pb2.SubjectAltNameMatcher],
    system_trust: str,
    *alpn: str,
) -> tls_pb2.CommonTlsContext:
    """Return the TLS settings of a cluster. ``subjects``: names of its certificates."""
    certificates = [names.backend_certificate(cluster)] if tls.certificate else []
    common = common_tls(certificates, *alpn)
    validation = common_pb2.CertificateValidationContext(match_typed_subject_alt_names=subjects)
    if tls.trust:
        combined = common.combined_validation_context
        combined.default_validation_context.CopyFrom(validation)
        combined.validation_context_sds_secret_config.CopyFrom(
            secret_config(names.backend_trust(cluster))
        )
    elif isinstance(tls, TraceExport) or tls.verified:
        validation.trusted_ca.filename = system_trust
        common.validation_context.CopyFrom(validation)
    return common


def secret_config(name: str) -> secret_pb2.SdsSecretConfig:
    """Return the reference to a secret by name."""
    return secret_pb2.SdsSecretConfig(name=name, sds_config=ads())


def common_tls(
    certificates: list[str], *alpn: str, tls: ServerTls = DEFAULT_TLS
) -> tls_pb2.CommonTlsContext:
    """Return the TLS settings of both clients and servers."""
    return tls_pb2.CommonTlsContext(
        tls_params=common_pb2.TlsParameters(
            tls_minimum_protocol_version=_VERSIONS[tls.versions[0]],
            tls_maximum_protocol_version=_VERSIONS[tls.versions[-1]],
            cipher_suites=tls.suites,
        ),
        tls_certificate_sds_secret_configs=[secret_config(name) for name in certificates],
        alpn_protocols=alpn,
    )


def downstream_tls(
    certificates: list[str],
    *alpn: str,
    clients: str = "",
    required: bool = True,
    tls: ServerTls = DEFAULT_TLS,
) -> base_pb2.TransportSocket:
    """Return the transport socket that terminates TLS. ``clients``: name of the clients' CAs."""
    common = common_tls(certificates, *alpn, tls=tls)
    # The order of the server counts by default.
    proto = tls_pb2.DownstreamTlsContext(
        common_tls_context=common, prefer_client_ciphers=tls.prefer_server_ciphers == "off"
    )
    if clients:
        proto.common_tls_context.validation_context_sds_secret_config.CopyFrom(
            secret_config(clients)
        )
        proto.require_client_certificate.CopyFrom(truth(required))
        # A resumed session would skip the verification of the client certificate.
        proto.disable_stateless_session_resumption = True
        proto.disable_stateful_session_resumption = True
    return tls_socket(proto)


def tls_socket(
    context: tls_pb2.DownstreamTlsContext | tls_pb2.UpstreamTlsContext,
) -> base_pb2.TransportSocket:
    """Return the transport socket of a TLS context."""
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.tls", typed_config=packed(context)
    )
