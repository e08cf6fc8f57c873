"""Keeps every Gateway's data plane provisioned: its Deployment, Service and what goes with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from gatehouse.controller.programmed_condition import ProvisioningError
from gatehouse.controller.provisioner import reconcile
from gatehouse.controller.provisioner.copied_secrets import CopiedSecret
from gatehouse.controller.provisioner.manifests import Plan, ProvisionerSettings
from gatehouse.controller.provisioner.owned_objects import OwnedObjects, Place
from gatehouse.kube import client as kube

log = structlog.get_logger("gatehouse.provisioner")

Name = tuple[str, str]

MAX_CONCURRENT_RECONCILES = 8
"""Gateways that are reconciled at a time: mostly answers are waited for."""

DEBOUNCE_SECONDS = 0.1
"""Seconds before a Gateway that was touched while it was reconciled is looked at again. Mostly our
own writes do that, which the watches bring meanwhile: nothing is written in view of the past."""

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
"""Seconds before a failed attempt is repeated; doubles from the first to the last."""


class _Done(msgspec.Struct, frozen=True):
    """What was carried out for a Gateway, and for which state of it."""

    plan: Plan
    settings: ProvisionerSettings
    uid: str
    generation: int


class GatewayProvisioner:
    """Reconciles the Gateways that are ours whenever something changed.

    ``kept`` tells of a Gateway whether its data plane stays although it is not ours just now: a
    GatewayClass that disappears for a moment must not take the traffic down.
    """

    def __init__(
        self,
        client: kube.Client,
        settings: ProvisionerSettings,
        current: Callable[[Name], Mapping[str, Any] | None],
        kept: Callable[[Name], bool],
        on_provisioned: Callable[[Name, ProvisioningError | None], None],
        made: OwnedObjects | None = None,
    ) -> None:
        """``made``: what was made for Gateways, as watches have it; None: it is asked for."""
        self._made = made
        self._client = client
        self._settings = settings
        self._current = current
        self._kept = kept
        self._on_provisioned = on_provisioned
        self._ours: dict[Name, Plan] = {}
        self._done: dict[Name, _Done] = {}
        self._due: asyncio.Queue[Name] = asyncio.Queue()
        self._queued: set[Name] = set()
        self._busy: set[Name] = set()
        self._begun = False
        self._sweep = asyncio.Event()
        self._failures: dict[Name, int] = {}

    def set_gateways(self, plans: Mapping[Name, Plan | None]) -> None:
        """Say what Gateways that are ours are to have; None: that one is ours no more.

        Of those that are not named nothing changed since the last time; the first time, all that
        are ours are named, and what is left of others goes.
        """
        for name, plan in plans.items():
            if plan is None:
                self._disown(name)
            elif self._ours.get(name) != plan:
                self._ours[name] = plan
                self.enqueue(name)
        if not self._begun:
            self._begun = True
            self._sweep.set()

    def _disown(self, name: Name) -> None:
        self._ours.pop(name, None)
        self._done.pop(name, None)
        self._failures.pop(name, None)
        if self._made is None:
            self._sweep.set()
        else:
            self.enqueue(name)

    def set_ca(self, ca_bundle: str) -> None:
        """Have all data planes' agents trust ``ca_bundle``, if they do not yet."""
        if ca_bundle != self._settings.ca_bundle:
            log.info("agents are to trust other authorities")
            self._change(ca_bundle=ca_bundle)

    def set_copied_secrets(self, copies: tuple[CopiedSecret, ...]) -> None:
        """Have these Secrets beside all data planes, and no others of ours."""
        if copies != self._settings.copies:
            log.info("secrets to copy changed", secrets=[each.name for each in copies])
            self._change(copies=copies)

    def _change(self, **settings: Any) -> None:
        self._settings = msgspec.structs.replace(self._settings, **settings)
        for name in self._ours:
            self.enqueue(name)

    def enqueue(self, gateway: Name) -> None:
        """Look again at a Gateway: something made for it changed, or what it is to have."""
        if (gateway in self._ours or self._left(gateway)) and gateway not in self._queued:
            self._queued.add(gateway)
            if gateway not in self._busy:
                self._due.put_nowait(gateway)

    def _left(self, gateway: Name) -> Mapping[Place, Mapping[str, Any]]:
        """Give what is known to be left of a Gateway that is not ours."""
        if self._made is None or not self._begun or gateway in self._ours or self._kept(gateway):
            return {}
        return self._made.of(gateway)

    def on_gateway(self, gateway: Name) -> None:
        """Note that a Gateway changed, perhaps in nothing but its status."""
        done, now = self._done.get(gateway), self._current(gateway)
        if done is None or now is None or _state(now) != (done.uid, done.generation):
            self.enqueue(gateway)

    async def run(self) -> None:
        """Reconcile for ever, several Gateways at a time; none waits for one that hangs."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_RECONCILES):
                group.create_task(self._work())
            group.create_task(self._remove_leftovers())

    async def _work(self) -> None:
        while True:
            name = await self._due.get()
            self._queued.discard(name)
            self._busy.add(name)
            try:
                await self._reconcile(name)
            finally:
                self._busy.discard(name)
            if name in self._queued:
                # Touched meanwhile. One at a time: an earlier plan must not be written last.
                asyncio.get_running_loop().call_later(DEBOUNCE_SECONDS, self._due.put_nowait, name)

    async def _reconcile(self, name: Name) -> None:
        if left := self._left(name):
            await self._remove(name, left)
        gateway = self._current(name)
        if gateway is None or name not in self._ours:
            return
        plan, settings = self._ours[name], self._settings
        if plan.waiting:
            # What is there stays as it is.
            log.info("not provisioned yet", gateway="/".join(name), reason=plan.waiting)
            self._on_provisioned(name, ProvisioningError(plan.waiting))
            return
        before = self._done.get(name)
        tidy = before is None or (before.plan, before.settings) != (plan, settings)
        try:
            outcomes = await reconcile.reconcile(
                self._client,
                gateway,
                settings,
                plan,
                tidy=tidy,
                made=self._made.of(name) if self._made is not None else None,
            )
        except (kube.ApiError, reconcile.ReconcileError) as error:
            log.warning("not provisioned", gateway="/".join(name), error=str(error))
            exhausted = isinstance(error, reconcile.ReconcileError) and error.exhausted
            self._on_provisioned(name, ProvisioningError(str(error), exhausted))
            self._again(name, error.retry_after)
        else:
            if self._failures.pop(name, None):
                log.info("provisioned after failures", gateway="/".join(name))
            if name in self._ours:
                self._done[name] = _Done(plan, settings, *_state(gateway))
            # Watched: what changes about it brings us here again.
            starved = reconcile.quota_message(self._made.of(name)) if self._made is not None else ""
            self._on_provisioned(name, _fewer(starved))
            log.debug("provisioned", gateway="/".join(name), outcomes=[str(o) for o in outcomes])

    async def _remove(self, name: Name, left: Mapping[Place, Mapping[str, Any]]) -> None:
        try:
            await reconcile.remove(self._client, left)
        except reconcile.ReconcileError as error:
            log.warning("leftovers not removed", gateway="/".join(name), error=str(error))
            self._again(name, error.retry_after)
        else:
            self._failures.pop(name, None)

    async def _remove_leftovers(self) -> None:
        while True:
            await self._sweep.wait()
            self._sweep.clear()
            try:
                await reconcile.sweep(self._client, self._wanted)
            except (kube.ApiError, reconcile.ReconcileError) as error:
                log.warning("leftovers not removed", error=str(error))
                asyncio.get_running_loop().call_later(LAST_RETRY, self._sweep.set)

    def _wanted(self, name: Name) -> bool:
        """Asked of each object as it is looked at: a Gateway may become ours meanwhile."""
        return name in self._ours or self._kept(name)

    def _again(self, name: Name, at_least: float | None) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))
        delay = max(delay, at_least or 0.0)
        asyncio.get_running_loop().call_later(delay, self.enqueue, name)


def _fewer(why: str) -> ProvisioningError | None:
    return ProvisioningError(why, quota_exceeded=True, degraded=True) if why else None


def _state(gateway: Mapping[str, Any]) -> tuple[str, int]:
    metadata = gateway["metadata"]
    return metadata.get("uid", ""), metadata.get("generation", 0)
