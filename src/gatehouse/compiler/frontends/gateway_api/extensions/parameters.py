"""NginxProxy and DataPlane: what a GatewayClass and a Gateway are configured by.

What a Gateway's own parameters say goes before what its class' say.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping

import msgspec

from gatehouse.apis import data_plane_workload as api_workload
from gatehouse.apis import gateway
from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values, overrides
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import Reader
from gatehouse.compiler.ir import settings as ir
from gatehouse.incremental.query import Ask, Key

_HEADERS = {
    "*": "*",
    "X-Forwarded-For": "x-forwarded-for",
    "X-Forwarded-Proto": "x-forwarded-proto",
    "X-Forwarded-Host": "x-forwarded-host",
    "X-Forwarded-Port": "x-forwarded-port",
    "X-Real-IP": "x-real-ip",
}
_KINDS = ((api.GROUP, "NginxProxy"), ("gatehouse.dev", "DataPlane"))
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
    """What holds for the data plane of a Gateway."""

    edge: ir.DataPlaneSettings = ir.DataPlaneSettings()
    memory: int | None = None
    """Bytes of each upstream's shared memory."""
    service_address: bool = False
    """Whether Services are asked by their own addresses."""


class Found(msgspec.Struct, frozen=True):
    """What a reference leads to; nothing if there is none, or if there is a problem."""

    spec: api.NginxProxySpec | None = None
    problem: str = ""
    missing: bool = False
    """Whether the problem is that there is no such object (yet)."""
    invalid: bool = False
    """Whether the problem is in the fields of the object."""
    refused: str = ""
    """Message about fields that were left out of the spec; empty if there are none."""


class Provisioning(msgspec.Struct, frozen=True):
    """How the data plane of a Gateway is to be run."""

    workload: api_workload.Workload = api_workload.Workload()
    ip_family: str = ""
    """``dual``, ``ipv4`` or ``ipv6``; empty: as the cluster has it."""
    log_level: str = ""
    """Of the agent; empty: its default."""
    waiting: str = ""
    """What it must wait for, since it is not known yet how it is to be run. It stays unchanged."""


def of_class(ask: Ask, key: Key) -> Found:
    """Give the parameters that a GatewayClass refers to."""
    found = ask.read(key)
    reference = found.spec.parameters_ref if isinstance(found, gateway.GatewayClass) else None
    if reference is None:
        return Found()
    return _found(ask, reference.group, reference.kind, reference.namespace, reference.name)


def of_gateway(ask: Ask, key: Key) -> Found:
    """Give the parameters that a Gateway itself refers to."""
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return Found()
    reference = found.spec.infrastructure.parameters_ref
    if reference is None:
        return Found()
    named = _found(ask, reference.group, reference.kind, key[1], reference.name)
    if named.spec is None or not named.spec.kubernetes or ask(settings, "").workload_overrides:
        return named
    outer = ask(of_class, ("GatewayClass", "", found.spec.gateway_class_name)).spec
    of_outer = (outer.kubernetes or {}) if outer is not None else {}
    kept, refused = overrides.limited(named.spec.kubernetes, of_outer)
    spec = msgspec.structs.replace(named.spec, kubernetes=kept)
    where = f"{reference.kind} {key[1]}/{reference.name}"
    return Found(spec, refused=f"{where}: {overrides.shown(refused)}" if refused else "")


def parameters(ask: Ask, key: Key) -> Parameters:
    """Give what holds for a Gateway: its own parameters over those of its class."""
    return _read(ask(_joined, key))[0]


def provisioning(ask: Ask, key: Key) -> Provisioning:
    """Give how a Gateway's data plane is to be run: its own parameters over those of its class."""
    both = _both(ask, key)
    waiting = [each.problem for each in both if each.missing]
    invalid = [each.problem for each in both if each.invalid]
    if waiting or invalid:
        waits = [f"waits: {'; '.join(waiting)}"] if waiting else []
        return Provisioning(waiting="; ".join([*invalid, *waits]))
    spec = ask(_joined, key)
    return Provisioning(
        _workload(spec)[0],
        spec.ip_family or "",
        (spec.logging.agent_level or "") if spec.logging else "",
    )


def _both(ask: Ask, key: Key) -> tuple[Found, Found]:
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return Found(), Found()
    outer = ask(of_class, ("GatewayClass", "", found.spec.gateway_class_name))
    return outer, ask(of_gateway, key)


def _joined(ask: Ask, key: Key) -> api.NginxProxySpec:
    spec = api.NginxProxySpec()
    for each in _both(ask, key):
        spec = _over(spec, each.spec) if each.spec is not None else spec
    return spec


def _found(ask: Ask, group: str, kind: str, namespace: str, name: str) -> Found:
    if (group, kind) not in _KINDS:
        known = " and ".join("/".join(each) for each in _KINDS)
        return Found(problem=f"{group}/{kind} {name} is not known here; {known} are")
    found = ask.read((kind, namespace, name))
    if found is None:
        return Found(problem=f"{kind} {namespace}/{name} does not exist", missing=True)
    if not isinstance(found, api.NginxProxy):
        return Found(problem=f"{kind} {namespace}/{name} cannot be read")
    problems = [*_read(found.spec)[1], *_workload(found.spec)[1]]
    if problems:
        return Found(problem=f"{kind} {namespace}/{name}: {'; '.join(problems)}", invalid=True)
    return Found(found.spec)


