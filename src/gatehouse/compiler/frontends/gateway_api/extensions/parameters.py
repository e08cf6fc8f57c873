"""Parameters of GatewayClasses and Gateways: NginxProxy and GatewayParameters objects.

Parameters of a Gateway override those of its GatewayClass.
"""

from __future__ import annotations

import msgspec

from gatehouse.apis import data_plane_parameters as api
from gatehouse.apis import data_plane_workload as api_workload
from gatehouse.apis import gateway, gateway_parameters, nginx_gateway
from gatehouse.apis.resource_limits import (
    PARAMETER_LIMITS,
    RESOURCE_LIMITS_FIELD,
    Ceilings,
    ResourceLimits,
    read_ceilings,
)
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.extensions import (
    overrides,
    trace_credentials,
    trace_parameters,
)
from gatehouse.compiler.frontends.gateway_api.extensions.access_log_parameters import (
    parse_access_log,
)
from gatehouse.compiler.frontends.gateway_api.extensions.client_address_parameters import (
    parse_client_address,
)
from gatehouse.compiler.frontends.gateway_api.extensions.compression_parameters import (
    parse_compression,
)
from gatehouse.compiler.frontends.gateway_api.extensions.metrics_parameters import metrics_port
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_parameters import (
    parse_nginx_settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    with_sources,
)
from gatehouse.compiler.frontends.gateway_api.extensions.resolver_parameters import (
    parse_resolver,
)
from gatehouse.compiler.frontends.gateway_api.extensions.workload_parameters import (
    parse_workload,
)
from gatehouse.compiler.frontends.gateway_api.inputs import key_of, rejected_by_proxy
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.dataplane.origin import NO_ORIGIN, Origin
from gatehouse.incremental.query import Ask, Key

_HEADERS = {
    "*": "*",
    "X-Forwarded-For": "x-forwarded-for",
    "X-Forwarded-Proto": "x-forwarded-proto",
    "X-Forwarded-Host": "x-forwarded-host",
    "X-Forwarded-Port": "x-forwarded-port",
    "X-Real-IP": "x-real-ip",
}
_KINDS = (
    (nginx_gateway.NGINX_GATEWAY_GROUP, "NginxProxy"),
    (gateway_parameters.GATEHOUSE_GROUP, "GatewayParameters"),
)


class EffectiveParameters(msgspec.Struct, frozen=True):
    """Effective traffic settings of a Gateway's data plane."""

    edge: ir.DataPlaneSettings = ir.DataPlaneSettings()
    service_address: bool = False
    """Connect to the cluster IPs of Services instead of their endpoints."""
    resolution: ir.NameResolution | None = None
    """Name servers for ExternalName Services; None for none."""


class ResolvedParameters(msgspec.Struct, frozen=True):
    """Result of resolving a ``parametersRef``; empty if there is none."""

    spec: api.ParametersSpec | None = None
    problem: str = ""
    missing: bool = False
    """The problem is a missing object."""
    invalid: bool = False
    """The problem is an invalid field of the object."""
    rejected: bool = False
    """The problem is that the Gateway's proxy rejected the object."""
    origin: Origin = NO_ORIGIN
    """The object that ``spec`` is from."""
    refused: str = ""
    """Message about fields that were removed from ``spec``; empty if there are none."""
    ceilings: Ceilings = ()
    """Valid ceilings of the object. They hold even if another field is invalid or rejected."""
    source: str = ""
    """The object that ``ceilings`` are from."""


class Provisioning(msgspec.Struct, frozen=True):
    """Workload settings of a Gateway's data plane."""

    workload: api_workload.Workload = api_workload.Workload()
    ip_family: str = ""
    """``dual``, ``ipv4`` or ``ipv6``; empty for the cluster's default."""
    log_level: str = ""
    """Log level of the agent; empty for its default."""
    metrics_port: int = 0
    """Port of the agent's metrics and health checks; 0 for the default."""
    waiting: str = ""
    """Why it is not known yet how to run the data plane, which stays unchanged; empty if known."""


def class_parameters(ask: Ask, key: Key) -> ResolvedParameters:
    """Return the parameters that a GatewayClass refers to, whatever proxies rejected."""
    resource = ask.read(key)
    reference = resource.spec.parameters_ref if isinstance(resource, gateway.GatewayClass) else None
    if reference is None:
        return ResolvedParameters()
    return _resolve(ask, reference.group, reference.kind, reference.namespace, reference.name)


