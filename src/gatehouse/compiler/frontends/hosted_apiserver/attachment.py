"""Which listeners of which Gateways an object attaches to, and what of it they serve."""

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
from gatehouse.compiler.frontends.hosted_apiserver.claims import accepted_claims, refusal
from gatehouse.incremental.query import Ask, Key


class Place(msgspec.Struct, frozen=True, order=True):
    """Something of an object that one listener of a Gateway serves."""

    gateway: Key
    port: int
    listener: Listener
    host: str = ""
    """The name by which it is reached; empty: by its advertised address."""
    address: str = ""
    """That address, in canonical text."""


class Exposure(msgspec.Struct, frozen=True):
    """What became of an object."""

    places: tuple[Place, ...] = ()
    """Sorted and distinct."""
    cluster: ClusterKey | None = None
    """Its Service; None: there is none such, and whoever comes is refused."""
    findings: tuple[Finding, ...] = ()


def exposure(ask: Ask, key: Key) -> Exposure:
    """Give what becomes of an object."""
    found = ask.read(key)
    refused = ask(refusal, key)
    if refused is not None or not isinstance(found, api.HostedAPIServer):
        return Exposure(findings=(refused,) if refused is not None else ())
    service = found.spec.service
    cluster = ClusterKey(key[1], service.name, service.port, "tcp")
    findings = []
    port = ask(service_port, (key[1], service.name, service.port, "TCP"))
    if isinstance(port, str):
        findings.append(Finding(Reason.BACKEND_NOT_FOUND, f"spec.service: {port}"))
    places: dict[Place, None] = {}
    problems: list[Finding] = []
    for index, parent in enumerate(found.spec.parent_refs):
        attached = _attach(ask, key, parent)
        if isinstance(attached, Finding):
            where = f"spec.parentRefs[{index}]: {attached.message}"
            problems.append(Finding(attached.reason, where))
        else:
            places |= dict.fromkeys(attached)
    if places:
        said = "; ".join(("accepted", *(each.message for each in problems)))
        findings.append(Finding(Reason.ACCEPTED, said))
    else:
        findings += problems
    resolved = cluster if not isinstance(port, str) else None
    return Exposure(tuple(sorted(places)), resolved, tuple(findings))


def gateways_of(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Give the Gateways that serve an object."""
    return tuple(sorted({place.gateway for place in ask(exposure, key).places}))


def _attach(ask: Ask, key: Key, parent: api.ParentRef) -> list[Place] | Finding:
    gateway: Key = ("Gateway", parent.namespace or key[1], parent.name)
    shown = f"Gateway {gateway[1]}/{gateway[2]}"
    if not ask(is_managed, gateway):
        message = f"{shown} does not exist, or its class is none of ours"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    everyone = ask(shapes, gateway)
    able = [
        shape
        for shape in everyone
        if parent.section_name in ("", shape.name) and (_passes(shape) or _tunnels(shape))
    ]
    if not able:
        which = f"listener {parent.section_name}" if parent.section_name else "listener"
        message = f"{shown} has no {which} of protocol TLS in mode Passthrough, or {PROXY_PROTOCOL}"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    allowed = [each for each in able if admits(ask, each.namespaces, key[1], each.owner[1])]
    if not allowed:
        names = ", ".join(shape.name for shape in able)
        message = f"listener {names} of {shown} allows nothing of namespace {key[1]}"
        return Finding(Reason.NOT_ALLOWED, message)
    served = [shape for shape in allowed if shape.accepted]
    if not served:
        names = ", ".join(shape.name for shape in allowed)
        message = f"listener {names} of {shown} is not accepted itself; see its conditions"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    found = [*_places(ask, key, gateway, served, everyone)]
    if not found:
        names = ", ".join(shape.name for shape in served)
        message = f"listener {names} of {shown} has no name or address of it"
        return Finding(Reason.NO_MATCHING_HOSTNAME, message)
    return found


def _places(
    ask: Ask, key: Key, gateway: Key, served: list[ListenerSpec], everyone: tuple[ListenerSpec, ...]
) -> Iterable[Place]:
    wanted = ask(accepted_claims, key)
    for shape in served:
        if _tunnels(shape):
            if wanted.address:
                yield Place(gateway, shape.port, shape.key, address=wanted.address)
            continue
        for host in wanted.hosts:
            if hostnames.covers(shape.hostname, host) and not is_isolated(host, shape, everyone):
                yield Place(gateway, shape.port, shape.key, host)


def _passes(shape: ListenerSpec) -> bool:
    return shape.protocol == "TLS" and shape.passthrough


def _tunnels(shape: ListenerSpec) -> bool:
    return shape.protocol == PROXY_PROTOCOL
