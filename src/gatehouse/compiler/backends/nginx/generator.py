"""Queries for all files of a gateway."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gatehouse.compiler.backends.configuration import (
    Clusters,
    Incremental,
    clusters,
    endpoint_count,
)
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, Output, collect, failed
from gatehouse.compiler.backends.nginx import (
    auth_request,
    l4_listeners,
    names,
    outer_contexts,
    stream,
    tls_connectors,
    upstreams,
    virtual_hosts,
)
from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.http_conf import http_conf
from gatehouse.compiler.backends.source import Source, capabilities, configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.origin import of_port
from gatehouse.incremental.grouping import (
    Derived,
    Grouping,
    Keyed,
    by_key,
    derive,
    group_by,
    presence,
)
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

Credential = ir.Certificate | ir.TrustBundle | ir.SecretFile


class Generated(msgspec.Struct, frozen=True):
    """A file set, and the parts of the IR that are unsupported."""

    file_set: FileSet
    unsupported: tuple[Unsupported, ...] = ()


class Generator:
    """Generates the files of one gateway repeatedly. The result depends on the last input only."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._queries = Incremental(output, capabilities)

    def generate(self, gateway: ir.Gateway) -> Generated:
        """Return all files that NGINX needs to serve ``gateway``."""
        result = self._queries.run(gateway)
        return Generated(result.content, result.unsupported)


def output(ask: Ask, gateway: Source) -> Output[File, FileSet]:
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


def cluster_files(ask: Ask, gateway: Source) -> Table[str, Fragment[File]]:
    """Return the files of the upstreams of all clusters."""
    return ask.map_keys(_cluster_files, clusters, gateway, failed)


def _cluster_files(ask: Ask, which: tuple[Source, str]) -> Fragment[File] | None:
    gateway, name = which
    cluster = ask.entry(clusters, gateway, name)
    if cluster is None or not cluster.endpoints or cluster.protocol in ("tcp", "udp"):
        return None
    try:
        return Fragment(upstreams.files(capabilities(ask, gateway), name, [(cluster, 1)]))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))


def credential_files(ask: Ask, gateway: Source) -> Table[tuple[str, str], Fragment[File]]:
    """Return the files of certificates, CA certificates and secrets, by kind and name."""
    return ask(_credential_files, gateway).table


def _credential_files(
    ask: Ask, gateway: Source
) -> Derived[None, tuple[str, str], Credential, Fragment[File]]:
    return derive(ask.last(), ask(_credentials, gateway).table, _files_of_credential, None)


def _credentials(ask: Ask, gateway: Source) -> Keyed[str, tuple[str, str], Credential]:
    found = configuration(ask, gateway)
    by_kind: dict[str, Collection[Credential]] = {
        "certificate": found.certificates,
        "secret": found.secrets,
        "trust": found.trust_bundles,
    }
    return by_key(ask.last(), by_kind, _credential_key)


def _credential_key(kind: str, credential: Credential) -> tuple[str, str]:
    return kind, credential.name


def common_files(ask: Ask, gateway: Source) -> Table[str, Fragment[File]]:
    """Return the files that exist once, whatever the number of hostnames and clusters."""
    return Table(
        {
            "authenticator": ask(_authenticator, gateway),
            "base": ask(_base, gateway),
            "connectors": ask(_connectors, gateway),
            "outer": ask(_outer_contexts, gateway),
            "stream": ask(_stream, gateway),
        }
    )


def _base(ask: Ask, gateway: Source) -> Fragment[File]:
    """Return the file that all virtual hosts share."""
    internal_ports, edge = ask(_base_settings, gateway)
    needs = ask(virtual_hosts.needs_of_kind, (gateway, virtual_hosts.RATE_LIMIT_ZONE))
    rate_limit_zones = sorted((zone for _, _, zone in needs), key=lambda zone: zone.arguments)
    maps = (*ask(virtual_hosts.names_by_sni_of_ports, gateway), *rate_limit_zones)
    zone = _upstream_zone(ask, gateway, names.ZONE)
    text = http_conf(capabilities(ask, gateway), maps, dict(internal_ports), edge, zone)
    return Fragment((File.make(f"{names.ROOT}/http.conf", text),))


