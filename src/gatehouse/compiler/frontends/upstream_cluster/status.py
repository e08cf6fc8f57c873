"""Status of an UpstreamCluster: conditions of the object, and of each of its Gateways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis import gateway as gateway_types
from gatehouse.apis import meta
from gatehouse.apis import upstream_clusters as api
from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends import certificate_validity
from gatehouse.compiler.frontends.gateway_api.classes import class_controller
from gatehouse.compiler.frontends.gateway_api.findings import Condition, Reason, fold_findings
from gatehouse.compiler.frontends.gateway_api.inputs import (
    programmed_input,
    unready_servers_key,
    unsupported_key,
)
from gatehouse.compiler.frontends.gateway_api.status import merge
from gatehouse.compiler.frontends.kinds import DesiredStatus
from gatehouse.compiler.frontends.upstream_cluster import attachment
from gatehouse.compiler.frontends.upstream_cluster.certificate_hosts import uncovered_finding
from gatehouse.compiler.frontends.upstream_cluster.credentials import (
    client_credentials,
    credentials_at,
    dated_certificates,
    server_credentials,
)
from gatehouse.compiler.frontends.upstream_cluster.findings import (
    OPTIONAL_TYPES,
    ClusterFinding,
    ClusterReason,
)
from gatehouse.compiler.frontends.upstream_cluster.hostnames import (
    cluster_hostnames,
    next_record,
    requested_hostnames,
)
from gatehouse.compiler.frontends.upstream_cluster.record import ClusterRecord, cluster_record
from gatehouse.compiler.frontends.upstream_cluster.translate import local_request_policy, states
from gatehouse.incremental.query import Ask, Key

MAX_STATUS_GATEWAYS = 32
"""Maximum number of Gateways in a status."""

MAX_NAMED_SERVERS = 10
"""Maximum number of servers in the message of ``ServersReady``."""


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
    record: ClusterRecord = ClusterRecord()

    @property
    def next_record(self) -> ClusterRecord:
        """Record of the object for the next pass."""
        return self.record


def cluster_status(ask: Ask, key: Key) -> ClusterStatus | None:
    """Return the desired status of an UpstreamCluster; None if it does not exist."""
    cluster = ask.read(key)
    if isinstance(cluster, meta.Malformed):
        invalid = (
            ClusterFinding(ClusterReason.INVALID, cluster.message),
            ClusterFinding(ClusterReason.NOT_PROGRAMMED, "not served"),
        )
        # The object owns nothing now. Its brakes must still be on when it is valid again.
        record = ClusterRecord(gates=cluster_record(ask, key).gates)
        return ClusterStatus(fold_findings(invalid, (), cluster.metadata.generation), record=record)
    if not isinstance(cluster, api.UpstreamCluster):
        return None
    gateways = ask(attachment.gateways_of_cluster, key)
    findings = ask(own_findings, key)
    served = {gateway: ask(findings_at, gateway, key) for gateway in gateways}
    generation = cluster.metadata.generation
    entries = tuple(
        AtGateway(
            gateway,
            ask(class_controller, gateway),
            ask(cluster_hostnames, gateway, key).own,
            fold_findings((*_everywhere(findings), *here), _DEFAULTS, generation),
        )
        for gateway, here in served.items()
    )
    whole = (*findings, *_whole(served))
    names = {name for entry in entries for name in entry.hosts}
    return ClusterStatus(
        fold_findings(whole, _DEFAULTS, generation),
        tuple(sorted(names)),
        entries[:MAX_STATUS_GATEWAYS],
        next_record(ask, key),
    )


_DEFAULTS = (
    ClusterFinding(ClusterReason.ACCEPTED, "the UpstreamCluster is accepted"),
    ClusterFinding(ClusterReason.RESOLVED, "all credentials are resolved"),
)


def own_findings(ask: Ask, key: Key) -> tuple[ClusterFinding, ...]:
    """Return the findings about an object that do not depend on a Gateway."""
    servers, clients = ask(server_credentials, key), ask(client_credentials, key)
    problems = (*ask(requested_hostnames, key)[1], *ask(attachment.gateway_problems, key))
    findings = [*servers.findings, *clients.findings]
    refusal, listed = servers.refusal, ask(local_request_policy, key).servers
    if not listed.scheme:
        refusal = "spec.servers: no valid endpoint"
    elif not listed.enabled:
        problems = (*problems, "spec.servers: all servers are disabled; requests get status 503")
    if refusal:
        findings += _unserved(ClusterReason.INVALID, f"{refusal}; requests get status 503")
    findings += [ClusterFinding(ClusterReason.PARTIALLY_INVALID, problem) for problem in problems]
    findings += _certificate_findings(ask, key)
    return (*findings, *ask(local_request_policy, key).findings)


def _certificate_findings(ask: Ask, key: Key) -> list[ClusterFinding]:
    """Return the findings about certificates; the first one selects the reason."""
    listed = certificate_validity.problems(ask, dated_certificates(ask, key))
    findings = [ClusterFinding(ClusterReason[name], message) for name, message in listed]
    leaf = ask(client_credentials, key).leaf
    if leaf is not None:
        findings += uncovered_finding(leaf, _served_hosts(ask, key))
    return sorted(findings, key=lambda finding: finding.reason.holds)


def _served_hosts(ask: Ask, key: Key) -> frozenset[str]:
    """Return the hostnames of a cluster at any Gateway."""
    places = [(gateway, key) for gateway in ask(attachment.gateways_of_cluster, key)]
    return frozenset(
        name for hostnames in ask.each_call(cluster_hostnames, places) for name in hostnames.own
    )


def _everywhere(findings: tuple[ClusterFinding, ...]) -> tuple[ClusterFinding, ...]:
    """Return the findings that are repeated for each Gateway: those of non-optional types."""
    return tuple(
        finding for finding in findings if finding.reason.condition_type not in OPTIONAL_TYPES
    )


def findings_at(ask: Ask, gateway: Key, key: Key) -> tuple[ClusterFinding, ...]:
    """Return the findings about an object at one Gateway."""
    named = ask(cluster_hostnames, gateway, key)
    result: list[ClusterFinding] = []
    for host, winner in named.lost:
        message = f"hostname {host} already used by UpstreamCluster {winner[2]}"
        result.append(ClusterFinding(ClusterReason.CONFLICTED, message))
    if not named.own:
        message = "no hostname left: all are invalid or used by other UpstreamClusters"
        return (
            *result,
            ClusterFinding(ClusterReason.NO_HOST, message),
            ClusterFinding(ClusterReason.NOT_PROGRAMMED, message),
        )
    result += _rejected_credentials(ask, gateway, key)
    if unready := ask.read(unready_servers_key(gateway, key[2])):
        more = len(unready) - MAX_NAMED_SERVERS
        shortened = (*unready[:MAX_NAMED_SERVERS], *([f"{more} more"] if more > 0 else ()))
        result.append(ClusterFinding(ClusterReason.SERVERS_NOT_READY, "; ".join(shortened)))
    left_out = unsupported_key(ask, gateway, key)
    no_certificate = _without_certificate(ask, gateway, key)
    # Without a certificate nothing is served, which NoCertificate reports already.
    reported = [part.reason for part in left_out if not no_certificate or part.served]
    result += [
        ClusterFinding(ClusterReason.PARTIALLY_INVALID, unserved_reason)
        for unserved_reason in reported
    ]
    if no_certificate:
        return (*result, ClusterFinding(ClusterReason.NO_CERTIFICATE, no_certificate))
    unserved = [part.reason for part in left_out if not part.served]
    if unserved:
        return (*result, ClusterFinding(ClusterReason.NOT_PROGRAMMED, f"not served: {unserved[0]}"))
    plane = programmed_input(ask, gateway)
    if plane.programmed:
        programmed = ClusterFinding(
            ClusterReason.PROGRAMMED, "all data planes confirmed the configuration"
        )
    else:
        rejected = plane.reason is Reason.NOT_PROGRAMMED
        reason = ClusterReason.NOT_PROGRAMMED if rejected else ClusterReason.PENDING
        programmed = ClusterFinding(reason, plane.message)
    return (*result, programmed)


def _rejected_credentials(ask: Ask, gateway: Key, key: Key) -> list[ClusterFinding]:
    """Return the findings about credentials that the Gateway's proxy rejected."""
    servers, clients = ask(credentials_at, gateway, key)
    sections = (("spec.clientConfig", servers), ("spec.secureServing", clients))
    findings = [
        ClusterFinding(ClusterReason.INVALID_CREDENTIALS, f"{where}: {kind} {why}")
        for where, credentials in sections
        for kind, why in credentials.rejected
    ]
    if servers.rejected and servers.refusal:
        message = f"{servers.refusal}; requests get status 503"
        findings += _unserved(ClusterReason.INVALID, message)
    return findings


