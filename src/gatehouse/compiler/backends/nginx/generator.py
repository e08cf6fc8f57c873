"""Queries for all files of a gateway."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gatehouse.compiler.backends.configuration import (
    Clusters,
    Incremental,
    all_clusters,
    endpoint_count,
)
from gatehouse.compiler.backends.failures import served_without
from gatehouse.compiler.backends.fragments import (
    Fragment,
    Output,
    collect,
    entry_fragment,
    failed_fragment,
)
from gatehouse.compiler.backends.nginx import (
    access_log,
    api_keys,
    auth_request,
    data_plane_settings,
    l4_listeners,
    names,
    outer_contexts,
    picked_pools,
    request_counts,
    route_context,
    server_tls,
    stream,
    tls_connectors,
    traces,
    upstreams,
    virtual_hosts,
)
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.http_conf import http_conf
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.origin import gateway_origin, port_origin
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

_NO_CONNECT = "HTTP CONNECT is not supported by NGINX; use Envoy"


class GeneratedFiles(msgspec.Struct, frozen=True):
    """A file set, and the parts of the IR that are unsupported."""

    file_set: FileSet
    unsupported: tuple[Unsupported, ...] = ()


class NginxGenerator:
    """Generates the files of one gateway repeatedly. The result depends on the last input only."""

    def __init__(self, capabilities: NginxCapabilities) -> None:
        self._queries = Incremental(generate_files, capabilities)

    def generate(self, gateway: ir.GatewayConfiguration) -> GeneratedFiles:
        """Return all files that NGINX needs to serve ``gateway``."""
        result = self._queries.run(gateway)
        return GeneratedFiles(result.content, result.unsupported)


def generate_files(ask: Ask, gateway: GatewaySource) -> Output[File, FileSet]:
    """Return all files that NGINX needs to serve a gateway."""
    tables = (
        ask(virtual_hosts.server_files, gateway),
        ask(virtual_hosts.default_files, gateway),
        ask(virtual_hosts.shared_upstream_files, gateway),
        ask(cluster_files, gateway),
        ask(l4_listeners.l4_files, gateway),
        ask(l4_listeners.l4_upstream_files, gateway),
        ask(credential_files, gateway),
        ask(common_files, gateway),
    )
    return collect(ask.last(), tables, FileSet())


def cluster_files(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[File]]:
    """Return the files of the upstreams of all clusters."""
    return ask.map_keys(_cluster_files, all_clusters, gateway, failed_fragment)


def _cluster_files(ask: Ask, gateway: GatewaySource, name: str) -> Fragment[File] | None:

    def files(cluster: http.Cluster) -> tuple[File, ...]:
        able = capabilities(ask, gateway)
        if cluster.protocol in ("tcp", "udp"):
            return ()
        if not cluster.endpoints:
            return upstreams.files_without_endpoints(able, name, cluster)
        return upstreams.upstream_files(able, name, [(cluster, 1)])

    return entry_fragment(ask, all_clusters, gateway, name, files)


def credential_files(ask: Ask, gateway: GatewaySource) -> Table[tuple[str, str], Fragment[File]]:
    """Return the files of certificates, CA certificates and secrets, by kind and name."""
    return ask.derive(ask(_credentials, gateway), _files_of_credential)


def _credentials(ask: Ask, gateway: GatewaySource) -> Table[tuple[str, str], ir.Credential]:
    configuration = gateway_configuration(ask, gateway)
    by_kind: dict[str, Collection[ir.Credential]] = {
        "certificate": configuration.certificates,
        "secret": configuration.secrets,
        "trust": configuration.trust_bundles,
    }
    return ask.by_name(by_kind, lambda kind, credential: (kind, credential.name))


def common_files(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[File]]:
    """Return the files that exist once, whatever the number of hostnames and clusters."""
    return Table(
        {
            "authenticator": ask(_authenticator, gateway),
            "base": ask(_base, gateway),
            "connectors": ask(_connectors, gateway),
            "pools": ask(_pools, gateway),
            "outer": ask(_outer_contexts, gateway),
            "stream": ask(_stream, gateway),
        }
    )


def _base(ask: Ask, gateway: GatewaySource) -> Fragment[File]:
    """Return the file that all virtual hosts share."""
    internal_ports, edge = ask(_base_settings, gateway)
    needs = ask(virtual_hosts.needs_of_kind, gateway, route_context.DEFINITION)
    needed = sorted((directive for _, _, directive in needs), key=lambda item: item.arguments)
    definitions = (*ask(virtual_hosts.names_by_sni_of_ports, gateway), *needed)
    zone = _upstream_zone(ask, gateway, names.ZONE)
    able = capabilities(ask, gateway)
    text = http_conf(able, definitions, dict(internal_ports), edge, zone)
    log = access_log.access_log_file(edge, able, gateway.name)
    counts = request_counts.format_file(able)
    files = [File.make(f"{names.ROOT}/http.conf", text), *log.items, *counts.items]
    export = able.exported(edge.traces)
    if export is not None:
        files.append(File.make(names.TRACE_EXPORT, traces.exporter_text(export, gateway.name)))
    origin = gateway_origin(gateway.name)
    settings = [
        *traces.unsupported_export(edge.traces, able),
        *data_plane_settings.unsupported_paths(edge),
    ]
    unsupported = [served_without(origin, setting) for setting in settings]
    return Fragment(tuple(files), (*log.unsupported, *unsupported))


def _base_settings(
    ask: Ask, gateway: GatewaySource
) -> tuple[tuple[tuple[int, int], ...], DataPlaneSettings]:
    configuration = gateway_configuration(ask, gateway)
    return tuple(sorted(l4_listeners.internal_ports(configuration).items())), configuration.settings


def _upstream_zone(ask: Ask, gateway: GatewaySource, name: str) -> list[Directive]:
    if not capabilities(ask, gateway).resolving_upstreams:
        return []
    # Twice: upstreams of several clusters and of session persistence have copies of their own.
    return [upstreams.zone_upstream(name, 2 * ask(endpoint_count, gateway))]


def _outer_contexts(ask: Ask, gateway: GatewaySource) -> Fragment[File]:
    return outer_contexts.fragment(gateway_configuration(ask, gateway), capabilities(ask, gateway))


def _stream(ask: Ask, gateway: GatewaySource) -> Fragment[File]:
    """Return the file that all L4 listeners share, and findings about those not supported."""
    configuration = gateway_configuration(ask, gateway)
    why = "selection by the destination in a PROXY header is not supported by NGINX; use Envoy"
    unsupported = [
        Unsupported(port_origin(gateway.name, proxy_protocol_listener.port), why)
        for proxy_protocol_listener in configuration.proxy_protocol_listeners
    ]
    unsupported += [
        Unsupported(port_origin(gateway.name, connect.port), _NO_CONNECT)
        for connect in configuration.http_connect_listeners
    ]
    files: tuple[File, ...] = ()
    if configuration.l4_listeners and not capabilities(ask, gateway).stream_servers:
        why = "TCP, UDP and TLS listeners require NGINX 1.25.5 or newer"
        unsupported += [
            Unsupported(port_origin(gateway.name, l4_listener.port), why)
            for l4_listener in configuration.l4_listeners
        ]
    elif configuration.l4_listeners:
        zone = _upstream_zone(ask, gateway, names.STREAM_ZONE)
        log = ask(l4_listeners.connection_log_files, gateway)
        text = stream.stream_conf(configuration.settings, zone, [file.path for file in log])
        files = (File.make(f"{names.ROOT}/stream.conf", text), *log)
        if not capabilities(ask, gateway).versions_by_sni:
            unsupported += (
                served_without(gateway_origin(gateway.name), setting)
                for listener in configuration.l4_listeners
                for setting in server_tls.unsupported_versions(
                    listener.port, stream.terminated_tls(listener)
                )
            )
    return Fragment(files, tuple(unsupported))


def _connectors(ask: Ask, gateway: GatewaySource) -> Fragment[File]:
    """Return the configuration of the TLS connectors, if the agent has them."""
    if not capabilities(ask, gateway).connectors:
        return Fragment()
    connected = ask(_clusters_by_sidecar, gateway).get("connector", ())
    by_name = Clusters(ask, gateway)
    return Fragment(tuple(tls_connectors.connector_files([by_name[name] for name in connected])))


def _pools(ask: Ask, gateway: GatewaySource) -> Fragment[File]:
    """Return the configuration of the picker client."""
    by_name, able = Clusters(ask, gateway), capabilities(ask, gateway)
    pools = [by_name[name] for name in ask(_clusters_by_sidecar, gateway).get("picker", ())]
    return Fragment(tuple(picked_pools.picker_client_files(able, pools, by_name)))


def _clusters_by_sidecar(ask: Ask, gateway: GatewaySource) -> Table[str, tuple[str, ...]]:
    """Return the names of the clusters that NGINX reaches with the help of a sidecar."""
    return ask.group_by(ask(all_clusters, gateway), _sidecars)


def _sidecars(_: str, cluster: http.Cluster) -> list[str]:
    """Return the sidecars of a cluster: the TLS connector, the client of the endpoint picker."""
    picker = ["picker"] if cluster.picker is not None else []
    return [*picker, "connector"] if tls_connectors.needs_connector(cluster) else picker


def _authenticator(ask: Ask, gateway: GatewaySource) -> Fragment[File]:
    able = capabilities(ask, gateway)
    if not (able.auth_request and able.authenticators):
        return Fragment()
    needs = ask(virtual_hosts.needs_of_kind, gateway, route_context.RELYING_PARTY)
    parties = sorted((party for _, _, party in needs), key=lambda party: (party.owner, repr(party)))
    return Fragment(tuple(auth_request.authenticator_files(parties)))


def _files_of_credential(_: object, credential: ir.Credential) -> Fragment[File]:
    name = credential.name
    match credential:
        case ir.TrustBundle():
            return Fragment((File.make(names.trust_file(name), credential.pem),))
        case ir.ApiKeyFile():
            rows = api_keys.client_rows(credential)
            return Fragment((File.make(names.secret_file(name), rows, secret=True),))
        case ir.SecretFile():
            content = credential.content.reveal()
            return Fragment((File.make(names.secret_file(name), content, secret=True),))
        case ir.Certificate():
            key = names.certificate_file(name, "key")
            private = File.make(key, credential.key.reveal(), secret=True)
            chain = File.make(names.certificate_file(name, "crt"), credential.chain)
            return Fragment((chain, private))
