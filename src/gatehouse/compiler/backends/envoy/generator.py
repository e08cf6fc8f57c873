"""Queries for all resources of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gatehouse.compiler.backends.configuration import (
    Entries,
    Incremental,
    all_clusters,
    secret_files,
)
from gatehouse.compiler.backends.envoy import (
    client_ip,
    compression,
    ext_authz,
    http_connect,
    listeners,
    names,
    passthrough,
    request_log,
    secret_names,
    secrets,
    traces,
    virtual_hosts,
)
from gatehouse.compiler.backends.envoy import clusters as cluster_resources
from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.kube_apiserver import fragments as kube_apiserver
from gatehouse.compiler.backends.fragments import (
    Fragment,
    Output,
    collect,
    entry_fragment,
    failed_fragment,
)
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.authentication import Basic, Oidc
from gatehouse.compiler.ir.http import Cluster
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin, gateway_origin
from gatehouse.dataplane.xds import runtime_limits
from gatehouse.dataplane.xds.resources import ResourceSet, XdsResource
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

SecretKey = tuple[str, bool]
"""Name of a secret, and whether it is optional."""

NO_TRUST = ir.TrustBundle("", b"")
"""Stands for CA certificates that do not exist."""


class GeneratedResources(msgspec.Struct, frozen=True):
    """A resource set, and the parts of the IR that are unsupported."""

    resources: ResourceSet
    unsupported: tuple[Unsupported, ...] = ()


class EnvoyGenerator:
    """Generates the resources of one gateway repeatedly. The result depends on the last input
    only."""

    def __init__(self, capabilities: EnvoyCapabilities) -> None:
        self._queries = Incremental(generate_resources, capabilities)

    def generate(self, gateway: ir.GatewayConfiguration) -> GeneratedResources:
        """Return all resources that Envoy needs to serve ``gateway``."""
        result = self._queries.run(gateway)
        return GeneratedResources(result.content, result.unsupported)


def generate_resources(ask: Ask, gateway: GatewaySource) -> Output[XdsResource, ResourceSet]:
    """Return all resources that Envoy needs to serve a gateway."""
    tables: tuple[Table[Any, Fragment[XdsResource]], ...] = (
        ask(common_resources, gateway),
        ask(virtual_hosts.exact_scopes, gateway),
        ask(virtual_hosts.wide_scopes, gateway),
        ask(_cluster_resources, gateway),
        ask(passthrough.passthrough_resources, gateway),
        ask(http_connect.connect_scopes, gateway),
        ask(_secret_resources, gateway),
        ask(listeners.listener_resources, gateway),
        *kube_apiserver.tables(ask, gateway),
    )
    return collect(ask.last(), tables, ResourceSet())


def common_resources(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[XdsResource]]:
    """Return the resources that exist once, and the findings about the whole gateway."""
    return Table(
        {
            "authenticator": ask(_authenticator, gateway),
            "collector": ask(_collector, gateway),
            "settings": ask(_settings, gateway),
        }
    )


def _settings(ask: Ask, gateway: GatewaySource) -> Fragment[XdsResource]:
    """Return the settings of the whole gateway that Envoy does not support."""
    configuration = gateway_configuration(ask, gateway)
    why = "snippets in NGINX syntax are not supported by Envoy"
    origins = [snippet.origin for snippet in configuration.snippets]
    origins += ask(virtual_hosts.snippet_origins, gateway)
    settings = [
        *client_ip.unsupported_client_ip(configuration.settings),
        *compression.unsupported_compression(configuration.settings),
        *request_log.unsupported_access_log(configuration.settings),
        *traces.unsupported_attributes(configuration.settings.traces),
    ]
    return Fragment(
        (),
        (
            *(
                Unsupported(gateway_origin(gateway.name), setting.reason, setting=setting.setting)
                for setting in settings
            ),
            *(Unsupported(origin, why) for origin in dict.fromkeys(origins)),
        ),
    )


def _authenticator(ask: Ask, gateway: GatewaySource) -> Fragment[XdsResource]:
    """Return the configuration of the authenticator, if the agent has one and any route needs
    it."""
    if not capabilities(ask, gateway).authenticators:
        return Fragment()
    filters: dict[Basic | Oidc, list[Origin]] = {}
    for _, _, (authentication, user) in ask(virtual_hosts.needed_filters, gateway):
        filters.setdefault(authentication, []).append(user)
    return Fragment(
        tuple(ext_authz.authenticator_resources(filters, Entries(ask, secret_files, gateway)))
    )


def _collector(ask: Ask, gateway: GatewaySource) -> Fragment[XdsResource]:
    """Return the collector of traces, and the settings of the export.

    A Gateway with kube-apiservers has these settings in the resource of their limits.
    """
    configuration = gateway_configuration(ask, gateway)
    export = configuration.settings.traces
    if export is None:
        return Fragment()
    able = capabilities(ask, gateway)
    certificates, trust = Entries(ask, _certificates, gateway), Entries(ask, _trust, gateway)
    items = [
        traces.collector_cluster(export, able),
        *secrets.cluster_secrets(names.TRACE_COLLECTOR, export, certificates, trust),
    ]
    if able.runtime_limits and not configuration.api_listeners:
        items.append(runtime_limits.limits_resource({}, others=traces.runtime_values(export)))
    return Fragment(tuple(items))


def _cluster_resources(ask: Ask, gateway: GatewaySource) -> Table[str, Fragment[XdsResource]]:
    """Return the clusters with their endpoints and secrets."""
    return ask.map_keys(_cluster, all_clusters, gateway, failed_fragment)


def _cluster(ask: Ask, gateway: GatewaySource, name: str) -> Fragment[XdsResource] | None:
    """Return the resources of a cluster.

    A TCP cluster that neither chain nor scope names has its endpoints under the names of dynamic
    clusters only, which refer to its secrets by its own name.
    """

    def resources(cluster: Cluster) -> Iterator[XdsResource]:
        named = ask.entry(_chained_clusters, gateway, key=name) or ask.entry(
            http_connect.connect_clusters, gateway, key=name
        )
        if cluster.protocol != "tcp" or named:
            yield cluster_resources.build_cluster(cluster, capabilities(ask, gateway))
            yield from cluster_resources.build_endpoints(cluster)
        certificates = Entries(ask, _certificates, gateway)
        trust = Entries(ask, _trust, gateway)
        yield from secrets.cluster_secrets(cluster.name, cluster.tls, certificates, trust)

    return entry_fragment(ask, all_clusters, gateway, name, resources)


def _certificates(ask: Ask, gateway: GatewaySource) -> Table[str, ir.Certificate]:
    return Table(
        (certificate.name, certificate)
        for certificate in gateway_configuration(ask, gateway).certificates
    )


def _trust(ask: Ask, gateway: GatewaySource) -> Table[str, ir.TrustBundle]:
    return Table(
        (trust_bundle.name, trust_bundle)
        for trust_bundle in gateway_configuration(ask, gateway).trust_bundles
    )


def _chained_clusters(ask: Ask, gateway: GatewaySource) -> Table[str, str]:
    """Return the clusters that filter chains name."""
    return Table.of(
        backend.cluster
        for port in ask(listeners.gateway_ports, gateway).values()
        for stream in port.streams
        for host in stream.hosts
        for backend in host.backends
    )


def _secret_resources(ask: Ask, gateway: GatewaySource) -> Table[SecretKey, Fragment[XdsResource]]:
    """Return the certificates and CA certificates of listeners, under the names they refer to."""
    return ask.derive(ask(_listener_secrets, gateway), _secret)


def _listener_secrets(
    ask: Ask, gateway: GatewaySource
) -> Table[SecretKey, ir.Certificate | ir.TrustBundle]:
    configuration = gateway_configuration(ask, gateway)
    ports = tuple(ask(listeners.gateway_ports, gateway).values())
    certificates = {certificate.name: certificate for certificate in configuration.certificates}
    bundles = {trust_bundle.name: trust_bundle for trust_bundle in configuration.trust_bundles}
    sources: dict[SecretKey, ir.Certificate | ir.TrustBundle] = {}
    for name, source in (
        *secret_names.certificate_secrets(ports),
        *kube_apiserver.cluster_certificate_secrets(configuration),
    ):
        if source in certificates:
            sources[name, False] = certificates[source]
    for name, source, optional in (
        *secret_names.trust_secrets(configuration),
        *kube_apiserver.cluster_trust_secrets(configuration),
    ):
        if source in bundles or optional:
            sources[name, optional] = bundles.get(source, NO_TRUST)
    return Table(sources)


def _secret(key: SecretKey, source: ir.Certificate | ir.TrustBundle) -> Fragment[XdsResource]:
    name, optional = key
    if isinstance(source, ir.Certificate):
        return Fragment((secrets.certificate_secret(name, source),))
    bundle = None if source is NO_TRUST else source
    return Fragment((secrets.trust_secret(name, bundle, optional=optional),))
