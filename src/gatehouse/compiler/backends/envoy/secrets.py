"""Certificates and authorities: told by their place, so that renewing one changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2

from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.backends.envoy.protobufs import ads, packed, truth, written
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.dataplane.xds.resources import SECRET, Resource

_VERSIONS = common_pb2.TlsParameters(
    tls_minimum_protocol_version=common_pb2.TlsParameters.TLSv1_2,
    tls_maximum_protocol_version=common_pb2.TlsParameters.TLSv1_3,
)


def certificate(name: str, found: ir.Certificate) -> Resource:
    """Give a certificate with its key."""
    made = common_pb2.TlsCertificate(
        certificate_chain=base_pb2.DataSource(inline_bytes=found.chain),
        private_key=base_pb2.DataSource(inline_bytes=found.key.reveal()),
    )
    body = written(secret_pb2.Secret(name=name, tls_certificate=made))
    return Resource.make(SECRET, name, body, secret=True)


def trust(name: str, found: ir.TrustBundle | None, *, optional: bool = False) -> Resource:
    """Give authorities. ``optional``: who has no good certificate is taken as well, and there may
    be no authorities at all."""
    made = common_pb2.CertificateValidationContext()
    if found is not None:
        made.trusted_ca.inline_bytes = found.pem
    if optional and found is not None:
        made.trust_chain_verification = common_pb2.CertificateValidationContext.ACCEPT_UNTRUSTED
    return Resource.make(
        SECRET, name, written(secret_pb2.Secret(name=name, validation_context=made))
    )


def of_cluster(cluster: http.Cluster, gateway: ir.Gateway) -> Iterator[Resource]:
    """Give what a cluster shows its endpoints, and checks them by."""
    tls = cluster.tls
    if tls is None:
        return
    for shown in gateway.certificates if tls.certificate else ():
        if shown.name == tls.certificate:
            yield certificate(names.backend_certificate(cluster.name), shown)
    for bundle in gateway.trust if tls.trust else ():
        if bundle.name == tls.trust:
            yield trust(names.backend_trust(cluster.name), bundle)


def secret_config(name: str) -> Any:
    """Ask for a secret by its name."""
    return secret_pb2.SdsSecretConfig(name=name, sds_config=ads())


def common(certificates: list[str], *alpn: str) -> Any:
    """Give what both sides of a handshake have."""
    return tls_pb2.CommonTlsContext(
        tls_params=_VERSIONS,
        tls_certificate_sds_secret_configs=[secret_config(name) for name in certificates],
        alpn_protocols=alpn,
    )


def server(certificates: list[str], *alpn: str, clients: str = "", required: bool = True) -> Any:
    """Give the transport socket that ends TLS. ``clients``: the name of their authorities."""
    made = tls_pb2.DownstreamTlsContext(common_tls_context=common(certificates, *alpn))
    if clients:
        made.common_tls_context.validation_context_sds_secret_config.CopyFrom(
            secret_config(clients)
        )
        made.require_client_certificate.CopyFrom(truth(required))
        # What a resumed session showed is not looked at again.
        made.disable_stateless_session_resumption = True
        made.disable_stateful_session_resumption = True
    return socket(made)


def socket(context: Any) -> Any:
    """Give the transport socket of a TLS context."""
    return base_pb2.TransportSocket(
        name="envoy.transport_sockets.tls", typed_config=packed(context)
    )
