"""Attachment of routes and kube-apiservers to Gateways and their listeners. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.apis.gateway import DEFAULT_SCOPE
from gatehouse.compiler.evaluation.explaining import parent_problem
from gatehouse.compiler.frontends.hosted_apiserver.attachment import attachment_of
from gatehouse.compiler.frontends.upstream_cluster.attachment import (
    cluster_listeners,
    gateways_of_cluster,
)
from gatehouse.controller.offline import offline_pass
from gatehouse.incremental.query import Ask, Key
from gatehouse.inspection.condition_summary import object_name
from gatehouse.inspection.object_set import ObjectSet
from kube_base.types.objects import Object

LISTED_ROUTE_KINDS = ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")
KUBE_APISERVER_KINDS = ("UpstreamCluster", "HostedAPIServer")


class ReportedAttachment(msgspec.Struct, frozen=True):
    """Gateways that an object names, or that serve it."""

    parents: Mapping[str, str] = {}
    """Gateways as ``namespace/name``, by Gateway, ListenerSet or listener below either."""
    problem: str = ""
    """Reason why no managed Gateway serves a route."""


def report_attachments(objects: ObjectSet) -> Mapping[str, ReportedAttachment]:
    """Return the attachment of each route and kube-apiserver, by ``Kind namespace/name``."""
    owners = {"/".join(name_parts(item)): owner_of(item) for item in objects.of_kind("ListenerSet")}
    result = {}
    with offline_pass(objects.objects) as ask:
        for kind in LISTED_ROUTE_KINDS:
            for item in objects.of_kind(kind):
                problem = ask(parent_problem, (kind, *name_parts(item)))
                result[object_name(item)] = ReportedAttachment(_parents(item, owners), problem)
        for kind in KUBE_APISERVER_KINDS:
            for item in objects.of_kind(kind):
                served = _served_places(ask, (kind, *name_parts(item)))
                # A Gateway that rejects the object is still its parent.
                named = _parents(item, owners) if kind == "HostedAPIServer" else {}
                parents = {place: name for place, name in named.items()
                           if name not in served.values()}  # fmt: skip
                result[object_name(item)] = ReportedAttachment({**served, **parents})
    return result


def name_parts(item: Object) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def owner_of(listener_set: Object) -> str:
    """Return the ``namespace/name`` of the Gateway of a ListenerSet."""
    parent, namespace = listener_set["spec"]["parentRef"], name_parts(listener_set)[0]
    return f"{parent.get('namespace') or namespace}/{parent['name']}"


def _served_places(ask: Ask, key: Key) -> dict[str, str]:
    """Return the Gateway of each listener that serves a kube-apiserver."""
    listeners: Iterable[tuple[Key, tuple[Key, str]]]
    if key[0] == "HostedAPIServer":
        attachments = ask(attachment_of, key).attachments
        listeners = ((place.gateway, place.listener) for place in attachments)
    else:
        gateways = ask(gateways_of_cluster, key)
        listeners = (
            (gateway, listener.key)
            for gateway in gateways
            for listener in ask(cluster_listeners, gateway)
        )
    return {
        "/".join((*owner[1:], name)): "/".join(gateway[1:]) for gateway, (owner, name) in listeners
    }


def _parents(item: Object, owners: Mapping[str, str]) -> dict[str, str]:
    """Return the parents that an object names, and the default Gateways that claimed it."""
    namespace, spec = name_parts(item)[0], item.get("spec") or {}
    references = [*(spec.get("parentRefs") or ())]
    if spec.get("useDefaultGateways") == DEFAULT_SCOPE:
        entries = (item.get("status") or {}).get("parents") or ()
        references += (entry["parentRef"] for entry in entries)
    result = {}
    for parent in references:
        name = f"{parent.get('namespace') or namespace}/{parent['name']}"
        place = "/".join(filter(None, (name, parent.get("sectionName"))))
        result[place] = owners.get(name, name) if parent.get("kind") == "ListenerSet" else name
    return result