def of_class_at(ask: Ask, key: Key) -> ResolvedParameters:
    """Return the parameters of a Gateway's class, as far as its proxy did not reject them."""
    resource = ask.read(key)
    if not isinstance(resource, gateway.Gateway):
        return ResolvedParameters()
    return _unless_rejected(
        ask, key, ask(class_parameters, ("GatewayClass", "", resource.spec.gateway_class_name))
    )


def gateway_parameters_of(ask: Ask, key: Key) -> ResolvedParameters:
    """Return the parameters that a Gateway itself refers to, as far as its proxy did not reject
    them."""
    named = _unless_rejected(ask, key, ask(_own_parameters, key))
    if named.spec is None:
        return named
    where, limits = named.source, ask(gateway_limits, key)
    _, raised = _class_limits(ask, key).lower(named.ceilings, where)
    if excess := _memory_problems(named.spec, limits):
        problem = f"{where}: {'; '.join(excess)}"
        return msgspec.structs.replace(named, spec=None, problem=problem, invalid=True)
    limited = overrides.Limited(named.spec)
    removed: list[str] = []
    if not ask(settings).workload_overrides:
        outer = ask(of_class_at, key).spec
        of_outer = (outer.kubernetes or {}) if outer is not None else {}
        any_name = gateway.ANY_DOMAIN in ask(settings).external_names
        limited = overrides.limit(named.spec, of_outer, limits, name_servers=any_name)
        limited, removed = _without_exporter(ask, limited, key[1])
    limited = msgspec.structs.replace(limited, excess=(*raised, *limited.excess))
    messages = [message for message in (limited.message, *removed) if message]
    message = f"{where}: {'; '.join(messages)}" if messages else ""
    return msgspec.structs.replace(named, spec=limited.spec, refused=message)


def _without_exporter(
    ask: Ask, limited: overrides.Limited, namespace: str
) -> tuple[overrides.Limited, list[str]]:
    """Remove an exporter that a Gateway of a namespace may not set, and return the message."""
    if limited.spec.telemetry is None:
        return limited, []
    telemetry, message = trace_parameters.limit_exporter(ask, limited.spec.telemetry, namespace)
    spec = msgspec.structs.replace(limited.spec, telemetry=telemetry)
    return msgspec.structs.replace(limited, spec=spec), [message] if message else []


def gateway_limits(ask: Ask, key: Key) -> ResourceLimits:
    """Return the ceilings of what objects may claim of a Gateway's data plane.

    Those of the GatewayClass's parameters override those of the option. The parameters of the
    Gateway can only lower them.
    """
    own = ask(_own_parameters, key)
    return _class_limits(ask, key).lower(own.ceilings, own.source)[0]


def _class_limits(ask: Ask, key: Key) -> ResourceLimits:
    limits, gateway_object = ask(settings).limits, ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway):
        return limits
    outer = ask(class_parameters, ("GatewayClass", "", gateway_object.spec.gateway_class_name))
    return limits.override(outer.ceilings, outer.source)


def _own_parameters(ask: Ask, key: Key) -> ResolvedParameters:
    """Return the parameters that a Gateway itself refers to, with all fields."""
    gateway_object = ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway):
        return ResolvedParameters()
    reference = gateway_object.spec.infrastructure.parameters_ref
    if reference is None:
        return ResolvedParameters()
    return _resolve(ask, reference.group, reference.kind, key[1], reference.name)


def _memory_problems(spec: api.ParametersSpec, limits: ResourceLimits) -> list[str]:
    """Return the problems of settings that claim memory of the Gateway's proxy."""
    parse, edge = FieldParser(limits), _parse(spec)[0]
    parse.limit("zoneSize", "zoneBytes", edge.edge.nginx.zone_bytes, spec.zone_size)
    compression = edge.edge.compression
    if (
        compression is not None
        and compression.nginx.buffers is not None
        and spec.compression is not None
    ):
        buffers, requested = compression.nginx.buffers, spec.compression.buffers
        text = f"{requested.number} * {requested.size}" if requested is not None else None
        total = buffers.number * buffers.size
        parse.limit("compression.buffers", "responseBufferBytes", total, text)
    return parse.problems


