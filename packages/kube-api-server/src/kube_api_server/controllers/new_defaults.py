"""New defaults of CustomResourceDefinitions in existing objects.

kube-apiserver sets them in its responses and leaves the storage unchanged. This server writes them
once, so that reading stays cheap, and watchers receive them. No manager becomes their owner.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from kube_api_server.controllers.context import ControllerContext
from kube_api_server.controllers.reconcile_queue import ReconcileQueue
from kube_api_server.errors import StatusError
from kube_api_server.objects import crds
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.storage.entries import StoreEvent
from kube_base.types.objects import Object, copy_value

_SLICE = 20
"""Number of objects that are compared before other requests run."""
_PREFIX = f"/{crds.GROUP}/{crds.PLURAL}/"


class NewDefaults:
    """Sets new defaults in existing objects.

    If the server stops before it is done, the other objects get them with their next write.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.queue = ReconcileQueue("defaults", self._work, lambda: ())
        context.store.listen(_PREFIX, self._changed)

    def _changed(self, event: StoreEvent) -> None:
        if event.before is None or event.now is None:
            return
        before, now = event.before.value["spec"], event.now.value["spec"]
        if before == now:
            return
        known = _defaults(before)
        if any(default not in known for default in _defaults(now)):
            self.queue.add(event.key)

    async def _work(self, key: str) -> None:
        entry = self._context.store.get(key)
        if entry is None:
            return
        spec = entry.value["spec"]
        served = self._context.registry.stored(spec["group"], spec["names"]["plural"])
        if served is None:
            return
        for number, (object_key, stored) in enumerate(
            list(self._context.store.list(served.prefix))
        ):
            if _lacks_defaults(served, stored.value):
                await self._complete(object_key)
            elif number % _SLICE == 0:
                await asyncio.sleep(0)

    async def _complete(self, key: str) -> None:
        call = self._context.call_for(key)
        if call is None:
            return
        try:
            # The write itself sets the defaults.
            await self._context.verbs.change(
                dataclasses.replace(call, unowned=True), lambda current: current
            )
        except StatusError as error:
            # Invalid objects keep their state, as in any other write.
            if error.reason not in ("NotFound", "Invalid"):
                raise


def _defaults(spec: Object) -> list[tuple[str, Any]]:
    """Return the defaults in the schemas of a CRD with their paths."""
    defaults: list[tuple[str, Any]] = []
    for version in spec.get("versions") or ():
        if version.get("storage"):
            _collect((version.get("schema") or {}).get("openAPIV3Schema"), "", defaults)
    return defaults


def _collect(schema: Any, path: str, defaults: list[tuple[str, Any]]) -> None:
    if not isinstance(schema, dict):
        return
    if "default" in schema:
        defaults.append((path, schema["default"]))
    for name, inner in (schema.get("properties") or {}).items():
        _collect(inner, f"{path}.{name}", defaults)
    for name in ("items", "additionalProperties"):
        _collect(schema.get(name), f"{path}.<{name}>", defaults)


def _lacks_defaults(served: ServedResource, obj: Object) -> bool:
    """Return whether an object lacks defaults. One with unknown fields would lose them: False."""
    prepared = copy_value(obj)
    return not served.compiled.prepare(prepared) and prepared != obj
