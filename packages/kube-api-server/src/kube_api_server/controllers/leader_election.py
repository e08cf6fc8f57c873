"""Leader election by a Lease: one of several servers runs the controllers."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.errors import StatusError
from kube_api_server.objects import uids
from kube_api_server.storage.entries import UnavailableError
from kube_base.runtime.time_limits import scaled
from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")

GROUP, PLURAL = "coordination.k8s.io", "leases"
_NAMESPACE = "kube-system"
DURATION_SECONDS = math.ceil(scaled(15))
_RENEW_SECONDS = 2.0


class LeaderElector:
    """Runs a task while this server holds the Lease."""

    def __init__(self, context: ControllerContext, name: str) -> None:
        """`name` is that of the Lease."""
        self._context, self._name = context, name
        self._identity = f"{socket.gethostname()}_{os.getpid()}_{uids.new()[:8]}"
        self._seen: tuple[str, float] = ("", 0.0)
        """Last renewal by the holder, and local time at which it was first seen, as clocks may
        differ.
        """

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Follow the Lease until cancelled."""
        task: asyncio.Future[None] | None = None
        try:
            while True:
                is_leader = await self._try_acquire()
                if is_leader and task is None:
                    log.info("became leader", lease=f"{_NAMESPACE}/{self._name}")
                    task = asyncio.ensure_future(lead())
                elif not is_leader and task is not None:
                    log.warning("lost leadership")
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                    task = None
                if task is not None and task.done():
                    await task
                await asyncio.sleep(_RENEW_SECONDS)
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await self._release()

    async def _try_acquire(self) -> bool:
        """Acquire or renew the Lease. Return whether this server holds it."""
        try:
            return await self._acquire()
        except (StatusError, UnavailableError, TimeoutError) as error:
            log.debug("lease not renewed", error=str(error))
            return False

    async def _acquire(self) -> bool:
        context = self._context
        served = context.kind(GROUP, PLURAL)
        lease: Object = {"metadata": {"name": self._name, "namespace": _NAMESPACE}}
        call = context.call(served, lease, self._identity)
        entry = context.store.get(call.key)
        if entry is None:
            lease["spec"] = self._spec(0)
            return await context.create(GROUP, PLURAL, lease, self._identity) is not None
        spec = entry.value.get("spec") or {}
        holder, renewed = spec.get("holderIdentity", ""), str(spec.get("renewTime", ""))
        now = asyncio.get_running_loop().time()
        if self._seen[0] != renewed:
            self._seen = (renewed, now)
        expired = now - self._seen[1] > DURATION_SECONDS
        if holder not in ("", self._identity) and not expired:
            return False
        transitions = int(spec.get("leaseTransitions", 0)) + (holder != self._identity)
        version = entry.value["metadata"]["resourceVersion"]

        def take(obj: Object) -> Object:
            obj["metadata"]["resourceVersion"] = version
            return {**obj, "spec": self._spec(transitions)}

        await context.verbs.change(call, take)
        return True

    async def _release(self) -> None:
        """Release the Lease, so that another server can lead immediately."""
        context = self._context
        lease = {"metadata": {"name": self._name, "namespace": _NAMESPACE}}
        call = context.call(context.kind(GROUP, PLURAL), lease, self._identity)

        def leave(obj: Object) -> Object:
            if obj.get("spec", {}).get("holderIdentity") == self._identity:
                obj["spec"]["holderIdentity"] = ""
            return obj

        try:
            await context.verbs.change(call, leave)
        except (StatusError, UnavailableError):
            return

    def _spec(self, transitions: int) -> Object:
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": moment,
            "acquireTime": moment,
            "leaseTransitions": transitions,
        }