def parameters(ask: Ask, key: Key) -> EffectiveParameters:
    """Return the effective parameters of a Gateway. Its own override those of its class."""
    result = _parse(ask(merged_parameters, key))[0]
    edge = result.edge
    origins = []
    for resolved in _class_and_own(ask, key):
        if resolved.origin == NO_ORIGIN or resolved.spec is None:
            continue
        origins.append(resolved.origin)
        own, logging = resolved.spec, resolved.spec.logging
        client = own.rewrite_client_ip
        for field, path, value in (
            ("merge_slashes", "pathNormalization", own.path_normalization),
            ("nginx.exposes_version", "serverTokens", own.server_tokens),
            ("nginx.error_level", "logging.errorLevel", logging and logging.error_level),
            ("log", "logging.accessLog", logging and logging.access_log),
            ("nginx.connections_per_worker", "workerConnections", own.connections_per_worker),
            ("nginx.zone_bytes", "zoneSize", own.zone_size),
            ("recursive", "rewriteClientIP.setIPRecursively", client and client.set_ip_recursively),
        ):
            if value is not None:
                sources = dict(edge.sources) | {field: resolved.origin.field(path)}
                edge = msgspec.structs.replace(edge, sources=tuple(sources.items()))
        if resolved.spec.compression is not None and edge.compression is not None:
            compression = with_sources(edge.compression, resolved.origin, _COMPRESSION_FIELDS)
            edge = msgspec.structs.replace(edge, compression=compression)
    traces = _gateway_export(ask, key, edge.traces) if edge.traces is not None else None
    edge = msgspec.structs.replace(edge, origins=tuple(origins), traces=traces)
    return msgspec.structs.replace(result, edge=edge)


def _gateway_export(ask: Ask, key: Key, export: TraceExport) -> TraceExport | None:
    """Return the export of a Gateway's data plane; None if it has no usable credentials."""
    origin = ask(collector_origin, key)
    export = trace_parameters.of_gateway(export, f"{key[1]}/{key[2]}")
    export = msgspec.structs.replace(export, origin=origin.field(trace_parameters.EXPORTER))
    return ask(collector_credentials, key).apply(export)


def collector_origin(ask: Ask, key: Key) -> Origin:
    """Return the parameters that name the collector of a Gateway; NO_ORIGIN if none is used."""
    if _parse(ask(merged_parameters, key))[0].edge.traces is None:
        return NO_ORIGIN
    origins = [
        resolved.origin
        for resolved in _class_and_own(ask, key)
        if resolved.spec is not None and trace_parameters.names_collector(resolved.spec.telemetry)
    ]
    return origins[-1] if origins else NO_ORIGIN


def collector_credentials(ask: Ask, key: Key) -> trace_credentials.ExporterCredentials:
    """Return the credentials for TLS to the collector of a Gateway."""
    origin = ask(collector_origin, key)
    if origin == NO_ORIGIN:
        return trace_credentials.ExporterCredentials()
    return ask(trace_credentials.exporter_credentials, key, key_of(origin))


_COMPRESSION_FIELDS = {
    "nginx.buffers": "compression.buffers",
    "nginx.vary": "compression.gzip.vary",
    "nginx.http_version": "compression.gzip.httpVersion",
    "nginx.disabled": "compression.gzip.disable",
    "nginx.proxied": "compression.gzip.proxied",
}
"""Fields of the IR that a proxy may not support, and the fields that set them."""


def provisioning(ask: Ask, key: Key) -> Provisioning:
    """Return how to run a Gateway's data plane. Its own parameters override those of its class."""
    both = _class_and_own(ask, key)
    waiting = [resolved.problem for resolved in both if resolved.missing]
    invalid = [resolved.problem for resolved in both if resolved.invalid]
    if waiting or invalid:
        pending = [f"waiting for parameters: {'; '.join(waiting)}"] if waiting else []
        return Provisioning(waiting="; ".join([*invalid, *pending]))
    spec = ask(merged_parameters, key)
    return Provisioning(
        parse_workload(spec)[0],
        spec.ip_family or "",
        (spec.logging.agent_level or "") if spec.logging else "",
        metrics_port(spec),
    )


def _class_and_own(ask: Ask, key: Key) -> tuple[ResolvedParameters, ResolvedParameters]:
    return ask(of_class_at, key), ask(gateway_parameters_of, key)


def merged_parameters(ask: Ask, key: Key) -> api.ParametersSpec:
    """Return the fields of a Gateway's own parameters over those of its class."""
    spec = api.ParametersSpec()
    for resolved in _class_and_own(ask, key):
        spec = _override(spec, resolved.spec) if resolved.spec is not None else spec
    return spec


