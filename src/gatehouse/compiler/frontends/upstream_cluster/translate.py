"""Translation of UpstreamClusters to additions to a Gateway's IR.

1. Listeners, and the clusters that attach to them (:mod:`attachment`).
2. Each cluster: hostnames (:mod:`hostnames`), request policies (:mod:`dispatch_policies`), TLS and
  credentials for servers and clients (:mod:`credentials`).
3. Certificates, trust bundles and tokens: only those that are referred to.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.contribution import EMPTY, Contribution
from gatehouse.compiler.frontends.gateway_api.classes import is_managed, settings
from gatehouse.compiler.frontends.gateway_api.listeners import frontend_tls
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ListenerState
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import listeners as listening
from gatehouse.compiler.frontends.inputs import replicas
from gatehouse.compiler.frontends.upstream_cluster import dispatch_policies
from gatehouse.compiler.frontends.upstream_cluster.attachment import (
    clusters_of,
    gateways_of,
    listeners,
)
from gatehouse.compiler.frontends.upstream_cluster.credentials import (
    credentials_at,
)
from gatehouse.compiler.frontends.upstream_cluster.flow_control import SharedLimits, spans
from gatehouse.compiler.frontends.upstream_cluster.hostnames import hosts
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, ApiListener
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key


def contribution(ask: Ask, gateway: Key) -> Contribution:
    """Return the kube-apiserver listeners of a Gateway and what they refer to."""
    if not ask(is_managed, gateway) or not ask(listeners, gateway):
        return EMPTY
    apis = ask(api_listeners, gateway)
    keys = [key for key in ask(clusters_of, gateway) if ask(hosts, (gateway, key)).own]
    pairs = ask.each(credentials_at, [(gateway, key) for key in keys])
    credentials = [each for pair in pairs for each in pair]
    common = [bundle for each in apis if (bundle := client_trust(ask, gateway, each.port))]
    named = {cluster.client_trust for each in apis for cluster in each.clusters}
    shown = (each.certificate for each in credentials if each.certificate is not None)
    own = (each for state in states(ask, gateway) for each in state.certificates)
    return Contribution(
        api_listeners=apis,
        certificates=(*shown, *own),
        trust_bundles=(
            *(each.trust for each in credentials if each.trust is not None),
            *(bundle for bundle in common if bundle.name in named),
        ),
        secrets=tuple(each.token for each in credentials if each.token is not None),
    )


def states(ask: Ask, gateway: Key) -> Iterable[ListenerState]:
    """Return the states of a Gateway's listeners that serve UpstreamClusters."""
    places = {spec.key for spec in ask(listeners, gateway)}
    return (state for state in ask(listening, gateway) if state.spec.key in places)


def api_listeners(ask: Ask, gateway: Key) -> tuple[ApiListener, ...]:
    """Return the kube-apiserver listeners of a Gateway, sorted by port."""
    keys = ask(clusters_of, gateway)
    found = []
    for state in states(ask, gateway):
        port = state.spec.port
        bundle = client_trust(ask, gateway, port)
        common = bundle.name if bundle is not None else ""
        clusters = ask.each(api_cluster, [(gateway, key, common) for key in keys])
        found.append(
            ApiListener(
                port=port,
                clusters=tuple(each for each in clusters if each is not None),
                certificates=tuple(each.name for each in state.certificates),
                counter=ask(settings, "").counter,
            )
        )
    return tuple(sorted(found, key=lambda each: each.port))


def api_cluster(ask: Ask, which: tuple[Key, Key, str]) -> ApiCluster | None:
    """Return an UpstreamCluster as a Gateway serves it; None if it has no hostname there.

    ``which``: the Gateway, the cluster, and the trust bundle for clients of clusters without one of
    their own. A cluster with an invalid client configuration has no servers, so that requests get
    an error.
    """
    gateway, key, common = which
    place = (gateway, key)
    names = ask(hosts, place).own
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster) or not names:
        return None
    policy = ask(request_policy, key)
    servers, serving = ask(credentials_at, place)
    own = serving.trust.name if serving.trust is not None else ""
    return ApiCluster(
        name=key[2],
        origin=Origin(key[0], key[1], key[2]),
        hosts=names,
        servers=() if servers.refusal else policy.servers.enabled,
        policies=policy.policies,
        schemas=policy.schemas,
        certificates=(serving.certificate.name,) if serving.certificate is not None else (),
        client_trust=own if serving.checks else common,
        tls=servers.tls,
        token=servers.token.name if servers.token is not None else "",
        identity=policy.identity,
        denied=policy.denied,
        streams=policy.streams,
    )


def request_policy(ask: Ask, key: Key) -> dispatch_policies.RequestPolicy:
    """Return the request policy of an UpstreamCluster at the data planes of its Gateways."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return dispatch_policies.RequestPolicy()
    if not any(spans(schema) for schema in found.spec.flow_control.schemas):
        return ask(local_request_policy, key)
    count = len(ask(data_planes, key))
    spanning = SharedLimits(replicas=count, counter=bool(ask(settings, "").counter))
    return dispatch_policies.read(found.metadata.annotations, found.spec, spanning)


def data_planes(ask: Ask, key: Key) -> tuple[tuple[str, str], ...]:
    """Return the connected data planes that serve an UpstreamCluster, by namespace and name.

    They share its limits, regardless of their Gateways.
    """
    return tuple(
        (gateway[1], name)
        for gateway in ask(gateways_of, key)
        for name in ask.read(replicas(gateway)) or ()
    )


def local_request_policy(ask: Ask, key: Key) -> dispatch_policies.RequestPolicy:
    """Return the request policy of an UpstreamCluster for a single data plane."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return dispatch_policies.RequestPolicy()
    spanning = SharedLimits(counter=bool(ask(settings, "").counter))
    return dispatch_policies.read(found.metadata.annotations, found.spec, spanning)


def client_trust(ask: Ask, gateway: Key, port: int) -> TrustBundle | None:
    """Return the trust bundle of the Gateway's ``tls.frontend``, for clusters without their own."""
    return ask(frontend_tls.client_trust, (gateway, port))[0]
