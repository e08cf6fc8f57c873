"""ID tokens: who signed them, for whom, until when (OpenID Connect Core, section 3.1.3.7). Pure."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from gatehouse.sidecars.authenticator.config import Party

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Those of key pairs: who may check a signature cannot make it."""

LEEWAY = 30.0
"""Seconds by which clocks may differ."""

_NEEDED = ("iss", "sub", "aud", "exp", "iat")


class DeniedError(Exception):
    """The provider, or what it gave, does not let a user in; the message says why."""


class UnknownKeyError(DeniedError):
    """No key that is known verifies the signature."""


def verify_id_token(
    party: Party, token: str, keys: Sequence[Mapping[str, Any]], nonce: str | None
) -> Mapping[str, Any]:
    """Give a token's claims; ``nonce`` None: it need not have one. Raises DeniedError."""
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header["alg"]
        if algorithm not in ALGORITHMS:
            raise DeniedError(f"the ID token is signed with {algorithm!r}")
        claims = _signed(party, token, algorithm, _chosen(keys, header.get("kid"), algorithm))
    except (jwt.PyJWTError, KeyError) as error:
        raise DeniedError(f"the ID token does not hold: {error}") from error
    audience = claims["aud"]
    if claims.get("azp", party.client_id) != party.client_id or (
        isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
    ):
        raise DeniedError("the ID token is for another client (azp)")
    if nonce is not None and not hmac.compare_digest(
        str(claims.get("nonce", "")).encode(), nonce.encode()
    ):
        raise DeniedError("the ID token is of another login (nonce)")
    return claims


def _signed(
    party: Party, token: str, algorithm: str, keys: Sequence[jwt.PyJWK]
) -> Mapping[str, Any]:
    for key in keys:
        try:
            found: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=party.client_id,
                issuer=party.issuer,
                leeway=LEEWAY,
                options={"require": [*_NEEDED]},
            )
        except jwt.InvalidSignatureError:
            continue
        return found
    raise UnknownKeyError("the ID token is signed with a key that the provider does not publish")


def _chosen(
    keys: Sequence[Mapping[str, Any]], wanted: str | None, algorithm: str
) -> list[jwt.PyJWK]:
    found = []
    for each in keys:
        if wanted is not None and each.get("kid", wanted) != wanted:
            continue
        if each.get("use", "sig") != "sig" or each.get("alg", algorithm) != algorithm:
            continue
        try:
            found.append(jwt.PyJWK(dict(each), algorithm))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            # A key of another kind.
            continue
    return found
