"""Relying parties of OpenID Connect: their authenticator configuration and paths."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir.authentication import DEFAULT_SESSION_COOKIE, Oidc
from gatehouse.compiler.ir.http import VirtualHost
from gatehouse.sidecars.authenticator import cookies
from gatehouse.sidecars.authenticator.config import ClaimConfig, Party, RuleConfig

_SYSTEM_TRUST = "system.pem"
"""CA certificates of the system on the data plane, beside the configuration file."""


def login_paths(oidc: Oidc) -> dict[str, str]:
    """Return the actions of a relying party by their paths."""
    actions = {
        oidc.callback: "callback",
        oidc.logout.path: "logout",
        oidc.logout.front_channel: "ended",
    }
    return {path: action for path, action in actions.items() if path}


def parties_of(host: VirtualHost) -> dict[Oidc, None]:
    """Return the relying parties of a virtual host, in the order of its routes."""
    return {
        route.authentication: None
        for route in host.routes
        if isinstance(route.authentication, Oidc)
    }


def login_conflicts(host: VirtualHost) -> dict[Oidc, str]:
    """Return the relying parties that cannot be served, each with the reason.

    Of two that use the same path, the older one is served. The same holds for a cookie of another
    namespace, whose routes may have the same hostname: its logins would end these sessions.
    """
    owners: dict[str, Oidc] = {}
    result: dict[Oidc, str] = {}
    for oidc in sorted(parties_of(host), key=lambda oidc: (oidc.created, oidc.origin)):
        claims = {f"path {path}": oidc for path in login_paths(oidc)}
        if oidc.cookie != DEFAULT_SESSION_COOKIE:
            claims |= {f"cookie {name}": oidc for name in cookies.names(oidc.cookie)}
        taken = [claim for claim in claims if _is_taken(claim, owners.get(claim), oidc)]
        if taken:
            result[oidc] = f"the {taken[0]} is already used by an older filter or policy"
        else:
            owners |= claims
    return result


def _is_taken(claim: str, owner: Oidc | None, oidc: Oidc) -> bool:
    """Return whether only the owner may use it: sessions of one namespace may displace each
    other."""
    if owner is None:
        return False
    return claim.startswith("path") or owner.origin.namespace != oidc.origin.namespace


def check_login(oidc: Oidc, conflicting: Mapping[Oidc, str]) -> None:
    """Raise InvalidValueError if a relying party cannot be served."""
    if oidc in conflicting:
        raise InvalidValueError(conflicting[oidc], oidc.origin)


def claim_headers(oidc: Oidc) -> list[tuple[str, str]]:
    """Return the claims passed to backends, each with the name of its header."""
    requirements = oidc.authorization.requirements
    return [
        (claim.name, claim.header)
        for requirement in requirements
        for claim in requirement.claims
        if claim.header
    ]


def party(oidc: Oidc, file: Callable[[str], str], headers: tuple[str, ...] = ()) -> Party:
    """Build the configuration of a relying party.

    ``file`` returns the path of a secret file by name.
    """
    authorization = oidc.authorization
    config = Party(
        name="",
        owner=oidc.owner,
        issuer=oidc.issuer,
        metadata_url=oidc.metadata_url,
        client_id=oidc.client_id,
        secret=file(oidc.secret),
        trust=file(oidc.trust) if oidc.trust else _SYSTEM_TRUST,
        revoked=file(oidc.revoked) if oidc.revoked else "",
        callback=oidc.callback,
        callback_origin=oidc.callback_origin,
        pkce=oidc.pkce,
        scopes=oidc.scopes,
        extra=oidc.extra,
        cookie=oidc.cookie,
        timeout=oidc.timeout,
        after_logout=oidc.logout.after,
        token_hint=oidc.logout.token_hint,
        rules=tuple(
            RuleConfig(
                tuple(ClaimConfig(c.name, c.values, c.regex) for c in requirement.claims),
                requirement.every,
            )
            for requirement in authorization.requirements
        ),
        every=authorization.every,
        backend_claims=tuple(name for name, _ in claim_headers(oidc)),
        headers=headers,
    )
    digest = hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:16]
    return msgspec.structs.replace(config, name=digest)
