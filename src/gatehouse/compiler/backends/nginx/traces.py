"""Traces of requests, by NGINX's module ngx_otel_module.

NGINX decides in the first location of a request whether it is traced, before the route is known. So
the location reads the chain that selects the route. Name and attributes of the span are those of
the last location, which may be one that several routes share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import access_log, names, quoting
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.header_variables import header_variable, is_known_name
from gatehouse.compiler.backends.nginx.route_context import (
    NOT_TRACED,
    LocationTrace,
    NginxRouteContext,
    RoutePiece,
    TraceContext,
    definitions,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import tracing as ir_tracing
from gatehouse.compiler.ir.access_log import rule_text
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport, Tracing
from gatehouse.compiler.ir.unsupported import UnsupportedSetting

NO_CLIENT_CERTIFICATE = "the module ngx_otel_module sends no client certificate"

COARSE = "NGINX chooses requests in steps of 0.01 percent, so that the rate is rounded up"

NO_VARIABLE = "NGINX has no variable of this value: spans lack the attribute"

TOO_LONG = "the value with its escapes is too long for NGINX: spans lack the attribute"

NO_NAME = (
    "the module ngx_otel_module cannot verify the certificates of known addresses: requests "
    "are not traced"
)

MISSING = "this NGINX has no module ngx_otel_module: requests are not traced"


CHECKED = "NGINX decides about traces before the filters of the listener: requests are not traced"

_ROUTE = ir_tracing.ROUTE_ATTRIBUTE

_PARENT = "$gh_parent_traced"
_SAMPLED = '"~^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]$"'
"""Pattern of ``traceparent`` of a client that traces the request (W3C Trace Context)."""


def exporter_text(export: TraceExport, gateway: str) -> str:
    """Return the directives of the ``http`` context that export spans, and the name and attributes
    of spans in locations that several routes share. ``gateway``: ``namespace/name``."""
    address = quoting.word(_target(export))
    settings = {
        # The module verifies the collector, by default with the CA certificates of the system.
        "endpoint": f"https://{address}" if export.tls else address,
        **({"trusted_certificate": names.trust_file(export.trust)} if export.trust else {}),
        "interval": f"{round(export.interval * 1000)}ms",
        "batch_size": str(export.batch_size),
        "batch_count": str(export.batch_count),
    }
    inner = [simple_directive(name, value) for name, value in settings.items()]
    inner += [
        simple_directive("header", quoting.quote_literal(name), quoting.quote_literal(value))
        for name, value in export.headers
    ]
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


def _target(export: TraceExport) -> str:
    """Return the collector as gRPC names it. One name has addresses of one family only."""
    for family, form in (("ipv4", "{}:{}"), ("ipv6", "[{}]:{}")):
        own = [where for where in export.addresses if (":" in where[0]) == (family == "ipv6")]
        if own:
            return f"{family}:{','.join(form.format(*where) for where in own)}"
    return f"{export.host}:{export.port}"


def unsupported_export(
    export: TraceExport | None, capabilities: NginxCapabilities
) -> list[UnsupportedSetting]:
    """Return the settings of the export that this NGINX does not support."""
    if export is None:
        return []
    if not capabilities.traces:
        return [UnsupportedSetting(export.origin, MISSING)]
    if capabilities.exported(export) is None:
        return [UnsupportedSetting(export.origin, NO_NAME)]
    attributes = [
        UnsupportedSetting(
            attribute.origin, TOO_LONG if attribute.source == "literal" else NO_VARIABLE
        )
        for attribute in export.attributes
        if _value(attribute) is None
    ]
    if not export.certificate:
        return attributes
    certificate = export.origin.field("tls.clientCertificateRef")
    return [*attributes, UnsupportedSetting(certificate, NO_CLIENT_CERTIFICATE)]


def unsupported_tracing(context: NginxRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the settings of a policy that this NGINX does not support."""
    tracing = route.settings.tracing
    if tracing is None or tracing.is_off:
        return []
    missing = MISSING if not context.capabilities.traces else CHECKED if context.is_checked else ""
    if missing:
        return [UnsupportedSetting(tracing.origin.field("tracing"), missing)]
    rates = {"samplingRate": tracing.percent}
    rates["parentBasedSampling.samplingRate"] = tracing.parent_percent or 0
    return [
        UnsupportedSetting(tracing.origin.field(f"tracing.{field}"), COARSE)
        for field, percent in rates.items()
        if percent != float(_percent(percent))
    ]