def _base_settings(
    ask: Ask, gateway: Source
) -> tuple[tuple[tuple[int, int], ...], DataPlaneSettings]:
    found = configuration(ask, gateway)
    return tuple(sorted(l4_listeners.internal_ports(found).items())), found.settings


def _upstream_zone(ask: Ask, gateway: Source, name: str) -> list[Directive]:
    if not capabilities(ask, gateway).resolving_upstreams:
        return []
    # Twice: upstreams of several clusters and of session persistence have copies of their own.
    return [upstreams.zone(name, 2 * ask(endpoint_count, gateway))]


def _outer_contexts(ask: Ask, gateway: Source) -> Fragment[File]:
    return outer_contexts.fragment(configuration(ask, gateway), capabilities(ask, gateway))


def _stream(ask: Ask, gateway: Source) -> Fragment[File]:
    """Return the file that all L4 listeners share, and findings about those not supported."""
    found = configuration(ask, gateway)
    why = "selection by the destination in a PROXY header is not supported by NGINX; use Envoy"
    unsupported = [
        Unsupported(of_port(gateway.name, each.port), why)
        for each in found.proxy_protocol_listeners
    ]
    files: tuple[File, ...] = ()
    if found.l4_listeners and not capabilities(ask, gateway).stream_servers:
        why = "TCP, UDP and TLS listeners require NGINX 1.25.5 or newer"
        unsupported += [
            Unsupported(of_port(gateway.name, each.port), why) for each in found.l4_listeners
        ]
    elif found.l4_listeners:
        text = stream.stream_conf(found.settings, _upstream_zone(ask, gateway, names.STREAM_ZONE))
        files = (File.make(f"{names.ROOT}/stream.conf", text),)
    return Fragment(files, tuple(unsupported))


def _connectors(ask: Ask, gateway: Source) -> Fragment[File]:
    """Return the configuration of the TLS connectors, if the agent has them."""
    if not capabilities(ask, gateway).connectors:
        return Fragment()
    all_clusters = Clusters(ask, gateway)
    connected = [all_clusters[name] for name in ask(_connected_clusters, gateway)]
    return Fragment(tuple(tls_connectors.files(connected)))


def _connected_clusters(ask: Ask, gateway: Source) -> tuple[str, ...]:
    """Return the names of the clusters that are reached through a TLS connector."""
    return ask(_by_connection, gateway).members.get(True, ())


def _by_connection(ask: Ask, gateway: Source) -> Grouping[None, str, http.Cluster, bool, bool]:
    return group_by(ask.last(), ask(clusters, gateway), _is_connected, presence, None)


def _is_connected(_: None, __: str, cluster: http.Cluster) -> list[bool]:
    return [True] if tls_connectors.connected(cluster) else []


def _authenticator(ask: Ask, gateway: Source) -> Fragment[File]:
    able = capabilities(ask, gateway)
    if not (able.auth_request and able.authenticators):
        return Fragment()
    needs = ask(virtual_hosts.needs_of_kind, (gateway, virtual_hosts.RELYING_PARTY))
    parties = sorted(
        (party for _, _, party in needs), key=lambda party: (party.filter, repr(party))
    )
    return Fragment(tuple(auth_request.files(parties)))


def _files_of_credential(_: None, __: object, credential: Credential) -> Fragment[File]:
    name = credential.name
    match credential:
        case ir.TrustBundle():
            return Fragment((File.make(names.trust_file(name), credential.pem),))
        case ir.SecretFile():
            content = credential.content.reveal()
            return Fragment((File.make(names.secret_file(name), content, secret=True),))
        case ir.Certificate():
            key = names.certificate_file(name, "key")
            private = File.make(key, credential.key.reveal(), secret=True)
            chain = File.make(names.certificate_file(name, "crt"), credential.chain)
            return Fragment((chain, private))
