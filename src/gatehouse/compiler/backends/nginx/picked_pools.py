"""Clusters whose endpoints a picker chooses: NGINX sends their requests to the picker client.

An upstream of such a cluster is one Unix socket, where the picker client asks the picker and
forwards the request. Its configuration names the endpoints in files of their own, which change
without a reload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.endpoints import WeightedEndpoint, pool_endpoints_path
from gatehouse.dataplane.file_set import File
from gatehouse.sidecars.base.san_match import SubjectAltName
from gatehouse.sidecars.picker import config
from gatehouse.sidecars.picker.config import PickerTls, Pool


def check_pool(capabilities: NginxCapabilities, cluster: ir.Cluster) -> None:
    """Raise InvalidValueError if a picker chooses the endpoint, and NGINX cannot ask it."""
    if cluster.picker is None:
        return
    if not capabilities.pickers:
        raise InvalidValueError("endpoint pickers require an agent with a picker client")
    if cluster.protocol == "grpc":
        raise InvalidValueError(
            "endpoint pickers of GRPCRoutes are not supported by NGINX; use Envoy"
        )


def pool_address(cluster: ir.Cluster) -> str:
    """Return the address of the picker client for a cluster, relative to the run directory."""
    return f"unix:{config.POOL_SOCKETS}/{_socket(cluster)}"


def _socket(cluster: ir.Cluster) -> str:
    # Paths of sockets have at most 107 bytes.
    return f"{names.name_digest(cluster.name)}.sock"


def picker_client_files(
    capabilities: NginxCapabilities,
    pools: Iterable[ir.Cluster],
    clusters: Mapping[str, ir.Cluster],
) -> list[File]:
    """Return the configuration of the picker client, if any cluster has a picker."""
    listed = []
    files: dict[str, File] = {}
    for cluster in pools:
        picker = clusters.get(cluster.picker.cluster) if cluster.picker is not None else None
        if picker is None or not capabilities.pickers:
            continue
        for one in (cluster, picker):
            files[one.name] = _endpoints_file(one)
        listed.append(_pool(cluster, picker))
    if not listed:
        return []
    return [File.make(config.POOLS_FILE, config.encode_pools(listed)), *files.values()]


def _endpoints_file(cluster: ir.Cluster) -> File:
    endpoints = [WeightedEndpoint(one.address, one.port) for one in cluster.endpoints]
    return File.make(pool_endpoints_path(cluster.name), msgspec.json.encode(endpoints))


def _pool(cluster: ir.Cluster, picker: ir.Cluster) -> Pool:
    return Pool(
        socket=_socket(cluster),
        cluster=cluster.name,
        endpoints=pool_endpoints_path(cluster.name),
        pickers=pool_endpoints_path(picker.name),
        tls=_tls(picker.tls) if picker.tls is not None else None,
        http2=cluster.protocol == "h2c",
        fail_open=cluster.picker is not None and cluster.picker.fail_open,
    )


def _tls(tls: ir.BackendTls) -> PickerTls:
    accepted = tls.names or (ir.SubjectName("dns", tls.server_name),)
    return PickerTls(
        server_name=tls.server_name,
        trust=names.trust_file(tls.trust) if tls.verified else "",
        names=tuple(SubjectAltName(name.kind, name.value) for name in accepted),
        certificate=names.certificate_file(tls.certificate, "crt") if tls.certificate else "",
        key=names.certificate_file(tls.certificate, "key") if tls.certificate else "",
    )
