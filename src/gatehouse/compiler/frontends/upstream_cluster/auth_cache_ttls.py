"""Annotations with the TTLs of cached authentication and authorization results."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir.kube_apiserver import AuthCacheTTLs

ANNOTATION_PREFIX = "gatehouse.dev/"

FIELDS = {
    "authentication-token-success-cache-ttl": "good_for",
    "authentication-token-failure-cache-ttl": "bad_for",
    "authorization-cache-authorized-ttl": "allowed_for",
    "authorization-cache-unauthorized-ttl": "denied_for",
}
"""Fields of :class:`~gatehouse.compiler.ir.kube_apiserver.AuthCacheTTLs` by annotation name.

The names are those of KubeGateway's flags, without the prefix ``--proxy-``.
"""

MAX_TTL_SECONDS = 3600.0
"""Maximum TTL in seconds: withdrawn rights must not stay effective for longer."""


class ParsedTTLs(msgspec.Struct, frozen=True):
    """Parsed annotations."""

    identity: AuthCacheTTLs = AuthCacheTTLs()
    problems: tuple[str, ...] = ()


def parse_cache_ttls(annotations: Mapping[str, str]) -> ParsedTTLs:
    """Parse the annotations. A missing or invalid TTL has its default."""
    problems: list[str] = []
    ttls: dict[str, float] = {}
    for name, field in FIELDS.items():
        text = annotations.get(ANNOTATION_PREFIX + name)
        if text is None:
            continue
        seconds = 0.0 if text.strip() == "0" else durations.parse_duration(text.strip())
        if seconds is not None and seconds <= MAX_TTL_SECONDS:
            ttls[field] = seconds
            continue
        default = f"{getattr(AuthCacheTTLs(), field):g}s"
        why = f"{text!r} must be a duration from 0s to 1h, such as 10m; using {default}"
        problems.append(f"annotation {ANNOTATION_PREFIX}{name}: {why}")
    return ParsedTTLs(msgspec.structs.replace(AuthCacheTTLs(), **ttls), tuple(problems))