def _resolve(ask: Ask, group: str, kind: str, namespace: str, name: str) -> ResolvedParameters:
    if (group, kind) not in _KINDS:
        known = " or ".join("/".join(kind_names) for kind_names in _KINDS)
        return ResolvedParameters(
            problem=f"{group}/{kind} {name} is not supported: must be {known}"
        )
    resource = ask.read((kind, namespace, name))
    if resource is None:
        return ResolvedParameters(problem=f"{kind} {namespace}/{name} not found", missing=True)
    if not isinstance(resource, nginx_gateway.NginxProxy | gateway_parameters.GatewayParameters):
        return ResolvedParameters(problem=f"{kind} {namespace}/{name} is invalid")
    ceilings, unreadable = read_ceilings(resource.spec.resource_limits or {}, PARAMETER_LIMITS)
    problems = [*_parse(resource.spec)[1], *parse_workload(resource.spec)[1]]
    problems += [f"{RESOURCE_LIMITS_FIELD}.{problem}" for problem in unreadable]
    resolved = ResolvedParameters(ceilings=ceilings, source=f"{kind} {namespace}/{name}")
    if problems:
        problem = f"{resolved.source}: {'; '.join(problems)}"
        return msgspec.structs.replace(resolved, problem=problem, invalid=True)
    origin = Origin(kind, namespace, name)
    return msgspec.structs.replace(resolved, spec=resource.spec, origin=origin)


def _unless_rejected(ask: Ask, key: Key, whole: ResolvedParameters) -> ResolvedParameters:
    """Return parameters without what the proxy of Gateway ``key`` reads, if it rejected them."""
    if whole.spec is None or whole.origin == NO_ORIGIN:
        return whole
    object_key = key_of(whole.origin)
    rejected = rejected_by_proxy(ask, key, object_key, tried=True)
    if not rejected:
        return whole
    problem = f"{whole.origin}: {rejected}"
    if not rejected_by_proxy(ask, key, object_key):
        return msgspec.structs.replace(whole, problem=problem, rejected=True)
    # The proxy does not read the settings of the workload, which must not change.
    workload = api.ParametersSpec(
        kubernetes=whole.spec.kubernetes,
        ip_family=whole.spec.ip_family,
        metrics=whole.spec.metrics,
        logging=api.LoggingSpec(whole.spec.logging.agent_level) if whole.spec.logging else None,
    )
    return ResolvedParameters(
        workload,
        problem=problem,
        rejected=True,
        ceilings=whole.ceilings,
        source=whole.source,
    )


def _override(outer: api.ParametersSpec, inner: api.ParametersSpec) -> api.ParametersSpec:
    set_values = {
        field: value
        for field in inner.__struct_fields__
        if (value := getattr(inner, field)) not in (None, ())
    }
    if outer.kubernetes is not None and inner.kubernetes is not None:
        set_values["kubernetes"] = api_workload.over(outer.kubernetes, inner.kubernetes)
    if outer.telemetry is not None and inner.telemetry is not None:
        set_values["telemetry"] = trace_parameters.override_telemetry(
            outer.telemetry, inner.telemetry
        )
    return msgspec.structs.replace(outer, **set_values)


def _parse(spec: api.ParametersSpec) -> tuple[EffectiveParameters, list[str]]:
    parse = FieldParser(ResourceLimits())
    family = spec.ip_family or "dual"
    edge = ir.DataPlaneSettings(
        ipv4=family != "ipv6",
        ipv6=family != "ipv4",
        http2=not spec.disable_http2,
        sni_host_validation=not spec.disable_sni_host_validation,
        merge_slashes=spec.path_normalization != "DotSegments",
        removed_headers=tuple(
            _HEADERS[disable_base_header]
            for disable_base_header in spec.disable_base_headers
            if disable_base_header in _HEADERS
        ),
        client_address=parse_client_address(parse, spec.rewrite_client_ip),
        compression=parse_compression(parse, spec.compression),
        access_log=parse_access_log(parse, spec.logging),
        traces=trace_parameters.parse_telemetry(parse, spec.telemetry),
        nginx=parse_nginx_settings(parse, spec),
    )
    resolution = parse_resolver(parse, spec.dns_resolver)
    return EffectiveParameters(edge, bool(spec.use_cluster_ip), resolution), parse.problems
