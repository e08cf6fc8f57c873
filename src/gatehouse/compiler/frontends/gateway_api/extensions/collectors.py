"""Collectors of XTelemetryPolicies: from a Service or XBackend to the export of spans."""

from __future__ import annotations

import msgspec

from gatehouse.apis import backends, core, resources, routes, telemetry
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.gateway_api.cluster_key import (
    SERVICE,
    X_BACKEND,
    ClusterKey,
)
from gatehouse.compiler.frontends.gateway_api.extensions import trace_parameters
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import merged_parameters
from gatehouse.compiler.frontends.gateway_api.extensions.policy_parsing import policy_settings
from gatehouse.compiler.frontends.gateway_api.extensions.telemetry_policies import (
    TelemetrySettings,
)
from gatehouse.compiler.frontends.gateway_api.external_name_rules import name_problem
from gatehouse.compiler.frontends.gateway_api.findings import ALL_RESOLVED, Finding, Reason
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls, x_backends
from gatehouse.compiler.frontends.gateway_api.routes.external_names import external_name
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    backend_tls_policy,
    cluster_port,
    names_problem,
    service_port,
    used_endpoints,
)
from gatehouse.compiler.ir.gateway import TrustBundle
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key

REFERENCE = "tracing.provider.backendRef"

MAX_COLLECTOR_ADDRESSES = 16
"""Maximum number of endpoints of a collector that a data plane knows."""


class ResolvedCollector(msgspec.Struct, frozen=True):
    """The collector of a Gateway."""

    export: TraceExport | None = None
    """None: nothing is exported."""
    trust: TrustBundle | None = None
    finding: Finding = ALL_RESOLVED


def resolve_collector(ask: Ask, gateway: Key, key: Key) -> ResolvedCollector:
    """Return the collector that a valid policy refers to at a Gateway."""
    policy = ask.read(key)
    if not isinstance(policy, telemetry.XTelemetryPolicy):
        return ResolvedCollector()
    tracing = policy.spec.tracing
    if tracing is None or tracing.provider is None:
        return ResolvedCollector()
    reference = tracing.provider.backend_ref
    is_x_backend = (reference.group, reference.kind) == (resources.X_BACKENDS.group, X_BACKEND)
    service = (
        _x_backend(ask, gateway, key, reference) if is_x_backend else _service(ask, key, reference)
    )
    if isinstance(service, Finding):
        return ResolvedCollector(finding=service)
    tls_policy = ask(backend_tls_policy, service)
    if tls_policy is None:
        return _export(ask, gateway, key, service)
    return _with_tls(ask, gateway, tls_policy, _export(ask, gateway, key, service))


def _service(ask: Ask, key: Key, reference: routes.BackendObject) -> ClusterKey | Finding:
    """Return the port of the Service that a policy may refer to, or why it cannot."""
    where, namespace = f"spec.{REFERENCE}", reference.namespace or key[1]
    if (reference.group, reference.kind) != ("", "Service"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        message = f"{where}: kind {kind} is not supported: must be Service or XBackend"
        return Finding(Reason.INVALID_KIND, message)
    target = ("", "Service", namespace, reference.name)
    if not ask(permitted, Reference(telemetry.EXPERIMENTAL_GROUP, key[0], key[1], *target)):
        message = f"{where}: Service {namespace}/{reference.name} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if reference.port is None:
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}.port: must be set")
    port = ask(service_port, namespace, reference.name, reference.port, "TCP")
    if isinstance(port, str):
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: {port}")
    if problem := names_problem(ask, namespace, reference.name):
        return Finding(Reason.FQDN_ENDPOINTS, f"{where}: {problem}")
    if problem := _external_problem(ask, namespace, reference.name):
        return Finding(Reason.EXTERNAL_NAME_REFUSED, f"{where}: {problem}")
    return ClusterKey(namespace, reference.name, reference.port, "grpc")


