"""Clusters that NGINX reaches by way of a connector, which checks names that NGINX cannot check.

NGINX checks a certificate for the very name that it sends in the handshake. Where other names are
asked for, it speaks in the clear to a socket per endpoint, and the connector speaks TLS from there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.file_set import File
from gatehouse.sidecars.tls_connector import config
from gatehouse.sidecars.tls_connector.config import Connector, Name


def connected(cluster: ir.Cluster) -> bool:
    """Whether a cluster's certificate is to be checked for other names than the handshake's."""
    tls = cluster.tls
    return tls is not None and not {*tls.names} <= {ir.SubjectName("dns", tls.server_name)}


def check(capabilities: Capabilities, clusters: Iterable[ir.Cluster]) -> None:
    """Raise UnwritableError if one of them needs a connector, and there is none."""
    if not capabilities.connectors and any(connected(cluster) for cluster in clusters):
        raise InvalidValueError("subjectAltNames of backends need an agent with a connector")


def socket(cluster: ir.Cluster, endpoint: ir.Endpoint) -> str:
    """Give the socket of an endpoint, relative to the run directory."""
    return f"{config.SOCKETS}/{_connector(cluster, endpoint).socket}"


def files(clusters: Iterable[ir.Cluster]) -> list[File]:
    """Give the connectors' description, if any is needed."""
    found = [
        _connector(cluster, endpoint)
        for cluster in clusters
        if connected(cluster)
        for endpoint in cluster.endpoints
    ]
    return [File.make(config.FILE, config.encode(found))] if found else []


def _connector(cluster: ir.Cluster, endpoint: ir.Endpoint) -> Connector:
    tls = cluster.tls
    assert tls is not None
    made = Connector(
        socket="",
        cluster=cluster.name,
        address=endpoint.address,
        port=endpoint.port,
        server_name=tls.server_name,
        names=tuple(Name(name.kind, name.value) for name in tls.names),
        trust=names.trust_file(tls.trust),
        certificate=names.certificate_file(tls.certificate, "crt") if tls.certificate else "",
        key=names.certificate_file(tls.certificate, "key") if tls.certificate else "",
        alpn="h2" if cluster.protocol in ("h2c", "grpc") else "",
    )
    # Files are named by content, so that a renewed authority or certificate is another socket:
    # old workers keep to the old one, new workers never meet a connection made with it.
    digest = names.digest(msgspec.json.encode(made).decode())
    return msgspec.structs.replace(made, socket=f"{digest}.sock")
