"""Parser of ``spec.oidc`` of an AuthenticationFilter or a SecurityPolicy. No I/O."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

import re2

from gatehouse.apis import nginx_authentication as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir.authentication import DEFAULT_SESSION_COOKIE, Logout, Oidc
from gatehouse.dataplane.origin import Origin
from kube_base.runtime.quiet_re2 import quiet_options

WELL_KNOWN = "/.well-known/openid-configuration"
"""Path after the issuer (OpenID Connect Discovery, section 4)."""

_SESSION_TIMEOUT_SECONDS = 8 * 3600.0
"""Default lifetime of a session in seconds."""

_HOST = "[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_ORIGIN = f"https?://{_HOST}"
_CHARACTERS = r"[A-Za-z0-9._~:@!$&'()*+,;=-]"
CALLBACK_PATTERN = f"(?:{_ORIGIN})?(?:/{_CHARACTERS}+)+/?"
_ANY_PATH = f"(?:/(?:{_CHARACTERS}|[/?%])*)?"
AFTER_LOGOUT_PATTERN = f"(?:{_ORIGIN})?{_ANY_PATH}"
PROVIDER_PATTERN = f"https://{_HOST}{_ANY_PATH}"
SESSION_COOKIE_PATTERN = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Names of policies' cookies. Browsers accept ``__Host-`` only for the path ``/``, which the cookie
of a login does not have."""
SCOPE_PATTERN = r"[!#-\[\]-~]+"
_PATH = re.compile(CALLBACK_PATTERN)
_PATH_OR_URL = re.compile(AFTER_LOGOUT_PATTERN)
_URL = re.compile(PROVIDER_PATTERN)
_FILTER_COOKIE, _COOKIE = re.compile("[A-Za-z0-9_-]{1,64}"), re.compile(SESSION_COOKIE_PATTERN)
_SCOPE = re.compile(SCOPE_PATTERN)
RESERVED_ARGUMENTS = frozenset(
    """
    response_type client_id redirect_uri scope state nonce code_challenge code_challenge_method
    response_mode
    """.split()  # noqa: SIM905
)
"""Arguments of an authentication request that the user cannot set."""

_OWN_CALLBACK = "/oidc_callback_"
"""Start of the default callbacks, each of which only its own object may use."""


def relying(origin: Origin, spec: api.OidcLogin, created: str = "") -> Oidc:
    """Return the OIDC configuration of a field without its secrets and required claims.

    ``created``: creation time of the object. Raises ValueProblem.
    """
    _checked(_URL, spec.issuer, "issuer", "an https URL")
    config = spec.config_url or f"{spec.issuer.rstrip('/')}{WELL_KNOWN}"
    _checked(_URL, config, "configURL", "an https URL")
    if not spec.client_id.isprintable() or not spec.client_id:
        raise ValueProblem(
            "spec.oidc.clientID: must be a non-empty text without control characters"
        )
    own = f"{_OWN_CALLBACK}{origin.namespace}_{origin.name}"
    callback = spec.redirect_uri or own
    path = _path(callback, "redirectURI")
    logout = _logout(spec.logout)
    if len({path, logout.path or 1, logout.front_channel or 2}) < 3:
        raise ValueProblem("spec.oidc.logout: its URIs and redirectURI must be different")
    for field, used in (
        ("redirectURI", path),
        ("logout.uri", logout.path),
        ("logout.frontChannelLogoutURI", logout.front_channel),
    ):
        if used.startswith(_OWN_CALLBACK) and used != own:
            why = f"paths that begin with {_OWN_CALLBACK} are those of other logins"
            raise ValueProblem(f"spec.oidc.{field}: {why}, except for {own}")
    return Oidc(
        owner=_owner(origin),
        created=created,
        origin=origin,
        issuer=spec.issuer,
        metadata_url=config,
        client_id=spec.client_id,
        secret="",
        callback=path,
        callback_origin=callback.removesuffix(path),
        pkce=spec.pkce,
        scopes=_scopes(spec.scopes),
        extra=_extra(spec.extra_auth_args),
        cookie=_cookie(origin, spec.session),
        timeout=_timeout(spec.session),
        logout=logout,
    )


def _is_filter(origin: Origin) -> bool:
    return origin.kind == api.AuthenticationFilter.__name__


def _owner(origin: Origin) -> str:
    """Return the owner of sessions. Those of filters have no kind, so that they stay valid."""
    return f"{origin.namespace}/{origin.name}" if _is_filter(origin) else str(origin.whole)


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
    if reserved := sorted(RESERVED_ARGUMENTS & {*values}):
        raise ValueProblem(f"spec.oidc.extraAuthArgs: must not contain {', '.join(reserved)}")
    return tuple(sorted(values.items()))


def _cookie(origin: Origin, spec: api.OidcSession) -> str:
    if spec.cookie_name is None:
        if _is_filter(origin):
            return DEFAULT_SESSION_COOKIE
        # Several policies may have routes of one hostname.
        digest = hashlib.sha256(str(origin.whole).encode()).hexdigest()
        return f"GATEHOUSE_{digest[:12]}"
    what = "a name of at most 64 letters, digits, - and _"
    pattern = _FILTER_COOKIE if _is_filter(origin) else _COOKIE
    return _checked(pattern, spec.cookie_name, "session.cookieName", what)


def _timeout(spec: api.OidcSession) -> float:
    seconds = nginx_values.parse_nginx_seconds(spec.timeout)
    if seconds is None:
        return _SESSION_TIMEOUT_SECONDS
    if seconds < 1:
        raise ValueProblem("spec.oidc.session.timeout: must be at least 1s")
    return seconds


def check_patterns(authorization: api.AuthorizationSpec) -> None:
    """Raise ValueProblem if a required claim has an invalid expression."""
    claims = [claim for rule in authorization.rules for claim in rule.claims]
    for claim in claims:
        for pattern in claim.values if claim.match == "Regex" else ():
            try:
                re2.compile(pattern, quiet_options())
            except re2.error as error:
                why = f"invalid regular expression {pattern!r}"
                raise ValueProblem(f"spec.oidc.authorization: {why}") from error
