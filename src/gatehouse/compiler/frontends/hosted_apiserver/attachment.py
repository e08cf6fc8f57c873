"""Attachment of HostedAPIServers to listeners of Gateways."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import hosted_api_servers as api
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.allowed_namespaces import admits
from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import ListenerKey, is_isolated
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.cluster_key import SERVICE, ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerProperties,
    listener_specs,
)
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import (
    HTTP_CONNECT,
    NODE_PROXY_PROTOCOLS,
    PROXY_PROTOCOL,
)
from gatehouse.compiler.frontends.gateway_api.routes.external_names import external_name
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    names_problem,
    service_port,
)
from gatehouse.compiler.frontends.hosted_apiserver.claims import findings as findings_about
from gatehouse.compiler.frontends.hosted_apiserver.claims import owned_claims
from gatehouse.incremental.query import Ask, Key
from kube_base.types.ip_addresses import bracketed


class ListenerAttachment(msgspec.Struct, frozen=True, order=True):
    """A hostname or address of an object on one listener of a Gateway."""

    gateway: Key
    port: int
    listener: ListenerKey
    host: str = ""
    """Hostname of a TLS listener; else empty."""
    address: str = ""
    """Advertised address in canonical text, of a PROXY protocol listener; else empty."""
    destination: str = ""
    """Destination of CONNECT requests, of an HTTP CONNECT listener; else empty."""


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
    owned = ask(owned_claims, key)
    if owned.rejection is not None or not isinstance(hosted, api.HostedAPIServer):
        return HostedAttachment(findings=tuple(findings_about(owned)))
    service = hosted.spec.service
    cluster = ClusterKey(key[1], service.name, service.port, "tcp")
    findings = [*findings_about(owned)]
    port = ask(service_port, key[1], service.name, service.port, "TCP")
    if ask(external_name, (SERVICE, key[1], service.name)):
        port = f"Service {key[1]}/{service.name}: spec.type ExternalName is not supported"
    names = names_problem(ask, key[1], service.name)
    if isinstance(port, str):
        findings.append(Finding(Reason.BACKEND_NOT_FOUND, f"spec.service: {port}"))
    elif names:
        findings.append(Finding(Reason.FQDN_ENDPOINTS, f"spec.service: {names}"))
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
        message = "; ".join(("accepted", *(problem.message for problem in problems)))
        findings.append(Finding(Reason.ACCEPTED, message))
    else:
        findings += problems
    resolved = cluster if not isinstance(port, str) and not names else None
    return HostedAttachment(tuple(sorted(attachments)), resolved, tuple(findings))


def gateways_of_hosted(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways that serve an object, sorted."""
    return tuple(sorted({attached.gateway for attached in ask(attachment_of, key).attachments}))


def destinations_of_object(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the destinations of an object that CONNECT requests may name.

    These are its hostnames, its advertised address, and the names of its Service that the node
    proxies of Gardener send. The object owns all of them exclusively.
    """
    hosted, claims = ask.read(key), ask(owned_claims, key)
    if not isinstance(hosted, api.HostedAPIServer):
        return ()
    service, namespace = hosted.spec.service, key[1]
    result = [f"{host}:443" for host in claims.hosts]
    if claims.address:
        result.append(f"{bracketed(claims.address)}:{hosted.spec.advertise_port}")
    result.append(f"outbound|{service.port}||{service.name}.{namespace}.svc.cluster.local")
    if (service.name, service.port) == ("kube-apiserver", 443):
        # With TLS termination at the ingress gateway, Gardener names a socket of the gateway.
        result.append(f"{namespace}--kube-apiserver-socket")
    return tuple(result)


def _attach(ask: Ask, key: Key, parent: api.HostedParentRef) -> list[ListenerAttachment] | Finding:
    gateway: Key = ("Gateway", parent.namespace or key[1], parent.name)
    gateway_text = f"Gateway {gateway[1]}/{gateway[2]}"
    if not ask(is_managed_gateway, gateway):
        message = f"{gateway_text} not found or not managed by this controller"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    suitable = [
        spec
        for spec in ask(listener_specs, gateway)
        if parent.section_name in ("", spec.name) and (_passes(spec) or _tunnels(spec))
    ]
    if not suitable:
        which = f"listener {parent.section_name}" if parent.section_name else "listener"
        protocols = f"protocol TLS in mode Passthrough, {PROXY_PROTOCOL} or {HTTP_CONNECT}"
        message = f"{which} with {protocols} not found in {gateway_text}"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    allowed = [
        listener
        for listener in suitable
        if admits(ask, listener.namespaces, key[1], listener.owner[1])
    ]
    if not allowed:
        names = ", ".join(spec.name for spec in suitable)
        message = f"listener {names} of {gateway_text} does not allow namespace {key[1]}"
        return Finding(Reason.NOT_ALLOWED, message)
    accepted = [spec for spec in allowed if spec.accepted]
    if not accepted:
        names = ", ".join(spec.name for spec in allowed)
        message = f"listener {names} of {gateway_text} is not accepted; see its conditions"
        return Finding(Reason.NO_MATCHING_PARENT, message)
    attachments = [*_attachments(ask, key, gateway, accepted)]
    if not attachments:
        names = ", ".join(spec.name for spec in accepted)
        message = f"no hostname or address matches listener {names} of {gateway_text}"
        return Finding(Reason.NO_MATCHING_HOSTNAME, message)
    return attachments


def _attachments(
    ask: Ask,
    key: Key,
    gateway: Key,
    accepted: list[ListenerProperties],
) -> Iterable[ListenerAttachment]:
    claims = ask(owned_claims, key)
    for spec in accepted:
        if spec.protocol == HTTP_CONNECT:
            for destination in ask(destinations_of_object, key):
                yield ListenerAttachment(gateway, spec.port, spec.key, destination=destination)
            continue
        if spec.protocol == PROXY_PROTOCOL:
            if claims.address:
                yield ListenerAttachment(gateway, spec.port, spec.key, address=claims.address)
            continue
        for host in claims.hosts:
            if hostnames.hostname_covers(spec.hostname, host) and not is_isolated(
                ask, gateway, host, spec
            ):
                yield ListenerAttachment(gateway, spec.port, spec.key, host)


def _passes(spec: ListenerProperties) -> bool:
    return spec.protocol == "TLS" and spec.passthrough


def _tunnels(spec: ListenerProperties) -> bool:
    return spec.protocol in NODE_PROXY_PROTOCOLS
