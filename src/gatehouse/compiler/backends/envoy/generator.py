"""The build plan: which resources a gateway has, made again only when what they show changes."""

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
from gatehouse.compiler.backends.envoy.dynamic_cluster_resources import Directions
from gatehouse.compiler.backends.envoy.filter_chains import Chain
from gatehouse.compiler.backends.envoy.fragments import (
    ChangeTracker,
    Fragment,
    Fragments,
    Unsupported,
)
from gatehouse.compiler.backends.envoy.kube_apiserver import fragments as kubernetes
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.backends.envoy.route_context import Context, Shown, shown
from gatehouse.compiler.backends.envoy.virtual_hosts import Hosts
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic, Oidc
from gatehouse.dataplane.xds.resources import Resource, ResourceSet


class Generated(msgspec.Struct, frozen=True):
    """Resources, and what of the IR Envoy cannot do: names of routes or ``port/…``, and why."""

    resources: ResourceSet
    unsupported: Unsupported = ()


class Generator:
    """Generates one gateway's resources again and again; the result depends on the input alone."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._fragments = Fragments()
        self._apis = kubernetes.Apis(self._fragments)
        self._followed: ChangeTracker[ir.Cluster] = ChangeTracker()
        self._clusters: dict[str, ir.Cluster] = {}
        self._shown: dict[str, Shown | None] = {}
        self._hosts: dict[int, Hosts] = {}
        self._snippets: Counter[str] = Counter()
        """By name, those of virtual hosts."""
        self._names: dict[int, dynamic_clusters.Names] = {}
        """Of each TLS port."""
        self._plain: set[str] = set()
        """Clusters that chains name."""
        self._destinations: dict[int, proxy_protocol.Destinations] = {}
        """Of each tunnel's port."""
        self._moved: list[dynamic_clusters.DynamicClusterDiff] = []
        """In this pass."""
        self._directions = Directions(self._fragments, capabilities)
        self._kept: dict[str, set[str]] = {}
        """Keys of the last pass, of parts that are few."""

    def generate(self, gateway: ir_gateway.Gateway) -> Generated:
        """Give everything that Envoy needs to serve ``gateway``."""
        found = {secret.name: secret for secret in gateway.secrets}
        new = self._follow_clusters(gateway.clusters)
        # Datagrams and chains name clusters, but how one looks is of no matter to them.
        stale = self._fragments.users(self._looks(new))
        context = Context(self._clusters, found, self._capabilities)
        self._plan_hosts(gateway, context, stale)
        ports = self._ports(gateway)
        self._plan_clusters(gateway, ports, new)
        self._directions.plan(self._moved, self._clusters, new)
        self._plan_secrets(gateway, ports)
        # What hosts need is known when all of them are planned.
        self._plan_authenticator(found)
        self._plan_ports(ports, self._clusters)
        self._apis.plan(gateway)
        resources, unsupported = self._fragments.finish()
        return Generated(resources, (*_common(gateway, self._snippets), *unsupported))

    def _ports(self, gateway: ir_gateway.Gateway) -> tuple[listeners.Port, ...]:
        """Give the ports; take note of what they direct otherwise than before."""
        chains = {number: hosts.chains for number, hosts in self._hosts.items()}
        passing = {each.port for each in gateway.streams if each.protocol == "TLS"}
        tunneled = {each.port for each in gateway.tunnels}
        self._moved = [self._names.pop(n).follow((), ()) for n in self._names.keys() - passing]
        for number in self._destinations.keys() - tunneled:
            self._moved.append(self._destinations.pop(number).follow(()))
        return tuple(listeners.ports(gateway, chains, self._passing, self._entrance))

    def _passing(
        self, stream: ir_gateway.L4Listener, beside: Iterable[Chain]
    ) -> tuple[ir_gateway.L4Host, ...]:
        known = self._names.setdefault(stream.port, dynamic_clusters.Names(stream.port))
        https = [name for chain in beside if chain.certificates for name in chain.names]
        self._moved.append(known.follow(stream.hosts, https))
        return known.chained

    def _entrance(
        self, tunnel: ir_gateway.ProxyProtocolListener
    ) -> proxy_protocol.ProxyProtocolInputs:
        known = self._destinations.setdefault(tunnel.port, proxy_protocol.Destinations(tunnel.port))
        self._moved.append(known.follow(tunnel.destinations))
        return known.entrance(tunnel.proxies)

    def _follow_clusters(self, wanted: Collection[ir.Cluster]) -> set[str]:
        """Give the names of clusters that are others than before."""
        fresh, gone = self._followed.follow(wanted)
        for cluster in gone:
            self._clusters.pop(cluster.name, None)
        self._clusters |= {cluster.name: cluster for cluster in fresh}
        return {cluster.name for cluster in (*fresh, *gone)}

    def _looks(self, new: Iterable[str]) -> set[str]:
        """Give the names of those of the clusters that look different."""
        moved = set()
        for name in new:
            look = shown(self._clusters.get(name))
            if self._shown.get(name) != look:
                moved.add(name)
            if look is None:
                self._shown.pop(name, None)
            else:
                self._shown[name] = look
        return moved

    def _plan_clusters(
        self, gateway: ir_gateway.Gateway, ports: tuple[listeners.Port, ...], new: set[str]
    ) -> None:
        """Plan clusters with all that is theirs.

        One of TCP that no chain names has its endpoints under other names only.
        """
        plain = {b.cluster for p in ports for s in p.streams for h in s.hosts for b in h.backends}
        for name in new | (plain ^ self._plain):
            cluster = self._clusters.get(name)
            if cluster is None or (cluster.protocol == "tcp" and name not in plain):
                self._fragments.drop(f"cluster/{name}")
                if cluster is not None:
                    # What it shows and trusts is asked for under its own name.
                    found = tuple(secrets.of_cluster(cluster, gateway))
                    self._fragments.put(f"cluster/{name}", Fragment(found))
            else:
                self._fragments.put(f"cluster/{name}", self._cluster(cluster, gateway))
        self._plain = plain

    def _cluster(self, cluster: ir.Cluster, gateway: ir_gateway.Gateway) -> Fragment:
        try:
            made = clusters.cluster(cluster, self._capabilities)
            found = secrets.of_cluster(cluster, gateway)
            return Fragment((made, clusters.endpoints(cluster), *found))
        except InvalidValueError as error:
            return Fragment((), ((f"cluster/{cluster.name}", str(error)),))

    def _plan_secrets(self, gateway: ir_gateway.Gateway, ports: tuple[listeners.Port, ...]) -> None:
        """Plan the certificates and authorities of listeners, by the places that ask for them."""
        certificates = {each.name: each for each in gateway.certificates}
        bundles = {each.name: each for each in gateway.trust}
        wanted: dict[str, tuple[Any, Callable[[], Resource]]] = {}
        for name, asked in (*secret_names.certificates(ports), *kubernetes.certificates(gateway)):
            if (found := certificates.get(asked)) is not None:
                wanted[name] = (found, partial(secrets.certificate, name, found))
        for name, asked, optional in (*secret_names.trust(gateway), *kubernetes.trust(gateway)):
            bundle = bundles.get(asked)
            if bundle is not None or optional:
                made = partial(secrets.trust, name, bundle, optional=optional)
                wanted[name] = ((bundle, optional), made)
        for name, (seen, make) in wanted.items():
            known = self._fragments.get(f"secret/{name}")
            if known is None or known.seen != (seen,):
                self._fragments.put(f"secret/{name}", Fragment((make(),), seen=(seen,)))
        self._keep("secret", {f"secret/{name}" for name in wanted})

    def _keep(self, kind: str, keys: set[str]) -> None:
        """Drop the parts of a kind that are planned no more."""
        for key in self._kept.get(kind, set()) - keys:
            self._fragments.drop(key)
        self._kept[kind] = keys

    def _plan_hosts(self, gateway: ir_gateway.Gateway, context: Context, stale: set[str]) -> None:
        """Plan the virtual hosts of all ports."""
        self._drop_hosts(self._hosts.keys() - {each.port for each in gateway.listeners})
        for listener in gateway.listeners:
            apart = gateway.edge.sni_host_validation and listener.protocol == "HTTPS"
            hosts = self._hosts.get(listener.port)
            if hosts is None or hosts.apart != apart:
                self._drop_hosts({listener.port})
                hosts = self._hosts[listener.port] = Hosts(
                    self._fragments, listener.port, apart=apart
                )
            scheme = "https" if listener.protocol == "HTTPS" else "http"
            served = msgspec.structs.replace(context, scheme=scheme)
            self._note(*hosts.plan(listener.virtual_hosts, served, stale))

    def _plan_authenticator(self, secrets: dict[str, ir_gateway.SecretFile]) -> None:
        """Plan what is told to the authenticator, if it is there and any route needs it."""
        moves = self._fragments.moves if self._capabilities.authenticators else 0
        known = self._fragments.get("authenticator")
        if (known.seen if known is not None else (0,)) == (moves,):
            return
        wanted: dict[Basic | Oidc, list[str]] = {}
        for each, route in sorted(
            self._fragments.needs, key=lambda need: (need[0].filter, need[1])
        ):
            wanted.setdefault(each, []).append(route)
        made = tuple(ext_authz.resources(wanted, secrets))
        self._fragments.put("authenticator", Fragment(made, seen=(moves,)))

    def _drop_hosts(self, ports: Iterable[int]) -> None:
        for port in ports:
            hosts = self._hosts.pop(port, None)
            if hosts is not None:
                self._note((), hosts.drop())

    def _note(self, fresh: Iterable[ir.VirtualHost], gone: Iterable[ir.VirtualHost]) -> None:
        """Take note of the snippets of hosts that came and went."""
        self._snippets.update(each.name for host in fresh for each in host.snippets)
        self._snippets.subtract(each.name for host in gone for each in host.snippets)

    def _plan_ports(self, ports: Iterable[listeners.Port], known: dict[str, ir.Cluster]) -> None:
        """Plan the listeners."""
        keys = set()
        for port in ports:
            keys.add(key := f"port/{port.family}/{port.number}")
            used = {share.cluster for s in port.streams for h in s.hosts for share in h.backends}
            # Datagrams go to endpoints of several clusters at once; else only names are told.
            ends = [known.get(name) for name in sorted(used)] if port.family == "udp" else []
            seen = (port, used & known.keys(), ends)
            before = self._fragments.get(key)
            if before is None or before.seen != seen:
                self._fragments.put(key, _port(port, known, seen))
        self._keep("port", keys)


def _port(port: listeners.Port, known: dict[str, ir.Cluster], seen: tuple[Any, ...]) -> Fragment:
    try:
        found = [listeners.listener(port, known)]
        if port.family == "udp":
            found += l4.mixed(port.number, next(iter(port.streams[0].hosts)), known)
    except InvalidValueError as error:
        return Fragment((), ((f"port/{port.number}", str(error)),), seen=seen)
    return Fragment(tuple(found), seen=seen)


def _common(gateway: ir_gateway.Gateway, snippets: Counter[str]) -> Unsupported:
    """Say what of the whole gateway Envoy leaves out."""
    edge = gateway.edge
    why = "snippets are in NGINX's language"
    names = (*(each.name for each in gateway.snippets), *sorted(+snippets))
    return (
        *(
            ("edge", each)
            for each in (*client_ip.unsupported(edge), *compression.unsupported(edge))
        ),
        *((f"policy/{name}", why) for name in dict.fromkeys(names)),
    )
