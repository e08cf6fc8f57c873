"""Reconciles the objects of a Gateway and prunes objects of unmanaged Gateways."""

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
)
from gatehouse.controller.provisioner import autoscaling, names, service
from gatehouse.controller.provisioner.manifests import (
    ProvisionerSettings,
    ProvisioningPlan,
    desired,
)
from gatehouse.controller.provisioner.owned_objects import ObjectKey, gateway_name
from gatehouse.controller.provisioner.patches import PatchError
from gatehouse.controller.provisioner.pod_security import ForbiddenPodError
from gatehouse.kube.apply import (
    UNKNOWN,
    NotOwnedError,
    ObjectWriteResult,
    create_or_update,
    never_replace,
)
from gatehouse.kube.client import (
    ApiError,
    Client,
    Conflict,
    Forbidden,
    NamespaceTerminating,
    NotFound,
)
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.provisioner")

OWNED_KINDS = (
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
"""Provisioned kinds, in the order of deletion: traffic first, identity last."""

_OWNED_SELECTOR = f"{names.MANAGED_BY_LABEL}={names.FIELD_MANAGER},{names.GATEWAY_NAME}"


QUOTA = "exceeded quota"
"""Text by which a response 403 for a ResourceQuota differs from others."""


class ReconcileError(Exception):
    """Some objects could not be written or deleted; the message names each with its error."""

    def __init__(
        self,
        errors: Iterable[str],
        retry_after: float | None = None,
        *,
        exhausted: bool = False,
    ) -> None:
        super().__init__("; ".join(errors))
        self.exhausted = exhausted
        """True if a quota is one of the causes."""
        self.retry_after = retry_after
        """Minimum delay in seconds requested by the API server; None if it requested none."""


async def reconcile_objects(
    client: Client,
    gateway: Mapping[str, Any],
    settings: ProvisionerSettings,
    plan: ProvisioningPlan,
    *,
    prune_stale: bool = False,
    owned: Mapping[ObjectKey, Mapping[str, Any]] | None = None,
) -> tuple[ObjectWriteResult, ...]:
    """Create, update and delete the objects of one Gateway as desired.

    Does nothing for a Gateway that is being deleted. ``owned``: its existing objects as watched;
    None to read them from the API server. Objects of an earlier plan are deleted if they are in
    ``owned``, or, without it, listed and deleted with ``prune_stale``.
    Continues after failures, so that one object with another owner does not block the rest. Then
    raises ReconcileError.
    """
    if gateway["metadata"].get("deletionTimestamp"):
        return ()
    try:
        objects = desired(gateway, settings, plan)
    except (PatchError, ForbiddenPodError) as error:
        raise ReconcileError([str(error)]) from error
    results, failure = await _write_all(client, objects, plan, owned)
    for result in results:
        if result.action != "unchanged":
            log.info("object provisioned", object=str(result))
    if failure is not None:
        raise failure
    keep = {(resource.kind, _name(obj)) for resource, obj in objects}
    if owned is not None:
        results += await _remove(client, _stale(owned, keep))
    elif prune_stale or any(result.action == "created" for result in results):
        # The class is part of names: created objects may replace others with old names.
        results += await _remove_renamed(client, gateway["metadata"], keep)
    return tuple(results)


async def _write_all(
    client: Client,
    objects: Iterable[tuple[Resource, Mapping[str, Any]]],
    plan: ProvisioningPlan,
    owned: Mapping[ObjectKey, Mapping[str, Any]] | None,
) -> tuple[list[ObjectWriteResult], ReconcileError | None]:
    """Create or update every object. Return the results, and the failures if there were any."""
    autoscaled = plan.workload.daemon_set is None and plan.workload.deployment.autoscaling.enable
    adjust = {SERVICES: service.with_current_cluster_ip}
    if autoscaled:
        adjust[DEPLOYMENTS] = autoscaling.with_current_replicas
    results: list[ObjectWriteResult] = []
    errors: list[str] = []
    retry_after: float | None = None
    exhausted = False
    for resource, obj in objects:
        try:
            result = await create_or_update(
                client,
                resource,
                obj,
                adjust=adjust.get(resource),
                must_recreate=service.needs_recreate if resource is SERVICES else never_replace,
                last_seen=UNKNOWN if owned is None else owned.get((resource.kind, _name(obj))),
            )
            results.append(result)
        except NamespaceTerminating:
            # Kubernetes deletes the Gateway, too.
            return results, None
        except NotOwnedError as error:
            errors.append(str(error))
        except ApiError as error:
            metadata = obj["metadata"]
            errors.append(f"{resource.kind} {metadata['namespace']}/{metadata['name']}: {error}")
            retry_after = max(retry_after or 0.0, error.retry_after or 0.0)
            exhausted |= isinstance(error, Forbidden) and QUOTA in error.message
    if not errors:
        return results, None
    return results, ReconcileError(errors, retry_after, exhausted=exhausted)


def quota_message(owned: Mapping[ObjectKey, Mapping[str, Any]]) -> str:
    """Return why a quota prevents Pods of a Gateway's Deployment; empty if none does.

    The Deployment itself exists then. Its controller reports the rejected Pods as a condition.
    """
    for (kind, name), obj in owned.items():
        if kind != DEPLOYMENTS.kind:
            continue
        for condition in (obj.get("status") or {}).get("conditions") or ():
            rejected = (
                condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"
            )
            if rejected and QUOTA in condition.get("message", ""):
                return f"{kind} {obj['metadata']['namespace']}/{name}: {condition['message']}"
    return ""


def _stale(
    owned: Mapping[ObjectKey, Mapping[str, Any]], keep: set[ObjectKey]
) -> list[tuple[Resource, Mapping[str, Any]]]:
    """Return the owned objects that are not in ``keep``, in the order of deletion."""
    return [
        (resource, owned[(resource.kind, name)])
        for resource in OWNED_KINDS
        for kind_name, name in owned
        if kind_name == resource.kind and (kind_name, name) not in keep
    ]


async def prune_orphans(
    client: Client, is_desired: Callable[[tuple[str, str]], bool]
) -> tuple[ObjectWriteResult, ...]:
    """Delete the objects of all Gateways (namespace and name) except those that ``is_desired``.

    Needed where the API server has no garbage collector, and for Gateways that still exist but are
    not managed any longer. Continues after failures, then raises ReconcileError.
    """

    def is_orphan(_: Resource, obj: Mapping[str, Any]) -> bool:
        owner = gateway_name(obj)
        return owner is not None and not is_desired((obj["metadata"]["namespace"], owner))

    return await _remove_where(client, None, _OWNED_SELECTOR, is_orphan)


async def remove(
    client: Client, owned: Mapping[ObjectKey, Mapping[str, Any]]
) -> tuple[ObjectWriteResult, ...]:
    """Delete the objects of a Gateway. Continues after failures, then raises ReconcileError."""
    return await _remove(client, _stale(owned, set()))


async def _remove_renamed(
    client: Client, gateway: Mapping[str, Any], keep: set[tuple[str, str]]
) -> tuple[ObjectWriteResult, ...]:
    def is_renamed(resource: Resource, obj: Mapping[str, Any]) -> bool:
        owned = gateway_name(obj) == gateway["name"]
        return owned and (resource.kind, obj["metadata"]["name"]) not in keep

    selector = f"{_OWNED_SELECTOR}={names.label_value(gateway['name'])}"
    return await _remove_where(client, gateway["namespace"], selector, is_renamed)


async def _remove_where(
    client: Client,
    namespace: str | None,
    selector: str,
    condition: Callable[[Resource, Mapping[str, Any]], bool],
) -> tuple[ObjectWriteResult, ...]:
    matching: list[tuple[Resource, Mapping[str, Any]]] = []
    for resource in OWNED_KINDS:
        try:
            listed = await client.list(resource, namespace, label_selector=selector)
        except (Forbidden, NotFound) as error:
            # A kind that may not be listed or is not served cannot have been created either.
            log.debug("list skipped", kind=resource.kind, error=str(error))
            continue
        matching += [(resource, obj) for obj in listed.items if condition(resource, obj)]
    return await _remove(client, matching)


async def _remove(
    client: Client, objects: Iterable[tuple[Resource, Mapping[str, Any]]]
) -> tuple[ObjectWriteResult, ...]:
    results: list[ObjectWriteResult] = []
    errors: list[str] = []
    retry_after: float | None = None
    for resource, obj in objects:
        metadata = obj["metadata"]
        try:
            await client.delete(
                resource, metadata["name"], metadata["namespace"], uid=metadata.get("uid", "")
            )
        except (NotFound, Conflict):
            # Deleted, or recreated meanwhile: not the object that was selected.
            continue
        except ApiError as error:
            errors.append(f"{resource.kind} {metadata['namespace']}/{metadata['name']}: {error}")
            retry_after = max(retry_after or 0.0, error.retry_after or 0.0)
        else:
            result = ObjectWriteResult(
                resource.kind, metadata["namespace"], metadata["name"], "deleted"
            )
            results.append(result)
            log.info("object deleted", object=str(result))
    if errors:
        raise ReconcileError(errors, retry_after)
    return tuple(results)


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])


def gateway_of(
    service_account_namespace: str,
    service_account_name: str,
    service_accounts: Mapping[tuple[str, str], Mapping[str, Any]],
) -> str | None:
    """Return the ``namespace/name`` of the Gateway that owns a ServiceAccount, or None.

    Labels and controller reference must agree: labels alone are easily copied to another account.
    """
    service_account = service_accounts.get((service_account_namespace, service_account_name))
    if service_account is None:
        return None
    name = gateway_name(service_account)
    return f"{service_account_namespace}/{name}" if name else None
