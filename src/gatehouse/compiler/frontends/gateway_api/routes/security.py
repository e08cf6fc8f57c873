"""Checks that SecurityPolicies add to rules of HTTPRoutes and GRPCRoutes.

A check is never left out: if a policy cannot be served, requests of its targets get 500.
"""

from __future__ import annotations

import msgspec

from gatehouse.apis.nginx_authentication import JwtAuth
from gatehouse.apis.security_policies import ApiKeysSpec, OidcSpec
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions import api_keys, authentication
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.frontends.gateway_api.extensions.policy_conflicts import policy_rejection
from gatehouse.compiler.frontends.gateway_api.extensions.policy_parsing import (
    age_of,
    policy_settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.security_policies import (
    SECURITY_KIND,
    PolicyAuthentication,
    SecuritySettings,
    required_claims,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    policies_by_target,
    rejected_credential,
)
from gatehouse.compiler.frontends.gateway_api.routes import external_auth
from gatehouse.compiler.ir.http import HeaderEdit, HeaderValue, Route
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Ask, Key

PolicyCheck = tuple[Key, Filters]
"""A SecurityPolicy, and what one of its fields sets."""


class PolicyHeader(msgspec.Struct, frozen=True):
    """A response header of a SecurityPolicy."""

    header: HeaderValue
    origin: Origin
    """The field that sets it."""


class Checks(msgspec.Struct, frozen=True):
    """Checks of an object."""

    fields: tuple[tuple[str, PolicyCheck], ...] = ()
    """By field of a route of the IR."""
    headers: tuple[PolicyHeader, ...] = ()
    """Response headers of all policies, each of another name."""
    invalid: tuple[tuple[Key, str], ...] = ()
    """Policies of which nothing is known but their problem."""


NO_CHECKS = Checks()
"""Checks of most objects."""


def policy_checks(ask: Ask, gateway: Key, key: Key) -> tuple[tuple[str, Filters], ...]:
    """Return the checks of a valid policy at a Gateway, by field of a route of the IR."""
    settings: SecuritySettings = policy_settings(ask, gateway, key)
    result = []
    if settings.authentication is not None:
        part = _authentication(ask, gateway, key, settings.authentication)
        result.append(("authentication", part))
    if settings.external_auth is not None:
        server = external_auth.translate_external_auth(
            ask, (gateway, key), settings.external_auth, "externalAuth"
        )
        findings = tuple(Finding(one.reason, f"spec.{one.message}") for one in server.findings)
        result.append(("external_auth", msgspec.structs.replace(server, findings=findings)))
    if settings.client_addresses is not None:
        route = Route(client_addresses=settings.client_addresses)
        result.append(("client_addresses", Filters(route)))
    return tuple(result)


def _authentication(ask: Ask, gateway: Key, key: Key, spec: PolicyAuthentication) -> Filters:
    """Return the authentication of a policy, or a finding."""
    origin = object_of(key)
    try:
        if isinstance(spec, JwtAuth):
            result = authentication.check_tokens(ask, origin.field("jwt"), spec, "spec.jwt")
        elif isinstance(spec, ApiKeysSpec):
            result = api_keys.check_keys(ask, origin.field("apiKeys"), spec)
        elif isinstance(spec, OidcSpec):
            claims = required_claims(spec.required_claims)
            result = authentication.check_users(ask, origin.field("oidc"), spec, claims)
        else:
            result = authentication.check_passwords(ask, origin.field("basicAuth"), spec)
    except ValueProblem as problem:
        return Filters(findings=(Finding(Reason.POLICY_INVALID, str(problem)),))
    for secret in result.secrets:
        if why := rejected_credential(ask, gateway, secret.name):
            message = f"{secret.origin}: {why}"
            return Filters(findings=(Finding(Reason.POLICY_INVALID, message),))
    return result


def object_checks(ask: Ask, gateway: Key, target: Key) -> Checks:
    """Return the checks that policies require of a Gateway, or of a route at a Gateway.

    Of the accepted policies, no two set the same field. A conflicted one has the fields that none
    of these sets, so that its other checks stay.
    """
    keys = [key for key in ask.read(policies_by_target(target)) if key[0] == SECURITY_KIND]
    if not keys:
        return NO_CHECKS
    rejections = {key: ask(policy_rejection, gateway, key) for key in keys}
    fields, headers, invalid = dict[str, PolicyCheck](), dict[str, PolicyHeader](), []
    for key in sorted(keys, key=lambda key: (rejections[key] is not None, age_of(ask, key))):
        rejection = rejections[key]
        if rejection is not None and rejection.reason is not Reason.POLICY_CONFLICTED:
            invalid.append((key, rejection.message))
            continue
        for field, part in ask(policy_checks, gateway, key):
            fields.setdefault(field, (key, part))
        settings: SecuritySettings = policy_settings(ask, gateway, key)
        for field, header in settings.headers.present:
            headers.setdefault(header.name, PolicyHeader(header, object_of(key).field(field)))
    return Checks(tuple(fields.items()), tuple(headers.values()), tuple(invalid))


def route_checks(ask: Ask, gateway: Key, route: Key) -> Checks:
    """Return the checks of a route at a Gateway: its own, and those of the Gateway for the fields
    that it does not set."""
    outer: Checks = ask(object_checks, gateway, gateway)
    if not ask.read(policies_by_target(route)):
        return outer
    inner: Checks = ask(object_checks, gateway, route)
    fields = dict(outer.fields) | dict(inner.fields)
    headers = {one.header.name: one for one in (*outer.headers, *inner.headers)}
    invalid = (*outer.invalid, *inner.invalid)
    return Checks(tuple(fields.items()), tuple(headers.values()), invalid)


def with_checks(checks: Checks, filters: Filters, namespace: str) -> Filters:
    """Return the filters of a rule with the checks of its route, which is in a namespace.

    A filter of the rule replaces the check of the same kind, and may replace or remove a response
    header.
    """
    if checks is NO_CHECKS:
        return filters
    edit = filters.route.response_headers
    for one in checks.headers:
        edit = HeaderEdit(set=(one.header,)).then(edit)
    route = msgspec.structs.replace(filters.route, response_headers=edit)
    filters = msgspec.structs.replace(filters, route=route)
    for field, (key, part) in checks.fields:
        if getattr(filters.route, field) is not None:
            continue
        problems = (_refusal(key, one.message, namespace) for one in part.findings)
        added = msgspec.structs.replace(part, findings=tuple(problems))
        merged = filters.merge(added)
        assert merged is not None
        filters = merged
    refusals = tuple(_refusal(key, message, namespace) for key, message in checks.invalid)
    return msgspec.structs.replace(filters, findings=(*filters.findings, *refusals))


def _refusal(key: Key, message: str, namespace: str) -> Finding:
    """Return the finding about a route whose policy cannot be served. Only the namespace of the
    policy learns the names in it."""
    why = message if key[1] == namespace else "is not served: see its status"
    return Finding(Reason.INVALID_FILTER, f"{object_of(key)}: {why}")
