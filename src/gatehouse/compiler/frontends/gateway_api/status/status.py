"""Desired statuses of all kinds of objects."""

from __future__ import annotations

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.compiler.frontends.gateway_api.attachment.hostname_conflicts import attachments
from gatehouse.compiler.frontends.gateway_api.classes import classes, controller_of
from gatehouse.compiler.frontends.gateway_api.extensions import parameters
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason, conditions
from gatehouse.compiler.frontends.gateway_api.inputs import (
    FILTER_KINDS,
    POLICY_KINDS,
    ROUTE_KINDS,
    STATUS_SUBJECTS,
)
from gatehouse.compiler.frontends.gateway_api.status.extension_status import (
    extension_status,
    filter_status,
)
from gatehouse.compiler.frontends.gateway_api.status.gateway_status import (
    gateway_status,
    set_status,
)
from gatehouse.compiler.frontends.gateway_api.status.policy_status import policy_status
from gatehouse.compiler.frontends.gateway_api.status.route_status import route_status
from gatehouse.compiler.frontends.gateway_api.status.supported_features import FEATURES
from gatehouse.compiler.frontends.gateway_api.status.types import ClassStatus, Status
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


def subjects(ask: Ask, _: str = "") -> Table[Key, Key]:
    """Return every object whose status the controller may write."""
    found: Table[Key, Key] = ask.read(STATUS_SUBJECTS)
    return found


def status(ask: Ask, key: Key) -> Status | None:
    """Return the desired status of an object; None if this controller does not manage it."""
    match key[0]:
        case "GatewayClass":
            return _class_status(ask, key)
        case "Gateway":
            return gateway_status(ask, key)
        case "ListenerSet":
            return set_status(ask, key)
        case "BackendTLSPolicy":
            return policy_status(ask, key)
        case kind if kind in POLICY_KINDS:
            return extension_status(ask, key)
        case kind if kind in FILTER_KINDS:
            return filter_status(ask, key)
        case kind if kind in ROUTE_KINDS:
            return route_status(ask, key)
    return None


def gateways_of_route(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the managed Gateways to which a route is attached."""
    found = {entry.gateway for entry in ask(attachments, key) if entry.refusal is None}
    return tuple(sorted(found))


def _class_status(ask: Ask, key: Key) -> ClassStatus | None:
    found = ask.read(key)
    if not isinstance(found, gateway.GatewayClass) or key not in ask(classes, ""):
        return None
    problem = ask(parameters.of_class, key).problem
    accepted = Finding(Reason.ACCEPTED, f"accepted by {ask(controller_of, key)}")
    if problem:
        accepted = Finding(Reason.INVALID_PARAMETERS, f"spec.parametersRef: {problem}")
    class_conditions = conditions(crd_version.findings(ask), (accepted,), found.metadata.generation)
    return ClassStatus(class_conditions, FEATURES)
