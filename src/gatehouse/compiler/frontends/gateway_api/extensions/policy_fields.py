"""Fields of policies: their parser, the settings that they become, and the sources of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.http import Retry
from gatehouse.compiler.ir.proxy_settings import (
    EnvoyClientSettings,
    NginxClientSettings,
    NginxRateLimits,
    NginxResponseSettings,
    NginxUpstreamSettings,
    ProxyOnly,
)
from gatehouse.compiler.ir.settings import Sourced
from gatehouse.dataplane.origin import Origin

V = TypeVar("V")
A = TypeVar("A")
S = TypeVar("S", bound=Sourced)
T = TypeVar("T", bound=msgspec.Struct)


DEFAULT_ZONE_BYTES = 10 << 20
"""Default size of a rate limit's shared memory."""

COUNTED_ZONE_BYTES = 1 << 20
"""Least size of the shared memory in which NGINX counts for each endpoint of a Service port."""

MAX_BURST = 1_000_000
"""Maximum number of requests above the rate. NGINX counts thousandths, Envoy tokens in 32 bits."""


class TrafficSettings(ir.SettingSections, frozen=True, kw_only=True):
    """Settings of traffic, of one policy or of all policies of an object."""

    retry: Retry | None = None
    header_bytes: int | None = None
    """Maximum size of the headers of a request to a Gateway."""
    upstream: ir.UpstreamSettings = ir.UpstreamSettings()
    service_address: bool | None = None
    """Connect to the Service's cluster IP instead of its endpoints; None if not set."""


class ParsedPolicy(msgspec.Struct, frozen=True):
    """Settings of a policy; None if it has problems."""

    settings: Any = None
    problems: tuple[str, ...] = ()


class FieldParser:
    """Parses fields and collects their problems. ``limits``: ceilings of their values."""

    def __init__(self, limits: ResourceLimits) -> None:
        self.problems: list[str] = []
        self.limits = limits

    def limit(self, field: str, name: str, value: int | None, text: object = None) -> None:
        """Record a problem if a value is above its ceiling. ``text``: as its author wrote it."""
        if excess := self.limits.excess(name, value or 0, text):
            self.problems.append(f"spec.{field}: {excess}")

    def __call__(self, field: str, parse: Callable[[A], V], value: A) -> V | None:
        """Return ``parse(value)``. If the value is invalid, record a problem and return None."""
        try:
            return parse(value)
        except ValueProblem as problem:
            self.problems.append(f"spec.{field}: {problem}")
            return None

    def client_settings(
        self, body_size: int | None, nginx: NginxClientSettings
    ) -> ir.ClientSettings:
        """Return settings towards clients; with a maximum size of bodies, its ceiling at Envoy."""
        whole_body = self.limits.of("wholeBodyBytes") if body_size is not None else None
        return ir.ClientSettings(
            body_size=body_size, nginx=nginx, envoy=EnvoyClientSettings(whole_body=whole_body)
        )

    def result(self, settings: object) -> ParsedPolicy:
        """Return the settings, or the problems if there are any."""
        return ParsedPolicy(None, tuple(self.problems)) if self.problems else ParsedPolicy(settings)


UNSET = (
    *(None, "", ()),
    *(NginxClientSettings(), EnvoyClientSettings(), NginxResponseSettings(), NginxRateLimits()),
    NginxUpstreamSettings(),
)
"""Values of fields that are not set."""


def set_paths(settings: Any, fields: Mapping[str, str]) -> frozenset[str]:
    """Return the paths of the fields of the IR that are set. ``fields``: names in the spec by
    path."""
    if settings is None:
        return frozenset()
    return frozenset(path for path in fields if attrgetter(path)(settings) not in UNSET)


def with_sources(settings: S, origin: Origin, fields: Mapping[str, str]) -> S:
    """Return settings with the sources of their fields. ``fields``: names in the spec by path."""
    present = set_paths(settings, fields)
    sources = tuple((path, origin.field(name)) for path, name in fields.items() if path in present)
    return msgspec.structs.replace(settings, sources=sources)


def with_traffic_sources(
    settings: TrafficSettings, origin: Origin, fields: Mapping[str, str]
) -> TrafficSettings:
    """Return settings with the sources of their fields. ``fields``: names in the spec by path."""
    own: dict[str, dict[str, str]] = {}
    for path, field in fields.items():
        section, _, inner = path.partition(".")
        own.setdefault(section, {})[inner] = field
    sections = {
        name: with_sources(section, origin, own[name])
        for name, section in settings.sections.items()
        if name in own
    }
    return msgspec.structs.replace(settings, **sections)


def merge_defaults(outer: T, inner: T) -> T:
    """Return ``inner`` with unset fields taken from ``outer``."""
    set_values = {
        field: value
        for field in inner.__struct_fields__
        if (value := getattr(inner, field)) not in UNSET
    }
    for field, value in set_values.items():
        if isinstance(value, ProxyOnly | Sourced | ir.RateLimits):
            set_values[field] = merge_defaults(getattr(outer, field), value)
    if isinstance(outer, Sourced) and "sources" in set_values:
        set_values["sources"] = tuple((dict(outer.sources) | dict(set_values["sources"])).items())
    return msgspec.structs.replace(outer, **set_values)


def origin_of(policy: api.AttachedPolicy) -> Origin:
    """Return the origin of a policy."""
    kind = type(policy).__name__
    return Origin(kind, policy.metadata.namespace, policy.metadata.name)
