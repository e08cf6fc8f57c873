"""Deployments become ReplicaSets, ReplicaSets become Pods.

Deployments of data planes are the node runner's: it makes their Pods itself, one per data plane.
Pods of all others wait for a node that can run them, and say so.
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec

from gatehouse.apiserver.controllers.context import Context, Object
from gatehouse.apiserver.controllers.worker import Worker
from gatehouse.apiserver.objects import ages
from gatehouse.apiserver.objects.verbs import SUFFIX
from gatehouse.apiserver.storage.entries import Event

MANAGER = "gatehouse-deployments"
MANAGED = ("app.kubernetes.io/managed-by", "gatehouse")
HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no node runs this Pod: its image is none of those named by --images",
}


class Deployments:
    """Keeps ReplicaSets and Pods up with Deployments."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.worker = Worker("deployments", self._work, self._all)
        for group, plural in (("apps", "deployments"), ("apps", "replicasets"), ("", "pods")):
            prefix = context.kind(group, plural).prefix
            context.store.listen(prefix, self._changed)

    def _all(self) -> list[str]:
        prefixes = [self._context.kind("apps", p).prefix for p in ("deployments", "replicasets")]
        return [key for prefix in prefixes for key, _ in self._context.store.list(prefix)]

    def _changed(self, event: Event) -> None:
        plural = event.key.split("/")[2]
        if plural != "pods":
            self.worker.add(event.key)
        entry = event.now or event.before
        for owner in entry.value["metadata"].get("ownerReferences") or () if entry else ():
            owners = {"Deployment": "deployments", "ReplicaSet": "replicasets"}
            if owner.get("controller") and owner.get("kind") in owners:
                served = self._context.kind("apps", owners[owner["kind"]])
                self.worker.add(served.key(event.key.split("/")[3], owner["name"]))

    async def _work(self, key: str) -> None:
        entry = self._context.store.get(key)
        if entry is None or entry.value["metadata"].get("deletionTimestamp"):
            return
        labels = entry.value["metadata"].get("labels") or {}
        if labels.get(MANAGED[0]) == MANAGED[1]:
            return
        if key.split("/")[2] == "deployments":
            await self._deployment(entry.value)
        else:
            await self._replica_set(entry.value)

    async def _deployment(self, deployment: Object) -> None:
        context, namespace = self._context, deployment["metadata"]["namespace"]
        wanted = replica_set(deployment)
        sets = context.kind("apps", "replicasets")
        mine = self._owned("apps", "replicasets", deployment)
        if wanted["metadata"]["name"] not in [one["metadata"]["name"] for one in mine]:
            await context.create("apps", "replicasets", wanted, MANAGER)
        replicas = deployment["spec"].get("replicas", 1)
        for one in self._owned("apps", "replicasets", deployment):
            current = one["metadata"]["name"] == wanted["metadata"]["name"]
            await self._scale(sets.key(namespace, one["metadata"]["name"]), replicas * current)
        await self._report(deployment, wanted["metadata"]["name"])

    async def _scale(self, key: str, replicas: int) -> None:
        call = self._context.call_for(key, MANAGER)
        assert call is not None

        def change(obj: Object) -> Object:
            obj["spec"]["replicas"] = replicas
            return obj

        await self._context.verbs.change(call, change)

    async def _report(self, deployment: Object, newest: str) -> None:
        sets = self._owned("apps", "replicasets", deployment)
        totals = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), 0)
        updated = 0
        for one in sets:
            for name in totals:
                totals[name] += (one.get("status") or {}).get(name, 0)
            if one["metadata"]["name"] == newest:
                updated = (one.get("status") or {}).get("replicas", 0)
        replicas = deployment["spec"].get("replicas", 1)
        available = totals["availableReplicas"] >= replicas
        status: Object = {
            "observedGeneration": deployment["metadata"]["generation"],
            **{name: count for name, count in totals.items() if count},
            **({"updatedReplicas": updated} if updated else {}),
        }
        missing = replicas - totals["availableReplicas"]
        if missing > 0:
            status["unavailableReplicas"] = missing
        condition = {
            "type": "Available",
            "status": "True" if available else "False",
            "reason": "MinimumReplicasAvailable" if available else "MinimumReplicasUnavailable",
            "message": (
                "Deployment has minimum availability."
                if available
                else "Deployment does not have minimum availability."
            ),
        }
        await self._status("deployments", deployment, status, condition)

    async def _replica_set(self, obj: Object) -> None:
        context, metadata = self._context, obj["metadata"]
        wanted = obj["spec"].get("replicas", 1)
        pods = [
            pod
            for pod in self._owned("", "pods", obj)
            if not pod["metadata"].get("deletionTimestamp")
        ]
        for _ in range(wanted - len(pods)):
            await context.create("", "pods", pod_of(obj), MANAGER)
        for pod in sorted(pods, key=_readiness)[: max(0, len(pods) - wanted)]:
            key = context.kind("", "pods").key(metadata["namespace"], pod["metadata"]["name"])
            await context.delete(key)
        pods = self._owned("", "pods", obj)
        for pod in pods:
            await self._unschedulable(pod)
        ready = sum(map(_is_ready, pods))
        status: Object = {"replicas": len(pods), "observedGeneration": metadata["generation"]}
        if pods:
            status["fullyLabeledReplicas"] = len(pods)
        if ready:
            status |= {"readyReplicas": ready, "availableReplicas": ready}
        await self._status("replicasets", obj, status, None)

    async def _unschedulable(self, pod: Object) -> None:
        """Say why a Pod that no node has taken does not run."""
        known = [c.get("type") for c in (pod.get("status") or {}).get("conditions") or ()]
        if pod["spec"].get("nodeName") or "PodScheduled" in known:
            return
        condition = {**UNSCHEDULABLE, "lastTransitionTime": ages.now()}
        status = {**(pod.get("status") or {}), "phase": "Pending", "conditions": [condition]}
        served = self._context.kind("", "pods")
        call = self._context.call(served, pod, MANAGER, "status")
        await self._context.verbs.change(call, lambda now: {**now, "status": status})

    async def _status(
        self, plural: str, obj: Object, status: Object, condition: Object | None
    ) -> None:
        context = self._context
        call = context.call(context.kind("apps", plural), obj, MANAGER, "status")

        def change(now: Object) -> Object:
            found = dict(status)
            if condition is not None:
                old = (now.get("status") or {}).get("conditions") or []
                known = next((c for c in old if c["type"] == condition["type"]), None)
                same = known is not None and known["status"] == condition["status"]
                since = known["lastTransitionTime"] if known and same else ages.now()
                update = known["lastUpdateTime"] if known and same else ages.now()
                times = {"lastTransitionTime": since, "lastUpdateTime": update}
                others = [c for c in old if c["type"] != condition["type"]]
                found["conditions"] = [*others, {**condition, **times}]
            return {**now, "status": found}

        await context.verbs.change(call, change)

    def _owned(self, group: str, plural: str, owner: Object) -> list[Object]:
        served, metadata = self._context.kind(group, plural), owner["metadata"]
        return [
            entry.value
            for _, entry in self._context.store.list(f"{served.prefix}{metadata['namespace']}/")
            if any(
                o.get("uid") == metadata["uid"] and o.get("controller")
                for o in entry.value["metadata"].get("ownerReferences") or ()
            )
        ]


