"""One version of one resource, with everything the server needs to know of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gatehouse.apis.resources import Resource
from gatehouse.apiserver.errors import Cause
from gatehouse.apiserver.structural import Compiled, compile_schema

Object = dict[str, Any]
Schema = dict[str, Any]
Check = Callable[[Object, "Object | None"], Iterator[Cause]]
"""Gives what is wrong with an object, whose state before is the second argument."""


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    cell: Callable[[Object], Any]
    type: str = "string"
    wide: bool = False
    format: str = ""
    description: str = ""


class Scale(msgspec.Struct, frozen=True):
    """Where a kind keeps what its scale shows; JSON paths such as ``.spec.replicas``."""

    replicas: str
    status_replicas: str
    selector: str = ""


class Alias(msgspec.Struct, frozen=True):
    """A resource whose objects are those of another one, under other names."""

    group: str
    plural: str
    to_stored: Callable[[Object], Object]
    from_stored: Callable[[Object], Object]


def nothing_to_check(_: Object, __: Object | None) -> Iterator[Cause]:
    """The check of a kind whose schema says everything."""
    return iter(())


def nothing_to_complete(_: Object) -> None:
    """The completion of a kind whose schema has all defaults."""


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
    """Whether there is a status subresource."""
    create_with_status: bool = False
    """Whether a status that is given at creation is kept: a kubelet makes its Node with one."""
    scale: Scale | None = None
    check: Check = nothing_to_check
    complete: Callable[[Object], None] = nothing_to_complete
    """Sets defaults that a schema cannot say."""
    columns: tuple[Column, ...] = ()
    name_rule: str = "subdomain"
    """``subdomain``, ``label``, ``label1035`` (begins with a letter), or ``path``."""
    persisted: bool = True
    """False: only created, answered, never stored (reviews)."""
    generation: bool = True
    builtin: bool = True
    """Whether it is one of Kubernetes' own kinds: strategic merge patches, protobuf."""
    alias: Alias | None = None
    warning: str = ""
    """What users of a deprecated version are warned of."""
    selectable: tuple[str, ...] = ()
    """Fields that field selectors may name, other than name and namespace."""

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The schema, ready to default, prune and validate."""
        return compile_schema(self.schema)

    @functools.cached_property
    def prefix(self) -> str:
        """The prefix of all of its keys in the store."""
        return f"/{self.resource.group or 'core'}/{self.resource.plural}/"

    def key(self, namespace: str, name: str) -> str:
        """Give the key of an object."""
        if self.resource.namespaced:
            return f"{self.prefix}{namespace}/{name}"
        return self.prefix + name

    @functools.cached_property
    def storage_api_version(self) -> str:
        """The apiVersion of stored objects."""
        group = self.resource.group
        return f"{group}/{self.storage_version}" if group else self.storage_version

    @functools.cached_property
    def singular_name(self) -> str:
        """The name that `kubectl get <name>` takes as well."""
        return self.singular or self.resource.kind.lower()

    @functools.cached_property
    def verbs(self) -> tuple[str, ...]:
        """The verbs that discovery names."""
        if not self.persisted:
            return ("create",)
        all_verbs = "create delete deletecollection get list patch update watch".split()  # noqa: SIM905
        if self.resource.plural == "namespaces":
            all_verbs.remove("deletecollection")
        return tuple(all_verbs)