def _x_backend(
    ask: Ask, gateway: Key, key: Key, reference: routes.BackendObject
) -> ClusterKey | Finding:
    """Return the cluster of the XBackend that a policy may refer to, or why it cannot."""
    where, target = f"spec.{REFERENCE}", (X_BACKEND, reference.namespace or key[1], reference.name)
    name = str(object_of(target))
    across = (reference.group, *target)
    if not ask(permitted, Reference(telemetry.EXPERIMENTAL_GROUP, key[0], key[1], *across)):
        message = f"{where}: {name} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if refused := ask(x_backends.x_backend_problem, gateway, target):
        return Finding(refused.reason, f"{where}: {refused.message}")
    if reference.port is not None:
        message = f"{where}.port: must not be set: {name} has the port"
        return Finding(Reason.BACKEND_NOT_FOUND, message)
    spec = ask.read(target).spec
    if x_backends.protocol_of(ask.read(target), "GRPCRoute") is None:
        message = f"{where}: {name}: spec.protocol {spec.protocol} is not supported for collectors"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    if spec.tls.mode == backends.CLIENT_AND_SERVER:
        message = f"{where}: {name}: spec.tls.mode {spec.tls.mode} is not supported for collectors"
        return Finding(Reason.UNSUPPORTED_BACKEND, message)
    return ClusterKey(*target[1:], spec.port.number, "grpc", X_BACKEND)


def _external_problem(ask: Ask, namespace: str, name: str) -> str:
    """Return why the name of an ExternalName Service must not be used; else empty."""
    external = ask(external_name, (SERVICE, namespace, name))
    problem = name_problem(external, ask(settings).external_names) if external else ""
    return f"Service {namespace}/{name}: spec.externalName: {problem}" if problem else ""


def _export(ask: Ask, gateway: Key, key: Key, service: ClusterKey) -> ResolvedCollector:
    """Return the collector without TLS. The finding says if it has no endpoints."""
    policy: TelemetrySettings = policy_settings(ask, gateway, key)
    tuned = trace_parameters.tuning(ask(merged_parameters, gateway).telemetry)
    own = policy.tracing
    backend = (service.kind, service.namespace, service.service)
    addresses = ask(collector_addresses, service)
    external = ask(external_name, backend)
    attributes = {attribute.key: attribute for attribute in (*tuned.attributes, *own.attributes)}
    export = msgspec.structs.replace(
        trace_parameters.of_gateway(tuned, f"{gateway[1]}/{gateway[2]}"),
        host=external or f"{service.service}.{service.namespace}.svc",
        port=service.port,
        addresses=() if external else addresses,
        attributes=tuple(attributes.values()),
        headers=own.headers,
        origin=object_of(key).field("tracing.provider"),
    )
    if own.service_name:
        export = msgspec.structs.replace(export, service_name=own.service_name)
    message = ALL_RESOLVED.message
    if not addresses and not external:
        message += f"; {object_of(backend)} has no ready endpoints"
        if service.kind == X_BACKEND:
            # Its name may be that of another Service.
            return ResolvedCollector(finding=Finding(Reason.RESOLVED, message))
    return ResolvedCollector(export, finding=Finding(Reason.RESOLVED, message))


def collector_addresses(ask: Ask, service: ClusterKey) -> tuple[tuple[str, int], ...]:
    """Return the addresses of the ready endpoints of a collector, sorted."""
    port = cluster_port(ask, service)
    if not isinstance(port, core.ServicePort):
        return ()
    endpoints = sorted(used_endpoints(ask, service, port))[:MAX_COLLECTOR_ADDRESSES]
    return tuple((endpoint.address, endpoint.port) for endpoint in endpoints)


def _with_tls(ask: Ask, gateway: Key, key: Key, plain: ResolvedCollector) -> ResolvedCollector:
    """Return a collector with the TLS settings of a BackendTLSPolicy or XBackend.

    Its hostname must not become the destination, so that nothing is exported without endpoints.
    """
    resolved = ask(backend_tls.backend_tls_at, gateway, key)
    where = f"spec.{REFERENCE}: {object_of(key)}"
    if resolved.tls is None:
        return ResolvedCollector(finding=Finding(Reason.INVALID_CA_REF, f"{where} is invalid"))
    if resolved.tls.names:
        message = f"{where}: validation.subjectAltNames are not supported for collectors"
        return ResolvedCollector(finding=Finding(Reason.INVALID_CA_REF, message))
    export, name = plain.export, resolved.tls.server_name
    if export is None or (not export.addresses and export.host != name):
        return msgspec.structs.replace(plain, export=None)
    secure = msgspec.structs.replace(export, host=name, tls=True, trust=resolved.tls.trust)
    return ResolvedCollector(secure, resolved.trust, plain.finding)
