"""Translation of XTelemetryPolicy to IR. No I/O.

Its CRD has the same rules for most fields. They are checked again, because the texts become parts
of configurations.
"""

from __future__ import annotations

import re

import msgspec

from gatehouse.apis import telemetry as api
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import ValueProblem
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    ParsedPolicy,
    origin_of,
)
from gatehouse.compiler.ir.tracing import AttributeSource, SpanAttribute, Tracing
from gatehouse.dataplane.origin import Origin

TELEMETRY_KIND = "XTelemetryPolicy"

MAX_TELEMETRY_ATTRIBUTES = 64
MAX_TELEMETRY_HEADERS = 16

MAX_EXPORT_HEADER_BYTES = 4000
"""Maximum length of a value with its escapes in the configuration of NGINX."""

_ESCAPED = re.compile(r'["\\]')
_NAME = re.compile(r"[a-zA-Z0-9_.:/-]{1,256}")
_SPAN = re.compile(r"[a-zA-Z0-9_.:/-]+( [a-zA-Z0-9_.:/-]+)*")
_KEY = re.compile(r"[a-z0-9_.-]{1,256}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_METADATA = re.compile(r"[a-z0-9_.-]{1,256}")
_METADATA_VALUE = re.compile(r"[ -$&-~]{1,4096}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_MODES = (api.ENABLED, api.DISABLED, api.DEFAULT)
_OWN_HEADERS = frozenset({"content-type", "host", "te", "user-agent"})
"""Headers that each request of gRPC has."""


class GatewayTelemetry(msgspec.Struct, frozen=True):
    """Traces of a Gateway."""

    mode: str
    tracing: Tracing | None = None
    """Traces of routes that have no policy of their own; None: no request is traced."""
    service_name: str = ""
    attributes: tuple[SpanAttribute, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class TelemetrySettings(msgspec.Struct, frozen=True):
    """Settings of an XTelemetryPolicy. Any two of a Gateway conflict."""

    tracing: GatewayTelemetry


def telemetry_policy(policy: api.XTelemetryPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate an XTelemetryPolicy."""
    parse, origin = FieldParser(limits), origin_of(policy)
    for index, target in enumerate(policy.targets):
        if (target.group, target.kind) != (GATEWAY_API_GROUP, "Gateway"):
            kind = f"{target.group}/{target.kind}".lstrip("/")
            parse.problems.append(
                f"spec.targetRefs[{index}]: kind {kind} is not supported: must be Gateway"
            )
    tracing = policy.spec.tracing or api.TelemetryTracingSpec()
    _check_mode(parse, "tracing.mode", tracing.mode)
    if tracing.mode != api.ENABLED:
        return parse.result(TelemetrySettings(GatewayTelemetry(tracing.mode)))
    if tracing.provider is None:
        parse.problems.append("spec.tracing.provider: must be set with mode Enabled")
    return parse.result(
        TelemetrySettings(
            GatewayTelemetry(
                tracing.mode,
                _sampling(parse, tracing, origin),
                parse("tracing.serviceName", _service_name, tracing.service_name) or "",
                _attributes(parse, tracing, origin),
                _headers(parse, tracing),
            )
        )
    )


def _check_mode(parse: FieldParser, field: str, mode: str) -> None:
    if mode not in _MODES:
        parse.problems.append(f"spec.{field}: must be one of {', '.join(_MODES)}")


def _sampling(parse: FieldParser, tracing: api.TelemetryTracingSpec, origin: Origin) -> Tracing:
    percent = parse("tracing.samplingRate", _percent, tracing.sampling_rate)
    of_parent: float | None = None
    if (parent := tracing.parent_based_sampling) is not None:
        _check_mode(parse, "tracing.parentBasedSampling.mode", parent.mode)
        if parent.mode == api.ENABLED:
            field = "tracing.parentBasedSampling.samplingRate"
            of_parent = parse(field, _percent, parent.sampling_rate)
    return Tracing(
        percent or 0,
        "propagate",
        parse("tracing.spanName", _span_name, tracing.span_name) or "",
        origin=origin,
        parent_percent=of_parent,
    )


def _percent(fraction: api.FractionSpec | None) -> float:
    if fraction is None:
        return 100
    if not 0 <= fraction.numerator <= fraction.denominator or fraction.denominator < 1:
        share = f"{fraction.numerator}/{fraction.denominator}"
        raise ValueProblem(f"invalid value {share}: must be from 0 to 1")
    return fraction.numerator * 100 / fraction.denominator


def _service_name(name: str | None) -> str:
    if name is not None and not (_NAME.fullmatch(name) and len(name) <= 253):
        raise ValueProblem(f"invalid value {name!r}")
    return name or ""


def _span_name(name: str | None) -> str:
    if name is not None and not (_SPAN.fullmatch(name) and len(name) <= 256):
        raise ValueProblem(f"invalid value {name!r}")
    return name or ""


def _attributes(
    parse: FieldParser, tracing: api.TelemetryTracingSpec, origin: Origin
) -> tuple[SpanAttribute, ...]:
    if len(tracing.attributes) > MAX_TELEMETRY_ATTRIBUTES:
        limit = f"must have at most {MAX_TELEMETRY_ATTRIBUTES} items"
        parse.problems.append(f"spec.tracing.attributes: {limit}")
        return ()
    result: dict[str, SpanAttribute] = {}
    for index, attribute in enumerate(tracing.attributes):
        field = f"tracing.attributes[{index}]"
        if parse(f"{field}.name", _attribute_name, attribute.name) in result:
            parse.problems.append(f"spec.{field}.name: {attribute.name!r} is set twice")
        translated = _attribute(parse, field, attribute, origin)
        if translated is not None:
            result[attribute.name] = translated
    return tuple(result.values())


def _attribute_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueProblem(f"invalid value {name!r}")
    if name.startswith("gatehouse."):
        raise ValueProblem(f"{name!r} is set by Gatehouse")
    return name


def _attribute(
    parse: FieldParser, field: str, attribute: api.TelemetryAttributeSpec, origin: Origin
) -> SpanAttribute | None:
    source: AttributeSource
    match attribute.source_type:
        case "Literal":
            name, value, source = "literalValue", attribute.literal_value, "literal"
        case "Header":
            name, value, source = "headerName", attribute.header_name, "header"
        case "Attribute":
            name, value, source = "attributeKey", attribute.attribute_key, "semantic"
        case _:
            message = "must be one of Header, Literal, Attribute"
            parse.problems.append(f"spec.{field}.sourceType: {message}")
            return None
    if value is None:
        parse.problems.append(f"spec.{field}.{name}: must be set")
        return None
    if not _valid(source, value):
        parse.problems.append(f"spec.{field}.{name}: invalid value {value[:256]!r}")
    return SpanAttribute(attribute.name, value, source, origin.field(f"{field}.{name}"))


def _valid(source: AttributeSource, value: str) -> bool:
    if source == "literal":
        return 1 <= len(value) <= 1024 and not _CONTROL.search(value)
    pattern = _HEADER if source == "header" else _KEY
    return pattern.fullmatch(value) is not None


def _headers(parse: FieldParser, tracing: api.TelemetryTracingSpec) -> tuple[tuple[str, str], ...]:
    """Return the headers of exports. Values may be credentials, so that no message has one."""
    requested = tracing.provider.headers if tracing.provider is not None else ()
    if len(requested) > MAX_TELEMETRY_HEADERS:
        limit = f"must have at most {MAX_TELEMETRY_HEADERS} items"
        parse.problems.append(f"spec.tracing.provider.headers: {limit}")
        return ()
    result: dict[str, str] = {}
    for index, header in enumerate(requested):
        name, field = header.name.lower(), f"spec.tracing.provider.headers[{index}]"
        if not _METADATA.fullmatch(name) or name.endswith("-bin"):
            parse.problems.append(f"{field}.name: {header.name!r} cannot be a header of gRPC")
        elif name in _OWN_HEADERS or name.startswith("grpc-") or header_names.problem(name):
            parse.problems.append(f"{field}.name: header {header.name} belongs to the export")
        if name in result:
            parse.problems.append(f"{field}.name: {header.name!r} is set twice")
        if len(header.value) + len(_ESCAPED.findall(header.value)) > MAX_EXPORT_HEADER_BYTES:
            problem = "quotation marks and backslashes count twice"
            parse.problems.append(
                f"{field}.value: longer than {MAX_EXPORT_HEADER_BYTES}: {problem}"
            )
        if not _METADATA_VALUE.fullmatch(header.value) or header.value != header.value.strip():
            problem = "must have printable ASCII characters only, and no percent sign"
            parse.problems.append(f"{field}.value: {problem}")
        result[name] = header.value
    return tuple(result.items())
