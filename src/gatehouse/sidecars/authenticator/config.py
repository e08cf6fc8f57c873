"""Configuration of the authenticator: files of the file set, with paths relative to its root."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

AUTHENTICATORS_FILE = "gatehouse/authenticators.json"
"""Path of the relying parties; absent if no authenticator is needed."""

PASSWORDS = "gatehouse/passwords.json"
"""Path of the basic authentication realms, if there are any."""

AUTHENTICATOR_SOCKETS = "authenticators"
"""Directory of the sockets in the run directory, which is NGINX's working directory."""

REQUESTS_SOCKET = f"{AUTHENTICATOR_SOCKETS}/requests.sock"
"""Socket for requests. Their path is ``/<name of the relying party>/<action>``."""

COOKIES = 4
"""Maximum number of cookies of a session."""


class ClaimConfig(msgspec.Struct, frozen=True):
    """A claim that must have one of some values or match one of some regular expressions."""

    name: str
    values: tuple[str, ...] = ()
    regex: bool = False


class RuleConfig(msgspec.Struct, frozen=True):
    """Claims of which all (``every``) or one must match."""

    claims: tuple[ClaimConfig, ...]
    every: bool = True


class Party(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An OpenID Connect relying party."""

    name: str
    """Derived from all other fields, so that its meaning never changes while workers use it."""
    owner: str = msgspec.field(name="filter")
    """The owner of the sessions: a filter as ``namespace/name``, or a policy with its kind."""
    issuer: str
    metadata_url: str
    client_id: str
    secret: str
    """File with the client secret."""
    trust: str
    """File with the CA certificates that the provider's certificate must chain to."""
    revoked: str = ""
    """File with the certificate revocation list of the CAs; empty for none."""
    callback: str
    """Path of the redirect URI."""
    callback_origin: str = ""
    """Origin of the redirect URI; empty for the origin of the user's request."""
    pkce: bool = True
    scopes: tuple[str, ...] = ("openid",)
    extra: tuple[tuple[str, str], ...] = ()
    """Additional arguments of the authorization request."""
    cookie: str
    timeout: float
    """Lifetime in seconds of a session that is not refreshed."""
    after_logout: str = ""
    """Path or URL to redirect to after a logout; empty for none."""
    token_hint: bool = False
    rules: tuple[RuleConfig, ...] = ()
    every: bool = True
    backend_claims: tuple[str, ...] = msgspec.field(default=(), name="told")
    """Claims passed to backends, in the order of the response headers."""
    headers: tuple[str, ...] = ()
    """Lower-case names of these headers, for a proxy that passes them on unchanged."""

    @property
    def label(self) -> str:
        """The owner in messages."""
        return self.owner if " " in self.owner else f"filter {self.owner}"

    @property
    def claims(self) -> frozenset[str]:
        """Claims used by rules or headers."""
        return frozenset(self.backend_claims) | {
            claim.name for rule in self.rules for claim in rule.claims
        }


class Realm(msgspec.Struct, frozen=True):
    """A realm of basic authentication (RFC 7617)."""

    name: str
    """Derived from all other fields, as a party's name."""
    filter: str
    """``namespace/name`` of the filter, for messages."""
    realm: str
    users: str
    """File with one line ``name:hash`` per user."""


def encode_parties(entries: Iterable[Party | Realm]) -> bytes:
    """Serialise a configuration, one line per entry."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, entries)) + b"\n]\n"


def read_parties(directory: Path) -> list[Party]:
    """Read the parties of a configuration. Raises OSError or msgspec.MsgspecError."""
    return msgspec.json.decode((directory / AUTHENTICATORS_FILE).read_bytes(), type=list[Party])


def realms(directory: Path) -> list[Realm]:
    """Read the realms of a configuration. Raises OSError or msgspec.MsgspecError."""
    path = directory / PASSWORDS
    return msgspec.json.decode(path.read_bytes(), type=list[Realm]) if path.exists() else []
