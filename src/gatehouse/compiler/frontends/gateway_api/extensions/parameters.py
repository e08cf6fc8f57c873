"""Parameters of GatewayClasses and Gateways: NginxProxy and GatewayParameters objects.

Parameters of a Gateway override those of its GatewayClass.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

import msgspec

from gatehouse.apis import data_plane_parameters as api
from gatehouse.apis import data_plane_workload as api_workload
from gatehouse.apis import gateway, gateway_parameters, nginx_gateway
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values, overrides
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import (
    MAX_ZONE_BYTES,
    FieldParser,
    with_sources,
)
from gatehouse.compiler.frontends.gateway_api.inputs import rejected_by_proxy
from gatehouse.compiler.ir import settings as ir
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
_KINDS = ((nginx_gateway.GROUP, "NginxProxy"), (gateway_parameters.GROUP, "GatewayParameters"))
_TYPE = re.compile(r"[A-Za-z0-9.+*_-]+/[A-Za-z0-9.+*_-]+|\*")
_PROXIED = frozenset(
    {
        "off",
        "expired",
        "no-cache",
        "no-store",
        "private",
        "no_last_modified",
        "no_etag",
        "auth",
        "any",
    }
)


class Parameters(msgspec.Struct, frozen=True):
    """Effective traffic settings of a Gateway's data plane."""

    edge: ir.DataPlaneSettings = ir.DataPlaneSettings()
    memory: int | None = None
    """Size of each upstream's shared memory in bytes; None for the default."""
    service_address: bool = False
    """Connect to the cluster IPs of Services instead of their endpoints."""


class ResolvedParameters(msgspec.Struct, frozen=True):
    """Result of resolving a ``parametersRef``; empty if there is none."""

    spec: api.ParametersSpec | None = None
    problem: str = ""
    missing: bool = False
    """The problem is a missing object."""
    invalid: bool = False
    """The problem is an invalid field of the object."""
    origin: Origin = NO_ORIGIN
    """The object that ``spec`` is from."""
    refused: str = ""
    """Message about fields that were removed from ``spec``; empty if there are none."""


class Provisioning(msgspec.Struct, frozen=True):
    """Workload settings of a Gateway's data plane."""

    workload: api_workload.Workload = api_workload.Workload()
    ip_family: str = ""
    """``dual``, ``ipv4`` or ``ipv6``; empty for the cluster's default."""
    log_level: str = ""
    """Log level of the agent; empty for its default."""
    waiting: str = ""
    """Why it is not known yet how to run the data plane, which stays unchanged; empty if known."""


def of_class(ask: Ask, key: Key) -> ResolvedParameters:
    """Return the parameters that a GatewayClass refers to."""
    found = ask.read(key)
    reference = found.spec.parameters_ref if isinstance(found, gateway.GatewayClass) else None
    if reference is None:
        return ResolvedParameters()
    return _resolve(ask, reference.group, reference.kind, reference.namespace, reference.name)


def of_gateway(ask: Ask, key: Key) -> ResolvedParameters:
    """Return the parameters that a Gateway itself refers to."""
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return ResolvedParameters()
    reference = found.spec.infrastructure.parameters_ref
    if reference is None:
        return ResolvedParameters()
    named = _resolve(ask, reference.group, reference.kind, key[1], reference.name)
    if named.spec is None or not named.spec.kubernetes or ask(settings, "").workload_overrides:
        return named
    outer = ask(of_class, ("GatewayClass", "", found.spec.gateway_class_name)).spec
    of_outer = (outer.kubernetes or {}) if outer is not None else {}
    allowed, refused = overrides.limit(named.spec.kubernetes, of_outer)
    spec = msgspec.structs.replace(named.spec, kubernetes=allowed)
    where = f"{reference.kind} {key[1]}/{reference.name}"
    message = f"{where}: {overrides.rejection_message(refused)}" if refused else ""
    return msgspec.structs.replace(named, spec=spec, refused=message)


def parameters(ask: Ask, key: Key) -> Parameters:
    """Return the effective parameters of a Gateway. Its own override those of its class."""
    found = _parse(ask(_merged, key))[0]
    edge = found.edge
    origins = []
    for each in _class_and_own(ask, key):
        if each.origin == NO_ORIGIN or each.spec is None:
            continue
        origins.append(each.origin)
        if each.spec.server_tokens is not None:
            source = each.origin.field("serverTokens")
            edge = msgspec.structs.replace(edge, sources=(("exposes_version", source),))
        if each.spec.compression is not None and edge.compression is not None:
            compression = with_sources(edge.compression, each.origin, _COMPRESSION_FIELDS)
            edge = msgspec.structs.replace(edge, compression=compression)
    edge = msgspec.structs.replace(edge, origins=tuple(origins))
    return msgspec.structs.replace(found, edge=edge)


