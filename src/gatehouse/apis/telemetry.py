"""XTelemetryPolicy of ``gateway.networking.x-k8s.io/v1alpha1`` (GEP-4768)."""

from __future__ import annotations

from gatehouse.apis.meta import View
from gatehouse.apis.nginx_gateway import TargetsPolicy, TargetsSpec
from gatehouse.apis.routes import BackendObject, HeaderValueSpec

EXPERIMENTAL_GROUP = "gateway.networking.x-k8s.io"

ENABLED, DISABLED, DEFAULT = "Enabled", "Disabled", "ImplementationDefault"
"""Modes of tracing, and of sampling by parent."""


class FractionSpec(View, frozen=True):
    """A share of requests."""

    numerator: int
    denominator: int = 100


class ParentSamplingSpec(View, frozen=True):
    """Sampling of requests whose client sends a context."""

    mode: str = DEFAULT
    sampling_rate: FractionSpec | None = None


class TelemetryAttributeSpec(View, frozen=True):
    """An attribute of all spans. ``source_type`` says which of the other fields has the value."""

    name: str
    source_type: str
    header_name: str | None = None
    literal_value: str | None = None
    attribute_key: str | None = None


class TracingProviderSpec(View, frozen=True):
    """The collector."""

    backend_ref: BackendObject
    headers: tuple[HeaderValueSpec, ...] = ()


class TelemetryTracingSpec(View, frozen=True):
    """Traces of requests."""

    mode: str = DEFAULT
    provider: TracingProviderSpec | None = None
    sampling_rate: FractionSpec | None = None
    parent_based_sampling: ParentSamplingSpec | None = None
    service_name: str | None = None
    span_name: str | None = None
    attributes: tuple[TelemetryAttributeSpec, ...] = ()


class TelemetryPolicySpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of an XTelemetryPolicy."""

    tracing: TelemetryTracingSpec | None = None


class XTelemetryPolicy(TargetsPolicy, frozen=True):
    """An XTelemetryPolicy."""

    spec: TelemetryPolicySpec = TelemetryPolicySpec()
