"""Fields of SecurityPolicy of ``gatehouse.dev``: their checks without other objects. No I/O.

Its CRD has the same rules. They are checked again, because a policy that is not understood must not
leave a route without its checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.apis import nginx_authentication, routes
from gatehouse.apis import security_policies as api
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import api_keys, oidc
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import (
    ValueProblem,
    parse_nginx_seconds,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    ParsedPolicy,
    origin_of,
)
from gatehouse.compiler.frontends.gateway_api.extensions.security_headers import (
    HEADER_FIELDS,
    BrowserHeaders,
    browser_headers,
)
from gatehouse.compiler.ir.authentication import ClientNetworks
from gatehouse.dataplane.origin import Origin
from kube_base.types import ip_addresses

SECURITY_KIND = "SecurityPolicy"

SECURITY_TARGETS = ("Gateway", "HTTPRoute", "GRPCRoute")

DEFAULT_REALM = "Restricted"

USER_TARGETS = ("Gateway", "HTTPRoute")
"""Kinds of targets with ``oidc``: clients of gRPC follow no redirects."""

PolicyAuthentication = (
    nginx_authentication.BasicAuth | nginx_authentication.JwtAuth | api.ApiKeysSpec | api.OidcSpec
)
"""Authentication of a policy; passwords and tokens as in an AuthenticationFilter."""

_AUTHENTICATION_FIELDS = {
    "basic_auth": "basicAuth",
    "jwt": "jwt",
    "api_keys": "apiKeys",
    "oidc": "oidc",
}
"""Fields of which a policy has one, by name in its view."""

SECURITY_FIELDS = {
    "authentication": "basicAuth, jwt, apiKeys or oidc",
    "external_auth": "externalAuth",
    "client_addresses": "clientAddresses",
    **{f"headers.{name}": field for name, field in HEADER_FIELDS.items()},
}
"""Paths of settings, and the fields of a SecurityPolicy that set them."""


class SecuritySettings(msgspec.Struct, frozen=True):
    """Checks and headers of a SecurityPolicy. None: not set."""

    authentication: PolicyAuthentication | None = None
    external_auth: routes.ExternalAuthSpec | None = None
    client_addresses: ClientNetworks | None = None
    headers: BrowserHeaders = BrowserHeaders()


def security_policy(policy: api.SecurityPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Return the settings of a SecurityPolicy, or its problems."""
    parse, spec = FieldParser(limits), policy.spec
    for index, target in enumerate(policy.targets):
        if target.group != GATEWAY_API_GROUP or target.kind not in SECURITY_TARGETS:
            kind = f"{target.group}/{target.kind}".lstrip("/")
            parse.problems.append(f"spec.targetRefs[{index}]: kind {kind} is not supported")
        elif spec.oidc is not None and target.kind not in USER_TARGETS:
            why = f"kind {target.kind} is not supported with oidc: clients follow no redirects"
            parse.problems.append(f"spec.targetRefs[{index}]: {why}")
    names = [name for field, name in _AUTHENTICATION_FIELDS.items() if getattr(spec, field)]
    parse.problems += [f"spec.{name}: may not be set with {names[0]}" for name in names[1:]]
    authentication = _authentication(parse, policy)
    addresses = _addresses(parse, policy)
    headers = BrowserHeaders()
    try:
        headers = browser_headers(spec.security_headers)
    except ValueProblem as problem:
        parse.problems.append(str(problem))
    return parse.result(SecuritySettings(authentication, spec.external_auth, addresses, headers))


def _authentication(parse: FieldParser, policy: api.SecurityPolicy) -> PolicyAuthentication | None:
    spec = policy.spec
    if spec.jwt is not None:
        _check_tokens(parse, spec.jwt)
        return tokens_of(spec.jwt)
    if spec.api_keys is not None:
        parse.problems += api_keys.field_problems(spec.api_keys)
        return spec.api_keys
    if spec.oidc is not None:
        _check_users(parse, origin_of(policy).field("oidc"), spec.oidc)
        return spec.oidc
    basic = spec.basic_auth
    if basic is None:
        return None
    return nginx_authentication.BasicAuth(basic.realm or DEFAULT_REALM, basic.secret_ref)


