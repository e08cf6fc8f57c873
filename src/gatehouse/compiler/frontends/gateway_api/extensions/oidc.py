"""The fields of ``spec.oidc`` of an AuthenticationFilter, checked. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import re2

from gatehouse.apis import nginx_authentication as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir.authentication import Logout, Oidc

WELL_KNOWN = "/.well-known/openid-configuration"
"""Behind the issuer (OpenID Connect Discovery, section 4)."""

TIMEOUT = 8 * 3600.0
"""Seconds for which a session lasts where nothing else is set."""

_ORIGIN = r"https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_CHARACTERS = r"[A-Za-z0-9._~:@!$&'()*+,;=-]"
_PATH = re.compile(rf"(?:{_ORIGIN})?(?:/{_CHARACTERS}+)+/?")
_PLACE = re.compile(rf"(?:{_ORIGIN})?(?:/(?:{_CHARACTERS}|[/?%])*)?")
_URL = re.compile(rf"(?=https:){_PLACE.pattern}")
_COOKIE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_OURS = frozenset(
    """
    response_type client_id redirect_uri scope state nonce code_challenge code_challenge_method
    response_mode
    """.split()  # noqa: SIM905
)
"""Arguments of a request for authentication that are not the user's to say."""


def relying(name: str, spec: api.OidcAuth) -> Oidc:
    """Give what the filter ``name`` asks for, but for its secrets. Raises ValueProblem."""
    _checked(_URL, spec.issuer, "issuer", "no URL of https")
    config = spec.config_url or f"{spec.issuer.rstrip('/')}{WELL_KNOWN}"
    _checked(_URL, config, "configURL", "no URL of https")
    if not spec.client_id.isprintable() or not spec.client_id:
        raise ValueProblem("spec.oidc.clientID: is empty or has control characters")
    _check_patterns(spec)
    namespace, _, short = name.partition("/")
    callback = spec.redirect_uri or f"/oidc_callback_{namespace}_{short}"
    path = _path(callback, "redirectURI")
    logout = _logout(spec.logout)
    if len({path, logout.path or 1, logout.front_channel or 2}) < 3:
        raise ValueProblem("spec.oidc.logout: its URIs and redirectURI must differ")
    return Oidc(
        filter=name,
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
        raise ValueProblem(f"spec.oidc.{field}: is {what}")
    return value


def _path(value: str, field: str) -> str:
    """Give the path of a path or URL, as NGINX has it when it compares."""
    _checked(_PATH, value, field, "no path such as /callback, nor URL with one")
    path = urlsplit(value).path
    if {".", ".."} & {*path.split("/")}:
        raise ValueProblem(f"spec.oidc.{field}: has a part . or ..")
    return path


def _logout(spec: api.OidcLogout) -> Logout:
    front, after = spec.front_channel_logout_uri, spec.post_logout_uri
    return Logout(
        path=_path(spec.uri, "logout.uri") if spec.uri else "",
        after=_checked(_PLACE, after, "logout.postLogoutURI", "no path or URL") if after else "",
        front_channel=_path(front, "logout.frontChannelLogoutURI") if front else "",
        token_hint=spec.token_hint,
    )


def _scopes(wanted: tuple[str, ...]) -> tuple[str, ...]:
    for each in wanted:
        _checked(_SCOPE, each, "scopes", "no list of scopes")
    return tuple(dict.fromkeys(("openid", *wanted)))


def _extra(wanted: dict[str, str]) -> tuple[tuple[str, str], ...]:
    if ours := sorted(_OURS & {*wanted}):
        raise ValueProblem(f"spec.oidc.extraAuthArgs: {', '.join(ours)} cannot be set")
    return tuple(sorted(wanted.items()))


def _cookie(spec: api.OidcSession) -> str:
    if spec.cookie_name is None:
        return "NGX_OIDC_SESSION"
    what = "no name of letters, digits, - and _"
    return _checked(_COOKIE, spec.cookie_name, "session.cookieName", what)


def _timeout(spec: api.OidcSession) -> float:
    seconds = nginx_values.time(spec.timeout)
    if seconds is None:
        return TIMEOUT
    if seconds < 1:
        raise ValueProblem("spec.oidc.session.timeout: is less than a second")
    return seconds


def _check_patterns(spec: api.OidcAuth) -> None:
    claims = [claim for rule in spec.authorization.rules for claim in rule.claims]
    options = re2.Options()
    options.log_errors = False
    for claim in claims:
        for pattern in claim.values if claim.match == "Regex" else ():
            try:
                re2.compile(pattern, options)
            except re2.error as error:
                why = f"{pattern!r} is no regular expression"
                raise ValueProblem(f"spec.oidc.authorization: {why}") from error
