"""Annotations that say for how long answers of a cluster about its users are kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir.kube_apiserver import AuthCacheTTLs

PREFIX = "gatehouse.dev/"

FIELDS = {
    "authentication-token-success-cache-ttl": "good_for",
    "authentication-token-failure-cache-ttl": "bad_for",
    "authorization-cache-authorized-ttl": "allowed_for",
    "authorization-cache-unauthorized-ttl": "denied_for",
}
"""Fields of :class:`~gatehouse.compiler.ir.kube_apiserver.Identity` by the names of
KubeGateway's flags, which
begin with ``--proxy-`` there."""

MAX_TTL_SECONDS = 3600.0
"""Seconds: nobody whose rights were taken back is to have them for longer."""


class Lifetimes(msgspec.Struct, frozen=True):
    """What the annotations of an object say."""

    identity: AuthCacheTTLs = AuthCacheTTLs()
    problems: tuple[str, ...] = ()


def read(annotations: Mapping[str, str]) -> Lifetimes:
    """Read the annotations; what is missing or wrong is as by default."""
    problems: list[str] = []
    given: dict[str, float] = {}
    for name, field in FIELDS.items():
        text = annotations.get(PREFIX + name)
        if text is None:
            continue
        seconds = 0.0 if text.strip() == "0" else durations.seconds(text.strip())
        if seconds is not None and seconds <= MAX_TTL_SECONDS:
            given[field] = seconds
            continue
        default = f"{getattr(AuthCacheTTLs(), field):g}s"
        why = f"{text!r} is no duration from 0s to 1h, such as 10m; it is {default}"
        problems.append(f"annotation {PREFIX}{name}: {why}")
    return Lifetimes(msgspec.structs.replace(AuthCacheTTLs(), **given), tuple(problems))
