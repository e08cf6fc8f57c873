"""Bearer tokens: parsing and expiry. No I/O."""

from __future__ import annotations

import base64
import math
import re

import msgspec

_BEARER = re.compile(r"\s*bearer +([!-~]+)\s*", re.IGNORECASE | re.ASCII)
"""RFC 6750, section 2.1. Kubernetes accepts any characters, so all visible ones are accepted
here."""


class _Payload(msgspec.Struct):
    exp: float = math.inf


def bearer_token(authorization: str) -> str:
    """Return the token of an ``Authorization`` header, or "" if it has none."""
    match = _BEARER.fullmatch(authorization)
    return match[1] if match else ""


def expiry(token: str) -> float:
    """Return the expiry of a JWT in Unix seconds (RFC 7519, section 4.1.4), or infinity if it has
    none.

    The signature is not verified. The result may only shorten the trust in a token, never extend
    it.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return math.inf
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Payload).exp
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return math.inf
