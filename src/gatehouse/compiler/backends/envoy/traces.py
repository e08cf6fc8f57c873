"""Traces of requests: spans by OTLP over gRPC to a collector.

Envoy starts the span of a request with the route that it knows on arrival, and a span of each
attempt at an endpoint. For both it asks an expression that reads the metadata of the route. So
listeners depend on the collector only, not on policies.

Upgrades, and requests for hostnames without a scope of their own, have no route on arrival
(:mod:`connection_manager`). They have spans of attempts only.

Envoy sends the context of each request to backends. Before the request leaves, the last filter puts
the headers of the client back, unless the route sends the context.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from cel.expr import syntax_pb2 as cel
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2, grpc_service_pb2, protocol_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.config.trace.v3 import http_tracer_pb2, opentelemetry_pb2
from envoy.extensions.clusters.common.dns.v3 import dns_pb2
from envoy.extensions.clusters.dns.v3 import dns_cluster_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.header_to_metadata.v3 import header_to_metadata_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.request_id.uuid.v3 import uuid_pb2
from envoy.extensions.tracers.opentelemetry.samplers.v3 import cel_sampler_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.tracing.v3 import custom_tag_pb2
from xds.type.v3 import cel_pb2

from gatehouse.compiler.backends.envoy import clusters, extensions, headers, names, quoting, secrets
from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.protobufs import (
    build_socket_address,
    packed,
    truth,
    wrap_number,
    written,
)
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import tracing as ir_tracing
from gatehouse.compiler.ir.access_log import rule_text
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, XdsResource
from kube_base.types import ip_addresses

RECORDING = "gh.traces"
"""Filter that records the context of the client, and the namespace of the metadata."""

RESTORING = "gh.trace_context"
"""Filter of attempts that puts the headers of the client back."""

SAMPLE_HEADER = f"{names.HEADER_PREFIX}sample"
"""Header of a random number and the context of the client, inside Envoy."""

_CONTEXT = ("traceparent", "tracestate")
_URL = "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%%PATH(NQ)%"
_CONTEXT_BYTES = 55
"""Length of ``traceparent``."""

NO_FORMATTER = "Envoy has no formatter of this value: spans lack the attribute"

_HEADER_NAME = re.compile(r"[a-z0-9_-]+")

_ALWAYS = "g"
"""Text after each random number, which is hexadecimal."""

_TIMEOUT_SECONDS = 10.0
"""Timeout of an export in seconds."""

_Config = header_to_metadata_pb2.Config
_Mutation = mutation_rules_pb2.HeaderMutation


def apply_tracing(
    proto: manager_pb2.HttpConnectionManager, listener: str, export: TraceExport
) -> None:
    """Let a connection manager trace requests. ``listener``: its name, Gateway and port."""
    config = opentelemetry_pb2.OpenTelemetryConfig(
        service_name=export.service_name,
        max_cache_size=wrap_number(export.batch_size * export.batch_count),
        sampler=_sampler(),
    )
    config.grpc_service.envoy_grpc.CopyFrom(
        grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=names.TRACE_COLLECTOR)
    )
    for name, value in export.headers:
        # Envoy reads formatters here, and sends the text of them.
        config.grpc_service.initial_metadata.add(key=name, value=quoting.check_text(value))
    config.grpc_service.timeout.CopyFrom(quoting.duration_of(_TIMEOUT_SECONDS))
    proto.tracing.CopyFrom(
        manager_pb2.HttpConnectionManager.Tracing(
            provider=http_tracer_pb2.Tracing.Http(
                name="envoy.tracers.opentelemetry", typed_config=packed(config)
            ),
            spawn_upstream_span=truth(True),
            custom_tags=[
                # Without the query, which often contains credentials.
                custom_tag_pb2.CustomTag(tag="http.url", value=_URL),
                _tag(ir_tracing.GATEWAY_ATTRIBUTE, listener.rpartition(":")[0]),
                _tag(ir_tracing.LISTENER_ATTRIBUTE, listener),
                *_tags(export.attributes),
            ],
        )
    )
    # The sampler decides. By default Envoy traces no request without a header X-Request-ID.
    proto.request_id_extension.typed_config.CopyFrom(
        packed(
            uuid_pb2.UuidRequestIdConfig(
                pack_trace_reason=truth(False), use_request_id_for_trace_sampling=truth(False)
            )
        )
    )


def sample_header() -> mutation_rules_pb2.HeaderMutation:
    """Return the mutation on arrival that sets the header that the sampler reads."""
    value = f"%UNIQUE_ID% %REQ(TRACEPARENT):{_CONTEXT_BYTES}%"
    return _Mutation(append=headers.option(SAMPLE_HEADER, value))


def context_recording() -> header_to_metadata_pb2.Config:
    """Return the filter that records the context of the client."""
    proto = _Config()
    for name in (SAMPLE_HEADER, *_CONTEXT):
        present = proto.request_rules.add(header=name).on_header_present
        present.metadata_namespace, present.key = RECORDING, name
    return proto


def upstream_filters() -> list[manager_pb2.HttpFilter]:
    """Return the filters of attempts at endpoints."""
    return [
        extensions.http_filter(RESTORING, _restored("traceparent")),
        # Envoy sends an empty one, and loses that of the client if it does not trace the request.
        extensions.http_filter("gh.trace_state", _restored("tracestate")),
        extensions.upstream_codec(),
    ]


def _restored(name: str) -> header_mutation_pb2.HeaderMutation:
    value = f"%DYNAMIC_METADATA({RECORDING}:{name})%"
    mutations = [_Mutation(remove=name), _Mutation(append=headers.option(name, value))]
    return extensions.request_mutations(mutations)


def router(edge: DataPlaneSettings) -> router_pb2.Router:
    """Return the last filter of a connection manager."""
    proto = router_pb2.Router(suppress_envoy_headers=True)
    if edge.traces is not None:
        proto.upstream_http_filters.extend(upstream_filters())
    return proto


def route_traces(_context: EnvoyRouteContext, route: ir.Route) -> EnvoyPiece | None:
    """Return the traces of a route. Raises InvalidValueError."""
    tracing = route.settings.tracing
    if tracing is None or tracing.is_off:
        return None
    below = traced = untraced = _below(tracing.percent)
    if tracing.parent_percent is not None:
        traced, untraced = _below(tracing.parent_percent), ""
    proto = components.Route()
    of_route = proto.metadata.filter_metadata[RECORDING]
    of_route.update({"below": below, "traced": traced, "untraced": untraced})
    proto.tracing.custom_tags.extend(
        [_tag(ir_tracing.ROUTE_ATTRIBUTE, rule_text(route.name)), *_tags(tracing.attributes)]
    )
    if tracing.injects:
        off = components.FilterConfig(disabled=True)
        proto.typed_per_filter_config[RESTORING].CopyFrom(packed(off))
    name = quoting.escape_percent(tracing.span_name or rule_text(route.name))
    proto.tracing.operation = proto.tracing.upstream_operation = name
    return EnvoyPiece(fields=proto)


def unsupported_attributes(export: TraceExport | None) -> list[UnsupportedSetting]:
    """Return the attributes of all spans whose values Envoy does not know."""
    return [
        UnsupportedSetting(attribute.origin, NO_FORMATTER)
        for attribute in (export.attributes if export is not None else ())
        if attribute.source == "semantic" and not _formatter(attribute.value)
    ]


def unsupported_traces(context: EnvoyRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the use of the context that Envoy does not support, and traces that have spans of
    attempts only."""
    tracing = route.settings.tracing
    if tracing is None:
        return []
    findings = []
    if tracing.context and not tracing.extracts:
        why = "Envoy continues the trace of a client that sends traceparent"
        findings.append(UnsupportedSetting(tracing.origin.field("tracing.context"), why))
    if not tracing.is_off and not context.hostname:
        why = (
            "Envoy sends no span of kind server for requests that match no exact hostname, only of "
            "kind client"
        )
        findings.append(UnsupportedSetting(tracing.origin.field("tracing"), why))
    return findings


