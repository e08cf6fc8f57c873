"""Who may send a request: passwords, or signed tokens and what they must claim."""

from __future__ import annotations

import msgspec


class Basic(msgspec.Struct, frozen=True, tag=True):
    """A name and a password (RFC 7617)."""

    realm: str
    users: str
    """Name of the secret that holds a line ``name:hash`` for each."""


class Claim(msgspec.Struct, frozen=True):
    """A claim that must have one of some values, or match one of some expressions."""

    name: str
    values: tuple[str, ...]
    regex: bool = False
    header: str = ""
    """The header in which a backend is told the claim."""


class Requirement(msgspec.Struct, frozen=True):
    """Claims of which all or one must hold."""

    claims: tuple[Claim, ...]
    every: bool = True


class Authorization(msgspec.Struct, frozen=True):
    """Requirements of which all or one must be met."""

    requirements: tuple[Requirement, ...] = ()
    every: bool = True


class Jwt(msgspec.Struct, frozen=True, tag=True):
    """A signed token (RFC 7519) in the Authorization header."""

    realm: str
    keys: str
    """Name of the secret that holds a JSON Web Key Set."""
    leeway: float = 0.0
    """Seconds by which clocks may differ."""
    authorization: Authorization = Authorization()


Authentication = Basic | Jwt
