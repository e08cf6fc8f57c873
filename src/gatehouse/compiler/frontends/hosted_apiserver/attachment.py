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
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerSpec,
    listener_specs,
)
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import PROXY_PROTOCOL
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import ClusterKey, service_port
from gatehouse.compiler.frontends.hosted_apiserver.claims import parsed_spec, rejection
from gatehouse.incremental.query import Ask, Key


class ListenerAttachment(msgspec.Struct, frozen=True, order=True):
    """A hostname or address of an object on one listener of a Gateway."""

    gateway: Key
    port: int
    listener: Listener
    host: str = ""
    """Hostname; empty if the advertised address is served instead."""
    address: str = ""
    """Advertised address in canonical text; empty if a hostname is served."""


class HostedAttachment(msgspec.Struct, frozen=True):
    """Result of attaching an object."""

    attachments: tuple[ListenerAttachment, ...] = ()
    """Endpoints of listeners, sorted, without duplicates."""
    cluster: ClusterKey | None = None
    """Cluster of its Service. None: the Service port is missing, and connections are closed."""
    findings: tuple[Finding, ...] = ()


def attachment_of(ask: Ask, key: Key) -> HostedAttachment:
    """Return the listeners that serve an object, its cluster, and findings."""
    hosted = ask.read(key)
    refused = ask(rejection, key)
    if refused is not None or not isinstance(hosted, api.HostedAPIServer):
        return HostedAttachment(findings=(refused,) if refused is not None else ())
    service = hosted.spec.service
    cluster = ClusterKey(key[1], service.name, service.port, "tcp")
    findings = []
    port = ask(service_port, (key[1], service.name, service.port, "TCP"))
    if isinstance(port, str):
        findings.append(Finding(Reason.BACKEND_NOT_FOUND, f"spec.service: {port}"))
    attachments: dict[ListenerAttachment, None] = {}
    problems: list[Finding] = []
    for index, parent in enumerate(hosted.spec.parent_refs):
        attached = _attach(ask, key, parent)
        if isinstance(attached, Finding):
            where = f"spec.parentRefs[{index}]: {attached.message}"
            problems.append(Finding(attached.reason, where))
        else:
            attachments |= dict.fromkeys(attached)
    if attachments:
        message = "; ".join(("accepted", *(each.message for each in problems)))
        findings.append(Finding(Reason.ACCEPTED, message))
    else:
        findings += problems
    resolved = cluster if not isinstance(port, str) else None
    return HostedAttachment(tuple(sorted(attachments)), resolved, tuple(findings))


def gateways_of(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways that serve an object, sorted."""
    return tuple(sorted({attached.gateway for attached in ask(attachment_of, key).attachments}))


def _attach(ask: Ask, key: Key, parent: api.ParentRef) -> list[ListenerAttachment] | Finding:
    gateway: Key = ("Gateway", parent.namespace or key[1], parent.name)
    shown = f"Gateway {gateway[1]}/{gateway[2]}"
    if not ask(is_managed, gateway):
        message = f"{shown} not found or not managed by this controller"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    all_listeners = ask(listener_specs, gateway)
    suitable = [
        spec
        for spec in all_listeners
        if parent.section_name in ("", spec.name) and (_passes(spec) or _tunnels(spec))
    ]
    if not suitable:
        which = f"listener {parent.section_name}" if parent.section_name else "listener"
        protocols = f"protocol TLS in mode Passthrough, or {PROXY_PROTOCOL}"
        message = f"{which} with {protocols} not found in {shown}"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    allowed = [each for each in suitable if admits(ask, each.namespaces, key[1], each.owner[1])]
    if not allowed:
        names = ", ".join(spec.name for spec in suitable)
        message = f"listener {names} of {shown} does not allow namespace {key[1]}"
        return Finding(Reason.NOT_ALLOWED, message)
    accepted = [spec for spec in allowed if spec.accepted]
    if not accepted:
        names = ", ".join(spec.name for spec in allowed)
        message = f"listener {names} of {shown} is not accepted; see its conditions"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    attachments = [*_attachments(ask, key, gateway, accepted, all_listeners)]
    if not attachments:
        names = ", ".join(spec.name for spec in accepted)
        message = f"no hostname or address matches listener {names} of {shown}"
        return Finding(Reason.NO_MATCHING_HOSTNAME, message)
    return attachments


def _attachments(
    ask: Ask,
    key: Key,
    gateway: Key,
    accepted: list[ListenerSpec],
    all_listeners: tuple[ListenerSpec, ...],
) -> Iterable[ListenerAttachment]:
    claims = ask(parsed_spec, key)
    for spec in accepted:
        if _tunnels(spec):
            if claims.address:
                yield ListenerAttachment(gateway, spec.port, spec.key, address=claims.address)
            continue
        for host in claims.hosts:
            if hostnames.covers(spec.hostname, host) and not is_isolated(host, spec, all_listeners):
                yield ListenerAttachment(gateway, spec.port, spec.key, host)


def _passes(spec: ListenerSpec) -> bool:
    return spec.protocol == "TLS" and spec.passthrough


def _tunnels(spec: ListenerSpec) -> bool:
    return spec.protocol == PROXY_PROTOCOL
