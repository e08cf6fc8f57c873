"""Limits of keys that tenants write, so that no key takes long to load or to use.

Libraries test whether the primes of a private RSA key are prime, and search for primes that a key
lacks. That takes 0.07 s at 2,048 bits, 7 s at 8,192 and hours at the size of a Secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_RSA_BITS = 8192
"""Maximum size of RSA keys. A proxy computes 0.1 s for a handshake at 8,192 bits."""

_MAX_NUMBER_CHARACTERS = -(-MAX_RSA_BITS // 6)
"""Length in base64url of a number with `MAX_RSA_BITS`."""

_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})
"""Members of private RSA and EC keys (RFC 7518, sections 6.2.2 and 6.3.2)."""


def verification_key(key: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a JSON Web Key that verify signatures. Raises ValueError."""
    numbers = (key.get("n"), key.get("e")) if key.get("kty") == "RSA" else ()
    if any(isinstance(text, str) and len(text) > _MAX_NUMBER_CHARACTERS for text in numbers):
        raise ValueError(f"an RSA key must have at most {MAX_RSA_BITS} bits")
    return {name: value for name, value in key.items() if name not in _PRIVATE}
