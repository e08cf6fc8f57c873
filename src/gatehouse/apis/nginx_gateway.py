"""Policies and filters of the group ``gateway.nginx.org``, as defined by NGINX Gateway Fabric."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gatehouse.apis.data_plane_parameters import (
    BuffersSpec,
    ParametersSpec,
    SpanAttributeSpec,
)
from gatehouse.apis.meta import KubernetesObject, View

NGINX_GATEWAY_GROUP = "gateway.nginx.org"


class TargetRef(View, frozen=True):
    """The target of a policy, an object in its own namespace."""

    kind: str
    name: str
    group: str = ""


class AttachedPolicy(KubernetesObject, frozen=True):
    """Base of all policies."""

    @property
    def targets(self) -> tuple[TargetRef, ...]:
        """Targets of the policy."""
        raise NotImplementedError


class ClientBody(View, frozen=True):
    """Settings of request bodies."""

    max_size: str | None = None
    buffer_size: str | None = None
    timeout: str | None = None


class ClientKeepAliveTimeout(View, frozen=True):
    """Timeouts of idle client connections."""

    server: str | None = None
    header: str | None = None


class ClientKeepAlive(View, frozen=True):
    """Keep-alive settings of client connections."""

    requests: int | None = None
    time: str | None = None
    min_timeout: str | None = None
    timeout: ClientKeepAliveTimeout = ClientKeepAliveTimeout()


class ClientSettingsSpec(View, frozen=True):
    """``spec`` of a ClientSettingsPolicy."""

    target_ref: TargetRef
    body: ClientBody = ClientBody()
    keep_alive: ClientKeepAlive = ClientKeepAlive()


class ClientSettingsPolicy(AttachedPolicy, frozen=True):
    """A ClientSettingsPolicy."""

    spec: ClientSettingsSpec

    @property
    def targets(self) -> tuple[TargetRef, ...]:
        """Targets of the policy."""
        return (self.spec.target_ref,)


class TargetsSpec(View, frozen=True, kw_only=True):
    """Base of specs of policies with several targets."""

    target_refs: tuple[TargetRef, ...] = ()


class TargetsPolicy(AttachedPolicy, frozen=True):
    """Base of policies with several targets."""

    spec: TargetsSpec

    @property
    def targets(self) -> tuple[TargetRef, ...]:
        """Targets of the policy."""
        return self.spec.target_refs


class ProxyBuffering(View, frozen=True):
    """Response buffering."""

    disable: bool | None = None
    buffer_size: str | None = None
    buffers: BuffersSpec | None = None
    busy_buffers_size: str | None = None


class ProxyTimeout(View, frozen=True):
    """Timeouts of backends."""

    connect: str | None = None
    read: str | None = None
    send: str | None = None


class ProxySettingsSpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of a ProxySettingsPolicy."""

    buffering: ProxyBuffering = ProxyBuffering()
    timeout: ProxyTimeout = ProxyTimeout()


class ProxySettingsPolicy(TargetsPolicy, frozen=True):
    """A ProxySettingsPolicy."""

    spec: ProxySettingsSpec = ProxySettingsSpec()


class RateLimitAnswer(View, frozen=True):
    """Response to requests over a limit."""

    dry_run: bool | None = None
    log_level: str | None = None
    reject_code: int | None = None


class RateLimitRule(RateLimitAnswer, frozen=True, kw_only=True):
    """A request rate for each value of a key. Releases before 2.5 have the response settings
    here."""

    key: str
    rate: str
    zone_size: str | None = None
    burst: int | None = None
    delay: int | None = None
    no_delay: bool | None = None


class LocalRateLimit(View, frozen=True):
    """Rules that each instance counts on its own."""

    rules: tuple[RateLimitRule, ...] = ()


class RateLimitRules(RateLimitAnswer, frozen=True, kw_only=True):
    """Rules, and the response to requests over the limit."""

    local: LocalRateLimit = LocalRateLimit()


class RateLimitSpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of a RateLimitPolicy."""

    rate_limit: RateLimitRules = RateLimitRules()


class RateLimitPolicy(TargetsPolicy, frozen=True):
    """A RateLimitPolicy."""

    spec: RateLimitSpec = RateLimitSpec()


class UpstreamKeepAlive(View, frozen=True):
    """Keep-alive settings of connections to endpoints."""

    connections: int | None = None
    requests: int | None = None
    time: str | None = None
    timeout: str | None = None


class UpstreamSettingsSpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of an UpstreamSettingsPolicy."""

    zone_size: str | None = None
    keep_alive: UpstreamKeepAlive = UpstreamKeepAlive()
    load_balancing_method: str | None = None
    hash_method_key: str | None = None
    use_cluster_ip: bool | None = msgspec.field(default=None, name="useClusterIP")


class UpstreamSettingsPolicy(TargetsPolicy, frozen=True):
    """An UpstreamSettingsPolicy."""

    spec: UpstreamSettingsSpec = UpstreamSettingsSpec()


class TracingSpec(View, frozen=True):
    """Tracing of requests."""

    strategy: str = ""
    ratio: int | None = None
    context: str | None = None
    span_name: str | None = None
    span_attributes: tuple[SpanAttributeSpec, ...] = ()


class ObservabilitySpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of an ObservabilityPolicy."""

    tracing: TracingSpec | None = None


class ObservabilityPolicy(TargetsPolicy, frozen=True):
    """An ObservabilityPolicy."""

    spec: ObservabilitySpec = ObservabilitySpec()


class WAFPolicy(TargetsPolicy, frozen=True):
    """A WAFPolicy. Only its targets are read: it is not served."""

    spec: TargetsSpec = TargetsSpec()


class PayloadProcessorSpec(View, frozen=True):
    """``spec`` of a PayloadProcessor."""

    target_ref: TargetRef


class PayloadProcessor(AttachedPolicy, frozen=True):
    """A PayloadProcessor. Only its target is read: it is not served."""

    spec: PayloadProcessorSpec

    @property
    def targets(self) -> tuple[TargetRef, ...]:
        """Targets of the policy."""
        return (self.spec.target_ref,)


class SnippetSpec(View, frozen=True):
    """Raw NGINX configuration for one context."""

    context: Annotated[
        Literal["main", "http", "http.server", "http.server.location"],
        msgspec.Meta(
            description="Block of the configuration that gets the text: main, http, http.server "
            "or http.server.location."
        ),
    ]
    value: Annotated[str, msgspec.Meta(description="Directives of NGINX.", min_length=1)]


Snippets = Annotated[
    tuple[SnippetSpec, ...],
    msgspec.Meta(
        description="Raw configuration of NGINX, served only with the option --snippets.",
        min_length=1,
        max_length=4,
        extra_json_schema={
            "x-kubernetes-validations": [
                {
                    "rule": "self.all(s, self.exists_one(o, o.context == s.context))",
                    "message": "a context may be given once",
                }
            ]
        },
    ),
]


class SnippetsFilterSpec(View, frozen=True):
    """``spec`` of a SnippetsFilter."""

    snippets: Snippets


class SnippetsFilter(KubernetesObject, frozen=True):
    """Filter of rules with raw NGINX configuration."""

    spec: SnippetsFilterSpec


class SnippetsPolicySpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of a SnippetsPolicy."""

    snippets: Snippets


class SnippetsPolicy(TargetsPolicy, frozen=True):
    """A SnippetsPolicy."""

    spec: SnippetsPolicySpec


class NginxProxy(KubernetesObject, frozen=True):
    """A NginxProxy: the parameters of a GatewayClass or Gateway."""

    spec: ParametersSpec = ParametersSpec()
