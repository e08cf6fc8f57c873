"""Reconciles the Kubernetes objects of every Gateway's data plane, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from gatehouse.controller.programmed_condition import ProvisioningError
from gatehouse.controller.provisioner import reconcile
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, ProvisioningPlan
from gatehouse.controller.provisioner.owned_objects import ObjectKey, OwnedObjects
from gatehouse.kube import client as kube
from kube_base.runtime.backoff import BackoffPolicy
from kube_base.runtime.work_queue import RetryError, WorkQueue
from kube_base.types.objects import ObjectName

log = structlog.get_logger("gatehouse.provisioner")


MAX_CONCURRENT_RECONCILES = 8
"""Number of Gateways reconciled concurrently. Most of the time is spent on waiting."""

PROVISION_DEBOUNCE_SECONDS = 0.1
"""Minimum time in seconds between the end of a reconciliation of a Gateway and the next one. Most
changes in this time are the controller's own writes, which the watches deliver meanwhile."""

_RETRIES = BackoffPolicy(first=0.5, maximum=60.0)
"""Back-off of a Gateway after a failed attempt."""


class _Done(msgspec.Struct, frozen=True):
    """Input of the last successful reconciliation of a Gateway."""

    plan: ProvisioningPlan
    settings: ProvisionerSettings
    uid: str
    generation: int


