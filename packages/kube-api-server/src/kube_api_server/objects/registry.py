"""Registry of served resources. CRDs are added and removed at run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.resource import Resource


class Registry:
    """Resources by group, version and plural name."""

    def __init__(self, builtin: Iterable[ServedResource]) -> None:
        self._served: dict[tuple[str, str, str], ServedResource] = {}
        self._storage: dict[tuple[str, str], ServedResource] = {}
        self.generation = 0
        """Incremented by every change, so that derived documents can detect it."""
        for served in builtin:
            self._add(served)

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        """Return the resource with these names; None if it is not served."""
        return self._served.get((group, version, plural))

    def of(self, resource: Resource) -> ServedResource:
        """Return the served version of `resource`. Raises KeyError."""
        return self._served[(resource.group, resource.version, resource.plural)]

    def stored(self, group: str, plural: str) -> ServedResource | None:
        """Return the storage version of a resource; None if it is not served."""
        return self._storage.get((group, plural))

    def by_key(self, key: str) -> ServedResource | None:
        """Return the storage version of the resource of a store key; None if it is not served."""
        _, group, plural, _ = key.split("/", 3)
        return self.stored("" if group == "core" else group, plural)

    def by_kind(self, api_version: str, kind: str) -> ServedResource | None:
        """Return the resource of a kind; None if it is not served."""
        group, _, version = api_version.rpartition("/")
        for served in self.all():
            resource = served.resource
            if resource.kind == kind and (resource.group, resource.version) == (group, version):
                return served
        return None

    def all(self) -> Iterator[ServedResource]:
        """Iterate over every version of every resource."""
        return iter(tuple(self._served.values()))

    def persisted(self) -> Iterator[ServedResource]:
        """Iterate once over every resource whose objects are stored."""
        resources = self._storage.values()
        return iter([served for served in resources if served.persisted and served.alias is None])

    def replace(self, group: str, plural: str, versions: Iterable[ServedResource]) -> None:
        """Replace the served versions of a resource."""
        for key in [key for key in self._served if key[0] == group and key[2] == plural]:
            del self._served[key]
        self._storage.pop((group, plural), None)
        for served in versions:
            self._add(served)
        self.generation += 1

    def _add(self, served: ServedResource) -> None:
        resource = served.resource
        self._served[(resource.group, resource.version, resource.plural)] = served
        if resource.version == served.storage_version:
            self._storage[(resource.group, resource.plural)] = served
