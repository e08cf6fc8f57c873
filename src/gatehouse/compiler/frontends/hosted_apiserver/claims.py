"""Whose a host, an address or a Service is that several want: the oldest object has it.

An object that does not have all that it claims is not served at all: nobody is half exposed.
"""

from __future__ import annotations

from gatehouse.apis import hosted_api_servers as api
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.hosted_apiserver.inputs import Wanted, claims, wanted
from gatehouse.incremental.query import Ask, Key

_FIELDS = {
    "@hosted-host": "spec.hosts",
    "@hosted-address": "spec.advertiseAddress",
    "@hosted-service": "spec.service",
}


def accepted_claims(ask: Ask, key: Key) -> Wanted:
    """Give what an object wants."""
    return wanted(ask.read(key))


def claim_owner(ask: Ask, claim: Key) -> Key:
    """Give whose something is: the oldest object's, then the first's by name. Empty: nobody's."""
    return min(ask.read(claim), key=lambda key: (_created(ask, key), key), default=())


def refusal(ask: Ask, key: Key) -> Finding | None:
    """Say why nothing of an object may be served."""
    found = ask(accepted_claims, key)
    if found.problem:
        return Finding(Reason.POLICY_INVALID, found.problem)
    for claim in claims(ask.read(key)):
        other = ask(claim_owner, claim)
        if other not in (key, ()):
            shown = "/".join(claim[1:]) if claim[0] != "@hosted-service" else ":".join(claim[2:])
            message = (
                f"{_FIELDS[claim[0]]}: {shown} is that of HostedAPIServer {other[1]}/{other[2]},"
                " which is older"
            )
            return Finding(Reason.POLICY_CONFLICTED, message)
    return None


def _created(ask: Ask, key: Key) -> str:
    found = ask.read(key)
    return found.metadata.creation_timestamp if isinstance(found, api.HostedAPIServer) else ""