class GatewayProvisioner:
    """Reconciles managed Gateways whenever something changed, and prunes the objects of others."""

    def __init__(
        self,
        client: kube.Client,
        settings: ProvisionerSettings,
        current: Callable[[ObjectName], Mapping[str, Any] | None],
        is_retained: Callable[[ObjectName], bool],
        on_provisioned: Callable[[ObjectName, ProvisioningError | None], None],
        owned: OwnedObjects | None = None,
    ) -> None:
        """Create it without Gateways.

        ``current`` returns a Gateway as last seen. ``is_retained`` returns whether an unmanaged
        Gateway keeps its data plane: a GatewayClass that is missing for a short time must not
        interrupt traffic. ``owned`` holds the objects of Gateways as watched; without it they are
        read from the API server.
        """
        self._owned = owned
        self._client = client
        self._settings = settings
        self._current = current
        self._is_retained = is_retained
        self._on_provisioned = on_provisioned
        self._plans: dict[ObjectName, ProvisioningPlan] = {}
        self._done: dict[ObjectName, _Done] = {}
        self._queue = WorkQueue(
            self._reconcile,
            _RETRIES,
            workers=MAX_CONCURRENT_RECONCILES,
            debounce=PROVISION_DEBOUNCE_SECONDS,
        )
        self._started = False
        self._prune_due = asyncio.Event()

    def set_gateways(self, plans: Mapping[ObjectName, ProvisioningPlan | None]) -> None:
        """Set the plans of changed Gateways; None for a Gateway that is not managed any longer.

        The first call must name all managed Gateways. It triggers pruning of the objects of all
        others.
        """
        for name, plan in plans.items():
            if plan is None:
                self._remove_gateway(name)
            elif self._plans.get(name) != plan:
                self._plans[name] = plan
                self.enqueue(name)
        if not self._started:
            self._started = True
            self._prune_due.set()

    def _remove_gateway(self, name: ObjectName) -> None:
        self._plans.pop(name, None)
        self._done.pop(name, None)
        self._queue.forget(name)
        if self._owned is None:
            self._prune_due.set()
        else:
            self.enqueue(name)

    def set_ca(self, ca_bundle: str) -> None:
        """Set the CA certificates (PEM) that agents trust and reconcile if they changed."""
        if ca_bundle != self._settings.ca_bundle:
            log.info("agent CA certificates changed")
            self._update_settings(ca_bundle=ca_bundle)

    def set_copied_secrets(self, copies: tuple[CopiedSecret, ...]) -> None:
        """Set the Secrets copied beside all data planes and reconcile if they changed."""
        if copies != self._settings.copies:
            log.info("copied secrets changed", secrets=[copy.name for copy in copies])
            self._update_settings(copies=copies)

    def _update_settings(self, **settings: Any) -> None:
        self._settings = msgspec.structs.replace(self._settings, **settings)
        for name in self._plans:
            self.enqueue(name)

    def enqueue(self, gateway: ObjectName) -> None:
        """Reconcile a Gateway soon. Call this when its objects or its plan changed."""
        if gateway in self._plans or self._leftovers(gateway):
            self._queue.add(gateway)

    def _leftovers(self, gateway: ObjectName) -> Mapping[ObjectKey, Mapping[str, Any]]:
        """Return the known objects of a Gateway that is not managed."""
        if (
            self._owned is None
            or not self._started
            or gateway in self._plans
            or self._is_retained(gateway)
        ):
            return {}
        return self._owned.of(gateway)

    def on_gateway(self, gateway: ObjectName) -> None:
        """Reconcile a Gateway, unless its generation is already reconciled."""
        done, now = self._done.get(gateway), self._current(gateway)
        if done is None or now is None or _state(now) != (done.uid, done.generation):
            self.enqueue(gateway)

    async def run(self) -> None:
        """Reconcile until cancelled, several Gateways concurrently."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._prune_when_due())

    async def _reconcile(self, name: ObjectName) -> None:
        if leftovers := self._leftovers(name):
            await self._remove(name, leftovers)
        gateway = self._current(name)
        if gateway is None or name not in self._plans:
            return
        plan, settings = self._plans[name], self._settings
        if plan.waiting:
            # Existing objects stay unchanged.
            log.info("provisioning deferred", gateway="/".join(name), reason=plan.waiting)
            self._on_provisioned(name, ProvisioningError(plan.waiting))
            return
        done = self._done.get(name)
        prune_stale = done is None or (done.plan, done.settings) != (plan, settings)
        try:
            outcomes = await reconcile.reconcile_objects(
                self._client,
                gateway,
                settings,
                plan,
                prune_stale=prune_stale,
                owned=self._owned.of(name) if self._owned is not None else None,
            )
        except (kube.ApiError, reconcile.ReconcileError) as error:
            log.warning("provisioning failed", gateway="/".join(name), error=str(error))
            exhausted = isinstance(error, reconcile.ReconcileError) and error.exhausted
            self._on_provisioned(name, ProvisioningError(str(error), exhausted))
            raise RetryError(error.retry_after) from error
        else:
            if self._queue.failures(name):
                log.info("provisioned after failures", gateway="/".join(name))
            if name in self._plans:
                self._done[name] = _Done(plan, settings, *_state(gateway))
            # The Deployment is watched: a change of its status leads here again.
            quota_message = (
                reconcile.quota_message(self._owned.of(name)) if self._owned is not None else ""
            )
            self._on_provisioned(name, _quota_error(quota_message))
            log.debug("provisioned", gateway="/".join(name), outcomes=[str(o) for o in outcomes])

    async def _remove(
        self, name: ObjectName, leftovers: Mapping[ObjectKey, Mapping[str, Any]]
    ) -> None:
        try:
            await reconcile.remove(self._client, leftovers)
        except reconcile.ReconcileError as error:
            log.warning("prune failed", gateway="/".join(name), error=str(error))
            raise RetryError(error.retry_after) from error

    async def _prune_when_due(self) -> None:
        while True:
            await self._prune_due.wait()
            self._prune_due.clear()
            try:
                await reconcile.prune_orphans(self._client, self._is_desired)
            except (kube.ApiError, reconcile.ReconcileError) as error:
                log.warning("prune failed", error=str(error))
                asyncio.get_running_loop().call_later(_RETRIES.maximum, self._prune_due.set)

    def _is_desired(self, name: ObjectName) -> bool:
        """Return whether a Gateway keeps its objects. Evaluated per object, as plans may change."""
        return name in self._plans or self._is_retained(name)


def _quota_error(message: str) -> ProvisioningError | None:
    return ProvisioningError(message, quota_exceeded=True, degraded=True) if message else None


def _state(gateway: Mapping[str, Any]) -> tuple[str, int]:
    metadata = gateway["metadata"]
    return metadata.get("uid", ""), metadata.get("generation", 0)
