"""IR of checks: passwords, tokens, keys, OpenID Connect, authorization servers, addresses."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.dataplane.origin import NO_ORIGIN, Origin


class Basic(msgspec.Struct, frozen=True, tag=True):
    """HTTP basic authentication (RFC 7617)."""

    realm: str
    users: str
    """Name of the secret file with one line ``name:hash`` per user."""
    origin: Origin = NO_ORIGIN
    """The field of a filter."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of all secret files."""
        return (self.users,)


class Claim(msgspec.Struct, frozen=True):
    """A required claim: it must equal one of the values, or match one of the expressions."""

    name: str
    values: tuple[str, ...]
    regex: bool = False
    header: str = ""
    """Header that passes the claim to the backend; empty: none."""


class Requirement(msgspec.Struct, frozen=True):
    """Required claims: all of them (``every``), or at least one."""

    claims: tuple[Claim, ...]
    every: bool = True


class Authorization(msgspec.Struct, frozen=True):
    """Requirements: all of them must be met (``every``), or at least one."""

    requirements: tuple[Requirement, ...] = ()
    every: bool = True


class Jwt(msgspec.Struct, frozen=True, tag=True):
    """A signed token (RFC 7519) in the Authorization header."""

    realm: str
    keys: str
    """Name of the secret file with a JSON Web Key Set."""
    leeway: float = 0.0
    """Tolerated clock skew in seconds."""
    authorization: Authorization = Authorization()
    origin: Origin = NO_ORIGIN
    """The field of a filter."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of all secret files."""
        return (self.keys,)


class KeySource(msgspec.Struct, frozen=True):
    """A place of a request that may have a key."""

    kind: Literal["header", "query", "cookie"]
    name: str


API_KEY_CHALLENGE = "ApiKey"
"""Challenge to a request without a key (RFC 9110, 11.6.1)."""


class ApiKeys(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A key in the request, which belongs to a client."""

    keys: str
    """Name of the file with the keys of all clients
    (:class:`~gatehouse.compiler.ir.gateway.ApiKeyFile`)."""
    sources: tuple[KeySource, ...]
    """The first one that a request has decides."""
    client_header: str = ""
    """Header that passes the name of the client to the backend; empty: none."""
    sanitize: bool = True
    """True: the backend does not get the key."""
    origin: Origin = NO_ORIGIN
    """The field of a policy."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of all secret files."""
        return (self.keys,)

    def removed(self, kind: str) -> tuple[str, ...]:
        """Return the names of the sources of a kind that the backend does not get."""
        return tuple(one.name for one in self.sources if self.sanitize and one.kind == kind)


class Logout(msgspec.Struct, frozen=True):
    """Logout of a session."""

    path: str = ""
    """Path that starts a logout; empty: none."""
    after: str = ""
    """Path or URL that users are redirected to after a logout; empty: none."""
    front_channel: str = ""
    """Path for front-channel logout, which the provider makes browsers request; empty: none."""
    token_hint: bool = False
    """True: the ID token is sent to the provider at a logout."""


DEFAULT_SESSION_COOKIE = "NGX_OIDC_SESSION"
"""Name of the cookie that all filters have by default."""


class Oidc(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Login at an OpenID Connect provider, with a session in cookies."""

    owner: str
    """The filter as ``namespace/name``, or the policy with its kind: routes with the same owner
    share sessions."""
    created: str = ""
    """Creation time of the owner: the older of two has a path that both use on one hostname."""
    origin: Origin = NO_ORIGIN
    """The field of a filter or policy."""
    issuer: str
    metadata_url: str
    client_id: str
    secret: str
    """Name of the secret file with the client secret."""
    trust: str = ""
    """Name of the secret file with the CA certificates of the provider; empty: those of the
    system."""
    revoked: str = ""
    """Name of the secret file with the CRLs of these CAs; empty: none."""
    callback: str
    """Path that the provider redirects users to after a login."""
    callback_origin: str = ""
    """Scheme, host and port of the callback; empty: those of the user's request."""
    pkce: bool = True
    """True: codes are bound to the client that requested them (RFC 7636)."""
    scopes: tuple[str, ...] = ("openid",)
    extra: tuple[tuple[str, str], ...] = ()
    """Additional parameters of the authorisation request, sorted."""
    cookie: str = DEFAULT_SESSION_COOKIE
    timeout: float = 8 * 3600.0
    """Lifetime in seconds of a session that is not refreshed."""
    logout: Logout = Logout()
    authorization: Authorization = Authorization()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of all secret files; an empty name: none."""
        return self.secret, self.trust, self.revoked


Authentication = Basic | Jwt | ApiKeys | Oidc


AUTHORIZATION_SERVER_TIMEOUT_SECONDS = 10.0
"""Timeout of a check by an authorization server in seconds."""

AUTHORIZATION_SERVER_FAILED = 503
"""Status of the response if an authorization server fails or is unavailable."""


class ExternalAuth(msgspec.Struct, frozen=True, kw_only=True):
    """A check of each request by an authorization server. If it fails, requests are rejected."""

    cluster: str
    """Name of the :class:`~gatehouse.compiler.ir.http.Cluster` of the server."""
    protocol: Literal["http", "grpc"]
    """``http``: only the response 200 permits a request. ``grpc``: ``envoy.service.auth.v3``."""
    path: str = ""
    """Prefix of the path of a check, percent-encoded and without a slash at the end."""
    request_headers: tuple[str, ...] = ()
    """Headers of clients that the server gets beside Host, Authorization and Content-Length. Empty
    with ``grpc``: all."""
    response_headers: tuple[str, ...] = ()
    """Headers of the server's response that replace those of the client. Empty: all that do not
    describe the response itself. Not used with ``grpc``."""
    body_size: int = 0
    """Maximum bytes of the body, which the server gets; 0: it gets none."""
    origin: Origin = NO_ORIGIN
    """The filter of a route or a listener, or the field of a policy."""

    @property
    def field(self) -> str:
        """Path of the filter within its rule or with the name of its listener, or the policy."""
        first, _, within = self.origin.part.partition(".")
        if first.startswith("rules["):
            return within
        return self.origin.part if within else str(self.origin)


class ClientNetworks(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses of clients that are served. Others get 403."""

    allow: tuple[str, ...] = ()
    """CIDR ranges; empty: all."""
    deny: tuple[str, ...] = ()
    """CIDR ranges that are not served, even if they are in ``allow``."""
    origin: Origin = NO_ORIGIN
    """The field of a policy."""
