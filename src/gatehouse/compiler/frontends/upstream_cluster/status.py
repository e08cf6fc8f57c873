"""Status of an UpstreamCluster: conditions of the object, and of each of its Gateways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis import gateway as gateway_types
from gatehouse.apis import meta
from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.gateway_api.classes import controller_of
from gatehouse.compiler.frontends.gateway_api.findings import Condition, conditions
from gatehouse.compiler.frontends.gateway_api.inputs import (
    CONTROLLERS,
    ProgrammedInput,
    unsupported,
)
from gatehouse.compiler.frontends.gateway_api.status import merge
from gatehouse.compiler.frontends.kinds import DesiredStatus
from gatehouse.compiler.frontends.upstream_cluster import attachment
from gatehouse.compiler.frontends.upstream_cluster.certificate_validity import (
    out_of_time,
    uncovered,
)
from gatehouse.compiler.frontends.upstream_cluster.credentials import (
    client_credentials,
    credentials_at,
    server_credentials,
)
from gatehouse.compiler.frontends.upstream_cluster.findings import OPTIONAL, Finding, Reason
from gatehouse.compiler.frontends.upstream_cluster.hostnames import hosts, requested_hostnames
from gatehouse.compiler.frontends.upstream_cluster.translate import local_request_policy, states
from gatehouse.incremental.query import Ask, Key

MAX_STATUS_GATEWAYS = 32
"""Maximum number of Gateways in a status."""


class AtGateway(msgspec.Struct, frozen=True):
    """Status at one Gateway."""

    gateway: Key
    controller: str
    hosts: tuple[str, ...]
    conditions: tuple[Condition, ...]


class ClusterStatus(DesiredStatus, frozen=True):
    """Desired status of an UpstreamCluster."""

    conditions: tuple[Condition, ...]
    hosts: tuple[str, ...] = ()
    """Hostnames at any Gateway, sorted."""
    gateways: tuple[AtGateway, ...] = ()


def status(ask: Ask, key: Key) -> ClusterStatus | None:
    """Return the desired status of an UpstreamCluster; None if it does not exist."""
    found = ask.read(key)
    if isinstance(found, meta.Malformed):
        invalid = (
            Finding(Reason.INVALID, found.message),
            Finding(Reason.NOT_PROGRAMMED, "not served"),
        )
        return ClusterStatus(conditions(invalid, (), found.metadata.generation))
    if not isinstance(found, api.UpstreamCluster):
        return None
    gateways = ask(attachment.gateways_of, key)
    findings = ask(own_findings, key)
    served = {each: ask(findings_at, (each, key)) for each in gateways}
    generation = found.metadata.generation
    entries = tuple(
        AtGateway(
            each,
            ask(controller_of, each),
            ask(hosts, (each, key)).own,
            conditions((*_everywhere(findings), *here), _DEFAULTS, generation),
        )
        for each, here in served.items()
    )
    whole = (*findings, *_whole(served))
    names = {name for each in entries for name in each.hosts}
    return ClusterStatus(
        conditions(whole, _DEFAULTS, generation),
        tuple(sorted(names)),
        entries[:MAX_STATUS_GATEWAYS],
    )


_DEFAULTS = (
    Finding(Reason.ACCEPTED, "the UpstreamCluster is accepted"),
    Finding(Reason.RESOLVED, "all credentials are resolved"),
)


def own_findings(ask: Ask, key: Key) -> tuple[Finding, ...]:
    """Return the findings about an object that do not depend on a Gateway."""
    servers, clients = ask(server_credentials, key), ask(client_credentials, key)
    problems = (*ask(requested_hostnames, key)[1], *ask(attachment.problems, key))
    found = [*servers.findings, *clients.findings]
    refusal, listed = servers.refusal, ask(local_request_policy, key).servers
    if not listed.scheme:
        refusal = "spec.servers: no valid endpoint"
    elif not listed.enabled:
        problems = (*problems, "spec.servers: all servers are disabled; requests get status 503")
    if refusal:
        message = f"{refusal}; requests get status 503"
        found += [Finding(Reason.INVALID, message), Finding(Reason.NOT_PROGRAMMED, message)]
    found += [Finding(Reason.PARTIALLY_INVALID, each) for each in problems]
    found += out_of_time(ask, (clients.leaf, servers.leaf))
    if clients.leaf is not None:
        found += uncovered(clients.leaf, _served_hosts(ask, key))
    return (*found, *ask(local_request_policy, key).findings)


def _served_hosts(ask: Ask, key: Key) -> frozenset[str]:
    """Return the hostnames of a cluster at any Gateway."""
    places = [(gateway, key) for gateway in ask(attachment.gateways_of, key)]
    return frozenset(name for found in ask.each(hosts, places) for name in found.own)


def _everywhere(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings that are repeated for each Gateway: those of non-optional types."""
    return tuple(each for each in findings if each.reason.value[0] not in OPTIONAL)


