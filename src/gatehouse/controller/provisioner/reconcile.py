"""Makes what a Gateway needs, removes what is left of Gateways that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from gatehouse.apis.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    NETWORK_POLICIES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from gatehouse.controller.provisioner import autoscaling, names, service
from gatehouse.controller.provisioner.manifests import Plan, ProvisionerSettings, desired
from gatehouse.controller.provisioner.owned_objects import Place, gateway_name
from gatehouse.controller.provisioner.patches import PatchError
from gatehouse.kube.apply import (
    UNKNOWN,
    NotOwnedError,
    WriteResult,
    create_or_update,
    never_replace,
)
from gatehouse.kube.client import ApiError, Client, Conflict, Forbidden, NotFound

log = structlog.get_logger("gatehouse.provisioner")

KINDS = (
    AUTOSCALERS,
    DISRUPTION_BUDGETS,
    DEPLOYMENTS,
    DAEMON_SETS,
    SERVICES,
    NETWORK_POLICIES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
"""What is made for a Gateway, in the order of removal: traffic's end first, identity last."""

_OURS = f"{names.MANAGED_BY}={names.MANAGER},{names.GATEWAY_NAME}"


QUOTA = "exceeded quota"
"""What the API server says of a ResourceQuota, within a refusal that else is like any other."""


class ReconcileError(Exception):
    """Not everything could be made or removed; the message names each object and its trouble."""

    def __init__(
        self,
        troubles: Iterable[str],
        retry_after: float | None = None,
        *,
        exhausted: bool = False,
    ) -> None:
        super().__init__("; ".join(troubles))
        self.exhausted = exhausted
        """Whether a quota is among the reasons."""
        self.retry_after = retry_after
        """Seconds that the API server asks to wait before the next attempt, if it did."""


async def reconcile(
    client: Client,
    gateway: Mapping[str, Any],
    settings: ProvisionerSettings,
    plan: Plan,
    *,
    tidy: bool = False,
    made: Mapping[Place, Mapping[str, Any]] | None = None,
) -> tuple[WriteResult, ...]:
    """Make everything for one Gateway be as it should; a Gateway being deleted gets nothing new.

    ``made``: what there is of it as far as is known, which need not be asked for then; None:
    nothing is known. What was made for it under an earlier plan, and is not in this one, is removed
    as far as it is known, or with ``tidy`` looked for.
    Raises ReconcileError after everything was tried, so that one object that somebody else owns
    does not keep the others from being mended.
    """
    if gateway["metadata"].get("deletionTimestamp"):
        return ()
    try:
        wanted = desired(gateway, settings, plan)
    except PatchError as error:
        raise ReconcileError([str(error)]) from error
    outcomes, trouble = await _make(client, wanted, plan, made)
    for outcome in outcomes:
        if outcome.action != "unchanged":
            log.info("object provisioned", object=str(outcome))
    if trouble is not None:
        raise trouble
    keep = {(resource.kind, _name(obj)) for resource, obj in wanted}
    if made is not None:
        outcomes += await _remove(client, _unwanted(made, keep))
    elif tidy or any(outcome.action == "created" for outcome in outcomes):
        # Something new may mean a new name, since the class is part of it: the old ones go.
        outcomes += await _remove_renamed(client, gateway["metadata"], keep)
    return tuple(outcomes)


async def _make(
    client: Client,
    wanted: Iterable[tuple[Resource, Mapping[str, Any]]],
    plan: Plan,
    made: Mapping[Place, Mapping[str, Any]] | None,
) -> tuple[list[WriteResult], ReconcileError | None]:
    """Make every object be as it should; gives what was done, and what could not be."""
    settled = plan.workload.daemon_set is None and plan.workload.deployment.autoscaling.enable
    outcomes: list[WriteResult] = []
    troubles: list[str] = []
    patience: float | None = None
    exhausted = False
    for resource, obj in wanted:
        try:
            done = await create_or_update(
                client,
                resource,
                obj,
                settle=autoscaling.scaled if resource is DEPLOYMENTS and settled else None,
                replaced=service.needs_recreate if resource is SERVICES else never_replace,
                known=UNKNOWN if made is None else made.get((resource.kind, _name(obj))),
            )
            outcomes.append(done)
        except NotOwnedError as error:
            troubles.append(str(error))
        except ApiError as error:
            metadata = obj["metadata"]
            troubles.append(f"{resource.kind} {metadata['namespace']}/{metadata['name']}: {error}")
            patience = max(patience or 0.0, error.retry_after or 0.0)
            exhausted |= isinstance(error, Forbidden) and QUOTA in error.message
    if not troubles:
        return outcomes, None
    return outcomes, ReconcileError(troubles, patience, exhausted=exhausted)