def _unserved(reason: ClusterReason, message: str) -> list[ClusterFinding]:
    """Return the findings about an object of which nothing is served."""
    return [ClusterFinding(one, message) for one in (reason, ClusterReason.NOT_PROGRAMMED)]


def _without_certificate(ask: Ask, gateway: Key, key: Key) -> str:
    """Return why there is no certificate for clients, which cannot connect; else empty."""
    cluster = ask.read(key)
    _, serving = ask(credentials_at, gateway, key)
    no_certificate = [state.spec.key[1] for state in states(ask, gateway) if not state.certificates]
    if (
        not no_certificate
        or serving.certificate is not None
        or not isinstance(cluster, api.UpstreamCluster)
    ):
        return ""
    secure_serving, reference = cluster.spec.secure_serving, cluster.spec.secure_serving.secret_ref
    if rejected := dict(serving.rejected).get("certificate"):
        why = f"spec.secureServing: certificate {rejected}"
    elif serving.findings:
        why = serving.findings[0].message
    elif reference is not None:
        where = f"Secret {reference.namespace}/{reference.name}"
        why = f"spec.secureServing.secretRef: data[tls.crt] and data[tls.key] not found in {where}"
    elif secure_serving.client_ca_data or secure_serving.server_names:
        why = "spec.secureServing: certData and keyData, or secretRef, must be set"
    else:
        why = "spec.secureServing: must be set"
    listeners = ", ".join(no_certificate)
    return f"{why}, and listener {listeners} has no valid certificate in tls.certificateRefs"