def replica_set(deployment: Object) -> Object:
    """Give the ReplicaSet of a Deployment's template, whose name follows from the template."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = spec["template"]
    digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).digest()
    hashed = "".join(SUFFIX[byte % len(SUFFIX)] for byte in digest[:10])
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: hashed}
    selector = spec["selector"]
    matched = {**(selector.get("matchLabels") or {}), HASH_LABEL: hashed}
    return {
        "metadata": {
            "name": f"{metadata['name']}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {REVISION: "1"},
            "ownerReferences": [_owner("Deployment", metadata)],
        },
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {**selector, "matchLabels": matched},
            "template": {
                **template,
                "metadata": {**(template.get("metadata") or {}), "labels": labels},
            },
        },
    }


def pod_of(owner: Object) -> Object:
    """Give a new Pod of a ReplicaSet."""
    metadata, template = owner["metadata"], owner["spec"]["template"]
    ending = "".join(secrets.choice(SUFFIX) for _ in range(5))
    return {
        "metadata": {
            **{k: v for k, v in (template.get("metadata") or {}).items() if k != "name"},
            "name": f"{metadata['name']}-{ending}",
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "ownerReferences": [_owner("ReplicaSet", metadata)],
        },
        "spec": msgspec.json.decode(msgspec.json.encode(template["spec"])),
    }


def _owner(kind: str, metadata: Object) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _readiness(pod: Object) -> tuple[bool, str]:
    """Sort Pods that are not ready first: those are given up first."""
    return (_is_ready(pod), str(pod["metadata"].get("creationTimestamp")))
