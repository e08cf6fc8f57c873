"""Controller of the status of PodDisruptionBudgets, by which evictions are allowed.

As in kube-controller-manager, percentages and `maxUnavailable` refer to the replicas of the Pods'
workloads, so that a Pod that is not replaced yet counts as unavailable.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kube_api_server.builtin.validation import selects_labels
from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.objects import jsonpath, timestamps
from kube_api_server.objects.pods import is_ready_pod
from kube_api_server.storage.entries import StoreEvent
from kube_base.types.objects import Object

_MANAGER = "kube-controller-manager"
DISRUPTED_SECONDS = 120.0
"""Time in seconds after which an evicted Pod that still exists counts again."""

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class DisruptionBudgetController:
    """Writes the numbers of Pods to the status of each PodDisruptionBudget."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._budgets = context.kind("policy", "poddisruptionbudgets").prefix
        self._pods = context.kind("", "pods").prefix
        store = context.store
        self.queue = ReconcileQueue(
            "disruption-budgets", self._work, lambda: [key for key, _ in store.list(self._budgets)]
        )
        store.listen(self._budgets, lambda event: self.queue.add(event.key))
        store.listen(self._pods, self._pod_changed)

    def _pod_changed(self, event: StoreEvent) -> None:
        states = [entry.value for entry in (event.before, event.now) if entry is not None]
        for key, budget in self._context.store.list(f"{self._budgets}{event.key.split('/')[3]}/"):
            if any(_selects(budget.value, pod) for pod in states):
                self.queue.add(key)

    async def _work(self, key: str) -> None:
        context, entry = self._context, self._context.store.get(key)
        if entry is None or self._status(entry.value) == entry.value.get("status"):
            return
        served = context.kind("policy", "poddisruptionbudgets")
        call = context.call(served, entry.value, _MANAGER, "status")

        def change(current: Object) -> Object:
            return {**current, "status": self._status(current)}

        written = await context.verbs.change(call, change)
        if written.value["status"].get("disruptedPods"):
            self.queue.add_after(key, DISRUPTED_SECONDS)

    def _selected(self, budget: Object) -> list[Object]:
        """Return the Pods of a budget that have not ended."""
        prefix = f"{self._pods}{budget['metadata']['namespace']}/"
        return [
            entry.value
            for _, entry in self._context.store.list(prefix)
            if _selects(budget, entry.value)
            and (entry.value.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def _status(self, budget: Object) -> Object:
        pods, spec = self._selected(budget), budget.get("spec") or {}
        expected = len(pods)
        if spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str):
            expected = self._replicas(pods)
        return _status(budget, pods, expected)

    def _replicas(self, pods: list[Object]) -> int:
        """Return the desired number of Pods: of each workload once, and Pods without one."""
        context = self._context
        numbers: dict[str, int] = {}
        for pod in pods:
            metadata = pod["metadata"]
            owners = metadata.get("ownerReferences") or ()
            owner = next((item for item in owners if item.get("controller")), None)
            served = owner and context.registry.by_kind(owner["apiVersion"], owner["kind"])
            if not owner or not served or served.scale is None:
                numbers[metadata["uid"]] = 1
            elif owner["uid"] not in numbers:
                entry = context.store.get(served.key(metadata["namespace"], owner["name"]))
                replicas = jsonpath.first(served.scale.replicas, entry.value) if entry else 0
                numbers[owner["uid"]] = replicas if isinstance(replicas, int) else 0
        return sum(numbers.values())


def _selects(budget: Object, pod: Object) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and selects_labels(selector, pod["metadata"].get("labels") or {})


def _status(budget: Object, pods: list[Object], expected: int) -> Object:
    """Return the status of a budget of these Pods. `expected` is their desired number."""
    status, generation = budget.get("status") or {}, budget["metadata"].get("generation", 0)
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    oldest = (datetime.now(UTC) - timedelta(seconds=DISRUPTED_SECONDS)).strftime(_FORMAT)
    disrupted = {
        name: moment
        for name, moment in (status.get("disruptedPods") or {}).items()
        if name in by_name
        and not by_name[name]["metadata"].get("deletionTimestamp")
        and str(moment) > oldest
    }
    healthy = len([pod for name, pod in by_name.items() if name not in disrupted and _ready(pod)])
    desired = _desired(budget.get("spec") or {}, expected)
    allowed = max(healthy - desired, 0) if expected else 0
    result: Object = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": generation,
        "conditions": [_condition(status, generation, allowed)],
    }
    return result | ({"disruptedPods": disrupted} if disrupted else {})


def _condition(status: Object, generation: int, allowed: int) -> Object:
    """Return the condition DisruptionAllowed. Its time is that of its last transition."""
    state = "True" if allowed else "False"
    former: list[Any] = [
        c
        for c in status.get("conditions") or ()
        if c.get("type") == "DisruptionAllowed" and c.get("status") == state
    ]
    return {
        "type": "DisruptionAllowed",
        "status": state,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": former[0]["lastTransitionTime"] if former else timestamps.now(),
    }


def _desired(spec: Object, expected: int) -> int:
    """Return the number of Pods that must stay healthy."""
    if spec.get("maxUnavailable") is not None:
        return max(expected - _number(spec["maxUnavailable"], expected), 0)
    return _number(spec.get("minAvailable", 1), expected)


def _number(value: int | str, expected: int) -> int:
    """Return a number of Pods. Percentages are rounded up."""
    if isinstance(value, int):
        return value
    return -(-expected * int(value.rstrip("%")) // 100)


def _ready(pod: Object) -> bool:
    return is_ready_pod(pod) and not pod["metadata"].get("deletionTimestamp")