def collector_cluster(export: TraceExport, capabilities: EnvoyCapabilities) -> XdsResource:
    """Return the cluster of the collector. It limits the exports that wait, and never retries."""
    proto = clusters.base(names.TRACE_COLLECTOR)
    proto.ClearField("eds_cluster_config")
    proto.load_assignment.cluster_name = names.TRACE_COLLECTOR
    locality = proto.load_assignment.endpoints.add()
    for host, port in export.addresses or ((export.host, export.port),):
        address = build_socket_address(host, port)
        locality.lb_endpoints.add().endpoint.address.CopyFrom(address)
    if export.addresses or ip_addresses.is_ip_address(export.host):
        proto.type = cluster_pb2.Cluster.STATIC
    else:
        _resolve(proto)
    (limits,) = proto.circuit_breakers.thresholds
    limits.max_requests.value = limits.max_pending_requests.value = export.batch_count
    limits.max_connections.value = 1
    options = http_protocol_options_pb2.HttpProtocolOptions()
    options.explicit_http_config.http2_protocol_options.CopyFrom(
        protocol_pb2.Http2ProtocolOptions()
    )
    proto.typed_extension_protocol_options[clusters.HTTP_OPTIONS].CopyFrom(packed(options))
    if export.tls:
        proto.transport_socket.CopyFrom(_tls(export, capabilities))
    origins = (export.origin.whole,)
    return XdsResource.make(CLUSTER_TYPE_URL, proto.name, written(proto), origins=origins)


