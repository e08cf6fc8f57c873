"""UpstreamClusters: servers and why they are not ready, limits and who they are for. No I/O.

No value of a report comes from the credentials that an UpstreamCluster may contain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import msgspec

from gatehouse.apis.upstream_clusters import ServerSpec, UpstreamCluster
from gatehouse.compiler.frontends import upstream_cluster
from gatehouse.compiler.frontends.upstream_cluster.dispatch_policies import (
    RequestPolicy,
    translate_policies,
)
from gatehouse.compiler.frontends.upstream_cluster.flow_control import SharedLimits
from gatehouse.compiler.frontends.upstream_cluster.servers import parse_server
from gatehouse.compiler.ir.kube_apiserver import (
    DispatchPolicy,
    FlowSchema,
    InFlight,
    KubeApiServer,
    Names,
    TokenBucket,
)
from gatehouse.inspection.condition_summary import condition_status
from gatehouse.inspection.object_set import ObjectSet
from kube_base.types.ip_addresses import bracketed
from kube_base.types.objects import Object

NOTHING = "nothing"
"""Text of an empty set of names."""

_HIDDEN = "(not shown: it contains a password)"


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all parts."""


class ReportedServer(_Part, frozen=True):
    """A kube-apiserver of an UpstreamCluster."""

    endpoint: str
    """URL as in the object."""
    address: str = ""
    """Host and port as in conditions and metrics; empty if the URL is not valid."""
    disabled: bool = False
    problems: tuple[str, ...] = ()
    """Reasons why it is not ready, each with its Gateway, or why it is not used."""


class LimitUser(_Part, frozen=True):
    """A dispatch policy whose requests share a limit."""

    policy: int
    """Number in ``spec.dispatchPolicies``."""
    users: tuple[str, ...]
    """Users and groups of its rules, each once."""


class ReportedLimit(_Part, frozen=True):
    """A flow control schema of an UpstreamCluster that policies use."""

    name: str
    """Value of the label ``schema`` of its metrics."""
    text: str
    users: tuple[LimitUser, ...]


class ReportedApiGateway(_Part, frozen=True):
    """A Gateway that serves an UpstreamCluster."""

    gateway: str
    """``namespace/name``."""
    hosts: tuple[str, ...]
    programmed: str
    """Status of the condition ``Programmed``."""
    message: str = ""
    """Reason why it is not programmed."""


class ReportedApiCluster(_Part, frozen=True):
    """An UpstreamCluster, except its conditions."""

    name: str
    hosts: tuple[str, ...] = ()
    """Hostnames that are served at any Gateway."""
    servers: tuple[ReportedServer, ...] = ()
    limits: tuple[ReportedLimit, ...] = ()
    unlimited: tuple[LimitUser, ...] = ()
    """Policies without a limit."""
    gateways: tuple[ReportedApiGateway, ...] = ()
    denied: bool = False
    """All requests are rejected by the feature gate DenyAllRequests."""


def report_api_clusters(objects: ObjectSet) -> tuple[ReportedApiCluster, ...]:
    """Return all UpstreamClusters, sorted by name. Malformed ones have nothing but their names."""
    items = sorted(objects.of_kind("UpstreamCluster"), key=lambda item: item["metadata"]["name"])
    return tuple(_cluster(item) for item in items)


def report_servers(raw: Object) -> tuple[ReportedServer, ...]:
    """Return the kube-apiservers of an UpstreamCluster; none if it is malformed."""
    cluster = _decoded(raw)
    return tuple(_servers(cluster.spec.servers, raw.get("status") or {})) if cluster else ()


def policies_of(raw: Object, cluster: UpstreamCluster) -> RequestPolicy:
    """Return the translation of an object, as at a gateway with a rate limit service."""
    previous_gates = upstream_cluster.parse_cluster_record(raw).gates
    annotations, limits = cluster.metadata.annotations, SharedLimits(counter=True)
    return translate_policies(annotations, cluster.spec, limits, previous_gates)


def _decoded(raw: Object) -> UpstreamCluster | None:
    cluster = upstream_cluster.UPSTREAM_CLUSTER_FRONT_END.kinds.decode("UpstreamCluster", raw)
    return cluster if isinstance(cluster, UpstreamCluster) else None


