"""What an authenticator is told: one file of the bundle, with paths relative to its root."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

FILE = "gatehouse/authenticators.json"
"""Where the description is; only configurations that need an authenticator have it."""

PASSWORDS = "gatehouse/passwords.json"
"""Where realms are described, in configurations that have any."""

SOCKETS = "authenticators"
"""The directory of the sockets, in the run directory, which is NGINX's working directory."""

SOCKET = f"{SOCKETS}/requests.sock"
"""Where requests are taken; their path is ``/<name of the relying party>/<action>``."""

COOKIES = 4
"""How many cookies of a session there may be."""


class Claim(msgspec.Struct, frozen=True):
    """A claim that must have one of some values, or match one of some expressions."""

    name: str
    values: tuple[str, ...] = ()
    regex: bool = False


class Rule(msgspec.Struct, frozen=True):
    """Claims of which all or one must hold."""

    claims: tuple[Claim, ...]
    every: bool = True


class Party(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A relying party, as OpenID Connect calls who lets users be authenticated by a provider."""

    name: str
    """Depends on all the rest, so that it never changes its meaning while workers use it."""
    filter: str
    """For people, and whose sessions they are: ``namespace/name``."""
    issuer: str
    metadata_url: str
    client_id: str
    secret: str
    """File of the client's secret."""
    trust: str
    """File of the authorities that the provider's certificate must chain to."""
    revoked: str = ""
    """File of the authorities' list of certificates that they take back; empty for none."""
    callback: str
    """The path that the provider sends users back to."""
    callback_origin: str = ""
    """Empty for the origin that users came to."""
    pkce: bool = True
    scopes: tuple[str, ...] = ("openid",)
    extra: tuple[tuple[str, str], ...] = ()
    """Arguments for the provider."""
    cookie: str
    timeout: float
    """Seconds for which a session lasts that is not refreshed."""
    after_logout: str = ""
    """A path or URL; empty for none."""
    token_hint: bool = False
    rules: tuple[Rule, ...] = ()
    every: bool = True
    told: tuple[str, ...] = ()
    """Claims that backends are told, in the order of the headers of an answer."""
    headers: tuple[str, ...] = ()
    """Names of these headers, for a proxy that passes them on as they are; in lower case."""

    @property
    def claims(self) -> frozenset[str]:
        """Those that anything asks for."""
        return frozenset(self.told) | {each.name for rule in self.rules for each in rule.claims}


class Realm(msgspec.Struct, frozen=True):
    """Users that have names and passwords (RFC 7617)."""

    name: str
    """Depends on all the rest, as a party's does."""
    filter: str
    """For people: ``namespace/name``."""
    realm: str
    users: str
    """File with a line ``name:hash`` for each."""


def encode(described: Iterable[Party | Realm]) -> bytes:
    """Write a description, a line for each."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, described)) + b"\n]\n"


def read(directory: Path) -> list[Party]:
    """Read the description of a configuration; raises OSError, msgspec.MsgspecError."""
    return msgspec.json.decode((directory / FILE).read_bytes(), type=list[Party])


def realms(directory: Path) -> list[Realm]:
    """Read the realms of a configuration; raises OSError, msgspec.MsgspecError."""
    path = directory / PASSWORDS
    return msgspec.json.decode(path.read_bytes(), type=list[Realm]) if path.exists() else []
