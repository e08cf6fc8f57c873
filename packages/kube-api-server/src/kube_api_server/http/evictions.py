"""Evictions: deletions of Pods that respect PodDisruptionBudgets.

https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from kube_api_server import errors
from kube_api_server.builtin.validation import selects_labels
from kube_api_server.errors import Cause, StatusError
from kube_api_server.http import requests, responses, typed_bodies
from kube_api_server.http.requests import RequestTarget
from kube_api_server.identity.users import User
from kube_api_server.objects import timestamps
from kube_api_server.objects.deletion import Deletion
from kube_api_server.objects.pods import is_ready_pod
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.verbs import Verbs
from kube_api_server.objects.write_request import WriteOptions, WriteRequest
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

EVICTION_VERSIONS = ("policy/v1", "policy/v1beta1")
"""Versions of an Eviction. Clients up to Kubernetes 1.21 send the older one."""

MAX_DISRUPTED_PODS = 2000
"""Maximum number of evicted Pods that a budget remembers until they are gone."""

_RETRY_SECONDS = 10
_OVER_PHASES = ("Succeeded", "Failed", "Pending")
"""Phases of Pods that no budget protects."""

_VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    """Handler of evictions."""

    def __init__(
        self, store: ObjectStore, registry: Registry, verbs: Verbs, deletion: Deletion
    ) -> None:
        self._store, self._registry = store, registry
        self._verbs, self._deletion = verbs, deletion

    async def answer(
        self, request: web.BaseRequest, target: RequestTarget, user: User
    ) -> web.Response:
        """Evict a Pod. Raises StatusError."""
        options = requests.options(request)
        eviction = await _eviction(request, target)
        delete_options: Object = dict(eviction.get("deleteOptions") or {})
        is_dry = options.dry_run or "All" in (delete_options.get("dryRun") or ())
        if is_dry:
            delete_options["dryRun"] = ["All"]
        await self._store.read_fresh()
        entry = self._store.get(target.key)
        if entry is None:
            raise errors.not_found_error("pods", "", target.name)
        if not _is_unprotected(entry.value):
            await self._check_budget(entry.value, is_dry=is_dry)
        call = WriteRequest(target.served, target.namespace, target.name, "", options, user)
        await self._deletion.delete(call, delete_options)
        return responses.unstored(request, responses.success(code=201), 201)

    async def _check_budget(self, pod: Object, *, is_dry: bool) -> None:
        """Take the eviction of a Pod from its budget. Raises StatusError."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        budgets = self._registry.stored("policy", "poddisruptionbudgets")
        assert budgets is not None
        labels = pod["metadata"].get("labels") or {}
        selected = [
            entry.value
            for _, entry in self._store.list(f"{budgets.prefix}{namespace}/")
            if _selects(entry.value, labels)
        ]
        if not selected:
            return
        if len(selected) > 1:
            message = (
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support."
            )
            raise StatusError(500, "", message)
        (budget,) = selected
        if _may_evict_unready(budget, pod):
            return
        if is_dry:
            _disrupted(budget, name)
            return
        options = WriteOptions(validation="Ignore", manager="kube-apiserver")
        call = WriteRequest(budgets, namespace, budget["metadata"]["name"], "status", options)
        await self._verbs.change(call, lambda current: _disrupted(current, name))


async def _eviction(request: web.BaseRequest, target: RequestTarget) -> Object:
    """Return the Eviction of a request. Raises StatusError 400."""
    decoded = await requests.object_body(request, target, requests.IGNORE_UNKNOWN)
    body: Any = decoded.value
    kind, version = body.get("kind", "Eviction"), body.get("apiVersion", EVICTION_VERSIONS[0])
    if kind != "Eviction" or version not in EVICTION_VERSIONS:
        raise errors.bad_request(f"the object provided is {kind} of {version}: must be an Eviction")
    body = typed_bodies.check_types(body, kind, typed_bodies.of_kind("policy.v1.Eviction"))
    name = (body.get("metadata") or {}).get("name")
    if name != target.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    return dict(body)


def _is_unprotected(pod: Object) -> bool:
    """Return whether a Pod has ended, has not started, or is already being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in _OVER_PHASES or bool(pod["metadata"].get("deletionTimestamp"))


def _selects(budget: Object, labels: Object) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and selects_labels(selector, labels)


def _may_evict_unready(budget: Object, pod: Object) -> bool:
    """Return whether the budget does not protect a Pod that is not ready."""
    if is_ready_pod(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _disrupted(budget: Object, pod: str) -> Object:
    """Return a budget with one disruption less. Raises StatusError."""
    metadata, status = budget["metadata"], budget.get("status") or {}
    name = metadata["name"]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        raise _violation(f"The disruption budget {name} is still being processed by the server.")
    disrupted = status.get("disruptedPods") or {}
    if len(disrupted) > MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden_error("poddisruptionbudgets", "policy", name, why)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise _violation(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods "
            f"and has {status.get('currentHealthy', 0)} currently"
        )
    changed = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {**disrupted, pod: timestamps.now()},
    }
    return {**budget, "status": changed}


def _violation(message: str) -> StatusError:
    cause = Cause("DisruptionBudget", message, "")
    error = StatusError(429, "TooManyRequests", _VIOLATION, causes=[cause])
    error.retry_after = _RETRY_SECONDS
    return error
