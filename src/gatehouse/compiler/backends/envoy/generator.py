"""Generator: builds all resources of a gateway, reusing fragments whose inputs did not change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import msgspec

from gatehouse.compiler.backends.envoy import (
    client_ip,
    clusters,
    compression,
    dynamic_clusters,
    ext_authz,
    l4,
    listeners,
    proxy_protocol,
    secret_names,
    secrets,
)
from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.backends.envoy.dynamic_cluster_resources import DynamicClusterResources
from gatehouse.compiler.backends.envoy.filter_chains import Chain
from gatehouse.compiler.backends.envoy.fragments import (
    ChangeTracker,
    Fragment,
    Fragments,
)
from gatehouse.compiler.backends.envoy.kube_apiserver import fragments as kubernetes
from gatehouse.compiler.backends.envoy.route_context import (
    ClusterProperties,
    Context,
    cluster_properties,
)
from gatehouse.compiler.backends.envoy.virtual_hosts import Hosts
from gatehouse.compiler.backends.failures import reason
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic, Oidc
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.dataplane.origin import Origin, of_gateway
from gatehouse.dataplane.xds.resources import Resource, ResourceSet


class Generated(msgspec.Struct, frozen=True):
    """A resource set, and the parts of the IR that are unsupported."""

    resources: ResourceSet
    unsupported: tuple[Unsupported, ...] = ()


class Generator:
    """Generates the resources of one gateway repeatedly. The result depends on the last input
    only."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._fragments = Fragments()
        self._apis = kubernetes.Apis(self._fragments)
        self._tracker: ChangeTracker[ir.Cluster] = ChangeTracker()
        self._clusters: dict[str, ir.Cluster] = {}
        self._properties: dict[str, ClusterProperties | None] = {}
        self._hosts: dict[int, Hosts] = {}
        self._snippets: Counter[Origin] = Counter()
        """Number of virtual hosts with each snippet, by name."""
        self._names: dict[int, dynamic_clusters.Names] = {}
        """By TLS port."""
        self._plain: set[str] = set()
        """Clusters that chains name."""
        self._destinations: dict[int, proxy_protocol.Destinations] = {}
        """By PROXY protocol port."""
        self._cluster_changes: list[dynamic_clusters.DynamicClusterDiff] = []
        """Changes of dynamic clusters in this pass."""
        self._dynamic_clusters = DynamicClusterResources(self._fragments, capabilities)
        self._keys: dict[str, set[str]] = {}
        """Keys of the last pass, for kinds with few fragments."""

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Return all resources that Envoy needs to serve ``gateway``."""
        secret_files = {secret.name: secret for secret in gateway.secrets}
        new = self._follow_clusters(gateway.clusters)
        # UDP listeners and chains name clusters, but do not depend on their properties.
        stale_keys = self._fragments.users(self._changed_properties(new))
        context = Context(self._clusters, secret_files, self._capabilities)
        self._plan_hosts(gateway, context, stale_keys)
        ports = self._ports(gateway)
        self._plan_clusters(gateway, ports, new)
        self._dynamic_clusters.plan(self._cluster_changes, self._clusters, new)
        self._plan_secrets(gateway, ports)
        # The needs of hosts are known once all of them are planned.
        self._plan_authenticator(secret_files)
        self._plan_ports(ports, self._clusters)
        self._apis.plan(gateway)
        resources, unsupported = self._fragments.finish()
        return Generated(resources, (*_common(gateway, self._snippets), *unsupported))

    def _ports(self, gateway: ir_gateway.Gateway) -> tuple[listeners.Port, ...]:
        """Return the ports; record the changes of their dynamic clusters."""
        chains = {number: hosts.chains for number, hosts in self._hosts.items()}
        tls_ports = {each.port for each in gateway.streams if each.protocol == "TLS"}
        proxy_protocol_ports = {each.port for each in gateway.tunnels}
        self._cluster_changes = [
            self._names.pop(n).follow((), ()) for n in self._names.keys() - tls_ports
        ]
        for number in self._destinations.keys() - proxy_protocol_ports:
            self._cluster_changes.append(self._destinations.pop(number).follow(()))
        return tuple(
            listeners.ports(gateway, chains, self._chained_hosts, self._proxy_protocol_inputs)
        )

    def _chained_hosts(
        self, stream: ir_gateway.L4Listener, beside: Iterable[Chain]
    ) -> tuple[ir_gateway.L4Host, ...]:
        known = self._names.setdefault(stream.port, dynamic_clusters.Names(stream.port))
        https = [name for chain in beside if chain.certificates for name in chain.names]
        self._cluster_changes.append(known.follow(stream.hosts, https))
        return known.chained

    def _proxy_protocol_inputs(
        self, tunnel: ir_gateway.ProxyProtocolListener
    ) -> proxy_protocol.ProxyProtocolInputs:
        known = self._destinations.setdefault(tunnel.port, proxy_protocol.Destinations(tunnel.port))
        self._cluster_changes.append(known.follow(tunnel.destinations))
        return known.entrance(tunnel.proxies)

    def _follow_clusters(self, gateway_clusters: Collection[ir.Cluster]) -> set[str]:
        """Update the clusters. Return the names of changed ones."""
        fresh, gone = self._tracker.follow(gateway_clusters)
        for cluster in gone:
            self._clusters.pop(cluster.name, None)
        self._clusters |= {cluster.name: cluster for cluster in fresh}
        return {cluster.name for cluster in (*fresh, *gone)}

    def _changed_properties(self, new: Iterable[str]) -> set[str]:
        """Return the names of clusters whose properties other than endpoints changed."""
        changed = set()
        for name in new:
            properties = cluster_properties(self._clusters.get(name))
            if self._properties.get(name) != properties:
                changed.add(name)
            if properties is None:
                self._properties.pop(name, None)
            else:
                self._properties[name] = properties
        return changed

    def _plan_clusters(
        self, gateway: ir_gateway.Gateway, ports: tuple[listeners.Port, ...], new: set[str]
    ) -> None:
        """Plan clusters with their endpoints and secrets.

        A TCP cluster that no chain names has its endpoints under the names of dynamic clusters
        only.
        """
        plain = {b.cluster for p in ports for s in p.streams for h in s.hosts for b in h.backends}
        for name in new | (plain ^ self._plain):
            cluster = self._clusters.get(name)
            if cluster is None or (cluster.protocol == "tcp" and name not in plain):
                self._fragments.drop(f"cluster/{name}")
                if cluster is not None:
                    # Dynamic clusters refer to its secrets by its own name.
                    result = tuple(secrets.of_cluster(cluster, gateway))
                    self._fragments.put(f"cluster/{name}", Fragment(result))
            else:
                self._fragments.put(f"cluster/{name}", self._cluster(cluster, gateway))
        self._plain = plain

    def _cluster(self, cluster: ir.Cluster, gateway: ir_gateway.Gateway) -> Fragment:
        try:
            cluster_resource = clusters.cluster(cluster, self._capabilities)
            cluster_secrets = secrets.of_cluster(cluster, gateway)
            return Fragment((cluster_resource, clusters.endpoints(cluster), *cluster_secrets))
        except Exception as error:
            return Fragment((), (Unsupported(cluster.origin, reason(error)),))

    def _plan_secrets(self, gateway: ir_gateway.Gateway, ports: tuple[listeners.Port, ...]) -> None:
        """Plan the certificates and CA certificates of listeners, under the names they refer to."""
        certificates = {each.name: each for each in gateway.certificates}
        bundles = {each.name: each for each in gateway.trust}
        planned: dict[str, tuple[Any, Callable[[], Resource]]] = {}
        for name, source in (*secret_names.certificates(ports), *kubernetes.certificates(gateway)):
            if (certificate := certificates.get(source)) is not None:
                planned[name] = (certificate, partial(secrets.certificate, name, certificate))
        for name, source, optional in (*secret_names.trust(gateway), *kubernetes.trust(gateway)):
            bundle = bundles.get(source)
            if bundle is not None or optional:
                build = partial(secrets.trust, name, bundle, optional=optional)
                planned[name] = ((bundle, optional), build)
        for name, (inputs, make) in planned.items():
            known = self._fragments.get(f"secret/{name}")
            if known is None or known.inputs != (inputs,):
                self._fragments.put(f"secret/{name}", Fragment((make(),), inputs=(inputs,)))
        self._drop_unplanned("secret", {f"secret/{name}" for name in planned})

    def _drop_unplanned(self, kind: str, keys: set[str]) -> None:
        """Drop the fragments of a kind that are not planned in this pass."""
        for key in self._keys.get(kind, set()) - keys:
            self._fragments.drop(key)
        self._keys[kind] = keys

    def _plan_hosts(self, gateway: ir_gateway.Gateway, context: Context, stale: set[str]) -> None:
        """Plan the virtual hosts of all ports."""
        self._drop_hosts(self._hosts.keys() - {each.port for each in gateway.listeners})
        for listener in gateway.listeners:
            per_listener = gateway.edge.sni_host_validation and listener.protocol == "HTTPS"
            hosts = self._hosts.get(listener.port)
            if hosts is None or hosts.per_listener != per_listener:
                self._drop_hosts({listener.port})
                hosts = self._hosts[listener.port] = Hosts(
                    self._fragments, listener.port, per_listener=per_listener
                )
            scheme = "https" if listener.protocol == "HTTPS" else "http"
            served = msgspec.structs.replace(context, scheme=scheme)
            self._count_snippets(*hosts.plan(listener.virtual_hosts, served, stale))

    def _plan_authenticator(self, secrets: dict[str, ir_gateway.SecretFile]) -> None:
        """Plan the configuration of the authenticator, if the agent has one and any route needs
        it."""
        moves = self._fragments.moves if self._capabilities.authenticators else 0
        known = self._fragments.get("authenticator")
        if (known.inputs if known is not None else (0,)) == (moves,):
            return
        filters: dict[Basic | Oidc, list[Origin]] = {}
        for authentication, route in sorted(
            self._fragments.needs, key=lambda need: (need[0].filter, need[1])
        ):
            filters.setdefault(authentication, []).append(route)
        result = tuple(ext_authz.resources(filters, secrets))
        self._fragments.put("authenticator", Fragment(result, inputs=(moves,)))

    def _drop_hosts(self, ports: Iterable[int]) -> None:
        for port in ports:
            hosts = self._hosts.pop(port, None)
            if hosts is not None:
                self._count_snippets((), hosts.drop())

    def _count_snippets(
        self, fresh: Iterable[ir.VirtualHost], gone: Iterable[ir.VirtualHost]
    ) -> None:
        """Count the snippets of added and removed hosts."""
        self._snippets.update(each.origin for host in fresh for each in host.snippets)
        self._snippets.subtract(each.origin for host in gone for each in host.snippets)

    def _plan_ports(self, ports: Iterable[listeners.Port], known: dict[str, ir.Cluster]) -> None:
        """Plan the listeners."""
        keys = set()
        for port in ports:
            keys.add(key := f"port/{port.family}/{port.number}")
            used = {share.cluster for s in port.streams for h in s.hosts for share in h.backends}
            # UDP uses the endpoints of several clusters; others depend on cluster names only.
            ends = [known.get(name) for name in sorted(used)] if port.family == "udp" else []
            inputs = (port, used & known.keys(), ends)
            before = self._fragments.get(key)
            if before is None or before.inputs != inputs:
                self._fragments.put(key, _port(port, known, inputs))
        self._drop_unplanned("port", keys)


def _port(port: listeners.Port, known: dict[str, ir.Cluster], inputs: tuple[Any, ...]) -> Fragment:
    try:
        result = [listeners.listener(port, known)]
        if port.family == "udp":
            result += l4.mixed(port.number, next(iter(port.streams[0].hosts)), known)
    except Exception as error:
        return Fragment((), (Unsupported(port.origin, reason(error)),), inputs=inputs)
    return Fragment(tuple(result), inputs=inputs)


def _common(gateway: ir_gateway.Gateway, snippets: Counter[Origin]) -> tuple[Unsupported, ...]:
    """Return the settings of the whole gateway that Envoy does not support."""
    edge = gateway.edge
    why = "snippets in NGINX syntax are not supported by Envoy"
    origins = (*(each.origin for each in gateway.snippets), *sorted(+snippets))
    return (
        *(
            Unsupported(of_gateway(gateway.name), each)
            for each in (*client_ip.unsupported(edge), *compression.unsupported(edge))
        ),
        *(Unsupported(origin, why) for origin in dict.fromkeys(origins)),
    )
