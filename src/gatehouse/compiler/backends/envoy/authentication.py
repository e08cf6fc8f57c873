"""Authentication: passwords and signed tokens, checked by filters that a route brings itself.

Users of a provider are :mod:`authenticating`'s.
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
from envoy.type.matcher.v3 import metadata_pb2, string_pb2, value_pb2

from gatehouse.compiler.backends.envoy import claim_headers, ext_authz, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.envoy.quoting import InvalidValueError
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.backends.envoy.unsupported import left_out
from gatehouse.compiler.ir import authentication as ir
from gatehouse.compiler.ir import http

_PLAIN = "{PLAIN}"
_HASH = "{SHA}"
_KNOWN = f"Envoy knows passwords as {_HASH} and {_PLAIN} only"
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?")

_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x"), "oct": ("k",)}
"""Of keys (RFC 7518, 6; RFC 8037, 2)."""

_Principal = rbac_pb2.Principal


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]] = []


def guard(context: Context, route: http.Route) -> list[Any]:
    """Give the filters that let nobody else in. Raises InvalidValueError."""
    match route.authentication:
        case ir.Basic() if asks(context, route):
            return [ext_authz.passwords(route.authentication)]
        case ir.Basic():
            return [_basic(context, route.authentication)]
        case ir.Jwt():
            return _tokens(context, route.authentication)
        case ir.Oidc():
            return [ext_authz.guard(context, route.authentication)]
    return []


def claims_by_header(route: http.Route) -> dict[str, str]:
    """Give the claims that backends are told, by their headers. Raises InvalidValueError."""
    if not isinstance(route.authentication, ir.Jwt):
        return {}
    return {
        quoting.changed_header(claim.header): quoting.text(claim.name)
        for rule in route.authentication.authorization.requirements
        for claim in rule.claims
        if claim.header
    }


def asks(context: Context, route: http.Route) -> bool:
    """Whether an authenticator is asked about a route's requests."""
    wanted = route.authentication
    if isinstance(wanted, ir.Basic):
        lines = _lines(context, wanted)
        return context.capabilities.authenticators and len(_users(lines)) < len(lines)
    return isinstance(wanted, ir.Oidc)


def unsupported(context: Context, route: http.Route) -> list[str]:
    """Say whom Envoy cannot know."""
    wanted = route.authentication
    if not isinstance(wanted, ir.Basic) or asks(context, route):
        return []
    lines = _lines(context, wanted)
    others = len(lines) - len(_users(lines))
    if not others or others == len(lines):
        return []
    why = f"{others} of the users cannot log in: {_KNOWN}"
    return [left_out("AuthenticationFilter", _named(wanted), "basic.secretRef", why)]


def holds_secrets(route: http.Route) -> bool:
    """Whether what is made for a route has passwords or keys in it."""
    return isinstance(route.authentication, ir.Basic | ir.Jwt)


def _named(wanted: ir.Basic | ir.Jwt) -> list[str]:
    return [wanted.filter] if wanted.filter else []


