"""Bearer tokens: what is one, and until when it says of itself that it holds. Pure."""

from __future__ import annotations

import base64
import math
import re

import msgspec

_BEARER = re.compile(r"\s*bearer +([!-~]+)\s*", re.IGNORECASE | re.ASCII)
"""RFC 6750, section 2.1; Kubernetes takes any letters, so all that are visible are taken here."""


class _Payload(msgspec.Struct):
    exp: float = math.inf


def bearer(authorization: str) -> str:
    """Give the token of an ``Authorization`` header; empty if it has none."""
    found = _BEARER.fullmatch(authorization)
    return found[1] if found else ""


def expiry(token: str) -> float:
    """Give the Unix time at which a JWT expires (RFC 7519, section 4.1.4); else infinity.

    Nobody has checked the signature: good for trusting a token less, never for trusting it more.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return math.inf
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(payload, type=_Payload).exp
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return math.inf
