"""Statuses of GatewayClasses."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.classes import classes, controller_of
from gatehouse.compiler.frontends.gateway_api.extensions import parameters
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason, conditions
from gatehouse.compiler.frontends.gateway_api.status.supported_features import FEATURES
from gatehouse.compiler.frontends.gateway_api.status.types import ClassStatus
from gatehouse.incremental.query import Ask, Key


def class_status(ask: Ask, key: Key) -> ClassStatus | None:
    """Return the desired status of a GatewayClass; None if it is not managed."""
    found = ask.read(key)
    if not isinstance(found, gateway.GatewayClass) or key not in ask(classes, ""):
        return None
    problem = ask(parameters.of_class, key).problem
    accepted = Finding(Reason.ACCEPTED, f"accepted by {ask(controller_of, key)}")
    if problem:
        accepted = Finding(Reason.INVALID_PARAMETERS, f"spec.parametersRef: {problem}")
    class_conditions = conditions(crd_version.findings(ask), (accepted,), found.metadata.generation)
    return ClassStatus(class_conditions, FEATURES)