def findings_at(ask: Ask, place: tuple[Key, Key]) -> tuple[Finding, ...]:
    """Return the findings about an object at one Gateway."""
    gateway = place[0]
    named = ask(hosts, place)
    found: list[Finding] = []
    for host, winner in named.lost:
        message = f"hostname {host} already used by the older UpstreamCluster {winner[2]}"
        found.append(Finding(Reason.CONFLICTED, message))
    if not named.own:
        message = "no hostname left: all are invalid or used by older UpstreamClusters"
        return (*found, Finding(Reason.NO_HOST, message), Finding(Reason.NOT_PROGRAMMED, message))
    found += _rejected_certificates(ask, place)
    left_out = unsupported(ask, gateway, place[1])
    no_certificate = _without_certificate(ask, place)
    # Without a certificate nothing is served, which NoCertificate reports already.
    reported = [each.reason for each in left_out if not no_certificate or each.served]
    found += [Finding(Reason.PARTIALLY_INVALID, each) for each in reported]
    if no_certificate:
        return (*found, Finding(Reason.NO_CERTIFICATE, no_certificate))
    unserved = [each.reason for each in left_out if not each.served]
    if unserved:
        return (*found, Finding(Reason.NOT_PROGRAMMED, f"not served: {unserved[0]}"))
    plane = ask.read(("Programming", gateway[1], gateway[2])) or ProgrammedInput(
        programmed=False, message="waiting for the data plane"
    )
    if plane.programmed:
        programmed = Finding(Reason.PROGRAMMED, "all data planes confirmed the configuration")
    else:
        reason = Reason.NOT_PROGRAMMED if plane.reason == "Invalid" else Reason.PENDING
        programmed = Finding(reason, plane.message)
    return (*found, programmed)


def _rejected_certificates(ask: Ask, place: tuple[Key, Key]) -> list[Finding]:
    """Return the findings about certificates that the Gateway's proxy rejected."""
    servers, clients = ask(credentials_at, place)
    sections = (("spec.clientConfig", servers), ("spec.secureServing", clients))
    found = [
        Finding(Reason.INVALID_CREDENTIALS, f"{where}: certificate {credentials.rejected}")
        for where, credentials in sections
        if credentials.rejected
    ]
    if servers.rejected and servers.refusal:
        message = f"{servers.refusal}; requests get status 503"
        found += [Finding(Reason.INVALID, message), Finding(Reason.NOT_PROGRAMMED, message)]
    return found


def _without_certificate(ask: Ask, place: tuple[Key, Key]) -> str:
    """Return why there is no certificate for clients, which cannot connect; else empty."""
    gateway, key = place
    found = ask.read(key)
    _, serving = ask(credentials_at, place)
    no_certificate = [each.spec.key[1] for each in states(ask, gateway) if not each.certificates]
    if (
        not no_certificate
        or serving.certificate is not None
        or not isinstance(found, api.UpstreamCluster)
    ):
        return ""
    given, reference = found.spec.secure_serving, found.spec.secure_serving.secret_ref
    if serving.rejected:
        why = f"spec.secureServing: certificate {serving.rejected}"
    elif serving.findings:
        why = serving.findings[0].message
    elif reference is not None:
        where = f"Secret {reference.namespace}/{reference.name}"
        why = f"spec.secureServing.secretRef: data[tls.crt] and data[tls.key] not found in {where}"
    elif given.client_ca_data or given.server_names:
        why = "spec.secureServing: certData and keyData, or secretRef, must be set"
    else:
        why = "spec.secureServing: must be set"
    listeners = ", ".join(no_certificate)
    return f"{why}, and listener {listeners} has no valid certificate in tls.certificateRefs"


def _whole(served: Mapping[Key, tuple[Finding, ...]]) -> list[Finding]:
    """Return the findings of all Gateways. One that does not serve it is always reported."""
    if not served:
        message = "no managed Gateway serves the UpstreamCluster"
        return [
            Finding(Reason.NO_MATCHING_GATEWAY, message),
            Finding(Reason.NOT_PROGRAMMED, message),
        ]
    findings: list[Finding] = []
    nowhere = all(any(each.reason is Reason.NO_HOST for each in here) for here in served.values())
    good = True
    for gateway, here in served.items():
        for each in here:
            kind, holds, _ = each.reason.value
            if kind == "Programmed":
                good &= holds
                if not holds:
                    where = f"Gateway {gateway[1]}/{gateway[2]}: "
                    findings.append(Finding(each.reason, where + each.message))
            elif each.reason is not Reason.NO_HOST or nowhere:
                findings.append(each)
    if good:
        findings.append(Finding(Reason.PROGRAMMED, "all data planes confirmed the configuration"))
    return list(dict.fromkeys(findings))


def merge_status(
    current: Mapping[str, Any] | None, desired: ClusterStatus, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    before = dict(current or {})
    known = {_place(each): each for each in before.get("gateways") or ()}
    others = [each for each in known.values() if each.get("controllerName") not in CONTROLLERS]
    desired_fields: dict[str, Any] = {
        "conditions": merge.conditions(before.get("conditions"), desired.conditions, now, OPTIONAL),
        "hosts": list(desired.hosts),
        "gateways": others + [_entry(each, known, now) for each in desired.gateways],
    }
    merged = {**before, **desired_fields}
    return None if merged == before else merged


def _place(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    about = entry.get("gatewayRef") or {}
    controller = entry.get("controllerName", "")
    return about.get("namespace", ""), about.get("name", ""), controller


def _entry(
    desired: AtGateway,
    known: Mapping[tuple[str, str, str], Mapping[str, Any]],
    now: str,
) -> dict[str, Any]:
    kind, namespace, name = desired.gateway
    about = {"group": gateway_types.GROUP, "kind": kind, "namespace": namespace, "name": name}
    before = known.get((namespace, name, desired.controller), {})
    merged = merge.conditions(before.get("conditions"), desired.conditions, now, OPTIONAL)
    return {
        "gatewayRef": about,
        "controllerName": desired.controller,
        "hosts": list(desired.hosts),
        "conditions": merged,
    }
