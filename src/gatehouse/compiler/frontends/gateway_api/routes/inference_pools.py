"""InferencePools as backends, and the endpoint pickers that choose among their Pods.

A picker only names Pods of its pool: the cluster has no other endpoints
(:mod:`~gatehouse.compiler.frontends.gateway_api.routes.pod_selections`).
"""

from __future__ import annotations

from typing import TypeGuard

import msgspec

from gatehouse.apis import core, inference, routes
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.compiler.frontends.gateway_api.cluster_key import (
    INFERENCE_POOL,
    SERVICE,
    ClusterKey,
    Protocol,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    GatewayObject,
    unavailable_kind_key,
)
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes.external_names import external_name
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    names_problem,
    service_port,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask, Key

_H2C = "kubernetes.io/h2c"


class ResolvedPicker(msgspec.Struct, frozen=True):
    """Endpoint picker of an InferencePool."""

    cluster: ClusterKey | None = None
    """None if the pool has no picker, or its reference is invalid."""
    problem: str = ""
    """Why the reference is invalid; empty if it is valid."""
    fail_open: bool = False


def is_pool_reference(
    reference: routes.BackendRef | routes.BackendObject,
) -> TypeGuard[routes.BackendRef]:
    """Return whether a reference is a backend of the kind InferencePool."""
    own = (reference.group, reference.kind) == (inference.INFERENCE_GROUP, INFERENCE_POOL)
    return own and isinstance(reference, routes.BackendRef)


def resolve_pool(
    ask: Ask, at: GatewayObject, reference: routes.BackendRef, where: str
) -> ClusterKey | Finding:
    """Return the cluster of an InferencePool that a route refers to at a Gateway, or a finding.

    The port of the reference has no meaning.
    """
    route = at[1]
    target, name = reference.namespace or route[1], reference.name
    if not ask(permitted, pool_reference(route, (target, name))):
        message = f"{where}: InferencePool {target}/{name} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    pool = ask.read((INFERENCE_POOL, target, name))
    if not isinstance(pool, inference.InferencePool):
        why = ask.read(unavailable_kind_key(INFERENCE_POOL))
        suffix = f": kind {INFERENCE_POOL} is not available: {why}" if why else ""
        problem = "is invalid" if pool is not None else f"not found{suffix}"
        message = f"{where}: InferencePool {target}/{name} {problem}"
        return Finding(Reason.BACKEND_NOT_FOUND, message)
    picker = ask(picker_of, target, name)
    if picker.problem and not picker.fail_open:
        message = f"{where}: InferencePool {target}/{name}: {picker.problem}"
        return Finding(Reason.BACKEND_NOT_FOUND, message)
    plain: Protocol = "h2c" if pool.spec.app_protocol == _H2C else "http"
    protocol: Protocol = "grpc" if route[0] == "GRPCRoute" else plain
    return ClusterKey(target, name, 0, protocol, INFERENCE_POOL)


def pool_reference(route: Key, pool: tuple[str, str]) -> Reference:
    """Return the reference of a route to an InferencePool."""
    target = (inference.INFERENCE_GROUP, INFERENCE_POOL, *pool)
    return Reference(GATEWAY_API_GROUP, route[0], route[1], *target)


def picker_of(ask: Ask, namespace: str, name: str) -> ResolvedPicker:
    """Return the endpoint picker of an InferencePool."""
    pool = ask.read((INFERENCE_POOL, namespace, name))
    if not isinstance(pool, inference.InferencePool) or pool.spec.endpoint_picker_ref is None:
        return ResolvedPicker()
    reference = pool.spec.endpoint_picker_ref
    fail_open = reference.failure_mode == inference.FAIL_OPEN
    problem = _picker_problem(ask, namespace, reference)
    if problem or reference.port is None:
        return ResolvedPicker(None, f"spec.endpointPickerRef{problem}", fail_open)
    port = reference.port.number
    cluster = ClusterKey(namespace, reference.name, port, "grpc", is_picker=True)
    return ResolvedPicker(cluster, fail_open=fail_open)


def _picker_problem(ask: Ask, namespace: str, reference: inference.EndpointPickerRef) -> str:
    """Return why a picker cannot be used, as the end of a sentence; empty if it can."""
    if (reference.group, reference.kind) != ("", "Service"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return f": kind {kind} is not supported: must be Service"
    if reference.port is None:
        return ".port: must be set"
    port = ask(service_port, namespace, reference.name, reference.port.number, "TCP")
    if isinstance(port, str):
        return f": {port}"
    if ask(external_name, (SERVICE, namespace, reference.name)):
        return f": Service {namespace}/{reference.name}: type ExternalName is not supported"
    problem = names_problem(ask, namespace, reference.name)
    return f": {problem}" if problem else ""


def endpoint_picker(ask: Ask, key: ClusterKey) -> ir.EndpointPicker | None:
    """Return the picker of the cluster of an InferencePool; None: the proxy chooses."""
    own = ask(picker_of, key.namespace, key.service)
    return ir.EndpointPicker(own.cluster.name, own.fail_open) if own.cluster is not None else None


def unverified_tls(ask: Ask, key: ClusterKey) -> ir.BackendTls | None:
    """Return the TLS settings of an endpoint picker without BackendTLSPolicy.

    Pickers create certificates of their own, which nothing can verify. None: the port of the
    Service has the ``appProtocol`` of HTTP/2 without TLS.
    """
    port = ask(service_port, key.namespace, key.service, key.port, "TCP")
    if isinstance(port, core.ServicePort) and port.app_protocol.lower() == _H2C:
        return None
    return ir.BackendTls(f"{key.service}.{key.namespace}.svc", "", verified=False)
