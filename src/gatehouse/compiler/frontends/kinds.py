"""Records of the Kubernetes kinds that front ends read.

One :class:`Kind` declares everything about a kind: views, index buckets, informers, the rules of
RBAC, and status targets follow from it (:class:`Kinds`, :mod:`gatehouse.controller.permissions`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from gatehouse.apis import meta
from gatehouse.compiler.frontends.certificate_validity import Dated
from gatehouse.incremental.query import Ask, Index, Key
from kube_base.types.objects import ObjectName
from kube_base.types.resource import Resource

STATUS_SUBJECTS: Key = ("@subjects",)
"""Bucket of all objects whose status the controller may write."""

DEADLINE_SUBJECTS: Key = ("@deadlines",)
"""Bucket of all objects that may have deadlines."""


class Record(msgspec.Struct, frozen=True):
    """Base of records: decisions about an object that the controller keeps over restarts."""

    @abstractmethod
    def merged_into(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Return a status of the object with this record instead of an earlier one."""


class DesiredStatus(msgspec.Struct, frozen=True):
    """Base of desired statuses, without times and entries of other controllers."""

    @property
    def next_record(self) -> Record | None:
        """Record of the object for the next pass, also written to the status; None for none."""
        return None


class OwnedKind(msgspec.Struct, frozen=True):
    """A kind whose objects the controller writes for objects of another kind."""

    resource: Resource
    owners: Key
    """Index bucket of the owners."""
    desired: Callable[[Ask, Key], Any]
    """Query: the desired state for an owner; None if the owner has no objects."""
    build: Callable[[Key, Any], Mapping[ObjectName, Mapping[str, Any] | None]]
    """Returns the objects of an owner with this desired state. None as an object leaves it
    unchanged."""
    has_status: bool = False
    """The objects have a status, which the controller writes, too."""
    debounce: float = 0.0
    """Minimum time in seconds between two reconciles of an object."""


class Kind(msgspec.Struct, frozen=True):
    """A Kubernetes kind that a front end reads. The controller lists and watches its objects."""

    resource: Resource
    view: type[meta.KubernetesObject]
    """Type of decoded objects."""
    indexes: tuple[Index, ...] = ()
    """Functions that return the index buckets of an object."""
    required: bool = False
    """The kind must be served. Without it nothing is compiled: partial inputs would remove
    configuration that data planes serve."""
    verbs: tuple[str, ...] = ()
    """Verbs that the controller uses on the objects, other than to watch them."""
    status: Callable[[Ask, Key], DesiredStatus | None] | None = None
    """Query: the desired status of an object, None if this controller does not manage it. None if
    objects have no status that the controller updates."""
    patches_status: bool = False
    """The controller patches the status outside of compile passes."""
    read_record: Callable[[Mapping[str, Any]], Any] | None = None
    """Returns the record in the status of an object from the API server, see
    :func:`gatehouse.compiler.frontends.inputs.record_key`. None if objects have no record."""
    gateways_of: Callable[[Ask, Key], tuple[Key, ...]] | None = None
    """Query: the managed Gateways that serve an object. Its status is deferred until their data
    planes have confirmed the object."""
    certificates: Callable[[Ask, Key], Iterable[Dated]] | None = None
    """Returns the certificates whose validity the status of an object reports, so that it changes
    without a change of input."""
    owned: tuple[OwnedKind, ...] = ()
    """Kinds of objects that the controller writes for objects of this kind."""

    @property
    def status_verb(self) -> Literal["", "update", "patch"]:
        """Verb that the controller uses on the status; empty for none."""
        if self.status is not None:
            return "update"
        return "patch" if self.patches_status else ""

    @property
    def all_indexes(self) -> tuple[Index, ...]:
        """``indexes``, and those that other fields of the record request."""
        buckets: tuple[Key, ...] = ()
        if self.status is not None:
            buckets += (STATUS_SUBJECTS,)
        if self.certificates is not None:
            buckets += (DEADLINE_SUBJECTS,)
        return (*self.indexes, lambda _: buckets) if buckets else self.indexes


class Kinds:
    """Several kinds, and the tables that follow from their records."""

    def __init__(self, *kinds: Kind) -> None:
        self.by_name: Mapping[str, Kind] = {kind.resource.kind: kind for kind in kinds}
        self.resources: tuple[Resource, ...] = tuple(kind.resource for kind in kinds)
        """Resources to watch."""
        self.with_status: tuple[Resource, ...] = tuple(
            kind.resource for kind in kinds if kind.status is not None
        )
        """Resources whose statuses the controller writes."""
        self.indexes: Mapping[str, tuple[Index, ...]] = {
            kind.resource.kind: indexes for kind in kinds if (indexes := kind.all_indexes)
        }
        """Index buckets of each kind, for :class:`gatehouse.incremental.query.Snapshot`."""
        self.owned: tuple[tuple[Kind, OwnedKind], ...] = tuple(
            (kind, owned) for kind in kinds for owned in kind.owned
        )
        """Each owned kind, after the kind of its owners."""

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.by_name.values())

    def decode(self, kind: str, raw: Mapping[str, Any]) -> meta.KubernetesObject:
        """Decode an object of one of these kinds. Never raises."""
        return meta.decode_view(self.by_name[kind].view, raw, kind)
