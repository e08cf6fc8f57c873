"""Conflict resolution between HostedAPIServers: the oldest object wins.

Hostnames, advertised addresses and Service ports are exclusive. An object that lost one of them is
not served at all, so that no object is served in part.
"""

from __future__ import annotations

from gatehouse.apis import hosted_api_servers as api
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.hosted_apiserver.inputs import ParsedSpec, claims, parse_spec
from gatehouse.incremental.query import Ask, Key

_FIELDS = {
    "@hosted-host": "spec.hosts",
    "@hosted-address": "spec.advertiseAddress",
    "@hosted-service": "spec.service",
}


def parsed_spec(ask: Ask, key: Key) -> ParsedSpec:
    """Return the parsed spec of an object."""
    return parse_spec(ask.read(key))


def claim_owner(ask: Ask, claim: Key) -> Key:
    """Return the owner of a claim: the oldest object, then the first by name; empty if none."""
    return min(ask.read(claim), key=lambda key: (_created(ask, key), key), default=())


def rejection(ask: Ask, key: Key) -> Finding | None:
    """Return why an object is not accepted; None if it is."""
    parsed = ask(parsed_spec, key)
    if parsed.problem:
        return Finding(Reason.POLICY_INVALID, parsed.problem)
    for claim in claims(ask.read(key)):
        other = ask(claim_owner, claim)
        if other not in (key, ()):
            shown = "/".join(claim[1:]) if claim[0] != "@hosted-service" else ":".join(claim[2:])
            message = (
                f"{_FIELDS[claim[0]]}: {shown} already used by the older HostedAPIServer"
                f" {other[1]}/{other[2]}"
            )
            return Finding(Reason.POLICY_CONFLICTED, message)
    return None


def _created(ask: Ask, key: Key) -> str:
    found = ask.read(key)
    return found.metadata.creation_timestamp if isinstance(found, api.HostedAPIServer) else ""
