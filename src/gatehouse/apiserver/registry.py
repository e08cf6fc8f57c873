"""Every resource that is served: its names, its schema, its rules, its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.apiserver.errors import Cause
from gatehouse.apiserver.schema import core, gateway, rules
from gatehouse.apiserver.schema.shapes import ANY, DNS_LABEL, DNS_SUBDOMAIN, Schema

Object = dict[str, Any]


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`; ``path`` leads to its value, dot by dot."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


class Served(msgspec.Struct, frozen=True):
    """One resource."""

    resource: Resource
    schema: Schema
    short: tuple[str, ...] = ()
    status: bool = False
    """Whether there is a status subresource."""
    rule: Callable[[Object], Iterator[Cause]] | None = None
    columns: tuple[Column, ...] = ()
    name_pattern: str = DNS_SUBDOMAIN
    also: tuple[str, ...] = ()
    """Other versions under which the same objects are served."""
    stored: bool = True
    """False: only created, answered, never kept (reviews)."""
    generation: bool = True

    @property
    def prefix(self) -> str:
        """The prefix of all of its keys in the store."""
        return f"/{self.resource.group or 'core'}/{self.resource.plural}/"

    def key(self, namespace: str, name: str) -> str:
        """Give the key of an object."""
        return (
            f"{self.prefix}{namespace}/{name}" if self.resource.namespaced else self.prefix + name
        )

    @property
    def versions(self) -> tuple[str, ...]:
        """All versions."""
        return (self.resource.version, *self.also)


_AGE = Column("Age", "metadata.creationTimestamp", "date")
_NAME = Column("Name", "metadata.name")


def _columns(*columns: Column) -> tuple[Column, ...]:
    return (_NAME, *columns)


SERVED: tuple[Served, ...] = (
    Served(
        resources.NAMESPACES,
        core.NAMESPACE,
        ("ns",),
        True,
        columns=_columns(Column("Status", "status.phase"), _AGE),
        name_pattern=DNS_LABEL,
        generation=False,
    ),
    Served(
        resources.SERVICES,
        core.SERVICE,
        ("svc",),
        True,
        rules.service,
        _columns(
            Column("Type", "spec.type"),
            Column("Cluster-IP", "spec.clusterIP"),
            Column("External-IP", "status.loadBalancer.ingress.0.ip"),
            Column("Port(s)", "spec.ports"),
            _AGE,
            Column("Selector", "spec.selector", wide=True),
        ),
        name_pattern=DNS_LABEL,
        generation=False,
    ),
    Served(
        resources.SECRETS,
        core.SECRET,
        (),
        False,
        rules.secret,
        _columns(Column("Type", "type"), Column("Data", "data", "integer"), _AGE),
        generation=False,
    ),
    Served(
        resources.CONFIG_MAPS,
        core.CONFIG_MAP,
        ("cm",),
        columns=_columns(Column("Data", "data", "integer"), _AGE),
        generation=False,
    ),
    Served(
        resources.SERVICE_ACCOUNTS,
        core.SERVICE_ACCOUNT,
        ("sa",),
        columns=_columns(Column("Secrets", "secrets", "integer"), _AGE),
        generation=False,
    ),
    Served(
        resources.PODS,
        core.POD,
        ("po",),
        True,
        columns=_columns(
            Column("Ready", "status.containerStatuses.0.ready"),
            Column("Status", "status.phase"),
            Column("Restarts", "status.containerStatuses.0.restartCount", "integer"),
            _AGE,
            Column("IP", "status.podIP", wide=True),
            Column("Node", "spec.nodeName", wide=True),
        ),
        generation=False,
    ),
    Served(
        resources.EVENTS,
        core.EVENT,
        ("ev",),
        columns=_columns(
            Column("Type", "type"), Column("Reason", "reason"), Column("Message", "message"), _AGE
        ),
        generation=False,
    ),
    Served(
        resources.ENDPOINT_SLICES,
        core.ENDPOINT_SLICE,
        columns=_columns(
            Column("AddressType", "addressType"),
            Column("Ports", "ports.*.port"),
            Column("Endpoints", "endpoints.*.addresses.0"),
            _AGE,
        ),
    ),
    Served(
        resources.DEPLOYMENTS,
        core.DEPLOYMENT,
        ("deploy",),
        True,
        columns=_columns(
            Column("Ready", "status.readyReplicas", "integer"),
            Column("Up-to-date", "status.updatedReplicas", "integer"),
            Column("Available", "status.availableReplicas", "integer"),
            _AGE,
        ),
    ),
    Served(
        resources.LEASES,
        core.LEASE,
        columns=_columns(Column("Holder", "spec.holderIdentity"), _AGE),
        generation=False,
    ),
    Served(
        resources.GATEWAY_CLASSES,
        gateway.GATEWAY_CLASS,
        ("gc",),
        True,
        columns=_columns(
            Column("Controller", "spec.controllerName"),
            Column("Accepted", "status.conditions.Accepted"),
            _AGE,
            Column("Description", "spec.description", wide=True),
        ),
    ),
    Served(
        resources.GATEWAYS,
        gateway.GATEWAY,
        ("gtw",),
        True,
        rules.gateway,
        _columns(
            Column("Class", "spec.gatewayClassName"),
            Column("Address", "status.addresses.*.value"),
            Column("Programmed", "status.conditions.Programmed"),
            _AGE,
        ),
    ),
    Served(
        resources.HTTP_ROUTES,
        gateway.HTTP_ROUTE,
        (),
        True,
        rules.http_route,
        _columns(Column("Hostnames", "spec.hostnames"), _AGE),
    ),
    Served(
        resources.REFERENCE_GRANTS,
        gateway.REFERENCE_GRANT,
        ("refgrant",),
        columns=_columns(_AGE),
        also=("v1beta1",),
    ),
    Served(
        resources.SNIPPETS_FILTERS,
        gateway.SNIPPETS_FILTER,
        (),
        True,
        columns=_columns(_AGE),
    ),
    Served(resources.TOKEN_REVIEWS, ANY, stored=False),
    Served(resources.SELF_SUBJECT_REVIEWS, ANY, stored=False),
)

_BY_PATH = {
    (served.resource.group, version, served.resource.plural): served
    for served in SERVED
    for version in served.versions
}


def find(group: str, version: str, plural: str) -> Served | None:
    """Give the resource served under these names."""
    return _BY_PATH.get((group, version, plural))


def of(resource: Resource) -> Served:
    """Give what is served as ``resource``."""
    return _BY_PATH[(resource.group, resource.version, resource.plural)]
