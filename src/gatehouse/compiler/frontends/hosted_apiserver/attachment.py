"""Attachment of HostedAPIServers to listeners of Gateways."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import hosted_api_servers as api
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import Listener, is_isolated
from gatehouse.compiler.frontends.gateway_api.classes import is_managed
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import ListenerSpec, shapes
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROXY_PROTOCOL
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import ClusterKey, service_port
from gatehouse.compiler.frontends.hosted_apiserver.claims import accepted_claims, rejection
from gatehouse.incremental.query import Ask, Key


class Place(msgspec.Struct, frozen=True, order=True):
    """A hostname or address of an object on one listener of a Gateway."""

    gateway: Key
    port: int
    listener: Listener
    host: str = ""
    """Hostname; empty if the advertised address is served instead."""
    address: str = ""
    """Advertised address in canonical text; empty if a hostname is served."""


class Exposure(msgspec.Struct, frozen=True):
    """Result of attaching an object."""

    places: tuple[Place, ...] = ()
    """Endpoints of listeners, sorted, without duplicates."""
    cluster: ClusterKey | None = None
    """Cluster of its Service. None: the Service port is missing, and connections are closed."""
    findings: tuple[Finding, ...] = ()


def exposure(ask: Ask, key: Key) -> Exposure:
    """Return the listeners that serve an object, its cluster, and findings."""
    hosted = ask.read(key)
    refused = ask(rejection, key)
    if refused is not None or not isinstance(hosted, api.HostedAPIServer):
        return Exposure(findings=(refused,) if refused is not None else ())
    service = hosted.spec.service
    cluster = ClusterKey(key[1], service.name, service.port, "tcp")
    findings = []
    port = ask(service_port, (key[1], service.name, service.port, "TCP"))
    if isinstance(port, str):
        findings.append(Finding(Reason.BACKEND_NOT_FOUND, f"spec.service: {port}"))
    places: dict[Place, None] = {}
    problems: list[Finding] = []
    for index, parent in enumerate(hosted.spec.parent_refs):
        attached = _attach(ask, key, parent)
        if isinstance(attached, Finding):
            where = f"spec.parentRefs[{index}]: {attached.message}"
            problems.append(Finding(attached.reason, where))
        else:
            places |= dict.fromkeys(attached)
    if places:
        message = "; ".join(("accepted", *(each.message for each in problems)))
        findings.append(Finding(Reason.ACCEPTED, message))
    else:
        findings += problems
    resolved = cluster if not isinstance(port, str) else None
    return Exposure(tuple(sorted(places)), resolved, tuple(findings))


def gateways_of(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways that serve an object, sorted."""
    return tuple(sorted({place.gateway for place in ask(exposure, key).places}))


def _attach(ask: Ask, key: Key, parent: api.ParentRef) -> list[Place] | Finding:
    gateway: Key = ("Gateway", parent.namespace or key[1], parent.name)
    shown = f"Gateway {gateway[1]}/{gateway[2]}"
    if not ask(is_managed, gateway):
        message = f"{shown} not found or not managed by this controller"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    all_listeners = ask(shapes, gateway)
    suitable = [
        shape
        for shape in all_listeners
        if parent.section_name in ("", shape.name) and (_passes(shape) or _tunnels(shape))
    ]
    if not suitable:
        which = f"listener {parent.section_name}" if parent.section_name else "listener"
        protocols = f"protocol TLS in mode Passthrough, or {PROXY_PROTOCOL}"
        message = f"{which} with {protocols} not found in {shown}"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    allowed = [each for each in suitable if admits(ask, each.namespaces, key[1], each.owner[1])]
    if not allowed:
        names = ", ".join(shape.name for shape in suitable)
        message = f"listener {names} of {shown} does not allow namespace {key[1]}"
        return Finding(Reason.NOT_ALLOWED, message)
    accepted = [shape for shape in allowed if shape.accepted]
    if not accepted:
        names = ", ".join(shape.name for shape in allowed)
        message = f"listener {names} of {shown} is not accepted; see its conditions"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    places = [*_places(ask, key, gateway, accepted, all_listeners)]
    if not places:
        names = ", ".join(shape.name for shape in accepted)
        message = f"no hostname or address matches listener {names} of {shown}"
        return Finding(Reason.NO_MATCHING_HOSTNAME, message)
    return places


def _places(
    ask: Ask,
    key: Key,
    gateway: Key,
    accepted: list[ListenerSpec],
    all_listeners: tuple[ListenerSpec, ...],
) -> Iterable[Place]:
    claims = ask(accepted_claims, key)
    for shape in accepted:
        if _tunnels(shape):
            if claims.address:
                yield Place(gateway, shape.port, shape.key, address=claims.address)
            continue
        for host in claims.hosts:
            if hostnames.covers(shape.hostname, host) and not is_isolated(
                host, shape, all_listeners
            ):
                yield Place(gateway, shape.port, shape.key, host)


def _passes(shape: ListenerSpec) -> bool:
    return shape.protocol == "TLS" and shape.passthrough


def _tunnels(shape: ListenerSpec) -> bool:
    return shape.protocol == PROXY_PROTOCOL
