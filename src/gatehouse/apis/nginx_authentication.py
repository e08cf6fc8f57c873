"""AuthenticationFilter of the group ``gateway.nginx.org``, as defined by NGINX Gateway Fabric."""

from __future__ import annotations

import msgspec

from gatehouse.apis.meta import KubernetesObject, View


class LocalReference(View, frozen=True):
    """Reference to an object in the same namespace."""

    name: str


class BasicAuth(View, frozen=True):
    """Basic authentication with names and passwords."""

    realm: str
    secret_ref: LocalReference


class ClaimRule(View, frozen=True):
    """A claim and its allowed values."""

    name: str
    values: tuple[str, ...] = ()
    match: str = "Exact"
    proxy_set_header: str = ""


class AuthorizationRule(View, frozen=True):
    """Claims of which all or any must match."""

    claims: tuple[ClaimRule, ...] = ()
    require: str = "All"


class AuthorizationSpec(View, frozen=True):
    """Rules of which all or any must match."""

    rules: tuple[AuthorizationRule, ...] = ()
    require: str = "All"


class JwtFile(View, frozen=True):
    """JSON Web Keys in a Secret."""

    secret_ref: LocalReference


class JwtRemote(View, frozen=True):
    """JSON Web Keys fetched over HTTPS. ``caCertificateRefs`` name Secrets with ``ca.crt``."""

    uri: str
    ca_certificate_refs: tuple[LocalReference, ...] = ()


class JwtAuth(View, frozen=True):
    """Authentication by JWT."""

    realm: str
    source: str = "File"
    file: JwtFile | None = None
    remote: JwtRemote | None = None
    key_cache: str | None = None
    leeway: str | None = None
    authorization: AuthorizationSpec = AuthorizationSpec()


class OidcSession(View, frozen=True):
    """Session settings."""

    cookie_name: str | None = None
    timeout: str | None = None


class OidcLogout(View, frozen=True):
    """Logout settings."""

    uri: str | None = None
    post_logout_uri: str | None = msgspec.field(default=None, name="postLogoutURI")
    front_channel_logout_uri: str | None = msgspec.field(default=None, name="frontChannelLogoutURI")
    token_hint: bool = False


class OidcLogin(View, frozen=True):
    """Login with an OpenID Connect provider, whatever claims are required."""

    issuer: str
    client_id: str = msgspec.field(name="clientID")
    client_secret_ref: LocalReference
    config_url: str | None = msgspec.field(default=None, name="configURL")
    redirect_uri: str | None = msgspec.field(default=None, name="redirectURI")
    ca_certificate_refs: tuple[LocalReference, ...] = ()
    crl_secret_ref: LocalReference | None = None
    pkce: bool = True
    scopes: tuple[str, ...] = ()
    extra_auth_args: dict[str, str] = msgspec.field(default_factory=dict)
    session: OidcSession = OidcSession()
    logout: OidcLogout = OidcLogout()


class OidcAuth(OidcLogin, frozen=True):
    """Login with an OpenID Connect provider."""

    authorization: AuthorizationSpec = AuthorizationSpec()


class AuthenticationFilterSpec(View, frozen=True):
    """``spec`` of an AuthenticationFilter."""

    type: str
    basic: BasicAuth | None = None
    jwt: JwtAuth | None = None
    oidc: OidcAuth | None = None


class AuthenticationFilter(KubernetesObject, frozen=True):
    """An AuthenticationFilter."""

    spec: AuthenticationFilterSpec