def _tls(export: TraceExport, capabilities: EnvoyCapabilities) -> base_pb2.TransportSocket:
    """Return TLS to the collector, whose certificate must have its name or address."""
    is_address = ip_addresses.is_ip_address(export.host)
    kinds = common_pb2.SubjectAltNameMatcher
    subject = kinds(
        san_type=kinds.IP_ADDRESS if is_address else kinds.DNS,
        matcher=string_pb2.StringMatcher(exact=export.host),
    )
    common = secrets.cluster_tls(
        names.TRACE_COLLECTOR, export, [subject], capabilities.system_trust, "h2"
    )
    return secrets.tls_socket(
        tls_pb2.UpstreamTlsContext(common_tls_context=common, sni="" if is_address else export.host)
    )


def _resolve(proto: cluster_pb2.Cluster) -> None:
    """Let Envoy resolve the collector at the name servers of the system."""
    proto.ClearField("type")
    # A name that cannot be resolved must not delay the start of the other clusters.
    proto.wait_for_warm_on_init.value = False
    proto.cluster_type.name = "envoy.cluster.dns"
    config = dns_cluster_pb2.DnsCluster(dns_lookup_family=dns_pb2.ALL, respect_dns_ttl=True)
    proto.cluster_type.typed_config.CopyFrom(packed(config))


def runtime_values(export: TraceExport | None) -> dict[str, int]:
    """Return the settings of the export that Envoy reads from its runtime."""
    if export is None:
        return {}
    return {
        "tracing.opentelemetry.flush_interval_ms": round(export.interval * 1000),
        "tracing.opentelemetry.min_flush_spans": export.batch_size,
    }


def _below(percent: float) -> str:
    """Return the text that this share of the random numbers is less than; empty: none is."""
    if percent in (0, 100):
        return _ALWAYS if percent else ""
    return f"{min(math.ceil(percent * (1 << 32) / 100), 0xFFFFFFFF):08x}"


_VALUES = {
    "client.address": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "client.port": "%DOWNSTREAM_REMOTE_PORT%",
    "http.request.body.size": "%BYTES_RECEIVED%",
    "http.request.method": "%REQ(:METHOD)%",
    "http.response.body.size": "%BYTES_SENT%",
    "http.response.status_code": "%RESPONSE_CODE%",
    "url.path": "%PATH(NQ)%",
    "url.scheme": "%REQ(:SCHEME)%",
    "user_agent.original": "%REQ(USER-AGENT)%",
}
"""Formatters of the values of OpenTelemetry's semantic conventions."""