def _whole(served: Mapping[Key, tuple[ClusterFinding, ...]]) -> list[ClusterFinding]:
    """Return the findings of all Gateways. One that does not serve it is always reported."""
    if not served:
        message = "no managed Gateway serves the UpstreamCluster"
        return _unserved(ClusterReason.NO_MATCHING_GATEWAY, message)
    findings: list[ClusterFinding] = []
    nowhere = all(
        any(finding.reason is ClusterReason.NO_HOST for finding in here) for here in served.values()
    )
    good = True
    for gateway, here in served.items():
        for finding in here:
            kind, holds, _ = finding.reason.value
            if kind == "Programmed":
                good &= holds
                if not holds:
                    where = f"Gateway {gateway[1]}/{gateway[2]}: "
                    findings.append(ClusterFinding(finding.reason, where + finding.message))
            elif finding.reason is not ClusterReason.NO_HOST or nowhere:
                findings.append(finding)
    if good:
        findings.append(
            ClusterFinding(ClusterReason.PROGRAMMED, "all data planes confirmed the configuration")
        )
    return list(dict.fromkeys(findings))


def merge_cluster_status(
    current: Mapping[str, Any] | None, desired: ClusterStatus, now: str
) -> dict[str, Any] | None:
    """Return the whole status to write; None if ``current`` is up to date. ``now``: RFC 3339."""
    before = dict(current or {})
    known = {_place(gateway): gateway for gateway in before.get("gateways") or ()}
    others = [entry for entry in known.values() if entry.get("controllerName") not in CONTROLLERS]
    desired_fields: dict[str, Any] = {
        "conditions": merge.merge_conditions(
            before.get("conditions"), desired.conditions, now, OPTIONAL_TYPES
        ),
        "hosts": list(desired.hosts),
        "gateways": others + [_entry(gateway, known, now) for gateway in desired.gateways],
    }
    merged = desired.record.merged_into({**before, **desired_fields})
    return None if merged == before else merged


def _place(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    about = entry.get("gatewayRef") or {}
    controller = entry.get("controllerName", "")
    return about.get("namespace", ""), about.get("name", ""), controller


def _entry(
    desired: AtGateway, known: Mapping[tuple[str, str, str], Mapping[str, Any]], now: str
) -> dict[str, Any]:
    kind, namespace, name = desired.gateway
    about = {
        "group": gateway_types.GATEWAY_API_GROUP,
        "kind": kind,
        "namespace": namespace,
        "name": name,
    }
    before = known.get((namespace, name, desired.controller), {})
    merged = merge.merge_conditions(
        before.get("conditions"), desired.conditions, now, OPTIONAL_TYPES
    )
    return {
        "gatewayRef": about,
        "controllerName": desired.controller,
        "hosts": list(desired.hosts),
        "conditions": merged,
    }
