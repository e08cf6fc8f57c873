"""IR of traces: the exporter of a data plane, and which requests of a route are traced."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.dataplane.origin import NO_ORIGIN, Origin

ROUTE_ATTRIBUTE = "gatehouse.route"
GATEWAY_ATTRIBUTE = "gatehouse.gateway"
LISTENER_ATTRIBUTE = "gatehouse.listener"
"""Attributes of each span: ``namespace/name/rule`` of the route, ``namespace/name`` of the Gateway,
and the listener as the access log names it."""

Context = Literal["", "extract", "inject", "propagate", "ignore"]


AttributeSource = Literal["literal", "header", "semantic"]


class SpanAttribute(msgspec.Struct, frozen=True):
    """An attribute of a span."""

    key: str
    value: str
    """The value itself; the name of a header of the request; or a name of OpenTelemetry's semantic
    conventions, whose value the proxy knows."""
    source: AttributeSource = "literal"
    origin: Origin = NO_ORIGIN
    """The field with the value, if a proxy may not know it."""


class TraceExport(msgspec.Struct, frozen=True):
    """Export of spans to a collector, by OTLP over gRPC."""

    host: str
    """IPv4 address or DNS name, lower case. The certificate of a collector with TLS must have
    it."""
    port: int
    service_name: str
    """Attribute ``service.name`` of the data plane."""
    tls: bool = False
    """True for TLS."""
    trust: str = ""
    """Name of the CA certificates that verify the collector; empty for those of the system."""
    certificate: str = ""
    """Name of the client certificate; empty for none."""
    interval: float = 5.0
    """Maximum time in seconds between two exports."""
    batch_size: int = 512
    """Number of spans that are exported at once."""
    batch_count: int = 4
    """Number of batches that may wait. Further spans are dropped."""
    attributes: tuple[SpanAttribute, ...] = ()
    """Attributes of all spans."""
    addresses: tuple[tuple[str, int], ...] = ()
    """IP addresses of the collector with their ports; empty if ``host`` has to be resolved."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of each export: names in lower case, and values without percent signs."""
    origin: Origin = NO_ORIGIN
    """The field of the parameters or of the policy that names the collector."""

    @property
    def credentials(self) -> tuple[str, ...]:
        """Names of the client certificate and the CA certificates; an empty name: none."""
        return self.certificate, self.trust


class Tracing(msgspec.Struct, frozen=True):
    """Traces of a route. Sampling does not depend on other routes."""

    percent: float = 0
    """Share of the requests that is traced. With ``parent_percent``: of those whose client sends no
    ``traceparent``."""
    context: Context = ""
    """Use of the headers ``traceparent`` and ``tracestate``: ``extract`` continues the trace of the
    client, ``inject`` sends the context to backends, ``propagate`` does both. Empty: ``ignore``."""
    span_name: str = ""
    """Empty: ``namespace/name/rule`` of the route."""
    attributes: tuple[SpanAttribute, ...] = ()
    origin: Origin = NO_ORIGIN
    """The policy."""
    parent_percent: float | None = None
    """Share of the requests that is traced of those whose client traces them, while others with a
    ``traceparent`` are not; None: the decision of the client does not matter."""

    @property
    def is_off(self) -> bool:
        """True if no request is traced."""
        return not self.percent and not self.parent_percent

    @property
    def injects(self) -> bool:
        """True if the context is sent to backends."""
        return self.context in ("inject", "propagate")

    @property
    def extracts(self) -> bool:
        """True if the trace of the client is continued."""
        return self.context in ("extract", "propagate")
