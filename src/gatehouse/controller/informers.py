"""What one controller watches, what of it the API server does not give, and since when it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer, OnChanges
from gatehouse.kube.store import Changes

log = structlog.get_logger("gatehouse.controller")

BUNDLE_VERSION = "gateway.networking.k8s.io/bundle-version"
"""Annotation of Gateway API's definitions."""

PROVISIONED = (
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.AUTOSCALERS,
    resources.DISRUPTION_BUDGETS,
    resources.NETWORK_POLICIES,
    resources.CONFIG_MAPS,
    resources.SERVICE_ACCOUNTS,
)
"""What is watched only to notice that somebody changed what was made for a Gateway."""

DEPENDENTS = (resources.DNS_ENDPOINTS, resources.RATE_LIMIT_CONDITIONS)
"""What is made for objects of our own kinds, and watched for the same reason."""

WATCHED_RESOURCES: tuple[Resource, ...] = tuple(
    dict.fromkeys((*combined.KINDS, *PROVISIONED, *DEPENDENTS))
)
"""Everything of which changes are followed."""

_OPTIONAL = frozenset(
    {
        *combined.OPTIONAL_KINDS,
        resources.DEPLOYMENTS,
        resources.DAEMON_SETS,
        resources.AUTOSCALERS,
        resources.DISRUPTION_BUDGETS,
        resources.NETWORK_POLICIES,
        *DEPENDENTS,
    }
)


class Informers:
    """The informers of one controller, by kind."""

    def __init__(
        self,
        client: kube.Client,
        on_changes: OnChanges,
        on_bundle: Callable[[gateway_api.CRDVersions], None],
    ) -> None:
        self._on_bundle = on_bundle
        self._told = gateway_api.CRDVersions()
        self.informers = {
            resource.kind: Informer(
                client, resource, on_changes=on_changes, optional=resource in _OPTIONAL
            )
            for resource in WATCHED_RESOURCES
        }
        self._by_definition = {
            f"{resource.plural}.{resource.group}": self.informers[resource.kind]
            for resource in WATCHED_RESOURCES
        }
        # Without leave to see them we go on: it is not known then which Gateway API this is.
        self._definitions = Informer(
            client,
            resources.DEFINITIONS,
            on_changes=self._on_definitions,
            optional=True,
            patience=1,
            metadata_only=True,
        )

    def _everyone(self) -> Iterator[tuple[str, Informer]]:
        yield from self.informers.items()
        yield resources.DEFINITIONS.kind, self._definitions

    def unsynced(self) -> str:
        """Why not everything that is needed has been seen yet; empty if it has."""
        missing = [(kind, each) for kind, each in self._everyone() if not each.synced.is_set()]
        return ", ".join(_told(kind, each) for kind, each in missing)

    def unavailable_kinds(self) -> tuple[str, ...]:
        """Give the kinds that are done without, or of which nothing new is known, and why."""
        found = [(kind, each) for kind, each in self._everyone() if each.synced.is_set()]
        return tuple(_told(kind, each) for kind, each in found if each.trouble)

    def objects(self) -> int:
        """Count the objects that are known."""
        return sum(len(each.objects) for each in self.informers.values())

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Start watching; returns when everything there is has been seen."""
        for _, informer in self._everyone():
            group.create_task(informer.run())
        for _, informer in self._everyone():
            await informer.synced.wait()

    def _on_definitions(self, _: Resource, changes: Changes) -> None:
        for (_namespace, name), change in changes.items():
            informer = self._by_definition.get(name)
            if change.new is not None and informer is not None and informer.trouble:
                informer.retry_now()
        bundle = bundle_of(self._definitions.objects.values())
        if bundle != self._told:
            self._told = bundle
            log.info("Gateway API", versions=sorted({version for _, version in bundle.versions}))
            self._on_bundle(bundle)


def _told(kind: str, informer: Informer) -> str:
    return f"{kind} ({informer.trouble})" if informer.trouble else kind


def bundle_of(definitions: Any) -> gateway_api.CRDVersions:
    """Give the versions of Gateway API's definitions."""
    suffix = f".{resources.GATEWAYS.group}"
    found = []
    for each in definitions:
        metadata = each["metadata"]
        version = (metadata.get("annotations") or {}).get(BUNDLE_VERSION)
        if version and metadata["name"].endswith(suffix):
            found.append((metadata["name"], version))
    return gateway_api.CRDVersions(tuple(sorted(found)))
