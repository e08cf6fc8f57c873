"""Statuses of GatewayClasses."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.apis import gateway, resources
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.classes import class_controller, classes
from gatehouse.compiler.frontends.gateway_api.extensions import parameters
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason, fold_findings
from gatehouse.compiler.frontends.gateway_api.inputs import unavailable_kind_key
from gatehouse.compiler.frontends.gateway_api.listeners import addresses
from gatehouse.compiler.frontends.gateway_api.status.supported_features import supported_features
from gatehouse.compiler.frontends.gateway_api.status.types import ClassStatus
from gatehouse.incremental.query import Ask, Key


def class_status(ask: Ask, key: Key) -> ClassStatus | None:
    """Return the desired status of a GatewayClass; None if it is not managed."""
    class_object = ask.read(key)
    if not isinstance(class_object, gateway.GatewayClass) or key not in ask(classes):
        return None
    problem = ask(parameters.class_parameters, key).problem
    accepted = Finding(Reason.ACCEPTED, f"accepted by {ask(class_controller, key)}")
    if problem:
        accepted = Finding(Reason.INVALID_PARAMETERS, f"spec.parametersRef: {problem}")
    class_conditions = fold_findings(
        crd_version.crd_version_findings(ask), (accepted,), class_object.metadata.generation
    )
    features = supported_features(ask(crd_version.oldest_version, ""), _optional_features(ask))
    return ClassStatus(class_conditions, features)


def _optional_features(ask: Ask) -> Iterator[str]:
    if not ask.read(unavailable_kind_key(resources.CLUSTER_TRUST_BUNDLES.kind)):
        yield "ClusterTrustBundle"
    if ask(crd_version.has_later_fields):
        yield "GatewayListenerFilters"
        yield "GatewayAddressRoutability"
        if addresses.has_cluster_ips(ask):
            yield "GatewayAddressRoutabilityCluster"