_COMPRESSION_FIELDS = {
    "buffers": "compression.buffers",
    "vary": "compression.gzip.vary",
    "http_version": "compression.gzip.httpVersion",
    "disabled": "compression.gzip.disable",
    "proxied": "compression.gzip.proxied",
}
"""Fields of the IR that a proxy may not support, and the fields that set them."""


def provisioning(ask: Ask, key: Key) -> Provisioning:
    """Return how to run a Gateway's data plane. Its own parameters override those of its class."""
    both = _class_and_own(ask, key)
    waiting = [each.problem for each in both if each.missing]
    invalid = [each.problem for each in both if each.invalid]
    if waiting or invalid:
        pending = [f"waiting for parameters: {'; '.join(waiting)}"] if waiting else []
        return Provisioning(waiting="; ".join([*invalid, *pending]))
    spec = ask(_merged, key)
    return Provisioning(
        _workload(spec)[0],
        spec.ip_family or "",
        (spec.logging.agent_level or "") if spec.logging else "",
    )


def _class_and_own(ask: Ask, key: Key) -> tuple[ResolvedParameters, ResolvedParameters]:
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return ResolvedParameters(), ResolvedParameters()
    outer = ask(of_class, ("GatewayClass", "", found.spec.gateway_class_name))
    return outer, ask(of_gateway, key)


def _merged(ask: Ask, key: Key) -> api.ParametersSpec:
    spec = api.ParametersSpec()
    for each in _class_and_own(ask, key):
        spec = _override(spec, each.spec) if each.spec is not None else spec
    return spec


def _resolve(ask: Ask, group: str, kind: str, namespace: str, name: str) -> ResolvedParameters:
    if (group, kind) not in _KINDS:
        known = " or ".join("/".join(each) for each in _KINDS)
        return ResolvedParameters(
            problem=f"{group}/{kind} {name} is not supported: must be {known}"
        )
    found = ask.read((kind, namespace, name))
    if found is None:
        return ResolvedParameters(problem=f"{kind} {namespace}/{name} not found", missing=True)
    if not isinstance(found, nginx_gateway.NginxProxy | gateway_parameters.GatewayParameters):
        return ResolvedParameters(problem=f"{kind} {namespace}/{name} is invalid")
    if rejected := rejected_by_proxy(ask, (kind, namespace, name)):
        # The proxy does not read the settings of the workload, which must not change.
        workload = api.ParametersSpec(
            kubernetes=found.spec.kubernetes,
            ip_family=found.spec.ip_family,
            logging=found.spec.logging,
        )
        return ResolvedParameters(workload, problem=f"{kind} {namespace}/{name}: {rejected}")
    problems = [*_parse(found.spec)[1], *_workload(found.spec)[1]]
    if problems:
        return ResolvedParameters(
            problem=f"{kind} {namespace}/{name}: {'; '.join(problems)}", invalid=True
        )
    origin = Origin(kind, namespace, name)
    return ResolvedParameters(found.spec, origin=origin)


def _override(outer: api.ParametersSpec, inner: api.ParametersSpec) -> api.ParametersSpec:
    set_values = {
        field: value
        for field in inner.__struct_fields__
        if (value := getattr(inner, field)) not in (None, ())
    }
    if outer.kubernetes is not None and inner.kubernetes is not None:
        set_values["kubernetes"] = api_workload.over(outer.kubernetes, inner.kubernetes)
    return msgspec.structs.replace(outer, **set_values)


def _workload(spec: api.ParametersSpec) -> tuple[api_workload.Workload, list[str]]:
    """Parse ``spec.kubernetes``; return the workload and the problems."""
    raw = spec.kubernetes or {}
    try:
        found = msgspec.convert(raw, api_workload.Workload)
    except msgspec.ValidationError as error:
        return api_workload.Workload(), [f"spec.kubernetes: {error}"]
    problems = []
    if "deployment" in raw and "daemonSet" in raw:
        problems.append("spec.kubernetes: deployment and daemonSet must not both be set")
    scaling = found.deployment.autoscaling
    if scaling.enable and (scaling.min_replicas or 1) > scaling.max_replicas:
        where = "spec.kubernetes.deployment.autoscaling.minReplicas"
        problems.append(f"{where}: must not be more than maxReplicas ({scaling.max_replicas})")
    budget = found.deployment.pod_disruption_budget
    if budget and (budget.min_available is None) == (budget.max_unavailable is None):
        where = "spec.kubernetes.deployment.podDisruptionBudget"
        problems.append(f"{where}: exactly one of minAvailable and maxUnavailable must be set")
    for index, each in enumerate(found.service.load_balancer_source_ranges):
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            where = f"spec.kubernetes.service.loadBalancerSourceRanges[{index}]"
            problems.append(f"{where}: {each!r} must be a CIDR range")
    return found, [*problems, *_patch_problems(found)]


