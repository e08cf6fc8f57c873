"""Controller of Deployments and ReplicaSets.

The node itself creates the Pods of Deployments whose Pods have a Service's own address, one each.
Pods of other Deployments wait for a node that can run them, with a condition that says so.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime

import msgspec

from gatehouse.apiserver.controllers import rolling_update
from gatehouse.apiserver.controllers.context import Context, Object
from gatehouse.apiserver.controllers.work_queue import WorkQueue
from gatehouse.apiserver.objects import timestamps
from gatehouse.apiserver.objects.verbs import SUFFIX
from gatehouse.apiserver.storage.entries import Event

MANAGER = "gatehouse-deployments"
MANAGED = ("app.kubernetes.io/managed-by", "gatehouse")
ADDRESSED = "gatehouse.dev/service-name"
"""Annotation of a data plane's Pod template: its Pod has the address of that Service."""
HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"

UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "no node runs this Pod: its image is not listed in --images",
}


class Deployments:
    """Reconciles ReplicaSets with Deployments, and Pods with ReplicaSets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.queue = WorkQueue("deployments", self._work, self._all)
        for group, plural in (("apps", "deployments"), ("apps", "replicasets"), ("", "pods")):
            prefix = context.kind(group, plural).prefix
            context.store.listen(prefix, self._changed)

    def _all(self) -> list[str]:
        prefixes = [self._context.kind("apps", p).prefix for p in ("deployments", "replicasets")]
        return [key for prefix in prefixes for key, _ in self._context.store.list(prefix)]

    def _changed(self, event: Event) -> None:
        plural = event.key.split("/")[2]
        if plural != "pods":
            self.queue.add(event.key)
        entry = event.now or event.before
        for owner in entry.value["metadata"].get("ownerReferences") or () if entry else ():
            owners = {"Deployment": "deployments", "ReplicaSet": "replicasets"}
            if owner.get("controller") and owner.get("kind") in owners:
                served = self._context.kind("apps", owners[owner["kind"]])
                key = served.key(event.key.split("/")[3], owner["name"])
                self.queue.add(key)
                if event.now is None:
                    self._queue_deployment(key)

    def _queue_deployment(self, key: str) -> None:
        """Queue the Deployment of a ReplicaSet that lost a Pod, which it may be waiting for."""
        entry = self._context.store.get(key)
        for owner in (entry.value["metadata"].get("ownerReferences") or ()) if entry else ():
            if owner.get("controller") and owner.get("kind") == "Deployment":
                served = self._context.kind("apps", "deployments")
                self.queue.add(served.key(key.split("/")[3], owner["name"]))

    async def _work(self, key: str) -> None:
        entry = self._context.store.get(key)
        if entry is None or entry.value["metadata"].get("deletionTimestamp"):
            return
        if _of_the_node(entry.value):
            return
        if key.split("/")[2] == "deployments":
            await self._deployment(entry.value)
        else:
            await self._replica_set(entry.value)

    async def _deployment(self, deployment: Object) -> None:
        context, namespace = self._context, deployment["metadata"]["namespace"]
        desired = replica_set(deployment)
        name = desired["metadata"]["name"]
        mine = self._owned("apps", "replicasets", deployment)
        if name not in [one["metadata"]["name"] for one in mine]:
            desired["metadata"]["annotations"][REVISION] = str(
                max(map(_revision, mine), default=0) + 1
            )
            desired["spec"]["replicas"] = 0
            await context.create("apps", "replicasets", desired, MANAGER)
        states = [self._state(one) for one in self._sets(deployment)]
        newest = next(one for one in states if one.name == name)
        older = [one for one in states if one.name != name]
        sets = context.kind("apps", "replicasets")
        if not deployment["spec"].get("paused"):
            for one, replicas in rolling_update.scales(deployment["spec"], newest, older).items():
                await self._scale(sets.key(namespace, one), replicas)
        await self._report(deployment, name)
        await self._delete_obsolete(deployment, name)

    def _sets(self, deployment: Object) -> list[Object]:
        """Return the ReplicaSets of a Deployment, oldest first."""
        return sorted(self._owned("apps", "replicasets", deployment), key=_revision)

    def _state(self, one: Object) -> rolling_update.ReplicaSetState:
        pods = self._owned("", "pods", one)
        available = sum(_available_in(one, pod) == 0 for pod in pods if not _ends(pod))
        replicas = one["spec"].get("replicas", 1)
        return rolling_update.ReplicaSetState(
            one["metadata"]["name"], replicas, len(pods), available
        )

    async def _delete_obsolete(self, deployment: Object, newest: str) -> None:
        """Delete the oldest ReplicaSets without Pods, beyond `revisionHistoryLimit`."""
        sets = self._context.kind("apps", "replicasets")
        done = [
            one["metadata"]["name"]
            for one in self._sets(deployment)
            if one["metadata"]["name"] != newest and not self._state(one).pods
        ]
        for name in done[: max(0, len(done) - deployment["spec"].get("revisionHistoryLimit", 10))]:
            await self._context.delete(sets.key(deployment["metadata"]["namespace"], name))

    async def _scale(self, key: str, replicas: int) -> None:
        call = self._context.call_for(key, MANAGER)
        entry = self._context.store.get(key)
        if call is None or entry is None or entry.value["spec"].get("replicas", 1) == replicas:
            return

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
        available = totals["availableReplicas"] >= rolling_update.bounds(deployment["spec"]).least
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
        desired = obj["spec"].get("replicas", 1)
        pods = self._active(obj)
        for _ in range(desired - len(pods)):
            await context.create("", "pods", pod_of(obj), MANAGER)
        for pod in sorted(pods, key=_readiness)[: max(0, len(pods) - desired)]:
            key = context.kind("", "pods").key(metadata["namespace"], pod["metadata"]["name"])
            await context.delete(key)
        pods = self._active(obj)
        for pod in pods:
            await self._unschedulable(pod)
        ready = sum(map(_is_ready, pods))
        waits = [_available_in(obj, pod) for pod in pods]
        available = waits.count(0)
        status: Object = {"replicas": len(pods), "observedGeneration": metadata["generation"]}
        if pods:
            status["fullyLabeledReplicas"] = len(pods)
        if ready:
            status["readyReplicas"] = ready
        if available:
            status["availableReplicas"] = available
        await self._status("replicasets", obj, status, None)
        if pending := [seconds for seconds in waits if seconds]:
            key = context.kind("apps", "replicasets").key(metadata["namespace"], metadata["name"])
            self.queue.add_after(key, min(pending))

    def _active(self, replica_set: Object) -> list[Object]:
        """Return the Pods that are not being deleted."""
        return [pod for pod in self._owned("", "pods", replica_set) if not _ends(pod)]

    async def _unschedulable(self, pod: Object) -> None:
        """Set the condition of a Pod that no node has accepted."""
        known = [c.get("type") for c in (pod.get("status") or {}).get("conditions") or ()]
        if pod["spec"].get("nodeName") or "PodScheduled" in known:
            return
        condition = {**UNSCHEDULABLE, "lastTransitionTime": timestamps.now()}
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
                since = known["lastTransitionTime"] if known and same else timestamps.now()
                update = known["lastUpdateTime"] if known and same else timestamps.now()
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
    """Return the ReplicaSet of a Deployment's template. Its name is derived from the template."""
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
            "minReadySeconds": spec.get("minReadySeconds", 0),
            "selector": {**selector, "matchLabels": matched},
            "template": {
                **template,
                "metadata": {**(template.get("metadata") or {}), "labels": labels},
            },
        },
    }


def pod_of(owner: Object) -> Object:
    """Return a new Pod of a ReplicaSet."""
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


def _of_the_node(obj: Object) -> bool:
    metadata = obj["spec"]["template"].get("metadata") or {}
    labels = obj["metadata"].get("labels") or {}
    addressed = (metadata.get("annotations") or {}).get(ADDRESSED)
    return labels.get(MANAGED[0]) == MANAGED[1] and bool(addressed)


def _revision(replica_set: Object) -> int:
    return int((replica_set["metadata"].get("annotations") or {}).get(REVISION, 0))


def _ends(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def _available_in(owner: Object, pod: Object) -> float | None:
    """Return the seconds until a Pod is available: 0 if it is, None if it is not ready."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            least = float(owner["spec"].get("minReadySeconds", 0))
            if not least or not condition.get("lastTransitionTime"):
                return 0.0
            since = datetime.fromisoformat(condition["lastTransitionTime"])
            return max(0.0, least - (datetime.now(UTC) - since).total_seconds())
    return None


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _readiness(pod: Object) -> tuple[bool, str]:
    """Return a sort key: Pods that are not ready come first and are deleted first."""
    return (_is_ready(pod), str(pod["metadata"].get("creationTimestamp")))
