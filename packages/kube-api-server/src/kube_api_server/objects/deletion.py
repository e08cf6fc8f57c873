"""Deletion: preconditions, finalizers, grace periods, propagation to dependents.

https://kubernetes.io/docs/concepts/architecture/garbage-collection
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from kube_api_server import errors
from kube_api_server.causes import unsupported_cause
from kube_api_server.objects import crds
from kube_api_server.objects.admission import Admission, deletion_blocked
from kube_api_server.objects.verbs import ATTEMPTS, mutable_copy
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.storage.entries import MismatchError, StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

MAX_GRACE_SECONDS = 2**31 - 1
"""Maximum grace period. The time of deletion must be a date that Python can represent."""

BACKGROUND = "Background"
_POLICIES = ("Foreground", BACKGROUND, "Orphan")

PERMANENT_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that cannot be deleted.

kube-apiserver creates a deleted `kube-node-lease` again. This server creates it at its start only.
"""

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


class Deletion:
    """Deletion of objects of one store."""

    def __init__(self, store: ObjectStore, admission: Admission) -> None:
        self._store, self._admission = store, admission

    async def delete(
        self, call: WriteRequest, options: Object, policy: str = BACKGROUND
    ) -> tuple[StoredEntry, bool]:
        """Delete an object. Return its last state, and whether it is gone. Raises StatusError.

        `policy`: propagation to dependents, unless options or finalizers say it.
        """
        resource = call.served.resource
        for _ in range(ATTEMPTS):
            current = await self._store.known(call.key)
            if current is None:
                raise errors.not_found_error(resource.plural, resource.group, call.name)
            try:
                _preconditions(call, options, current)
            except errors.StatusError:
                if await self._store.outdated(call.key, current):
                    continue
                raise
            _check_permanent(call)
            self._admission.policy(call, None, current.value)
            try:
                return await self._delete(call, options, current, policy)
            except MismatchError:
                await self._store.read_fresh()
        raise errors.conflict(resource.plural, resource.group, call.name)

    async def _delete(
        self, call: WriteRequest, options: Object, current: StoredEntry, policy: str
    ) -> tuple[StoredEntry, bool]:
        obj = mutable_copy(current)
        metadata = obj["metadata"]
        _mark_dependents(metadata, _policy(options, metadata, policy))
        if call.served.resource.plural == crds.PLURAL and call.served.builtin:
            finalizers = metadata.setdefault("finalizers", [])
            if crds.FINALIZER not in finalizers and not metadata.get("deletionTimestamp"):
                finalizers.append(crds.FINALIZER)
        grace = _grace(call, options, obj)
        if (
            metadata.get("deletionTimestamp")
            and metadata.get("deletionGracePeriodSeconds", 0) <= grace
        ):
            grace = metadata.get("deletionGracePeriodSeconds", 0)
        if grace:
            metadata["deletionGracePeriodSeconds"] = grace
        elif "deletionGracePeriodSeconds" in metadata:
            metadata["deletionGracePeriodSeconds"] = 0
        if "All" in (options.get("dryRun") or ()):
            return current, True
        if not deletion_blocked(call.served, obj):
            return await self._store.delete(call.key, current.revision), True
        if not metadata.get("deletionTimestamp"):
            moment = datetime.now(UTC) + timedelta(seconds=grace)
            metadata["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1
            if call.served.resource.plural == "namespaces":
                obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        if obj == current.value:
            return current, False
        return await self._store.put(call.key, obj, current.revision), False

    async def remove_finalizer(self, call: WriteRequest, finalizer: str) -> None:
        """Remove a finalizer of the server itself. Delete the object with its last finalizer."""
        for _ in range(ATTEMPTS):
            current = self._store.latest(call.key)
            if current is None:
                return
            obj = mutable_copy(current)
            holder = obj["metadata"]
            if call.served.resource.plural == "namespaces" and finalizer == "kubernetes":
                holder = obj["spec"]
            left = [name for name in holder.get("finalizers") or () if name != finalizer]
            if left == (holder.get("finalizers") or []):
                return
            if left:
                holder["finalizers"] = left
            else:
                holder.pop("finalizers")
            try:
                if obj["metadata"].get("deletionTimestamp") and not deletion_blocked(
                    call.served, obj
                ):
                    await self._store.delete(call.key, current.revision)
                else:
                    await self._store.put(call.key, obj, current.revision)
            except MismatchError:
                await self._store.read_fresh()
                continue
            return


def _check_permanent(call: WriteRequest) -> None:
    """Raise StatusError 403 for a permanent namespace."""
    resource = call.served.resource
    is_namespace = (resource.group, resource.plural) == ("", "namespaces")
    if is_namespace and call.name in PERMANENT_NAMESPACES:
        why = "this namespace may not be deleted"
        raise errors.forbidden_error(resource.plural, resource.group, call.name, why)


def _preconditions(call: WriteRequest, options: Object, current: StoredEntry) -> None:
    metadata = current.value["metadata"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        expected = (options.get("preconditions") or {}).get(field)
        if expected and expected != metadata[field]:
            resource = call.served.resource
            why = (
                f"the {label} in the precondition ({expected}) does not match the {label} in "
                f"record ({metadata[field]}). The object might have been deleted and then recreated"
            )
            kind = resource.plural if resource.plural == "namespaces" else resource.kind
            raise errors.conflict(kind, resource.group, call.name, why)


def _policy(options: Object, metadata: Object, default: str) -> str:
    policy = options.get("propagationPolicy")
    if policy is None and options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] in (True, "true") else "Background"
    if policy is None:
        finalizers = metadata.get("finalizers") or ()
        if ORPHAN in finalizers:
            return "Orphan"
        return "Foreground" if FOREGROUND in finalizers else default
    if policy not in _POLICIES:
        cause = unsupported_cause("propagationPolicy", policy, _POLICIES)
        raise errors.invalid_error("DeleteOptions", "meta.k8s.io", "", [cause])
    return str(policy)


def _mark_dependents(metadata: Object, policy: str) -> None:
    """Set the finalizers that control the deletion of dependents."""
    left = [f for f in metadata.get("finalizers") or () if f not in (FOREGROUND, ORPHAN)]
    marks = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
    if policy in marks:
        left.append(marks[policy])
    if left:
        metadata["finalizers"] = left
    else:
        metadata.pop("finalizers", None)


def _grace(call: WriteRequest, options: Object, obj: Object) -> int:
    """Return the grace period in seconds of a Pod on a node; 0 for everything else."""
    if call.served.resource.plural != "pods" or call.served.resource.group:
        return 0
    seconds = options.get("gracePeriodSeconds")
    spec = obj.get("spec") or {}
    if seconds is None:
        seconds = spec.get("terminationGracePeriodSeconds", 30)
    if not isinstance(seconds, int) or seconds < 0:
        seconds = 1
    seconds = min(seconds, MAX_GRACE_SECONDS)
    ended = (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return seconds if spec.get("nodeName") and not ended else 0
