"""Time and memory that a password hash takes at each request.

NGINX computes hashes in its workers, and so for all users of a data plane in turn. The author of a
hash chooses its cost, which has no limit: 31 is two days for bcrypt.
"""

from __future__ import annotations

import re

MAX_BCRYPT_COST = 12
MAX_SHA_ROUNDS = 200_000
"""Maximum costs: 0.2 s with either format. The defaults are 5 to 12, and 5,000."""

_BCRYPT = re.compile(rb"\$2[abxy]?\$([0-9]{2})\$.*")
_SHA = re.compile(rb"\$[56]\$(?:rounds=([0-9]{1,20})\$|(?!rounds=)).*")
_CHEAP = re.compile(rb"\$(?:apr1|1)\$.*")
_YESCRYPT = re.compile(rb"\$y\$j[./0-9][5T]\$.*")
"""Up to twelve bits of blocks, each of 1 or 4 KiB: at most 16 MiB, as by default."""


def cost_problem(hashed: bytes) -> str:
    """Return why a hash would take too long; empty if it does not."""
    if hashed[:1] == b"_":
        return "the format BSDi of password hashes is not supported"
    if hashed[:1] != b"$" or _CHEAP.fullmatch(hashed) or _YESCRYPT.fullmatch(hashed):
        return ""
    if match := _BCRYPT.fullmatch(hashed):
        return "" if int(match[1]) <= MAX_BCRYPT_COST else _above("bcrypt", MAX_BCRYPT_COST)
    if match := _SHA.fullmatch(hashed):
        rounds = int(match[1] or 0)
        return "" if rounds <= MAX_SHA_ROUNDS else _above("SHA", MAX_SHA_ROUNDS)
    return (
        "the hash must be one of {PLAIN}, {SHA}, {SSHA}, $apr1$, $1$, $2y$, $5$, $6$, "
        "or $y$ with the default cost"
    )


def _above(name: str, limit: int) -> str:
    return f"the cost of a {name} hash must be at most {limit:,}"
