"""Authenticator configuration of OpenID Connect relying parties, shared by both proxies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.sidecars.authenticator.config import ClaimConfig, Party, RuleConfig

_SYSTEM_TRUST = "system.pem"
"""CA certificates of the system on the data plane, beside the configuration file."""


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
        filter=oidc.filter,
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
