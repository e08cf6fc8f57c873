"""Relying parties, as both proxies' back ends describe them to an authenticator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.sidecars.authenticator.config import Claim, Party, Rule

SYSTEM_TRUST = "system.pem"
"""Beside a description: the authorities that the data plane's machine trusts."""


def claim_headers(wanted: Oidc) -> list[tuple[str, str]]:
    """Give the claims that backends are told, and in which headers."""
    asked = wanted.authorization.requirements
    return [(each.name, each.header) for rule in asked for each in rule.claims if each.header]


def party(wanted: Oidc, file: Callable[[str], str], headers: tuple[str, ...] = ()) -> Party:
    """Describe what is wanted. ``file``: the path of a secret, by its name."""
    asked = wanted.authorization
    made = Party(
        name="",
        filter=wanted.filter,
        issuer=wanted.issuer,
        metadata_url=wanted.metadata_url,
        client_id=wanted.client_id,
        secret=file(wanted.secret),
        trust=file(wanted.trust) if wanted.trust else SYSTEM_TRUST,
        revoked=file(wanted.revoked) if wanted.revoked else "",
        callback=wanted.callback,
        callback_origin=wanted.callback_origin,
        pkce=wanted.pkce,
        scopes=wanted.scopes,
        extra=wanted.extra,
        cookie=wanted.cookie,
        timeout=wanted.timeout,
        after_logout=wanted.logout.after,
        token_hint=wanted.logout.token_hint,
        rules=tuple(
            Rule(tuple(Claim(c.name, c.values, c.regex) for c in each.claims), each.every)
            for each in asked.requirements
        ),
        every=asked.every,
        told=tuple(name for name, _ in claim_headers(wanted)),
        headers=headers,
    )
    digest = hashlib.sha256(msgspec.json.encode(made)).hexdigest()[:16]
    return msgspec.structs.replace(made, name=digest)
