"""Conflict resolution between HostedAPIServers: the current owner of a claim keeps it.

Hostnames, advertised addresses and Service ports are exclusive. The record of an object contains
the claims that it owns, so that no edit of another object takes one away. Without a record, the
oldest object wins, then the first by name. An object loses only the claim in conflict. Without its
Service port it is not served, because two objects with different allowed sources would share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gatehouse.apis import hosted_api_servers as api
from gatehouse.apis.meta import View, decode_view
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.hosted_apiserver.inputs import (
    ADDRESS,
    HOST,
    SERVICE,
    ParsedSpec,
    hosted_claims,
    parse_spec,
)
from gatehouse.compiler.frontends.inputs import record_key
from gatehouse.compiler.frontends.kinds import Record
from gatehouse.incremental.query import Ask, Key

_FIELDS = {HOST: "spec.hosts", ADDRESS: "spec.advertiseAddress", SERVICE: "spec.service"}


class ClaimRecord(Record, frozen=True):
    """Record of a HostedAPIServer: the claims that it owns."""

    claims: frozenset[Key] = frozenset()

    def merged_into(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return a status of the object with this record instead of an earlier one."""
        owned: dict[str, Any] = {"hosts": []}
        for claim in sorted(self.claims):
            if claim[0] == HOST:
                owned["hosts"].append(_shown(claim))
            else:
                owned["address" if claim[0] == ADDRESS else "service"] = _shown(claim)
        return {**status, "owned": owned}


class _Owned(View, frozen=True):
    hosts: tuple[str, ...] = ()
    address: str = ""
    service: str = ""


class _Accepted(View, frozen=True):
    type: str = ""
    status: str = ""
    observed_generation: int = 0


class _RecordedStatus(View, frozen=True):
    owned: _Owned | None = None
    """None: an earlier version of the controller wrote the status."""
    conditions: tuple[_Accepted, ...] = ()


def parse_claim_record(raw: Mapping[str, Any]) -> ClaimRecord:
    """Return the record in the status of an object; an empty one if the status is malformed."""
    hosted = decode_view(api.HostedAPIServer, raw)
    try:
        status = msgspec.convert(raw.get("status") or {}, _RecordedStatus)
    except msgspec.ValidationError:
        return ClaimRecord()
    if not isinstance(hosted, api.HostedAPIServer):
        return ClaimRecord()
    if status.owned is None:
        # Earlier versions served all claims of an accepted object.
        current = _Accepted("Accepted", "True", hosted.metadata.generation)
        return ClaimRecord(frozenset(hosted_claims(hosted) if current in status.conditions else ()))
    owned, service = status.owned, status.owned.service.partition(":")
    result: list[Key] = [(HOST, host) for host in owned.hosts]
    result += [(ADDRESS, owned.address)] if owned.address else []
    if owned.service:
        result.append((SERVICE, hosted.metadata.namespace, service[0], service[2]))
    return ClaimRecord(frozenset(result))


class OwnedClaims(msgspec.Struct, frozen=True):
    """Claims that an object owns, and those that it lost."""

    hosts: tuple[str, ...] = ()
    address: str = ""
    record: ClaimRecord = ClaimRecord()
    conflicts: tuple[str, ...] = ()
    """Messages about claims of other objects."""
    rejection: Finding | None = None
    """Reason why nothing of the object is served; None if it is accepted."""


def parsed_spec(ask: Ask, key: Key) -> ParsedSpec:
    """Return the parsed spec of an object."""
    return parse_spec(ask.read(key))


def claim_owner(ask: Ask, claim: Key) -> Key:
    """Return the owner of a claim; empty if no object has it."""
    return min(ask.read(claim), key=lambda key: (*_precedence(ask, key, claim), key), default=())


def _precedence(ask: Ask, key: Key, claim: Key) -> tuple[bool, str]:
    record, hosted = ask.read(record_key(key)), ask.read(key)
    owned = isinstance(record, ClaimRecord) and claim in record.claims
    created = hosted.metadata.creation_timestamp if isinstance(hosted, api.HostedAPIServer) else ""
    return not owned, created


def owned_claims(ask: Ask, key: Key) -> OwnedClaims:
    """Return the claims of an object that it owns, and its conflicts."""
    parsed = ask(parsed_spec, key)
    owners = {claim: ask(claim_owner, claim) for claim in hosted_claims(ask.read(key))}
    owned = ClaimRecord(frozenset(claim for claim, owner in owners.items() if owner == key))
    lost = {claim: owner for claim, owner in owners.items() if owner not in (key, ())}
    conflicts = tuple(_conflict(claim, owner) for claim, owner in lost.items())
    if parsed.problem:
        return OwnedClaims(record=owned, rejection=Finding(Reason.POLICY_INVALID, parsed.problem))
    hosts = tuple(host for host in parsed.hosts if (HOST, host) in owned.claims)
    address = parsed.address if (ADDRESS, parsed.address) in owned.claims else ""
    rejection = None
    if any(claim[0] == SERVICE for claim in lost) or not (hosts or address):
        rejection = Finding(Reason.POLICY_CONFLICTED, "; ".join(conflicts))
    return OwnedClaims(hosts, address, owned, conflicts, rejection)


def findings(owned: OwnedClaims) -> Iterable[Finding]:
    """Yield the findings about the claims of an object."""
    if owned.rejection is not None:
        yield owned.rejection
    for message in owned.conflicts:
        yield Finding(Reason.HOST_CONFLICT, message)


def _conflict(claim: Key, owner: Key) -> str:
    return (
        f"{_FIELDS[claim[0]]}: {_shown(claim)} already used by HostedAPIServer"
        f" {owner[1]}/{owner[2]}"
    )


def _shown(claim: Key) -> str:
    return ":".join(claim[2:]) if claim[0] == SERVICE else claim[1]