def _cluster(raw: Object) -> ReportedApiCluster:
    name, status = raw["metadata"]["name"], raw.get("status") or {}
    cluster = _decoded(raw)
    if cluster is None:
        return ReportedApiCluster(name)
    meaning = policies_of(raw, cluster)
    users = [
        (policy.schema, LimitUser(origin.index, tuple(dict.fromkeys(_users(policy)))))
        for policy, origin in zip(meaning.policies, meaning.origins, strict=True)
    ]
    return ReportedApiCluster(
        name,
        tuple(status.get("hosts") or ()),
        report_servers(raw),
        tuple(
            ReportedLimit(
                schema.name,
                limit_text(schema),
                tuple(user for limit, user in users if limit == schema.name),
            )
            for schema in meaning.schemas
        ),
        tuple(user for limit, user in users if not limit),
        tuple(_gateway(entry) for entry in status.get("gateways") or ()),
        meaning.denied,
    )


def _servers(listed: tuple[ServerSpec, ...], status: Object) -> Iterator[ReportedServer]:
    servers = [(server, parse_server(server.endpoint)) for server in listed]
    addresses = {_address(parsed) for _, parsed in servers if isinstance(parsed, KubeApiServer)}
    unready = _unready_servers(status, addresses)
    for server, parsed in servers:
        if isinstance(parsed, str):
            # Endpoints with @ contain a password.
            endpoint = _HIDDEN if "@" in server.endpoint else server.endpoint
            yield ReportedServer(endpoint, problems=(parsed,))
        else:
            address = _address(parsed)
            problems = tuple(unready.get(address, ()))
            yield ReportedServer(server.endpoint, address, server.disabled, problems)


def _address(server: KubeApiServer) -> str:
    return f"{bracketed(server.host)}:{server.port}"


def _unready_servers(status: Object, known: Collection[str]) -> Mapping[str, list[str]]:
    """Return the reasons in the conditions ServersReady, by address of the server.

    ``known``: addresses of servers. A reason may contain the separators of the message.
    """
    result: dict[str, list[str]] = defaultdict(list)
    for entry in status.get("gateways") or ():
        state, message = condition_status(entry.get("conditions"), "ServersReady")
        reasons: list[tuple[str, str]] = []
        for part in message.split("; ") if state == "False" else ():
            address, _, reason = part.partition(": ")
            if address in known:
                reasons.append((address, reason))
            elif reasons:
                reasons[-1] = (reasons[-1][0], f"{reasons[-1][1]}; {part}")
        for address, reason in reasons:
            result[address].append(f"{reason}, at Gateway {_gateway_name(entry)}")
    return result


def _gateway_name(entry: Object) -> str:
    reference = entry.get("gatewayRef") or {}
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}"


def _gateway(entry: Object) -> ReportedApiGateway:
    state, message = condition_status(entry.get("conditions"), "Programmed")
    hosts = tuple(entry.get("hosts") or ())
    return ReportedApiGateway(
        _gateway_name(entry), hosts, state, "" if state == "True" else message
    )


def _users(policy: DispatchPolicy) -> Iterator[str]:
    """Yield the users of each rule as text."""
    for rule in policy.rules:
        parts = [
            f"{kind} {names_text(names)}"
            for kind, names in (("users", rule.users), ("groups", rule.user_groups))
            if names != Names(others=True)
        ]
        yield ", ".join(parts) or "everybody"


def names_text(names: Names) -> str:
    """Return a set of names as text."""
    listed = [
        *(name or repr(name) for name in names.exact),
        *(f"{prefix}*" for prefix in names.prefixes),
        *(f"*/{subresource}" for subresource in names.subresources),
    ]
    if names.others:
        return f"anything but {', '.join(listed)}" if listed else "anything"
    return ", ".join(listed) or NOTHING


def limit_text(schema: FlowSchema) -> str:
    """Return the limit of a schema as text."""
    if schema.divided is not None:
        return f"{schema.divided.total} requests at a time, divided among data planes"
    match schema.limit:
        case InFlight(most):
            return f"{most} requests at a time at each data plane"
        case TokenBucket(rate, burst):
            place = "of all data planes together" if schema.shared else "at each data plane"
            return f"{rate} requests a second, bursts of {burst}, {place}"
