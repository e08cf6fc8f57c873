"""Parser of ``spec.oidc`` of an AuthenticationFilter. No I/O."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import re2

from gatehouse.apis import nginx_authentication as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir.authentication import Logout, Oidc
from gatehouse.dataplane.origin import Origin
from kube_base.runtime.quiet_re2 import quiet_options

WELL_KNOWN = "/.well-known/openid-configuration"
"""Path after the issuer (OpenID Connect Discovery, section 4)."""

_SESSION_TIMEOUT_SECONDS = 8 * 3600.0
"""Default lifetime of a session in seconds."""

_ORIGIN = r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_CHARACTERS = r"[A-Za-z0-9._~:@!$&'()*+,;=-]"
_PATH = re.compile(rf"(?:{_ORIGIN})?(?:/{_CHARACTERS}+)+/?")
_PATH_OR_URL = re.compile(rf"(?:{_ORIGIN})?(?:/(?:{_CHARACTERS}|[/?%])*)?")
_URL = re.compile(rf"(?=https:){_PATH_OR_URL.pattern}")
_COOKIE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_RESERVED_ARGUMENTS = frozenset(
    """
    response_type client_id redirect_uri scope state nonce code_challenge code_challenge_method
    response_mode
    """.split()  # noqa: SIM905
)
"""Arguments of an authentication request that the user cannot set."""


def relying(name: str, spec: api.OidcAuth) -> Oidc:
    """Return the OIDC configuration of the filter ``name`` without its secrets.

    Raises ValueProblem.
    """
    _checked(_URL, spec.issuer, "issuer", "an https URL")
    config = spec.config_url or f"{spec.issuer.rstrip('/')}{WELL_KNOWN}"
    _checked(_URL, config, "configURL", "an https URL")
    if not spec.client_id.isprintable() or not spec.client_id:
        raise ValueProblem(
            "spec.oidc.clientID: must be a non-empty text without control characters"
        )
    _check_patterns(spec)
    namespace, _, short = name.partition("/")
    callback = spec.redirect_uri or f"/oidc_callback_{namespace}_{short}"
    path = _path(callback, "redirectURI")
    logout = _logout(spec.logout)
    if len({path, logout.path or 1, logout.front_channel or 2}) < 3:
        raise ValueProblem("spec.oidc.logout: its URIs and redirectURI must be different")
    return Oidc(
        filter=name,
        origin=Origin("AuthenticationFilter", namespace, short, "oidc"),
        issuer=spec.issuer,
        metadata_url=config,
        client_id=spec.client_id,
        secret="",
        callback=path,
        callback_origin=callback.removesuffix(path),
        pkce=spec.pkce,
        scopes=_scopes(spec.scopes),
        extra=_extra(spec.extra_auth_args),
        cookie=_cookie(spec.session),
        timeout=_timeout(spec.session),
        logout=logout,
    )


def _checked(pattern: re.Pattern[str], value: str, field: str, what: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueProblem(f"spec.oidc.{field}: must be {what}")
    return value


def _path(value: str, field: str) -> str:
    """Return the path of a path or URL, as NGINX compares it. Raises ValueProblem."""
    _checked(_PATH, value, field, "a path such as /callback, or a URL with a path")
    path = urlsplit(value).path
    if {".", ".."} & {*path.split("/")}:
        raise ValueProblem(f"spec.oidc.{field}: must not have the segments . or ..")
    return path


def _logout(spec: api.OidcLogout) -> Logout:
    front, after = spec.front_channel_logout_uri, spec.post_logout_uri
    return Logout(
        path=_path(spec.uri, "logout.uri") if spec.uri else "",
        after=_checked(_PATH_OR_URL, after, "logout.postLogoutURI", "a path or URL")
        if after
        else "",
        front_channel=_path(front, "logout.frontChannelLogoutURI") if front else "",
        token_hint=spec.token_hint,
    )


def _scopes(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        _checked(_SCOPE, value, "scopes", "a list of valid scopes")
    return tuple(dict.fromkeys(("openid", *values)))


def _extra(values: dict[str, str]) -> tuple[tuple[str, str], ...]:
    if reserved := sorted(_RESERVED_ARGUMENTS & {*values}):
        raise ValueProblem(f"spec.oidc.extraAuthArgs: must not contain {', '.join(reserved)}")
    return tuple(sorted(values.items()))


def _cookie(spec: api.OidcSession) -> str:
    if spec.cookie_name is None:
        return "NGX_OIDC_SESSION"
    what = "a name of at most 64 letters, digits, - and _"
    return _checked(_COOKIE, spec.cookie_name, "session.cookieName", what)


def _timeout(spec: api.OidcSession) -> float:
    seconds = nginx_values.parse_nginx_seconds(spec.timeout)
    if seconds is None:
        return _SESSION_TIMEOUT_SECONDS
    if seconds < 1:
        raise ValueProblem("spec.oidc.session.timeout: must be at least 1s")
    return seconds


def _check_patterns(spec: api.OidcAuth) -> None:
    claims = [claim for rule in spec.authorization.rules for claim in rule.claims]
    for claim in claims:
        for pattern in claim.values if claim.match == "Regex" else ():
            try:
                re2.compile(pattern, quiet_options())
            except re2.error as error:
                why = f"invalid regular expression {pattern!r}"
                raise ValueProblem(f"spec.oidc.authorization: {why}") from error
