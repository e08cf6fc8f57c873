"""Translation of ``telemetry`` of parameters to IR.

The exporter makes the data plane connect to a host of its author's choice. So a Gateway may name
only hosts that its routes could reach, too (:func:`limit_exporter`).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from typing import Any, NamedTuple

import msgspec

from gatehouse.apis import core
from gatehouse.apis import data_plane_parameters as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.frontends.gateway_api.extensions.trace_credentials import tls_problems
from gatehouse.compiler.frontends.gateway_api.external_name_rules import name_problem
from gatehouse.compiler.ir.tracing import SpanAttribute, TraceExport
from gatehouse.incremental.query import Ask

MAX_ATTRIBUTES = 64
"""Maximum number of attributes that an object adds to a span."""

MAX_ATTRIBUTE_CHARACTERS = 255
"""Maximum length of a key or value."""

MAX_BATCH_SIZE = 8192
MAX_BATCH_COUNT = 64
MAX_INTERVAL_SECONDS = 60.0

DISABLED = "DisableTracing"
"""Member of ``disabledFeatures`` that disables traces."""

EXPORTER = "telemetry.exporter"

_DEFAULT_PORT = 4317
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ENDPOINT = re.compile(rf"(?:http(s?)://)?({_LABEL}(?:\.{_LABEL})*)(?::(\d{{1,5}}))?")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,127}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPED = re.compile(r"\\(.)")
_CLUSTER_DOMAIN = ".cluster.local"


def parse_telemetry(parse: FieldParser, requested: api.TelemetrySpec | None) -> TraceExport | None:
    """Return the export of spans; None if there is none. The service name is
    the one that the object sets."""
    if requested is None:
        return None
    tuned, endpoint = _parse_export(parse, requested)
    if endpoint is None or is_disabled(requested):
        return None
    return msgspec.structs.replace(tuned, host=endpoint.host, port=endpoint.port, tls=endpoint.tls)


def tuning(requested: api.TelemetrySpec | None) -> TraceExport:
    """Return the fields of valid telemetry that do not depend on the collector."""
    return _parse_export(FieldParser(ResourceLimits()), requested or api.TelemetrySpec())[0]


def is_disabled(requested: api.TelemetrySpec | None) -> bool:
    """Return whether telemetry disables traces."""
    return requested is not None and DISABLED in (requested.disabled_features or ())


def _parse_export(
    parse: FieldParser, requested: api.TelemetrySpec
) -> tuple[TraceExport, _Endpoint | None]:
    """Return the export without a collector, and the endpoint of the collector."""
    attributes = parse_attributes(
        parse, "telemetry.spanAttributes", requested.span_attributes or ()
    )
    name = requested.service_name or ""
    if name and not _NAME.fullmatch(name):
        parse.problems.append(f"spec.telemetry.serviceName: invalid value {name!r}")
    for index, feature in enumerate(requested.disabled_features or ()):
        if feature != DISABLED:
            parse.problems.append(
                f"spec.telemetry.disabledFeatures[{index}]: must be {DISABLED}, not {feature!r}"
            )
    exporter = requested.exporter or api.TraceExporterSpec()
    endpoint = parse(f"{EXPORTER}.endpoint", _endpoint, exporter.endpoint)
    parse.problems += tls_problems(exporter, secure=endpoint is not None and endpoint.tls)
    set_values = {
        "interval": parse(f"{EXPORTER}.interval", _interval, exporter.interval),
        "batch_size": parse(
            f"{EXPORTER}.batchSize", partial(_count, MAX_BATCH_SIZE), exporter.batch_size
        ),
        "batch_count": parse(
            f"{EXPORTER}.batchCount", partial(_count, MAX_BATCH_COUNT), exporter.batch_count
        ),
    }
    export = TraceExport("", 0, name, attributes=attributes)
    tuned = msgspec.structs.replace(
        export, **{field: value for field, value in set_values.items() if value}
    )
    return tuned, endpoint


def parse_attributes(
    parse: FieldParser, field: str, requested: Collection[api.SpanAttributeSpec]
) -> tuple[SpanAttribute, ...]:
    """Return attributes of spans without the escapes that NGINX Gateway Fabric requires."""
    if len(requested) > MAX_ATTRIBUTES:
        parse.problems.append(f"spec.{field}: must have at most {MAX_ATTRIBUTES} items")
    result: dict[str, SpanAttribute] = {}
    for index, attribute in enumerate(requested):
        place = f"{field}[{index}]"
        key = parse(f"{place}.key", span_text, attribute.key) or ""
        value = parse(f"{place}.value", span_text, attribute.value) or ""
        if key.startswith("gatehouse."):
            parse.problems.append(f"spec.{place}.key: {key!r} is set by Gatehouse")
        result[key] = SpanAttribute(key, value)
    return tuple(result.values())


def span_text(text: str) -> str:
    """Return a name, key or value of a span, without escapes. Raises ValueProblem."""
    if not 1 <= len(text) <= MAX_ATTRIBUTE_CHARACTERS:
        raise ValueProblem(f"must have 1 to {MAX_ATTRIBUTE_CHARACTERS} characters")
    if _CONTROL.search(text):
        raise ValueProblem(f"invalid value {text!r}: must not contain control characters")
    return _ESCAPED.sub(r"\1", text)


def override_telemetry(outer: api.TelemetrySpec, inner: api.TelemetrySpec) -> api.TelemetrySpec:
    """Return the telemetry of a class with the fields that a Gateway sets.

    ``tls`` of the exporter belongs to the endpoint, so that an endpoint overrides both.
    """
    set_values = _set_fields(inner)
    if outer.exporter is not None and inner.exporter is not None:
        exporter = _set_fields(inner.exporter)
        if inner.exporter.endpoint is not None:
            exporter["tls"] = inner.exporter.tls
        set_values["exporter"] = msgspec.structs.replace(outer.exporter, **exporter)
    return msgspec.structs.replace(outer, **set_values)


def _set_fields(spec: msgspec.Struct) -> dict[str, Any]:
    return {name: one for name, one in msgspec.structs.asdict(spec).items() if one is not None}


def limit_exporter(
    ask: Ask, requested: api.TelemetrySpec, namespace: str
) -> tuple[api.TelemetrySpec, str]:
    """Return the telemetry that a Gateway of a namespace may set, and why its exporter is removed.

    The reason is empty if nothing is removed.
    """
    try:
        endpoint = _endpoint(requested.exporter.endpoint if requested.exporter else None)
    except ValueProblem:
        # Reported with the other invalid fields.
        return requested, ""
    if endpoint is None:
        return requested, ""
    host = endpoint.host
    if _is_own_service(ask, host, namespace):
        return requested, ""
    problem = name_problem(host, ask(settings).external_names)
    if not problem:
        return requested, ""
    message = (
        f"spec.{EXPORTER}: {host} must be a Service of namespace {namespace}, such as "
        f"collector.{namespace}.svc, or an allowed external name ({problem}); the field is ignored"
    )
    return msgspec.structs.replace(requested, exporter=None), message


def _is_own_service(ask: Ask, host: str, namespace: str) -> bool:
    """Return whether a host is a Service of a namespace, and not an alias of another host."""
    name, _, rest = host.partition(".")
    if rest.removesuffix(_CLUSTER_DOMAIN) != f"{namespace}.svc":
        return False
    service = ask.read(("Service", namespace, name))
    return isinstance(service, core.Service) and service.spec.type != "ExternalName"


def of_gateway(export: TraceExport, gateway: str) -> TraceExport:
    """Return an export with the service name of a data plane. ``gateway``: ``namespace/name``."""
    own = (export.service_name,) if export.service_name else ()
    name = ":".join(("gatehouse", *gateway.split("/"), *own))
    return msgspec.structs.replace(export, service_name=name)


def names_collector(requested: api.TelemetrySpec | None) -> bool:
    """Return whether an object sets the endpoint of the exporter."""
    exporter = requested.exporter if requested is not None else None
    return exporter is not None and exporter.endpoint is not None


class _Endpoint(NamedTuple):
    host: str
    port: int
    tls: bool


def _endpoint(text: str | None) -> _Endpoint | None:
    if text is None:
        return None
    match = _ENDPOINT.fullmatch(text)
    port = int(match[3] or _DEFAULT_PORT) if match else 0
    if match is None or not 1 <= port <= 65_535:
        raise ValueProblem(f"invalid value {text!r}: must be host:port or https://host:port")
    return _Endpoint(match[2], port, bool(match[1]))


def _interval(text: str | None) -> float | None:
    seconds = nginx_values.parse_nginx_seconds(text)
    if seconds is not None and not 0.1 <= seconds <= MAX_INTERVAL_SECONDS:
        raise ValueProblem(f"invalid value {text!r}: must be from 100ms to 60s")
    return seconds


def _count(most: int, number: int | None) -> int | None:
    if number is not None and not 0 <= number <= most:
        raise ValueProblem(f"invalid value {number}: must be from 0 to {most}; 0 is the default")
    return number