def _lines(context: Context, wanted: ir.Basic) -> list[str]:
    found = context.secrets.get(wanted.users)
    text = found.content.reveal().decode(errors="replace") if found is not None else ""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _users(lines: list[str]) -> dict[str, str]:
    """Give the hash of every user that Envoy can know; of several of one name the first."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, hashed = line.partition(":")
        if hashed.startswith(_PLAIN):
            digest = hashlib.sha1(hashed.removeprefix(_PLAIN).encode()).digest()  # noqa: S324
            hashed = f"{_HASH}{base64.b64encode(digest).decode()}"
        if name and hashed.startswith(_HASH) and _is_sha1(hashed.removeprefix(_HASH)):
            found.setdefault(name, hashed)
    return found


def _is_sha1(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 20
    except binascii.Error:
        return False


def _basic(context: Context, wanted: ir.Basic) -> Any:
    users = _users(_lines(context, wanted))
    if not users:
        why = f"{_KNOWN}, and there is none"
        raise InvalidValueError(
            left_out("AuthenticationFilter", _named(wanted), "basic.secretRef", why)
        )
    text = "".join(f"{name}:{hashed}\n" for name, hashed in users.items())
    made = basic_auth_pb2.BasicAuth(users=base_pb2.DataSource(inline_string=quoting.lines(text)))
    return _extension("envoy.filters.http.basic_auth", made)


def _tokens(context: Context, wanted: ir.Jwt) -> list[Any]:
    found = context.secrets.get(wanted.keys)
    keys = _usable(found.content.reveal()) if found is not None else []
    if not keys:
        why = "there are no keys that Envoy knows"
        raise InvalidValueError(left_out("AuthenticationFilter", _named(wanted), "jwt", why))
    provider = config_pb2.JwtProvider(
        local_jwks=base_pb2.DataSource(inline_bytes=msgspec.json.encode({"keys": keys})),
        forward=True,
        require_expiration=True,
        # None is not to be had: without a word it would be a minute.
        clock_skew_seconds=max(1, math.ceil(wanted.leeway)),
        payload_in_metadata=claim_headers.PAYLOAD,
    )
    made = config_pb2.JwtAuthentication(providers={"keys": provider})
    rule = made.rules.add(match=components.RouteMatch(prefix="/"))
    rule.requires.provider_name = "keys"
    filters = [_extension(claim_headers.METADATA, made)]
    if wanted.authorization.requirements:
        filters.append(_extension("envoy.filters.http.rbac", _authorized(wanted.authorization)))
    return filters


def _usable(text: bytes) -> list[dict[str, Any]]:
    """Give the keys of a set that have what their kind must have; Envoy refuses a set of none."""
    try:
        keys = msgspec.json.decode(text, type=_KeySet).keys
    except msgspec.DecodeError:
        return []
    return [key for key in keys if _is_usable(key)]


def _is_usable(key: dict[str, Any]) -> bool:
    members = _MEMBERS.get(str(key.get("kty")))
    return members is not None and all(key.get(name) for name in members)


def _extension(name: str, message: Any) -> Any:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(message))


def _authorized(wanted: ir.Authorization) -> Any:
    each = [
        _combined([_claim(claim) for claim in rule.claims], every=rule.every)
        for rule in wanted.requirements
    ]
    policy = rbac_pb2.Policy(
        permissions=[rbac_pb2.Permission(any=True)],
        principals=[_combined(each, every=wanted.every)],
    )
    return filter_pb2.RBAC(rules=rbac_pb2.RBAC(policies={"claims": policy}))


def _combined(each: list[Any], *, every: bool) -> Any:
    if not each:
        return _Principal(any=True)
    found = _Principal.Set(ids=each)
    return _Principal(and_ids=found) if every else _Principal(or_ids=found)


def _claim(claim: ir.Claim) -> Any:
    """Ask for one of a claim's values; of a list each entry counts."""
    if not claim.values:
        return _metadata(claim, value_pb2.ValueMatcher(present_match=True))
    asked = []
    for value in claim.values:
        for matcher in _values(value, regex=claim.regex):
            among = value_pb2.ListMatcher(one_of=matcher)
            asked += [matcher, value_pb2.ValueMatcher(list_match=among)]
    return _combined([_metadata(claim, each) for each in asked], every=False)


def _values(value: str, *, regex: bool) -> list[Any]:
    if regex:
        text = string_pb2.StringMatcher(safe_regex=quoting.pattern(value))
        return [value_pb2.ValueMatcher(string_match=text)]
    exact = string_pb2.StringMatcher(exact=quoting.text(value))
    found = [value_pb2.ValueMatcher(string_match=exact)]
    if value in ("true", "false"):
        found.append(value_pb2.ValueMatcher(bool_match=value == "true"))
    if _NUMBER.fullmatch(value):
        found.append(value_pb2.ValueMatcher(double_match={"exact": float(value)}))
    return found


def _metadata(claim: ir.Claim, value: Any) -> Any:
    path = [
        metadata_pb2.MetadataMatcher.PathSegment(key=key)
        for key in (claim_headers.PAYLOAD, quoting.text(claim.name))
    ]
    return _Principal(
        metadata=metadata_pb2.MetadataMatcher(filter=claim_headers.METADATA, path=path, value=value)
    )