_HEADERS = {"http.request.header.": "REQ", "http.response.header.": "RESP"}


def _formatter(name: str) -> str:
    """Return the formatter of a value of the semantic conventions; empty if Envoy has none."""
    for prefix, source in _HEADERS.items():
        header = name.removeprefix(prefix)
        if header != name and _HEADER_NAME.fullmatch(header):
            return f"%{source}({header})%"
    return _VALUES.get(name, "")


def _tags(attributes: Iterable[SpanAttribute]) -> Iterator[custom_tag_pb2.CustomTag]:
    for attribute in attributes:
        key, value = quoting.check_text(attribute.key), quoting.check_text(attribute.value)
        match attribute.source:
            case "literal":
                yield _tag(key, value)
            case "header":
                header = custom_tag_pb2.CustomTag.Header(name=value.lower())
                yield custom_tag_pb2.CustomTag(tag=key, request_header=header)
            case "semantic":
                if formatter := _formatter(value):
                    yield custom_tag_pb2.CustomTag(tag=key, value=formatter)


def _tag(key: str, value: str) -> custom_tag_pb2.CustomTag:
    literal = custom_tag_pb2.CustomTag.Literal(value=quoting.check_text(value))
    return custom_tag_pb2.CustomTag(tag=quoting.check_text(key), literal=literal)


def _sampler() -> extension_pb2.TypedExtensionConfig:
    expression = cel_pb2.CelExpression()
    expression.cel_expr_parsed.expr.CopyFrom(_sampled())
    config = cel_sampler_pb2.CELSamplerConfig(expression=expression)
    return extensions.extension("envoy.tracers.opentelemetry.samplers.cel", config)


def _sampled() -> cel.Expr:
    """Return the expression that is true for traced requests, as a syntax tree.

    Envoy knows the headers on arrival only, and the recorded metadata afterwards only.
    """
    of_route = _field(_field(_name("xds"), "route_metadata"), "filter_metadata")
    recorded = _field(_name("metadata"), "filter_metadata")
    route = _item(of_route, RECORDING)
    on_arrival = _item(_field(_name("request"), "headers"), SAMPLE_HEADER)
    later = _item(_item(recorded, RECORDING), SAMPLE_HEADER)
    sample = _call("_?_:_", _call("@in", _text(RECORDING), recorded), later, on_arrival)
    # Version 00 of traceparent has the flags sampled (1) and random (2).
    traced = _call("_||_", *(_method(sample, "endsWith", _text(f"-0{flag}")) for flag in (1, 3)))
    alone = _method(sample, "endsWith", _text(" "))
    other = _call("_?_:_", alone, _item(route, "below"), _item(route, "untraced"))
    below = _call("_?_:_", traced, _item(route, "traced"), other)
    return _call("_&&_", _call("@in", _text(RECORDING), of_route), _call("_<_", sample, below))


def _name(name: str) -> cel.Expr:
    return cel.Expr(ident_expr=cel.Expr.Ident(name=name))


def _text(text: str) -> cel.Expr:
    return cel.Expr(const_expr=cel.Constant(string_value=text))


def _field(operand: cel.Expr, name: str) -> cel.Expr:
    return cel.Expr(select_expr=cel.Expr.Select(operand=operand, field=name))


def _item(operand: cel.Expr, key: str) -> cel.Expr:
    return _call("_[_]", operand, _text(key))


def _call(function: str, *arguments: cel.Expr) -> cel.Expr:
    return cel.Expr(call_expr=cel.Expr.Call(function=function, args=arguments))


def _method(target: cel.Expr, function: str, *arguments: cel.Expr) -> cel.Expr:
    return cel.Expr(call_expr=cel.Expr.Call(target=target, function=function, args=arguments))
