"""The build plan: from a Gateway to the kube-apiservers behind its listeners.

1. which listeners, and which clusters attach to them (:mod:`attaching`);
2. each cluster: its names (:mod:`hosts`), what it says of requests (:mod:`policies`), how it is
   spoken to (:mod:`credentials`);
3. certificates, authorities and tokens: those that are named, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.contribution import EMPTY, Contribution
from gatehouse.compiler.frontends.gateway_api.classes import is_managed, settings
from gatehouse.compiler.frontends.gateway_api.listeners import frontend_tls
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ListenerState
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import listeners as listening
from gatehouse.compiler.frontends.upstream_cluster import dispatch_policies
from gatehouse.compiler.frontends.upstream_cluster.attachment import (
    clusters_of,
    gateways_of,
    listeners,
)
from gatehouse.compiler.frontends.upstream_cluster.credentials import (
    client_credentials,
    server_credentials,
)
from gatehouse.compiler.frontends.upstream_cluster.flow_control import SharedLimits, spans
from gatehouse.compiler.frontends.upstream_cluster.hostnames import hosts
from gatehouse.compiler.frontends.upstream_cluster.inputs import replicas
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, ApiListener
from gatehouse.incremental.query import Ask, Key


def contribution(ask: Ask, gateway: Key) -> Contribution:
    """Give what a Gateway serves of UpstreamClusters."""
    if not ask(is_managed, gateway) or not ask(listeners, gateway):
        return EMPTY
    apis = ask(api_listeners, gateway)
    keys = [key for key in ask(clusters_of, gateway) if ask(hosts, (gateway, key)).own]
    towards = [*ask.each(server_credentials, keys), *ask.each(client_credentials, keys)]
    common = [bundle for each in apis if (bundle := client_trust(ask, gateway, each.port))]
    named = {cluster.client_trust for each in apis for cluster in each.clusters}
    shown = (each.certificate for each in towards if each.certificate is not None)
    own = (each for state in states(ask, gateway) for each in state.certificates)
    return Contribution(
        apis=apis,
        certificates=(*shown, *own),
        trust=(
            *(each.trust for each in towards if each.trust is not None),
            *(bundle for bundle in common if bundle.name in named),
        ),
        secrets=tuple(each.token for each in towards if each.token is not None),
    )


def states(ask: Ask, gateway: Key) -> Iterable[ListenerState]:
    """Give what is known of the listeners of a Gateway that serve UpstreamClusters."""
    places = {shape.key for shape in ask(listeners, gateway)}
    return (state for state in ask(listening, gateway) if state.shape.key in places)


def api_listeners(ask: Ask, gateway: Key) -> tuple[ApiListener, ...]:
    """Give the ports of a Gateway in front of kube-apiservers, sorted."""
    keys = ask(clusters_of, gateway)
    found = []
    for state in states(ask, gateway):
        port = state.shape.port
        bundle = client_trust(ask, gateway, port)
        common = bundle.name if bundle is not None else ""
        made = ask.each(api_cluster, [(gateway, key, common) for key in keys])
        found.append(
            ApiListener(
                port=port,
                clusters=tuple(each for each in made if each is not None),
                certificates=tuple(each.name for each in state.certificates),
                counter=ask(settings, "").counter,
            )
        )
    return tuple(sorted(found, key=lambda each: each.port))


def api_cluster(ask: Ask, which: tuple[Key, Key, str]) -> ApiCluster | None:
    """Give an UpstreamCluster as a Gateway serves it; None: it has no name there.

    ``which``: the Gateway, the cluster, and the trust bundle by which clients are checked where
    the cluster has none of its own. A cluster that cannot be spoken to has no server: its clients
    are told so.
    """
    gateway, key, common = which
    place = (gateway, key)
    names = ask(hosts, place).own
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster) or not names:
        return None
    meaning = ask(request_policy, key)
    servers, serving = ask(server_credentials, key), ask(client_credentials, key)
    own = serving.trust.name if serving.trust is not None else ""
    return ApiCluster(
        name=key[2],
        hosts=names,
        servers=() if servers.refusal else meaning.servers.enabled,
        policies=meaning.policies,
        schemas=meaning.schemas,
        certificates=(serving.certificate.name,) if serving.certificate is not None else (),
        client_trust=own if serving.checks else common,
        tls=servers.tls,
        token=servers.token.name if servers.token is not None else "",
        identity=meaning.identity,
        denied=meaning.denied,
        streams=meaning.streams,
    )


def request_policy(ask: Ask, key: Key) -> dispatch_policies.RequestPolicy:
    """Give what an UpstreamCluster says of requests at any data plane of its Gateways."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return dispatch_policies.RequestPolicy()
    if not any(spans(schema) for schema in found.spec.flow_control.schemas):
        return ask(local_request_policy, key)
    count = len(ask(data_planes, key))
    spanning = SharedLimits(replicas=count, counter=bool(ask(settings, "").counter))
    return dispatch_policies.read(found.metadata.annotations, found.spec, spanning)


def data_planes(ask: Ask, key: Key) -> tuple[tuple[str, str], ...]:
    """Give the data planes that serve an UpstreamCluster and are connected, each by namespace and
    name; they share its limits, whichever Gateway they are of.
    """
    return tuple(
        (gateway[1], name)
        for gateway in ask(gateways_of, key)
        for name in ask.read(replicas(gateway)) or ()
    )


def local_request_policy(ask: Ask, key: Key) -> dispatch_policies.RequestPolicy:
    """Give what an UpstreamCluster says of requests where there is one data plane."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return dispatch_policies.RequestPolicy()
    spanning = SharedLimits(counter=bool(ask(settings, "").counter))
    return dispatch_policies.read(found.metadata.annotations, found.spec, spanning)


def client_trust(ask: Ask, gateway: Key, port: int) -> TrustBundle | None:
    """Give the authorities of clients whose cluster names none: ``tls.frontend`` of the Gateway."""
    return ask(frontend_tls.client_trust, (gateway, port))[0]
