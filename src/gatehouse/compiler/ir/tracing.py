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


class SpanAttribute(msgspec.Struct, frozen=True):
    """An attribute of a span."""

    key: str
    value: str


class TraceExport(msgspec.Struct, frozen=True):
    """Export of spans to a collector, by OTLP over gRPC."""

    host: str
    """IPv4 address or DNS name, lower case."""
    port: int
    service_name: str
    """Attribute ``service.name`` of the data plane."""
    tls: bool = False
    """True for TLS. The certificate of the collector must have its host."""
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
    origin: Origin = NO_ORIGIN
    """The field of the parameters that names the collector."""

    @property
    def credentials(self) -> tuple[str, ...]:
        """Names of the client certificate and the CA certificates; an empty name: none."""
        return self.certificate, self.trust


class Tracing(msgspec.Struct, frozen=True):
    """Traces of a route. Sampling does not depend on other routes."""

    percent: int | None = None
    """Share of requests that is traced; None: requests whose client traces them."""
    context: Context = ""
    """Use of the headers ``traceparent`` and ``tracestate``: ``extract`` continues the trace of the
    client, ``inject`` sends the context to backends, ``propagate`` does both. Empty: ``ignore``."""
    span_name: str = ""
    """Empty: ``namespace/name/rule`` of the route."""
    attributes: tuple[SpanAttribute, ...] = ()
    origin: Origin = NO_ORIGIN
    """The policy."""

    @property
    def injects(self) -> bool:
        """True if the context is sent to backends."""
        return self.context in ("inject", "propagate")

    @property
    def extracts(self) -> bool:
        """True if the trace of the client is continued."""
        return self.context in ("extract", "propagate")
