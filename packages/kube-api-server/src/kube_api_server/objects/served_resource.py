"""Definition of one version of one resource, with everything that the server needs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kube_api_server.errors import Cause
from kube_api_server.structural.compiled import CompiledSchema, compile_schema
from kube_base.types.objects import Object, Schema
from kube_base.types.resource import Resource

Check = Callable[[Object, "Object | None"], Iterator[Cause]]
"""Yields the violations of an object. The second argument is its former state."""


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    cell: Callable[[Object], Any]
    type: str = "string"
    wide: bool = False
    format: str = ""
    description: str = ""


class Scale(msgspec.Struct, frozen=True):
    """JSON paths of the fields behind the scale subresource, such as `.spec.replicas`."""

    replicas: str
    status_replicas: str
    selector: str = ""


class Alias(msgspec.Struct, frozen=True):
    """A resource whose objects are stored as those of another resource."""

    group: str
    plural: str
    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]


def no_violations(_: Object, __: Object | None) -> Iterator[Cause]:
    """Return no violations. For kinds that are validated completely by their schema."""
    return iter(())


def no_completion(_: Object) -> None:
    """Do nothing. For kinds whose schema has all defaults."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ServedResource:
    """One version of one resource."""

    resource: Resource
    schema: Schema
    storage_version: str
    short: tuple[str, ...] = ()
    singular: str = ""
    list_kind: str = ""
    categories: tuple[str, ...] = ()
    status: bool = False
    """True if the resource has a status subresource."""
    create_with_status: bool = False
    """True if a status in a create is stored. A kubelet creates its Node with one."""
    scale: Scale | None = None
    check: Check = no_violations
    complete: Callable[[Object], None] = no_completion
    """Sets defaults that a schema cannot express."""
    columns: tuple[Column, ...] = ()
    name_rule: str = "subdomain"
    """`subdomain`, `label`, `label1035` (starts with a letter), or `path`."""
    persisted: bool = True
    """False for reviews, which are created and answered but never stored."""
    generation: bool = True
    builtin: bool = True
    """True if the kind is one of Kubernetes itself, with strategic merge patches and protobuf."""
    alias: Alias | None = None
    warning: str = ""
    """Warning to users of a deprecated version."""
    propagation: str = "Background"
    """Propagation to dependents of a deletion that names none."""
    selectable: tuple[str, ...] = ()
    """Fields supported by field selectors, in addition to name and namespace."""

    @functools.cached_property
    def compiled(self) -> CompiledSchema:
        """The schema, prepared for defaulting, pruning and validation."""
        return compile_schema(self.schema)

    @functools.cached_property
    def prefix(self) -> str:
        """Prefix of the store keys of all objects."""
        return f"/{self.resource.group or 'core'}/{self.resource.plural}/"

    def key(self, namespace: str, name: str) -> str:
        """Return the store key of an object."""
        if self.resource.namespaced:
            return f"{self.prefix}{namespace}/{name}"
        return self.prefix + name

    @functools.cached_property
    def storage_api_version(self) -> str:
        """apiVersion of stored objects."""
        group = self.resource.group
        return f"{group}/{self.storage_version}" if group else self.storage_version

    @functools.cached_property
    def singular_name(self) -> str:
        """Singular name, accepted by `kubectl get <name>`."""
        return self.singular or self.resource.kind.lower()

    @functools.cached_property
    def verbs(self) -> tuple[str, ...]:
        """Verbs for discovery."""
        if not self.persisted:
            return ("create",)
        all_verbs = "create delete deletecollection get list patch update watch".split()  # noqa: SIM905
        if self.resource.plural == "namespaces":
            all_verbs.remove("deletecollection")
        return tuple(all_verbs)
