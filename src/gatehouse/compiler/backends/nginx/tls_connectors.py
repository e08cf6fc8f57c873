"""Clusters reached through a TLS connector, which verifies names that NGINX cannot verify.

NGINX verifies exactly the name that it sends as SNI. For other names, it connects in plain text to
a Unix socket per endpoint, where the connector originates TLS.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.file_set import File
from gatehouse.sidecars.base.san_match import SubjectAltName
from gatehouse.sidecars.tls_connector import config
from gatehouse.sidecars.tls_connector.config import Connector


def needs_connector(cluster: ir.Cluster) -> bool:
    """Return whether the certificate of a cluster must have other names than the SNI."""
    tls = cluster.tls
    return tls is not None and not {*tls.names} <= {ir.SubjectName("dns", tls.server_name)}


def check_connector(capabilities: NginxCapabilities, clusters: Iterable[ir.Cluster]) -> None:
    """Raise InvalidValueError if a cluster needs a connector and the agent has none."""
    if not capabilities.connectors and any(needs_connector(cluster) for cluster in clusters):
        raise InvalidValueError("subjectAltNames of backends require an agent with a TLS connector")


def connector_socket(cluster: ir.Cluster, endpoint: ir.Endpoint) -> str:
    """Return the socket of an endpoint, relative to the run directory."""
    return f"{config.CONNECTOR_SOCKETS}/{_connector(cluster, endpoint).socket}"


def connector_files(clusters: Iterable[ir.Cluster]) -> list[File]:
    """Return the configuration file of the connectors, if any is needed."""
    connectors = [
        _connector(cluster, endpoint)
        for cluster in clusters
        if needs_connector(cluster)
        for endpoint in cluster.endpoints
    ]
    return (
        [File.make(config.CONNECTORS_FILE, config.encode_connectors(connectors))]
        if connectors
        else []
    )


def _connector(cluster: ir.Cluster, endpoint: ir.Endpoint) -> Connector:
    tls = cluster.tls
    assert tls is not None
    connector = Connector(
        socket="",
        cluster=cluster.name,
        address=endpoint.address,
        port=endpoint.port,
        server_name=tls.server_name,
        names=tuple(SubjectAltName(name.kind, name.value) for name in tls.names),
        trust=names.trust_file(tls.trust),
        certificate=names.certificate_file(tls.certificate, "crt") if tls.certificate else "",
        key=names.certificate_file(tls.certificate, "key") if tls.certificate else "",
        alpn="h2" if cluster.protocol in ("h2c", "grpc") else "",
    )
    # Files are named by content, so that a renewed CA or certificate is another socket: old workers
    # keep the old one, new workers never use a connection made with it.
    digest = names.name_digest(msgspec.json.encode(connector).decode())
    return msgspec.structs.replace(connector, socket=f"{digest}.sock")
