"""The Pod label by which Services send agents to the controller that leads.

Every replica is Ready, so readiness cannot tell the leader from a standby. The leader labels its
own Pod and removes the label from all other Pods. A standby removes the label from its own Pod
before it becomes Ready: a container that was killed while it led restarts in a labelled Pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog

from gatehouse.apis.resources import PODS
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.kube.store import Changes
from kube_base.runtime.backoff import Backoff, BackoffPolicy
from kube_base.types.objects import ObjectName
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.controller")

LABEL = "gatehouse.dev/leader"
"""Label of the leading controller's Pod: the value is ``true``. Services select the label."""

VALUE = "true"

_RETRIES = BackoffPolicy(first=0.25, maximum=5.0, jitter=0.5)
"""Back-off after a failed write. Agents find no leader meanwhile."""


def label_changes(
    pod: ObjectName, leading: bool, labelled: Collection[ObjectName]
) -> Mapping[ObjectName, bool]:
    """Return the Pods whose label must change: True to add it, False to remove it."""
    if not leading:
        return {pod: False} if pod in labelled else {}
    changes = {name: False for name in labelled if name != pod}
    return changes if pod in labelled else {pod: True, **changes}


class LeaderLabel:
    """Keeps the label on the leader's Pod only, as long as it runs."""

    def __init__(self, client: kube.Client, pod: ObjectName, leading: Callable[[], bool]) -> None:
        """``pod``: the namespace and name of the Pod that this process runs in."""
        self._client = client
        self._pod = pod
        self._leading = leading
        self._wake_up = asyncio.Event()
        self._error = ""
        self._informer = Informer(
            client,
            PODS,
            on_changes=self._on_changes,
            namespace=pod[0],
            label_selector=f"{LABEL}={VALUE}",
            metadata_only=True,
        )

    def not_ready(self) -> str:
        """Return why the label of this process's own Pod is wrong; empty if it is not."""
        if not self._informer.synced.is_set():
            reason = self._informer.unavailable_reason
            return f"waiting for {PODS.kind} ({reason})" if reason else f"waiting for {PODS.kind}"
        add = self._changes().get(self._pod)
        if add is None:
            return ""
        change = "added to" if add else "removed from"
        message = f"label {LABEL} is not yet {change} Pod {'/'.join(self._pod)}"
        return f"{message}: {self._error}" if self._error else message

    def refresh(self) -> None:
        """Check the labels again. Call this when this process becomes the leader."""
        self._wake_up.set()

    async def run(self) -> None:
        """Write labels until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            await self._informer.synced.wait()
            backoff = Backoff(_RETRIES)
            while True:
                self._wake_up.clear()
                if await self._write():
                    backoff.succeeded()
                    await self._wake_up.wait()
                else:
                    await asyncio.sleep(backoff.failed())

    def _on_changes(self, _: Resource, __: Changes) -> None:
        self._wake_up.set()

    def _changes(self) -> Mapping[ObjectName, bool]:
        return label_changes(self._pod, self._leading(), self._informer.objects.keys())

    async def _write(self) -> bool:
        """Return whether every write succeeded; the watch shows its effect."""
        self._error = ""
        for name, add in self._changes().items():
            patch = {"metadata": {"labels": {LABEL: VALUE if add else None}}}
            try:
                await self._client.patch(PODS, name[1], patch, name[0])
            except kube.NotFound as error:
                # The deletion of another Pod comes by the watch.
                if name == self._pod:
                    self._error = str(error)
            except kube.ApiError as error:
                self._error = str(error)
                log.warning("label write failed", pod="/".join(name), error=str(error))
            else:
                log.info("label written", pod="/".join(name), leader=add)
        return not self._error
