"""SecurityPolicy of ``gatehouse.dev``: checks of requests that do not depend on the proxy."""

from __future__ import annotations

from gatehouse.apis.meta import View
from gatehouse.apis.nginx_authentication import JwtRemote, LocalReference, OidcLogin
from gatehouse.apis.nginx_gateway import TargetsPolicy, TargetsSpec
from gatehouse.apis.routes import ExternalAuthSpec


class BasicAuthSpec(View, frozen=True):
    """Names and passwords in a Secret."""

    secret_ref: LocalReference
    realm: str = ""


class RequiredClaim(View, frozen=True):
    """A claim that must have one of the values, or any if there are none."""

    name: str
    values: tuple[str, ...] = ()
    header: str = ""


class JwtSpec(View, frozen=True):
    """Signed tokens, and the keys that verify them: in a Secret, or fetched."""

    secret_ref: LocalReference | None = None
    remote: JwtRemote | None = None
    refresh_interval: str | None = None
    realm: str = ""
    leeway: str | None = None
    required_claims: tuple[RequiredClaim, ...] = ()


class KeySources(View, frozen=True):
    """Places of a request that may have a key."""

    headers: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()


class ApiKeysSpec(View, frozen=True):
    """Keys of clients, in Secrets with an entry for each client."""

    secret_refs: tuple[LocalReference, ...] = ()
    extract_from: tuple[KeySources, ...] = ()
    client_header: str = ""
    sanitize: bool = True


class OidcSpec(OidcLogin, frozen=True):
    """Logins of users at an OpenID Connect provider."""

    required_claims: tuple[RequiredClaim, ...] = ()


class ClientAddressesSpec(View, frozen=True):
    """Addresses of clients that are served, or not."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class StrictTransportSpec(View, frozen=True):
    """HTTP Strict Transport Security (RFC 6797)."""

    max_age_seconds: int
    include_subdomains: bool = False
    preload: bool = False


class SecurityHeadersSpec(View, frozen=True):
    """Response headers that tell browsers what a site permits."""

    strict_transport_security: StrictTransportSpec | None = None
    content_type_options: str | None = None
    frame_options: str | None = None
    referrer_policy: str | None = None
    content_security_policy: str | None = None


class SecurityPolicySpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of a SecurityPolicy."""

    basic_auth: BasicAuthSpec | None = None
    jwt: JwtSpec | None = None
    api_keys: ApiKeysSpec | None = None
    oidc: OidcSpec | None = None
    external_auth: ExternalAuthSpec | None = None
    client_addresses: ClientAddressesSpec | None = None
    security_headers: SecurityHeadersSpec = SecurityHeadersSpec()

    @property
    def identity_headers(self) -> tuple[str, ...]:
        """Headers of requests by which backends learn of clients: names of keys, and claims."""
        keys = (self.api_keys.client_header,) if self.api_keys is not None else ()
        claims = (
            claim.header
            for method in (self.jwt, self.oidc)
            if method is not None
            for claim in method.required_claims
        )
        return tuple(filter(None, (*keys, *claims)))


class SecurityPolicy(TargetsPolicy, frozen=True):
    """A SecurityPolicy."""

    spec: SecurityPolicySpec = SecurityPolicySpec()