def quota_message(made: Mapping[Place, Mapping[str, Any]]) -> str:
    """Say why a Gateway's Deployment gets no Pods for a quota; empty if it is not that.

    The Deployment itself may be made then: its controller is refused the Pods, and says so there.
    """
    for (kind, name), found in made.items():
        if kind != DEPLOYMENTS.kind:
            continue
        for each in (found.get("status") or {}).get("conditions") or ():
            refused = each.get("type") == "ReplicaFailure" and each.get("status") == "True"
            if refused and QUOTA in each.get("message", ""):
                return f"{kind} {found['metadata']['namespace']}/{name}: {each['message']}"
    return ""


def _unwanted(
    made: Mapping[Place, Mapping[str, Any]], keep: set[Place]
) -> list[tuple[Resource, Mapping[str, Any]]]:
    """Give what was made and is wanted no more, in the order of removal."""
    return [
        (kind, made[(kind.kind, name)])
        for kind in KINDS
        for held, name in made
        if held == kind.kind and (held, name) not in keep
    ]


async def sweep(
    client: Client, wanted: Callable[[tuple[str, str]], bool]
) -> tuple[WriteResult, ...]:
    """Delete what we made for Gateways (namespace and name) that are not ``wanted``.

    Needed where the API server's garbage collector does not do it, and for Gateways that live on
    but are no longer ours. Raises ReconcileError after everything was tried.
    """

    def left_over(_: Resource, found: Mapping[str, Any]) -> bool:
        owner = gateway_name(found)
        return owner is not None and not wanted((found["metadata"]["namespace"], owner))

    return await _remove_where(client, None, _OURS, left_over)


async def remove(
    client: Client, made: Mapping[Place, Mapping[str, Any]]
) -> tuple[WriteResult, ...]:
    """Delete what was made for a Gateway. Raises ReconcileError after everything was tried."""
    return await _remove(client, _unwanted(made, set()))


async def _remove_renamed(
    client: Client, gateway: Mapping[str, Any], keep: set[tuple[str, str]]
) -> tuple[WriteResult, ...]:
    def renamed(resource: Resource, found: Mapping[str, Any]) -> bool:
        mine = gateway_name(found) == gateway["name"]
        return mine and (resource.kind, found["metadata"]["name"]) not in keep

    selector = f"{_OURS}={names.label_value(gateway['name'])}"
    return await _remove_where(client, gateway["namespace"], selector, renamed)


async def _remove_where(
    client: Client,
    namespace: str | None,
    selector: str,
    condemned: Callable[[Resource, Mapping[str, Any]], bool],
) -> tuple[WriteResult, ...]:
    found: list[tuple[Resource, Mapping[str, Any]]] = []
    for resource in KINDS:
        try:
            listed = await client.list(resource, namespace, label_selector=selector)
        except (Forbidden, NotFound) as error:
            # What we may not see, or what is not served, was not made by us either.
            log.debug("not looked for", kind=resource.kind, reason=str(error))
            continue
        found += [(resource, each) for each in listed.items if condemned(resource, each)]
    return await _remove(client, found)


async def _remove(
    client: Client, condemned: Iterable[tuple[Resource, Mapping[str, Any]]]
) -> tuple[WriteResult, ...]:
    outcomes: list[WriteResult] = []
    troubles: list[str] = []
    patience: float | None = None
    for resource, found in condemned:
        where = found["metadata"]
        try:
            await client.delete(
                resource, where["name"], where["namespace"], uid=where.get("uid", "")
            )
        except (NotFound, Conflict):
            # Gone, or made anew meanwhile: either way not the object we judged.
            continue
        except ApiError as error:
            troubles.append(f"{resource.kind} {where['namespace']}/{where['name']}: {error}")
            patience = max(patience or 0.0, error.retry_after or 0.0)
        else:
            outcome = WriteResult(resource.kind, where["namespace"], where["name"], "deleted")
            outcomes.append(outcome)
            log.info("leftover removed", object=str(outcome))
    if troubles:
        raise ReconcileError(troubles, patience)
    return tuple(outcomes)


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def gateway_of(
    service_account_namespace: str,
    service_account_name: str,
    service_accounts: Mapping[tuple[str, str], Mapping[str, Any]],
) -> str | None:
    """Give the ``namespace/name`` of the Gateway a ServiceAccount was made for; None if for none.

    Labels and controller reference must agree: labels alone are easily copied to another account.
    """
    found = service_accounts.get((service_account_namespace, service_account_name))
    if found is None:
        return None
    name = gateway_name(found)
    return f"{service_account_namespace}/{name}" if name else None
