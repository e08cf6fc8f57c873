"""Response headers of SecurityPolicies that tell browsers what a site permits. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gatehouse.apis import security_policies as api
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir.http import HeaderValue

HEADER_FIELDS = {
    "strict_transport_security": "securityHeaders.strictTransportSecurity",
    "content_type_options": "securityHeaders.contentTypeOptions",
    "frame_options": "securityHeaders.frameOptions",
    "referrer_policy": "securityHeaders.referrerPolicy",
    "content_security_policy": "securityHeaders.contentSecurityPolicy",
}
"""Fields of a SecurityPolicy, by name in its view."""

CONTENT_TYPE_OPTIONS = {"NoSniff": "nosniff"}
FRAME_OPTIONS = {"Deny": "DENY", "SameOrigin": "SAMEORIGIN"}
REFERRER_POLICIES = {
    "NoReferrer": "no-referrer",
    "NoReferrerWhenDowngrade": "no-referrer-when-downgrade",
    "Origin": "origin",
    "OriginWhenCrossOrigin": "origin-when-cross-origin",
    "SameOrigin": "same-origin",
    "StrictOrigin": "strict-origin",
    "StrictOriginWhenCrossOrigin": "strict-origin-when-cross-origin",
    "UnsafeURL": "unsafe-url",
}
"""Values of headers, by values of fields."""

MAX_CONTENT_POLICY = 2048
CONTENT_POLICY_PATTERN = "[!-~]([ -~]*[!-~])?"
MAX_AGE_SECONDS = 2**31 - 1


class BrowserHeaders(msgspec.Struct, frozen=True):
    """Response headers of a policy, by name in its view. None: not set."""

    strict_transport_security: HeaderValue | None = None
    content_type_options: HeaderValue | None = None
    frame_options: HeaderValue | None = None
    referrer_policy: HeaderValue | None = None
    content_security_policy: HeaderValue | None = None

    @property
    def present(self) -> tuple[tuple[str, HeaderValue], ...]:
        """Headers that are set, each after its field."""
        headers = zip(HEADER_FIELDS.values(), msgspec.structs.astuple(self), strict=True)
        return tuple((field, header) for field, header in headers if header is not None)


def browser_headers(spec: api.SecurityHeadersSpec) -> BrowserHeaders:
    """Return the headers of a policy. Raises ValueProblem."""
    result = {}
    if spec.strict_transport_security is not None:
        value = _transport(spec.strict_transport_security)
        result["strict_transport_security"] = HeaderValue("Strict-Transport-Security", value)
    for field, name, values in (
        ("content_type_options", "X-Content-Type-Options", CONTENT_TYPE_OPTIONS),
        ("frame_options", "X-Frame-Options", FRAME_OPTIONS),
        ("referrer_policy", "Referrer-Policy", REFERRER_POLICIES),
    ):
        chosen: str | None = getattr(spec, field)
        if chosen is not None:
            result[field] = HeaderValue(name, _value(field, values, chosen))
    policy = spec.content_security_policy
    if policy is not None:
        if len(policy) > MAX_CONTENT_POLICY or not re.fullmatch(CONTENT_POLICY_PATTERN, policy):
            why = f"must be up to {MAX_CONTENT_POLICY} printable characters of ASCII"
            raise ValueProblem(f"spec.{HEADER_FIELDS['content_security_policy']}: {why}")
        result["content_security_policy"] = HeaderValue("Content-Security-Policy", policy)
    return BrowserHeaders(**result)


def _transport(spec: api.StrictTransportSpec) -> str:
    """Return the value of the header (RFC 6797, 6.1). Raises ValueProblem."""
    if not 0 <= spec.max_age_seconds <= MAX_AGE_SECONDS:
        field = f"spec.{HEADER_FIELDS['strict_transport_security']}.maxAgeSeconds"
        raise ValueProblem(f"{field}: must be from 0 to {MAX_AGE_SECONDS}")
    directives = [f"max-age={spec.max_age_seconds}"]
    directives += ["includeSubDomains"] if spec.include_subdomains else []
    directives += ["preload"] if spec.preload else []
    return "; ".join(directives)


def _value(field: str, values: Mapping[str, str], chosen: str) -> str:
    if chosen not in values:
        raise ValueProblem(f"spec.{HEADER_FIELDS[field]}: must be one of {', '.join(values)}")
    return values[chosen]