def _over(outer: api.NginxProxySpec, inner: api.NginxProxySpec) -> api.NginxProxySpec:
    said = {
        field: value
        for field in inner.__struct_fields__
        if (value := getattr(inner, field)) not in (None, ())
    }
    if outer.kubernetes is not None and inner.kubernetes is not None:
        said["kubernetes"] = api_workload.over(outer.kubernetes, inner.kubernetes)
    return msgspec.structs.replace(outer, **said)


def _workload(spec: api.NginxProxySpec) -> tuple[api_workload.Workload, list[str]]:
    """Read how the data plane is run, and what is wrong about that."""
    raw = spec.kubernetes or {}
    try:
        found = msgspec.convert(raw, api_workload.Workload)
    except msgspec.ValidationError as error:
        return api_workload.Workload(), [f"spec.kubernetes: {error}"]
    problems = []
    if "deployment" in raw and "daemonSet" in raw:
        problems.append("spec.kubernetes: deployment and daemonSet exclude each other")
    scaling = found.deployment.autoscaling
    if scaling.enable and (scaling.min_replicas or 1) > scaling.max_replicas:
        where = "spec.kubernetes.deployment.autoscaling.minReplicas"
        problems.append(f"{where}: is more than maxReplicas ({scaling.max_replicas})")
    budget = found.deployment.pod_disruption_budget
    if budget and (budget.min_available is None) == (budget.max_unavailable is None):
        where = "spec.kubernetes.deployment.podDisruptionBudget"
        problems.append(f"{where}: needs one of minAvailable and maxUnavailable")
    for index, each in enumerate(found.service.load_balancer_source_ranges):
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            where = f"spec.kubernetes.service.loadBalancerSourceRanges[{index}]"
            problems.append(f"{where}: {each!r} is no network")
    return found, [*problems, *_patch_problems(found)]


def _patch_problems(workload: api_workload.Workload) -> Iterator[str]:
    """Yield the patches whose value has the wrong type. The CRD cannot: CEL does not see it."""
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
                needed = "a list of operations" if is_list else "an object"
                yield f"{where}: must be {needed} for type {patch.type}"


def _read(spec: api.NginxProxySpec) -> tuple[Parameters, list[str]]:
    read = Reader()
    family = spec.ip_family or "dual"
    edge = ir.DataPlaneSettings(
        ipv4=family != "ipv6",
        ipv6=family != "ipv4",
        http2=not spec.disable_http2,
        sni_host_validation=not spec.disable_sni_host_validation,
        removed_headers=tuple(
            _HEADERS[each] for each in spec.disable_base_headers if each in _HEADERS
        ),
        client_address=_client_address(read, spec.rewrite_client_ip),
        server_tokens=spec.server_tokens == "on",
        compression=_compression(read, spec.compression),
    )
    if spec.server_tokens not in (None, "on", "off"):
        read.problems.append("spec.serverTokens: only on and off are known to open-source NGINX")
    memory = read("zoneSize", nginx_values.size, spec.zone_size)
    return Parameters(edge, memory, bool(spec.use_cluster_ip)), read.problems


def _client_address(read: Reader, asked: api.RewriteClientIp | None) -> ir.ClientAddress | None:
    if asked is None or asked.mode is None:
        return None
    trusted = []
    for index, each in enumerate(asked.trusted_addresses):
        where = f"rewriteClientIP.trustedAddresses[{index}]"
        if each.type == "Hostname":
            read.problems.append(f"spec.{where}: addresses by name are not served")
            continue
        try:
            ipaddress.ip_network(each.value, strict=False)
        except ValueError:
            read.problems.append(f"spec.{where}.value: {each.value!r} is no address or network")
            continue
        trusted.append(each.value)
    return ir.ClientAddress(
        "proxy-protocol" if asked.mode == "ProxyProtocol" else "x-forwarded-for",
        tuple(trusted),
        bool(asked.set_ip_recursively),
    )


def _compression(read: Reader, asked: api.Compression | None) -> ir.Compression | None:
    if asked is None:
        return None
    buffers = None
    if asked.buffers is not None:
        size = read("compression.buffers.size", nginx_values.size, asked.buffers.size)
        buffers = ir.Buffers(asked.buffers.number, size or 4096)
    for index, each in enumerate(asked.mime_types):
        if not _TYPE.fullmatch(each):
            read.problems.append(f"spec.compression.mimeTypes[{index}]: {each!r} is no MIME type")
    for index, each in enumerate(asked.gzip.disable):
        if not _is_pattern(each):
            where = f"compression.gzip.disable[{index}]"
            read.problems.append(f"spec.{where}: {each!r} is no regular expression")
    for index, each in enumerate(asked.gzip.proxied):
        if each not in _PROXIED:
            read.problems.append(f"spec.compression.gzip.proxied[{index}]: {each!r} is not known")
    return ir.Compression(
        level=asked.level,
        min_length=asked.min_length,
        types=asked.mime_types,
        buffers=buffers,
        vary=asked.gzip.vary,
        http_version=asked.gzip.http_version or "",
        disabled=asked.gzip.disable,
        proxied=asked.gzip.proxied,
    )


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return bool(text) and text.isprintable()
