"""Who may send a request: passwords, signed tokens, or users that a provider knows."""

from __future__ import annotations

import msgspec


class Basic(msgspec.Struct, frozen=True, tag=True):
    """A name and a password (RFC 7617)."""

    realm: str
    users: str
    """Name of the secret that holds a line ``name:hash`` for each."""
    filter: str = ""
    """For people: ``namespace/name``."""


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
    filter: str = ""
    """For people: ``namespace/name``."""


class Logout(msgspec.Struct, frozen=True):
    """How a session ends before its time."""

    path: str = ""
    """What users ask for to log out; empty for none."""
    after: str = ""
    """A path or URL to send them to then; empty for none."""
    front_channel: str = ""
    """The path that the provider has browsers ask for when it ends a session; empty for none."""
    token_hint: bool = False
    """Whether the provider is told the ID token at a logout."""


class Oidc(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A user that an OpenID Connect provider knows, in a session kept by cookies."""

    filter: str
    """``namespace/name``: routes with the same filter share sessions."""
    issuer: str
    metadata_url: str
    client_id: str
    secret: str
    """Name of the secret that holds the client's."""
    trust: str = ""
    """Name of the secret that holds the provider's authorities; empty for the system's."""
    revoked: str = ""
    """Name of the secret that holds the certificates that they take back; empty for none."""
    callback: str
    """The path that the provider sends users back to."""
    callback_origin: str = ""
    """Scheme, host and port; empty for those that a user came to."""
    pkce: bool = True
    """Whether codes are bound to who asked for them (RFC 7636)."""
    scopes: tuple[str, ...] = ("openid",)
    extra: tuple[tuple[str, str], ...] = ()
    """More arguments for the provider, sorted."""
    cookie: str = "NGX_OIDC_SESSION"
    timeout: float = 8 * 3600.0
    """Seconds for which a session lasts that is not refreshed."""
    logout: Logout = Logout()
    authorization: Authorization = Authorization()


Authentication = Basic | Jwt | Oidc
