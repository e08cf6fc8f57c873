"""Traces of requests, by NGINX's module ngx_otel_module.

NGINX decides in the first location of a request whether it is traced, before the route is known. So
the location reads the chain that selects the route. Name and attributes of the span are those of
the last location, which may be one that several routes share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.compiler.backends.nginx import access_log, names, quoting
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    simple_directive,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import tracing as ir_tracing
from gatehouse.compiler.ir.access_log import rule_text
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

NO_CLIENT_CERTIFICATE = "the module ngx_otel_module sends no client certificate"

MISSING = "this NGINX has no module ngx_otel_module: requests are not traced"


class TraceContext(msgspec.Struct, frozen=True):
    """Attributes of all spans of a gateway."""

    gateway: str
    """``namespace/name``."""
    attributes: tuple[SpanAttribute, ...] = ()


class LocationTrace(msgspec.Struct, frozen=True):
    """Decision about requests of a route."""

    sampled: str
    """Value of ``otel_trace``."""
    context: str
    """Value of ``otel_trace_context``; empty for the default."""


_ROUTE = ir_tracing.ROUTE_ATTRIBUTE

_PARENT = "$gh_parent_traced"
_SAMPLED = '"~^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]$"'
"""Pattern of ``traceparent`` of a client that traces the request (W3C Trace Context)."""

NOT_TRACED = LocationTrace("off", "")


def exporter_text(export: TraceExport, gateway: str) -> str:
    """Return the directives of the ``http`` context that export spans, and the name and attributes
    of spans in locations that several routes share. ``gateway``: ``namespace/name``."""
    address = quoting.word(f"{export.host}:{export.port}")
    settings = {
        # The module verifies the collector, by default with the CA certificates of the system.
        "endpoint": f"https://{address}" if export.tls else address,
        **({"trusted_certificate": names.trust_file(export.trust)} if export.trust else {}),
        "interval": f"{round(export.interval * 1000)}ms",
        "batch_size": str(export.batch_size),
        "batch_count": str(export.batch_count),
    }
    inner = [simple_directive(name, value) for name, value in settings.items()]
    service = quoting.quote_text_literal(export.service_name)
    route = access_log.ROUTE_VARIABLE
    return format_directives(
        [
            block("otel_exporter", (), inner),
            simple_directive("otel_service_name", service),
            simple_directive("otel_span_name", route),
            *_gateway_attributes(TraceContext(gateway, export.attributes)),
            simple_directive("otel_span_attr", quoting.quote_literal(_ROUTE), route),
        ]
    )


def unsupported_export(
    export: TraceExport | None, capabilities: NginxCapabilities
) -> list[UnsupportedSetting]:
    """Return the settings of the export that this NGINX does not support."""
    if export is None:
        return []
    if not capabilities.traces:
        return [UnsupportedSetting(export.origin, MISSING)]
    if export.certificate:
        return [
            UnsupportedSetting(
                export.origin.field("tls.clientCertificateRef"), NO_CLIENT_CERTIFICATE
            )
        ]
    return []


def unsupported_tracing(
    tracing: Tracing | None, capabilities: NginxCapabilities
) -> list[UnsupportedSetting]:
    """Return the settings of a policy that this NGINX does not support."""
    if tracing is None or capabilities.traces or tracing.percent == 0:
        return []
    return [UnsupportedSetting(tracing.origin.field("tracing"), MISSING)]


def definitions(tracing: Tracing | None) -> Iterable[Directive]:
    """Return the directives of ``http`` that the decision about a route needs."""
    if tracing is None or tracing.percent in (0, 100):
        return
    if tracing.percent is None:
        # The variable of the module is empty unless the location continues the trace.
        rows = (simple_directive(_SAMPLED, "on"), simple_directive("default", "off"))
        yield block("map", ("$http_traceparent", _PARENT), rows)
        return
    # Clients choose the ID of a trace that is continued. Other choices depend on the request ID
    # alone, and must not coincide with this one.
    rows = (simple_directive(f"{tracing.percent}%", "on"), simple_directive("*", "off"))
    yield block("split_clients", ('"trace$request_id"', _share(tracing.percent)), rows)


def route_trace(tracing: Tracing | None) -> LocationTrace:
    """Return the decision about requests of a route."""
    if tracing is None or tracing.percent == 0:
        return NOT_TRACED
    match tracing.percent:
        case None:
            sampled = _PARENT
        case 100:
            sampled = "on"
        case percent:
            sampled = _share(percent)
    return LocationTrace(sampled, tracing.context)


def first_location(
    scope: str, destination: str, traces: Mapping[str, LocationTrace]
) -> tuple[tuple[Directive, ...], tuple[Directive, ...]]:
    """Return the directives of the first location of requests, and the map that they need.

    ``destination``: named location, or variable that has its name. ``traces``: decisions by named
    location. NGINX has one use of the context for all requests of a location: that of its first
    traced route.
    """
    traced = {name: trace for name, trace in traces.items() if trace != NOT_TRACED}
    if not traced:
        return (), ()
    contexts = [trace.context for trace in traced.values() if trace.context]
    context = [simple_directive("otel_trace_context", name) for name in contexts[:1]]
    if not destination.startswith("$"):
        sampled = traces.get(destination, NOT_TRACED).sampled
        if sampled == "off":
            return (), ()
        return (simple_directive("otel_trace", sampled), *context), ()
    rows = [
        *(simple_directive(f'"{name}"', trace.sampled) for name, trace in sorted(traced.items())),
        simple_directive("default", "off"),
    ]
    variable = f"${names.variable(scope, destination, format_directives(rows))}"
    definition = block("map", (destination, variable), rows)
    return (simple_directive("otel_trace", variable), *context), (definition,)


def span_directives(context: TraceContext | None, route: ir.Route) -> tuple[Directive, ...]:
    """Return the directives of the last locations of requests. Raises InvalidValueError."""
    tracing = route.settings.tracing
    if context is None or tracing is None or tracing.percent == 0:
        return ()
    rule = rule_text(route.name)
    own = (SpanAttribute(_ROUTE, rule), *tracing.attributes)
    return (
        simple_directive("otel_span_name", quoting.quote_text_literal(tracing.span_name or rule)),
        *_gateway_attributes(context),
        *map(_attribute, own),
    )


def _gateway_attributes(context: TraceContext) -> Iterable[Directive]:
    gateway = quoting.quote_text_literal(context.gateway)
    yield simple_directive("otel_span_attr", ir_tracing.GATEWAY_ATTRIBUTE, gateway)
    listener = f'{gateway[:-1]}:$gh_port"'
    yield simple_directive("otel_span_attr", ir_tracing.LISTENER_ATTRIBUTE, listener)
    yield from map(_attribute, context.attributes)


def _attribute(attribute: SpanAttribute) -> Directive:
    key, value = attribute.key, attribute.value
    return simple_directive(
        "otel_span_attr", quoting.quote_literal(key), quoting.quote_text_literal(value)
    )


def _share(percent: int) -> str:
    return f"$gh_traced_{percent}"