def _patch_problems(workload: api_workload.Workload) -> Iterator[str]:
    """Yield the problems of patches whose value has the wrong type.

    The CRD cannot check this: the value is not visible to CEL.
    """
    daemon_set = workload.daemon_set
    places = {
        "deployment": workload.deployment.patches,
        "daemonSet": daemon_set.patches if daemon_set else (),
        "service": workload.service.patches,
        "networkPolicy": workload.network_policy.patches or (),
    }
    for place, patches in places.items():
        for index, patch in enumerate(patches):
            is_list = patch.type == "JSONPatch"
            if not isinstance(patch.value, list if is_list else Mapping):
                where = f"spec.kubernetes.{place}.patches[{index}].value"
                expected = "a list of operations" if is_list else "an object"
                yield f"{where}: must be {expected} for type {patch.type}"


def _parse(spec: api.ParametersSpec) -> tuple[Parameters, list[str]]:
    parse = FieldParser()
    family = spec.ip_family or "dual"
    edge = ir.DataPlaneSettings(
        ipv4=family != "ipv6",
        ipv6=family != "ipv4",
        http2=not spec.disable_http2,
        sni_host_validation=not spec.disable_sni_host_validation,
        removed_headers=tuple(
            _HEADERS[each] for each in spec.disable_base_headers if each in _HEADERS
        ),
        client_address=_client_address(parse, spec.rewrite_client_ip),
        exposes_version=spec.server_tokens == "on",
        compression=_compression(parse, spec.compression),
    )
    if spec.server_tokens not in (None, "on", "off"):
        parse.problems.append("spec.serverTokens: must be on or off: other values need NGINX Plus")
    memory = parse("zoneSize", nginx_values.size, spec.zone_size)
    if memory is not None and memory > MAX_ZONE_BYTES:
        parse.problems.append("spec.zoneSize: must be at most 256m")
    return Parameters(edge, memory, bool(spec.use_cluster_ip)), parse.problems


def _client_address(
    parse: FieldParser, requested: api.RewriteClientIp | None
) -> ir.ClientAddress | None:
    if requested is None or requested.mode is None:
        return None
    trusted = []
    for index, each in enumerate(requested.trusted_addresses):
        where = f"rewriteClientIP.trustedAddresses[{index}]"
        if each.type == "Hostname":
            parse.problems.append(f"spec.{where}: type Hostname is not supported")
            continue
        try:
            ipaddress.ip_network(each.value, strict=False)
        except ValueError:
            parse.problems.append(
                f"spec.{where}.value: {each.value!r} must be an IP address or CIDR range"
            )
            continue
        trusted.append(each.value)
    return ir.ClientAddress(
        "proxy-protocol" if requested.mode == "ProxyProtocol" else "x-forwarded-for",
        tuple(trusted),
        bool(requested.set_ip_recursively),
    )


def _compression(parse: FieldParser, requested: api.Compression | None) -> ir.Compression | None:
    if requested is None:
        return None
    buffers = None
    if requested.buffers is not None:
        size = parse("compression.buffers.size", nginx_values.size, requested.buffers.size)
        buffers = ir.Buffers(requested.buffers.number, size or 4096)
    for index, each in enumerate(requested.mime_types):
        if not _TYPE.fullmatch(each):
            parse.problems.append(
                f"spec.compression.mimeTypes[{index}]: {each!r} must be a MIME type"
            )
    for index, each in enumerate(requested.gzip.disable):
        if not _is_pattern(each):
            where = f"compression.gzip.disable[{index}]"
            parse.problems.append(f"spec.{where}: invalid regular expression {each!r}")
    for index, each in enumerate(requested.gzip.proxied):
        if each not in _PROXIED:
            parse.problems.append(
                f"spec.compression.gzip.proxied[{index}]: {each!r} is not supported"
            )
    return ir.Compression(
        level=requested.level,
        min_length=requested.min_length,
        types=requested.mime_types,
        buffers=buffers,
        vary=requested.gzip.vary,
        http_version=requested.gzip.http_version or "",
        disabled=requested.gzip.disable,
        proxied=requested.gzip.proxied,
    )


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return bool(text) and text.isprintable()
