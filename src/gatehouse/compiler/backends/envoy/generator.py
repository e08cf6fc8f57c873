"""Queries for all resources of a gateway."""

from __future__ import annotations

from typing import Any

import msgspec

from gatehouse.compiler.backends.configuration import Entries, Incremental, clusters, secret_files
from gatehouse.compiler.backends.envoy import (
    client_ip,
    compression,
    ext_authz,
    listeners,
    passthrough,
    secret_names,
    secrets,
    virtual_hosts,
)
from gatehouse.compiler.backends.envoy import clusters as cluster_resources
from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.backends.envoy.kube_apiserver import fragments as kube_apiserver
from gatehouse.compiler.backends.failures import unserved
from gatehouse.compiler.backends.fragments import Fragment, Output, collect, failed
from gatehouse.compiler.backends.source import Source, capabilities, configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.authentication import Basic, Oidc
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin, of_gateway
from gatehouse.dataplane.xds.resources import Resource, ResourceSet
from gatehouse.incremental.grouping import Derived, derive
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

SecretKey = tuple[str, bool]
"""Name of a secret, and whether it is optional."""

NO_TRUST = ir.TrustBundle("", b"")
"""Stands for CA certificates that do not exist."""


class Generated(msgspec.Struct, frozen=True):
    """A resource set, and the parts of the IR that are unsupported."""

    resources: ResourceSet
    unsupported: tuple[Unsupported, ...] = ()


class Generator:
    """Generates the resources of one gateway repeatedly. The result depends on the last input
    only."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._queries = Incremental(output, capabilities)

    def generate(self, gateway: ir.Gateway) -> Generated:
        """Return all resources that Envoy needs to serve ``gateway``."""
        result = self._queries.run(gateway)
        return Generated(result.content, result.unsupported)


def output(ask: Ask, gateway: Source) -> Output[Resource, ResourceSet]:
    """Return all resources that Envoy needs to serve a gateway."""
    tables: tuple[Table[Any, Fragment[Resource]], ...] = (
        ask(common_resources, gateway),
        ask(virtual_hosts.exact_scopes, gateway),
        ask(virtual_hosts.wide_scopes, gateway),
        ask(_cluster_resources, gateway),
        ask(passthrough.resources, gateway),
        ask(_secret_resources, gateway).table,
        ask(listeners.resources, gateway),
        *kube_apiserver.tables(ask, gateway),
    )
    return collect(ask.last(), tables, ResourceSet())


def common_resources(ask: Ask, gateway: Source) -> Table[str, Fragment[Resource]]:
    """Return the resources that exist once, and the findings about the whole gateway."""
    return Table(
        {"authenticator": ask(_authenticator, gateway), "settings": ask(_settings, gateway)}
    )


def _settings(ask: Ask, gateway: Source) -> Fragment[Resource]:
    """Return the settings of the whole gateway that Envoy does not support."""
    found = configuration(ask, gateway)
    why = "snippets in NGINX syntax are not supported by Envoy"
    origins = [snippet.origin for snippet in found.snippets]
    origins += ask(virtual_hosts.snippet_origins, gateway)
    settings = [*client_ip.unsupported(found.settings), *compression.unsupported(found.settings)]
    return Fragment(
        (),
        (
            *(
                Unsupported(of_gateway(gateway.name), each.reason, setting=each.setting)
                for each in settings
            ),
            *(Unsupported(origin, why) for origin in dict.fromkeys(origins)),
        ),
    )


def _authenticator(ask: Ask, gateway: Source) -> Fragment[Resource]:
    """Return the configuration of the authenticator, if the agent has one and any route needs
    it."""
    if not capabilities(ask, gateway).authenticators:
        return Fragment()
    filters: dict[Basic | Oidc, list[Origin]] = {}
    for _, _, (authentication, user) in ask(virtual_hosts.needs, gateway):
        filters.setdefault(authentication, []).append(user)
    return Fragment(tuple(ext_authz.resources(filters, Entries(ask, secret_files, gateway))))


def _cluster_resources(ask: Ask, gateway: Source) -> Table[str, Fragment[Resource]]:
    """Return the clusters with their endpoints and secrets."""
    return ask.map_keys(_cluster, clusters, gateway, failed)


def _cluster(ask: Ask, which: tuple[Source, str]) -> Fragment[Resource] | None:
    """Return the resources of a cluster.

    A TCP cluster that no chain names has its endpoints under the names of dynamic clusters only,
    which refer to its secrets by its own name.
    """
    gateway, name = which
    cluster = ask.entry(clusters, gateway, name)
    if cluster is None:
        return None
    certificates = Entries(ask, _certificates, gateway)
    own_secrets = secrets.of_cluster(cluster, certificates, Entries(ask, _trust, gateway))
    try:
        if cluster.protocol == "tcp" and not ask.entry(_chained_clusters, gateway, name):
            return Fragment(tuple(own_secrets))
        resource = cluster_resources.cluster(cluster, capabilities(ask, gateway))
        return Fragment((resource, cluster_resources.endpoints(cluster), *own_secrets))
    except Exception as error:
        return Fragment((), (unserved(cluster.origin, error),))


def _certificates(ask: Ask, gateway: Source) -> Table[str, ir.Certificate]:
    return Table((each.name, each) for each in configuration(ask, gateway).certificates)


def _trust(ask: Ask, gateway: Source) -> Table[str, ir.TrustBundle]:
    return Table((each.name, each) for each in configuration(ask, gateway).trust_bundles)


def _chained_clusters(ask: Ask, gateway: Source) -> Table[str, str]:
    """Return the clusters that filter chains name."""
    return Table.of(
        backend.cluster
        for port in ask(listeners.ports, gateway).values()
        for stream in port.streams
        for host in stream.hosts
        for backend in host.backends
    )


def _secret_resources(
    ask: Ask, gateway: Source
) -> Derived[None, SecretKey, ir.Certificate | ir.TrustBundle, Fragment[Resource]]:
    """Return the certificates and CA certificates of listeners, under the names they refer to."""
    return derive(ask.last(), ask(_listener_secrets, gateway), _secret, None)


def _listener_secrets(
    ask: Ask, gateway: Source
) -> Table[SecretKey, ir.Certificate | ir.TrustBundle]:
    found = configuration(ask, gateway)
    ports = tuple(ask(listeners.ports, gateway).values())
    certificates = {each.name: each for each in found.certificates}
    bundles = {each.name: each for each in found.trust_bundles}
    sources: dict[SecretKey, ir.Certificate | ir.TrustBundle] = {}
    for name, source in (
        *secret_names.certificates(ports),
        *kube_apiserver.certificates(found),
    ):
        if source in certificates:
            sources[name, False] = certificates[source]
    for name, source, optional in (*secret_names.trust(found), *kube_apiserver.trust(found)):
        if source in bundles or optional:
            sources[name, optional] = bundles.get(source, NO_TRUST)
    return Table(sources)


def _secret(_: None, key: SecretKey, source: ir.Certificate | ir.TrustBundle) -> Fragment[Resource]:
    name, optional = key
    if isinstance(source, ir.Certificate):
        return Fragment((secrets.certificate(name, source),))
    bundle = None if source is NO_TRUST else source
    return Fragment((secrets.trust(name, bundle, optional=optional),))