def _decision(tracing: Tracing) -> Iterable[Directive]:
    """Yield the directives of ``http`` that the decision about a route needs."""
    # Clients choose the ID of a trace that is continued. Other choices depend on the request ID
    # alone, and must not coincide with this one.
    for percent in (tracing.percent, tracing.parent_percent or 0):
        if 0 < percent < 100:
            rows = (simple_directive(f"{_percent(percent)}%", "on"), simple_directive("*", "off"))
            yield block("split_clients", ('"trace$request_id"', _share(percent)), rows)
    if tracing.parent_percent is None:
        return
    choices = {'""': _share(tracing.percent), _SAMPLED: _share(tracing.parent_percent)}
    # The variable of the module is empty unless the location continues the trace.
    traced = {key: value for key, value in choices.items() if value != "off"}
    yield map_block("$http_traceparent", _by_parent(tracing), traced, "off")


def route_trace(tracing: Tracing | None) -> LocationTrace:
    """Return the decision about requests of a route."""
    if tracing is None or tracing.is_off:
        return NOT_TRACED
    by_parent = tracing.parent_percent is not None
    sampled = _by_parent(tracing) if by_parent else _share(tracing.percent)
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


def spans_piece(context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the directives of the last locations of requests. Raises InvalidValueError."""
    tracing = route.settings.tracing
    if context.traces is None or tracing is None or tracing.is_off:
        return None
    rule = rule_text(route.name)
    own = (SpanAttribute(_ROUTE, rule), *tracing.attributes)
    name = quoting.quote_text_literal(tracing.span_name or rule)
    return RoutePiece(
        spans=(
            simple_directive("otel_span_name", name),
            *_gateway_attributes(context.traces),
            *_attributes(own),
        ),
        needs=definitions(_decision(tracing)),
    )


def _gateway_attributes(context: TraceContext) -> Iterable[Directive]:
    gateway = quoting.quote_text_literal(context.gateway)
    yield simple_directive("otel_span_attr", ir_tracing.GATEWAY_ATTRIBUTE, gateway)
    listener = f'{gateway[:-1]}:$gh_port"'
    yield simple_directive("otel_span_attr", ir_tracing.LISTENER_ATTRIBUTE, listener)
    yield from _attributes(context.attributes)


def _attributes(attributes: Iterable[SpanAttribute]) -> Iterable[Directive]:
    for attribute in attributes:
        value = _value(attribute)
        if value is not None:
            key = quoting.quote_literal(attribute.key)
            yield simple_directive("otel_span_attr", key, value)


_VALUES = {
    "client.address": "$remote_addr",
    "client.port": "$remote_port",
    "http.request.method": "$request_method",
    "http.response.body.size": "$body_bytes_sent",
    "http.response.status_code": "$status",
    "server.address": "$host",
    "url.scheme": "$scheme",
    "user_agent.original": "$http_user_agent",
}
"""Variables with the values of OpenTelemetry's semantic conventions."""

_HEADERS = {"http.request.header.": "$http_", "http.response.header.": "$sent_http_"}


def _value(attribute: SpanAttribute) -> str | None:
    """Return the value of an attribute, quoted; None if NGINX cannot have it."""
    if attribute.source == "literal":
        try:
            return quoting.quote_text_literal(attribute.value)
        except InvalidValueError:
            return None
    if attribute.source == "header":
        return _header("$http_", attribute.value)
    for prefix, variable in _HEADERS.items():
        if attribute.value.startswith(prefix):
            return _header(variable, attribute.value.removeprefix(prefix))
    return _VALUES.get(attribute.value)


def _header(variable: str, name: str) -> str | None:
    """Return the variable of a header; None if NGINX ignores its name."""
    return header_variable(name, variable) if is_known_name(name) else None


def _percent(percent: float) -> str:
    """Return a share with the two decimal places that NGINX reads, and never none at all."""
    return f"{math.ceil(round(percent * 100, 6)) / 100:.2f}".rstrip("0").rstrip(".")


def _share(percent: float) -> str:
    """Return the value of ``otel_trace`` for a share of the requests."""
    if not percent:
        return "off"
    return "on" if percent == 100 else f"$gh_traced_{_percent(percent).replace('.', '_')}"


def _by_parent(tracing: Tracing) -> str:
    """Return the variable of a decision that depends on the client."""
    if not tracing.percent and tracing.parent_percent == 100:
        return _PARENT
    rates = map(_percent, (tracing.percent, tracing.parent_percent or 0))
    return "_".join((_PARENT, *rates)).replace(".", "_")
