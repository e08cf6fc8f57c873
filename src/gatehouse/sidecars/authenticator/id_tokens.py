"""Verification of ID tokens (OpenID Connect Core, section 3.1.3.7). No I/O."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from gatehouse.dataplane.key_sizes import verification_key
from gatehouse.sidecars.authenticator.config import Party

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Asymmetric algorithms: the verification key cannot create signatures."""

_LEEWAY = 30.0
"""Tolerated clock difference in seconds."""

_REQUIRED = ("iss", "sub", "aud", "exp", "iat")


class DeniedError(Exception):
    """The provider or its token does not allow the login. The message contains the reason."""


class UnknownKeyError(DeniedError):
    """The signature matches no known key."""


def verify_id_token(
    party: Party, token: str, keys: Sequence[Mapping[str, Any]], nonce: str | None
) -> Mapping[str, Any]:
    """Return the claims of a valid token. ``nonce`` None: a nonce is not required. Raises
    DeniedError."""
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header["alg"]
        if algorithm not in ALGORITHMS:
            raise DeniedError(f"the ID token is signed with {algorithm!r}")
        claims = _verify_signature(
            party, token, algorithm, _matching_keys(keys, header.get("kid"), algorithm)
        )
    except (jwt.PyJWTError, KeyError) as error:
        raise DeniedError(f"the ID token is not valid: {error}") from error
    audience = claims["aud"]
    if claims.get("azp", party.client_id) != party.client_id or (
        isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
    ):
        raise DeniedError("the ID token is for another client (azp)")
    if nonce is not None and not hmac.compare_digest(
        str(claims.get("nonce", "")).encode(), nonce.encode()
    ):
        raise DeniedError("the ID token is for another login (nonce)")
    return claims


def _verify_signature(
    party: Party, token: str, algorithm: str, keys: Sequence[jwt.PyJWK]
) -> Mapping[str, Any]:
    for key in keys:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=party.client_id,
                issuer=party.issuer,
                leeway=_LEEWAY,
                options={"require": [*_REQUIRED]},
            )
        except jwt.InvalidSignatureError:
            continue
        return claims
    raise UnknownKeyError("the ID token is signed with a key that the provider does not publish")


def _matching_keys(
    keys: Sequence[Mapping[str, Any]], key_id: str | None, algorithm: str
) -> list[jwt.PyJWK]:
    matching = []
    for key in keys:
        if key_id is not None and key.get("kid", key_id) != key_id:
            continue
        if key.get("use", "sig") != "sig" or key.get("alg", algorithm) != algorithm:
            continue
        try:
            matching.append(jwt.PyJWK(verification_key(key), algorithm))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            # A key of an unsupported type.
            continue
    return matching
