"""Keeps every Gateway's data plane provisioned: its Deployment, Service and what goes with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from gatehouse.kube import client as kube
from gatehouse.provisioner import reconcile
from gatehouse.provisioner.copies import Copied
from gatehouse.provisioner.manifests import Plan, ProvisionerSettings

log = structlog.get_logger("gatehouse.provisioner")

Name = tuple[str, str]

AT_ONCE = 8
"""Gateways that are reconciled at a time: mostly answers are waited for."""

FIRST_RETRY, LAST_RETRY = 0.5, 60.0
"""Seconds before a failed attempt is repeated; doubles from the first to the last."""


class Provisioning:
    """Reconciles the Gateways that are ours whenever something changed.

    ``kept`` gives the Gateways whose data planes stay although they are not ours just now: a
    GatewayClass that disappears for a moment must not take the traffic down.
    """

    def __init__(
        self,
        client: kube.Client,
        settings: ProvisionerSettings,
        current: Callable[[Name], Mapping[str, Any] | None],
        kept: Callable[[], set[Name]],
        on_provisioned: Callable[[Name, str], None],
    ) -> None:
        self._client = client
        self._settings = settings
        self._current = current
        self._kept = kept
        self._on_provisioned = on_provisioned
        self._ours: Mapping[Name, Plan] = {}
        self._made: dict[Name, Plan] = {}
        """The plans that were carried out."""
        self._due: dict[Name, None] = {}
        self._sweep = True
        self._failures: dict[Name, int] = {}
        self._woken = asyncio.Event()

    def own(self, gateways: Mapping[Name, Plan]) -> None:
        """Say which Gateways are ours, and what each is to have; what is left of others goes."""
        for name, plan in gateways.items():
            if self._ours.get(name) != plan:
                self._due[name] = None
        gone = self._ours.keys() - gateways.keys()
        for name in gone:
            self._made.pop(name, None)
        self._sweep = self._sweep or bool(gone)
        self._ours = gateways
        self._woken.set()

    def trust(self, ca_bundle: str) -> None:
        """Have all data planes' agents trust ``ca_bundle``, if they do not yet."""
        if ca_bundle != self._settings.ca_bundle:
            log.info("agents are to trust other authorities")
            self._change(ca_bundle=ca_bundle)

    def copy(self, copies: tuple[Copied, ...]) -> None:
        """Have these Secrets beside all data planes, and no others of ours."""
        if copies != self._settings.copies:
            log.info("secrets to copy changed", secrets=[each.name for each in copies])
            self._change(copies=copies)

    def _change(self, **settings: Any) -> None:
        self._settings = msgspec.structs.replace(self._settings, **settings)
        self._made.clear()
        for name in self._ours:
            self.touch(name)

    def touch(self, gateway: Name) -> None:
        """Look again at a Gateway: it, or something made for it, changed."""
        if gateway in self._ours:
            self._due[gateway] = None
            self._woken.set()

    async def run(self) -> None:
        """Reconcile for ever, several Gateways at a time."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(self._due), AT_ONCE)):
                    group.create_task(self._work())
            if self._sweep:
                await self._remove_leftovers()

    async def _work(self) -> None:
        while self._due:
            name = next(iter(self._due))
            del self._due[name]
            await self._reconcile(name)

    async def _reconcile(self, name: Name) -> None:
        gateway = self._current(name)
        if gateway is None or name not in self._ours:
            return
        plan = self._ours[name]
        if plan.waiting:
            # What is there stays as it is.
            log.info("not provisioned yet", gateway="/".join(name), reason=plan.waiting)
            self._on_provisioned(name, plan.waiting)
            return
        try:
            outcomes = await reconcile.reconcile(
                self._client, gateway, self._settings, plan, tidy=self._made.get(name) != plan
            )
        except (kube.ApiError, reconcile.ReconcileError) as error:
            log.warning("not provisioned", gateway="/".join(name), error=str(error))
            self._on_provisioned(name, str(error))
            self._again(name, error.retry_after)
        else:
            self._failures.pop(name, None)
            self._made[name] = plan
            self._on_provisioned(name, "")
            log.debug("provisioned", gateway="/".join(name), outcomes=[str(o) for o in outcomes])

    async def _remove_leftovers(self) -> None:
        self._sweep = False
        try:
            await reconcile.sweep(self._client, set(self._ours) | self._kept())
        except (kube.ApiError, reconcile.ReconcileError) as error:
            log.warning("leftovers not removed", error=str(error))
            asyncio.get_running_loop().call_later(LAST_RETRY, self._sweep_again)

    def _sweep_again(self) -> None:
        self._sweep = True
        self._woken.set()

    def _again(self, name: Name, at_least: float | None) -> None:
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))
        delay = max(delay, at_least or 0.0)
        asyncio.get_running_loop().call_later(delay, self.touch, name)
