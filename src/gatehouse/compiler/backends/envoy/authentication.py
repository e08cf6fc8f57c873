"""Authentication: passwords and signed tokens, checked by filters that a route adds.

OpenID Connect is in :mod:`ext_authz`, keys of clients in :mod:`api_keys`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from typing import Any

import msgspec
from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.basic_auth.v3 import basic_auth_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from envoy.type.matcher.v3 import metadata_pb2, number_pb2, string_pb2, value_pb2

from gatehouse.compiler.backends.envoy import (
    api_keys,
    challenges,
    claim_headers,
    ext_authz,
    extensions,
    quoting,
)
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import authentication as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

_PLAIN = "{PLAIN}"
_HASH = "{SHA}"
_KNOWN = f"Envoy supports only {_HASH} and {_PLAIN} passwords"
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?")

_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "oct": ("k",)}
"""Required members of keys by type (RFC 7518, 6; RFC 8037, 2)."""

_Principal = rbac_pb2.Principal


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]] = []


def authentication_filters(context: EnvoyRouteContext, route: http.Route) -> EnvoyPiece | None:
    """Return the filters that reject unauthenticated requests. Raises InvalidValueError."""
    filters: list[extension_pb2.TypedExtensionConfig]
    match route.authentication:
        case None:
            return None
        case ir.Basic() if uses_authenticator(context, route):
            filters = [ext_authz.passwords(route.authentication)]
        case ir.Basic():
            filters = [_basic(context, route.authentication)]
        case ir.Jwt():
            filters = _tokens(context, route.authentication)
        case ir.ApiKeys():
            filters = [api_keys.check_of_keys(context, route.authentication)]
        case ir.Oidc():
            filters = [ext_authz.ext_authz_filter(context, route.authentication)]
    return EnvoyPiece(filters=filters, fields=challenges.challenge(route.authentication))


def uses_authenticator(context: EnvoyRouteContext, route: http.Route) -> bool:
    """Return whether an authenticator checks the requests of a route."""
    authentication = route.authentication
    if isinstance(authentication, ir.Basic):
        lines = _lines(context, authentication)
        return context.capabilities.authenticators and len(_users(lines)) < len(lines)
    return isinstance(authentication, ir.Oidc)


def unsupported_users(context: EnvoyRouteContext, route: http.Route) -> list[UnsupportedSetting]:
    """Return the users whose passwords Envoy does not support."""
    authentication = route.authentication
    if not isinstance(authentication, ir.Basic) or uses_authenticator(context, route):
        return []
    lines = _lines(context, authentication)
    others = len(lines) - len(_users(lines))
    if not others or others == len(lines):
        return []
    why = f"users that cannot log in: {others}. {_KNOWN}"
    return [UnsupportedSetting(authentication.origin, why)]


def holds_secrets(route: http.Route) -> bool:
    """Return whether the resources of a route contain passwords or keys."""
    return isinstance(route.authentication, ir.Basic | ir.Jwt | ir.ApiKeys)


def _lines(context: EnvoyRouteContext, basic: ir.Basic) -> list[str]:
    secret = context.secrets.get(basic.users)
    text = secret.content.reveal().decode(errors="replace") if secret is not None else ""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _users(lines: list[str]) -> dict[str, str]:
    """Return the supported password hash of every user; of duplicate names the first."""
    hashes: dict[str, str] = {}
    for line in lines:
        name, _, hashed = line.partition(":")
        if hashed.startswith(_PLAIN):
            digest = hashlib.sha1(hashed.removeprefix(_PLAIN).encode()).digest()  # noqa: S324
            hashed = f"{_HASH}{base64.b64encode(digest).decode()}"
        if name and hashed.startswith(_HASH) and _is_sha1(hashed.removeprefix(_HASH)):
            hashes.setdefault(name, hashed)
    return hashes


def _is_sha1(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 20
    except binascii.Error:
        return False


def _basic(context: EnvoyRouteContext, basic: ir.Basic) -> extension_pb2.TypedExtensionConfig:
    users = _users(_lines(context, basic))
    if not users:
        why = f"no user has a supported password: {_KNOWN}"
        raise InvalidValueError(why, basic.origin)
    text = "".join(f"{name}:{hashed}\n" for name, hashed in users.items())
    proto = basic_auth_pb2.BasicAuth(
        users=base_pb2.DataSource(inline_string=quoting.check_lines(text))
    )
    return extensions.extension("envoy.filters.http.basic_auth", proto)


def _tokens(context: EnvoyRouteContext, jwt: ir.Jwt) -> list[extension_pb2.TypedExtensionConfig]:
    secret = context.secrets.get(jwt.keys)
    keys = _usable(secret.content.reveal()) if secret is not None else []
    if not keys:
        why = "no key of a type that Envoy supports"
        raise InvalidValueError(why, jwt.origin)
    provider = config_pb2.JwtProvider(
        local_jwks=base_pb2.DataSource(inline_bytes=msgspec.json.encode({"keys": keys})),
        forward=True,
        require_expiration=True,
        # Zero is not possible: the default would be a minute.
        clock_skew_seconds=max(1, math.ceil(jwt.leeway)),
        payload_in_metadata=claim_headers.PAYLOAD,
    )
    proto = config_pb2.JwtAuthentication(providers={"keys": provider})
    rule = proto.rules.add(match=components.RouteMatch(prefix="/"))
    rule.requires.provider_name = "keys"
    filters = [extensions.extension(claim_headers.JWT_METADATA, proto)]
    if jwt.authorization.requirements:
        filters.append(
            extensions.extension("envoy.filters.http.rbac", _authorized(jwt.authorization))
        )
    return filters


def _usable(text: bytes) -> list[dict[str, Any]]:
    """Return the valid keys of a set. Envoy rejects a set without any."""
    try:
        keys = msgspec.json.decode(text, type=_KeySet).keys
    except msgspec.DecodeError:
        return []
    return [key for key in keys if _is_usable(key)]


def _is_usable(key: dict[str, Any]) -> bool:
    members = _MEMBERS.get(str(key.get("kty")))
    return members is not None and all(key.get(name) for name in members)


def _authorized(authorization: ir.Authorization) -> filter_pb2.RBAC:
    requirements = [
        _combined([_claim(claim) for claim in requirement.claims], every=requirement.every)
        for requirement in authorization.requirements
    ]
    policy = rbac_pb2.Policy(
        permissions=[rbac_pb2.Permission(any=True)],
        principals=[_combined(requirements, every=authorization.every)],
    )
    return filter_pb2.RBAC(rules=rbac_pb2.RBAC(policies={"claims": policy}))


def _combined(principals: list[rbac_pb2.Principal], *, every: bool) -> rbac_pb2.Principal:
    if not principals:
        return _Principal(any=True)
    ids = _Principal.Set(ids=principals)
    return _Principal(and_ids=ids) if every else _Principal(or_ids=ids)


def _claim(claim: ir.Claim) -> rbac_pb2.Principal:
    """Match one of a claim's values; of a list each entry counts."""
    if not claim.values:
        return _metadata(claim, value_pb2.ValueMatcher(present_match=True))
    matchers = []
    for value in claim.values:
        for matcher in _values(value, claim):
            list_matcher = value_pb2.ListMatcher(one_of=matcher)
            matchers += [matcher, value_pb2.ValueMatcher(list_match=list_matcher)]
    return _combined([_metadata(claim, value_matcher) for value_matcher in matchers], every=False)


def _values(value: str, claim: ir.Claim) -> list[value_pb2.ValueMatcher]:
    if claim.regex:
        matcher = quoting.regex_matcher(value, f"claim {claim.name}")
        text = string_pb2.StringMatcher(safe_regex=matcher)
        return [value_pb2.ValueMatcher(string_match=text)]
    exact = string_pb2.StringMatcher(exact=quoting.check_text(value))
    matchers = [value_pb2.ValueMatcher(string_match=exact)]
    if value in ("true", "false"):
        matchers.append(value_pb2.ValueMatcher(bool_match=value == "true"))
    if _NUMBER.fullmatch(value):
        number = number_pb2.DoubleMatcher(exact=float(value))
        matchers.append(value_pb2.ValueMatcher(double_match=number))
    return matchers


def _metadata(claim: ir.Claim, value: value_pb2.ValueMatcher) -> rbac_pb2.Principal:
    path = [
        metadata_pb2.MetadataMatcher.PathSegment(key=key)
        for key in (claim_headers.PAYLOAD, quoting.check_text(claim.name))
    ]
    return _Principal(
        metadata=metadata_pb2.MetadataMatcher(
            filter=claim_headers.JWT_METADATA, path=path, value=value
        )
    )