def _check_tokens(parse: FieldParser, spec: api.JwtSpec) -> None:
    if (spec.secret_ref is None) == (spec.remote is None):
        parse.problems.append("spec.jwt: needs either secretRef or remote")
    if spec.refresh_interval is not None and spec.remote is None:
        parse.problems.append("spec.jwt.refreshInterval: may be set with remote only")
    for field, text in (("refreshInterval", spec.refresh_interval), ("leeway", spec.leeway)):
        parse(f"jwt.{field}", _unit, text)
    for index, claim in enumerate(spec.required_claims):
        if not claim.name or not claim.values:
            parse.problems.append(f"spec.jwt.requiredClaims[{index}]: needs a name and values")
    _check_headers(parse, "jwt", spec.required_claims)


def _check_users(parse: FieldParser, origin: Origin, spec: api.OidcSpec) -> None:
    parse("oidc.session.timeout", _unit, spec.session.timeout)
    for index, claim in enumerate(spec.required_claims):
        if not claim.name or not (claim.values or claim.header):
            why = "needs a name, and values or a header"
            parse.problems.append(f"spec.oidc.requiredClaims[{index}]: {why}")
    _check_headers(parse, "oidc", spec.required_claims)
    if not parse.problems:
        try:
            oidc.relying(origin, spec)
        except ValueProblem as problem:
            parse.problems.append(str(problem))


def _check_headers(parse: FieldParser, field: str, claims: Sequence[api.RequiredClaim]) -> None:
    names = [claim.header.lower() for claim in claims]
    for index, claim in enumerate(claims):
        if not claim.header:
            continue
        why = api_keys.header_problem(claim.header)
        if names.index(claim.header.lower()) < index:
            why = "another claim has this header"
        if why:
            parse.problems.append(f"spec.{field}.requiredClaims[{index}].header: {why}")


def _addresses(parse: FieldParser, policy: api.SecurityPolicy) -> ClientNetworks | None:
    spec = policy.spec.client_addresses
    if spec is None:
        return None
    if not spec.allow and not spec.deny:
        parse.problems.append("spec.clientAddresses: needs allow or deny")
    return ClientNetworks(
        allow=_networks(parse, "allow", spec.allow),
        deny=_networks(parse, "deny", spec.deny),
        origin=origin_of(policy).field("clientAddresses"),
    )


def _networks(parse: FieldParser, name: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    networks = (
        parse(f"clientAddresses.{name}[{index}]", _network_of, text)
        for index, text in enumerate(texts)
    )
    return tuple(filter(None, networks))


def _network_of(text: str) -> str:
    """Return an address or a CIDR range as a CIDR range. Raises ValueProblem."""
    try:
        network = ip_addresses.ip_network(text)
    except ValueError as error:
        why = "must be an IP address, or a CIDR range without bits of a host"
        raise ValueProblem(f"invalid value {text!r}: {why}") from error
    if network.version == 6 and network.network_address.ipv4_mapped is not None:
        # Proxies compare the IPv4 address of such a client.
        raise ValueProblem(f"invalid value {text!r}: must be written as IPv4")
    return str(network)


def _unit(text: str | None) -> float | None:
    """Return a duration of one unit in seconds; None for None. Raises ValueProblem."""
    if text is not None and text.isdigit():
        raise ValueProblem(f"invalid value {text!r}: must be a duration such as 500ms or 10s")
    return parse_nginx_seconds(text)


def tokens_of(spec: api.JwtSpec) -> nginx_authentication.JwtAuth:
    """Return the settings of an AuthenticationFilter that has the same checks."""
    return nginx_authentication.JwtAuth(
        realm=spec.realm or DEFAULT_REALM,
        source="Remote" if spec.remote is not None else "File",
        file=nginx_authentication.JwtFile(spec.secret_ref) if spec.secret_ref else None,
        remote=spec.remote,
        key_cache=spec.refresh_interval,
        leeway=spec.leeway,
        authorization=required_claims(spec.required_claims),
    )


def required_claims(
    required: Sequence[api.RequiredClaim],
) -> nginx_authentication.AuthorizationSpec:
    """Return the settings of an AuthenticationFilter that requires all of these claims."""
    claims = tuple(
        nginx_authentication.ClaimRule(
            name=claim.name, values=claim.values, proxy_set_header=claim.header
        )
        for claim in required
    )
    rules = (nginx_authentication.AuthorizationRule(claims),) if claims else ()
    return nginx_authentication.AuthorizationSpec(rules)
