"""Pods of Deployments, updated one after the other: a new Pod first, then an old one goes.

There are no ReplicaSets. Strategies other than that of the default are not supported.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from fakes.workloads import images
from fakes.workloads.images import Images
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.kube.apply import controller_reference

log = structlog.get_logger("fakes.workloads")

HASH_LABEL = "pod-template-hash"
RETRY_SECONDS = 0.2

Name = tuple[str, str]
Object = Mapping[str, Any]


class Deployments:
    """Creates and deletes the Pods of Deployments whose image is known, on one node."""

    def __init__(self, client: kube.Client, node: str, known_images: Images) -> None:
        self._client, self._node, self._images = client, node, known_images
        self._wake_up = asyncio.Event()

    def wake(self) -> None:
        """Reconcile soon. Call this when Deployments or Pods changed."""
        self._wake_up.set()

    async def run(self, deployments: Mapping[Name, Object]) -> None:
        """Reconcile until cancelled."""
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            for deployment in list(deployments.values()):
                if images.find(self._images, deployment["spec"]["template"]) is None:
                    continue
                try:
                    await self._reconcile(deployment)
                except kube.ApiError as error:
                    # The informer is stale, or the object is gone.
                    log.debug("pass failed", error=str(error))
                    asyncio.get_running_loop().call_later(RETRY_SECONDS, self.wake)

    async def _reconcile(self, deployment: Object) -> None:
        metadata = deployment["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        # Not from an informer, which may not know yet that a Pod is ending.
        pods = [
            pod
            for pod in (await self._client.list(resources.PODS, metadata["namespace"])).items
            if (controller_reference(pod) or {}).get("uid") == metadata["uid"]
            and not _is_ending(pod)
        ]
        desired = deployment["spec"].get("replicas", 1)
        current = [
            pod for pod in pods if pod["metadata"]["labels"][HASH_LABEL] == _hash(deployment)
        ]
        older = [pod for pod in pods if pod not in current]
        if len(current) < desired and len(pods) <= desired:
            await self._client.create(resources.PODS, self._pod(deployment))
            return
        ready = sum(map(is_ready, pods))
        for pod in sorted(older, key=is_ready) + current[desired:]:
            if not is_ready(pod) or ready > desired:
                name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
                await self._client.delete(resources.PODS, name, namespace)
                return
        await self._report(deployment, len(current), sum(map(is_ready, current)))

    async def _report(self, deployment: Object, updated: int, ready: int) -> None:
        desired = deployment["spec"].get("replicas", 1)
        available = "True" if ready >= desired else "False"
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            **dict.fromkeys(("replicas", "updatedReplicas"), updated),
            **dict.fromkeys(("readyReplicas", "availableReplicas"), ready),
            "conditions": [{"type": "Available", "status": available}],
        }
        if deployment.get("status") != status:
            await self._client.update_status(
                resources.DEPLOYMENTS, {**deployment, "status": status}
            )

    def _pod(self, deployment: Object) -> dict[str, Any]:
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        hashed = _hash(deployment)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
        }
        labels = {**template["metadata"].get("labels", {}), HASH_LABEL: hashed}
        return {
            "metadata": {
                "name": f"{metadata['name']}-{hashed}-{secrets.token_hex(3)}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": template["metadata"].get("annotations") or {},
                "ownerReferences": [owner],
            },
            "spec": {**template["spec"], "nodeName": self._node},
        }


def is_ready(pod: Object) -> bool:
    """Return whether a Pod has condition Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def _is_ending(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _hash(deployment: Object) -> str:
    template = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    return hashlib.sha256(template).hexdigest()[:10]
