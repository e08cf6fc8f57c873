"""The informers of a controller: watched kinds, their synchronization and availability."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.kinds import Kinds
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer, OnAvailability, OnChanges
from gatehouse.kube.store import Changes
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.controller")

BUNDLE_VERSION_ANNOTATION = "gateway.networking.k8s.io/bundle-version"
CHANNEL_ANNOTATION = "gateway.networking.k8s.io/channel"
"""Annotation of the CRDs of Gateway API: their version."""

PROVISIONED = (
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.AUTOSCALERS,
    resources.DISRUPTION_BUDGETS,
    resources.NETWORK_POLICIES,
    resources.CONFIG_MAPS,
    resources.SERVICE_ACCOUNTS,
)
"""Kinds watched only to notice changes of objects provisioned for a Gateway."""


def watched_resources(kinds: Kinds) -> tuple[Resource, ...]:
    """Return the resources to watch: those of front ends and of objects that Gatehouse owns."""
    owned = (owned_kind.resource for _, owned_kind in kinds.owned)
    return tuple(dict.fromkeys((*kinds.resources, *PROVISIONED, *owned)))


_REQUIRED = {resources.SERVICE_ACCOUNTS}
"""Resources that no front end requires but agent identities do."""


class Informers:
    """The informers of one controller, by kind."""

    def __init__(
        self,
        client: kube.Client,
        on_changes: OnChanges,
        on_crd_versions: Callable[[gateway_api.CRDVersions], None],
        on_availability: OnAvailability,
        kinds: Kinds = combined.KINDS,
    ) -> None:
        """``kinds``: kinds of front ends."""
        watched = watched_resources(kinds)
        required = {kind.resource for kind in kinds if kind.required} | _REQUIRED
        self._on_crd_versions = on_crd_versions
        self._versions = gateway_api.CRDVersions()
        self.by_kind = {
            resource.kind: Informer(
                client,
                resource,
                on_changes=on_changes,
                optional=resource not in required,
                announced=self._crds_are_watched,
                on_availability=on_availability,
            )
            for resource in watched
        }
        self._by_crd = {
            f"{resource.plural}.{resource.group}": self.by_kind[resource.kind]
            for resource in watched
        }
        # Optional: without permission to list them the version of Gateway API stays unknown.
        self._crds = Informer(
            client,
            resources.DEFINITIONS,
            on_changes=self._on_crds,
            optional=True,
            max_forbidden=1,
            metadata_only=True,
        )

    def _all(self) -> Iterator[tuple[str, Informer]]:
        yield from self.by_kind.items()
        yield resources.DEFINITIONS.kind, self._crds

    def unsynced(self) -> str:
        """Return the kinds that are not synchronized yet, with reasons; empty if all are."""
        missing = [
            (kind, informer) for kind, informer in self._all() if not informer.synced.is_set()
        ]
        return ", ".join(_with_reason(kind, informer) for kind, informer in missing)

    def unavailable_kinds(self) -> tuple[str, ...]:
        """Return the kinds that the API server does not serve or allow, with reasons."""
        synced = [(kind, informer) for kind, informer in self._all() if informer.synced.is_set()]
        return tuple(
            _with_reason(kind, informer) for kind, informer in synced if informer.unavailable_reason
        )

    def objects(self) -> int:
        """Return the number of objects in all stores."""
        return sum(len(informer.objects) for informer in self.by_kind.values())

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start all informers in ``group`` and wait until they have synchronized."""
        for _, informer in self._all():
            group.create_task(informer.run())
        for _, informer in self._all():
            await informer.synced.wait()

    def _crds_are_watched(self) -> bool:
        return self._crds.synced.is_set() and not self._crds.unavailable_reason

    def _on_crds(self, _: Resource, changes: Changes) -> None:
        for (_namespace, name), change in changes.items():
            informer = self._by_crd.get(name)
            if change.new is not None and informer is not None and informer.unavailable_reason:
                informer.retry_now()
        versions = crd_versions(self._crds.objects.values())
        if versions != self._versions:
            self._versions = versions
            log.info(
                "Gateway API versions changed",
                versions=sorted({crd_version for _, crd_version in versions.versions}),
            )
            self._on_crd_versions(versions)


def _with_reason(kind: str, informer: Informer) -> str:
    return f"{kind} ({informer.unavailable_reason})" if informer.unavailable_reason else kind


def crd_versions(crds: Any) -> gateway_api.CRDVersions:
    """Return the bundle versions of Gateway API's CRDs."""
    suffix = f".{resources.GATEWAYS.group}"
    versions = []
    experimental = True
    for crd in crds:
        metadata = crd["metadata"]
        annotations = metadata.get("annotations") or {}
        version = annotations.get(BUNDLE_VERSION_ANNOTATION)
        if version and metadata["name"].endswith(suffix):
            versions.append((metadata["name"], version))
        if metadata["name"] == f"{resources.GATEWAYS.plural}{suffix}":
            experimental = annotations.get(CHANNEL_ANNOTATION) != "standard"
    return gateway_api.CRDVersions(tuple(sorted(versions)), experimental)
