"""Translation of UpstreamClusters to additions to a Gateway's IR.

1. Listeners, and the clusters that attach to them (:mod:`attachment`).
2. Each cluster: hostnames (:mod:`hostnames`), request policies (:mod:`dispatch_policies`), TLS and
  credentials for servers and clients (:mod:`credentials`).
3. Certificates, trust bundles and tokens: only those that are referred to.
"""

from __future__ import annotations

from collections.abc import Iterable

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.contribution import EMPTY_CONTRIBUTION, Contribution
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway, settings
from gatehouse.compiler.frontends.gateway_api.listeners import frontend_tls
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ListenerState
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ordered_listeners as listening,
)
from gatehouse.compiler.frontends.inputs import replicas_key
from gatehouse.compiler.frontends.upstream_cluster import dispatch_policies
from gatehouse.compiler.frontends.upstream_cluster.attachment import (
    cluster_listeners,
    clusters_of,
    gateways_of_cluster,
)
from gatehouse.compiler.frontends.upstream_cluster.credentials import (
    credentials_at,
)
from gatehouse.compiler.frontends.upstream_cluster.flow_control import SharedLimits, spans
from gatehouse.compiler.frontends.upstream_cluster.hostnames import cluster_hostnames
from gatehouse.compiler.frontends.upstream_cluster.record import cluster_record
from gatehouse.compiler.frontends.upstream_cluster.shares import with_shares
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, ApiListener
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key


def cluster_contribution(ask: Ask, gateway: Key) -> Contribution:
    """Return the kube-apiserver listeners of a Gateway and what they refer to."""
    if not ask(is_managed_gateway, gateway) or not ask(cluster_listeners, gateway):
        return EMPTY_CONTRIBUTION
    apis = ask(api_listeners, gateway)
    keys = [key for key in ask(clusters_of, gateway) if ask(cluster_hostnames, gateway, key).own]
    pairs = ask.each_call(credentials_at, [(gateway, key) for key in keys])
    credentials = [credential for pair in pairs for credential in pair]
    common = [bundle for listener in apis if (bundle := _client_trust(ask, gateway, listener.port))]
    named = {cluster.client_trust for listener in apis for cluster in listener.clusters}
    pairs_of_listeners = (
        credential.certificate for credential in credentials if credential.certificate is not None
    )
    own = (certificate for state in states(ask, gateway) for certificate in state.certificates)
    return Contribution(
        api_listeners=apis,
        certificates=(*pairs_of_listeners, *own),
        trust_bundles=(
            *(credential.trust for credential in credentials if credential.trust is not None),
            *(bundle for bundle in common if bundle.name in named),
        ),
        secrets=tuple(
            credential.token for credential in credentials if credential.token is not None
        ),
    )


def states(ask: Ask, gateway: Key) -> Iterable[ListenerState]:
    """Return the states of a Gateway's listeners that serve UpstreamClusters."""
    places = {spec.key for spec in ask(cluster_listeners, gateway)}
    return (state for state in ask(listening, gateway) if state.spec.key in places)


def api_listeners(ask: Ask, gateway: Key) -> tuple[ApiListener, ...]:
    """Return the kube-apiserver listeners of a Gateway, sorted by port."""
    keys = ask(clusters_of, gateway)
    result = []
    for state in states(ask, gateway):
        port = state.spec.port
        bundle = _client_trust(ask, gateway, port)
        common = bundle.name if bundle is not None else ""
        clusters = ask.each_call(api_cluster, [(gateway, key, common) for key in keys])
        result.append(
            ApiListener(
                port=port,
                clusters=tuple(cluster for cluster in clusters if cluster is not None),
                certificates=tuple(certificate.name for certificate in state.certificates),
                tls=state.tls,
                counter=ask(settings).counter,
            )
        )
    return tuple(sorted(result, key=lambda listener: listener.port))


def api_cluster(ask: Ask, gateway: Key, key: Key, common: str) -> ApiCluster | None:
    """Return an UpstreamCluster as a Gateway serves it; None if it has no hostname there.

    ``common``: the trust bundle for clients of clusters without one of their own. A cluster with an
    invalid client configuration has no servers, so that requests get an error.
    """
    place = (gateway, key)
    names = ask(cluster_hostnames, *place).own
    upstream_cluster = ask.read(key)
    if not isinstance(upstream_cluster, api.UpstreamCluster) or not names:
        return None
    policy = ask(request_policy, key)
    servers, serving = ask(credentials_at, *place)
    own = serving.trust.name if serving.trust is not None else ""
    return ApiCluster(
        name=key[2],
        origin=Origin(key[0], key[1], key[2]),
        hosts=names,
        servers=() if servers.refusal else policy.servers.enabled,
        policies=policy.policies,
        schemas=tuple(with_shares(ask, gateway, key, schema) for schema in policy.schemas),
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
    cluster = ask.read(key)
    if not isinstance(cluster, api.UpstreamCluster) or not any(
        map(spans, cluster.spec.flow_control.schemas)
    ):
        return ask(local_request_policy, key)
    return _request_policy(ask, key, len(ask(data_planes, key)))


def data_planes(ask: Ask, key: Key) -> tuple[tuple[str, str], ...]:
    """Return the connected data planes that serve an UpstreamCluster, by namespace and name.

    They share its limits, regardless of their Gateways.
    """
    return tuple(
        (gateway[1], name)
        for gateway in ask(gateways_of_cluster, key)
        for name in ask.read(replicas_key(gateway)) or ()
    )


def local_request_policy(ask: Ask, key: Key) -> dispatch_policies.RequestPolicy:
    """Return the request policy of an UpstreamCluster for a single data plane."""
    return _request_policy(ask, key)


def _request_policy(ask: Ask, key: Key, replicas: int = 1) -> dispatch_policies.RequestPolicy:
    cluster = ask.read(key)
    if not isinstance(cluster, api.UpstreamCluster):
        return dispatch_policies.RequestPolicy()
    spanning = SharedLimits(replicas=replicas, counter=bool(ask(settings).counter))
    gates = cluster_record(ask, key).gates
    return dispatch_policies.translate_policies(
        cluster.metadata.annotations, cluster.spec, spanning, gates
    )


def _client_trust(ask: Ask, gateway: Key, port: int) -> TrustBundle | None:
    """Return the trust bundle of the Gateway's ``tls.frontend``, for clusters without their own."""
    return ask(frontend_tls.client_trust_of_port, gateway, port)[0]
