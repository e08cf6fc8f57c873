"""Access of controllers to objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from kube_api_server.errors import StatusError
from kube_api_server.objects.deletion import Deletion
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.objects.verbs import Verbs
from kube_api_server.objects.write_request import WriteOptions, WriteRequest
from kube_api_server.storage.entries import StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object


class ControllerContext(msgspec.Struct, frozen=True):
    """Store, registry and verbs of one server."""

    store: ObjectStore
    registry: Registry
    verbs: Verbs
    deletion: Deletion

    def kind(self, group: str, plural: str) -> ServedResource:
        """Return the storage version of a built-in kind."""
        served = self.registry.stored(group, plural)
        assert served is not None, plural
        return served

    def all(self, group: str, plural: str) -> Iterator[Object]:
        """Iterate over all objects of a kind."""
        return (entry.value for _, entry in self.store.list(self.kind(group, plural).prefix))

    def call(
        self, served: ServedResource, obj: Object, manager: str, subresource: str = ""
    ) -> WriteRequest:
        """Return the write request for an object."""
        metadata = obj["metadata"]
        options = WriteOptions(validation="Ignore", manager=manager)
        return WriteRequest(
            served, metadata.get("namespace", ""), metadata.get("name", ""), subresource, options
        )

    def call_for(self, entry_key: str, manager: str = "kube-apiserver") -> WriteRequest | None:
        """Return the write request for a store key; None if its kind is no longer served."""
        served = self.registry.by_key(entry_key)
        if served is None:
            return None
        rest = entry_key[len(served.prefix) :]
        namespace, _, name = rest.rpartition("/")
        return WriteRequest(served, namespace, name, "", WriteOptions("Ignore", manager=manager))

    async def create(
        self, group: str, plural: str, obj: Object, manager: str, *, checked: bool = False
    ) -> StoredEntry | None:
        """Create an object. Return None if it exists already.

        ``checked``: the object is known to pass the check of its kind.
        """
        served = self.kind(group, plural)
        call = dataclasses.replace(self.call(served, obj, manager), checked=checked)
        try:
            await self.verbs.create(call, obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return None
        return self.store.get(served.key(call.namespace, obj["metadata"]["name"]))

    async def delete(self, key: str, options: Object | None = None) -> None:
        """Delete the object with a store key, if it exists."""
        call = self.call_for(key)
        if call is None:
            return
        try:
            await self.deletion.delete(call, options or {})
        except StatusError as error:
            if error.reason != "NotFound":
                raise
