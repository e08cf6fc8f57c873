"""Objects that the user may read, by watch, while a request or an open page needs them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import count

import structlog

from gatehouse.apis.resources import PODS
from gatehouse.console.topology import Topology, UnreadableKind
from gatehouse.inspection.object_set import (
    CREDENTIAL_RESOURCES,
    DATA_PLANE_SELECTOR,
    REPORTED_RESOURCES,
    ObjectSet,
    assume_missing,
)
from gatehouse.inspection.status_report import report_status
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

log = structlog.get_logger("gatehouse.console.object_feed")

WATCH_IDLE_SECONDS = 30.0
"""Time without a request or an open page after which the watches end."""

MAX_SYNC_SECONDS = 15.0
"""Maximum time that a request waits for the first lists."""

_DEBOUNCE_SECONDS = 0.2
_MIN_REPORT_SECONDS = 1.0
"""Minimum time between two reports, so that many changes do not make as many reports."""

_REPORT_SHARE = 5
"""Reports take at most this part of the time: one in five seconds."""


class _KindFeed:
    """Informers of one resource: of all namespaces, or else of those that the user may read."""

    def __init__(
        self,
        client: kube.Client,
        resource: Resource,
        scope: ReadScope,
        on_change: Callable[[], None],
    ):
        def informer(namespace: str | None) -> Informer:
            return Informer(
                client,
                resource,
                on_changes=lambda *_: on_change(),
                namespace=namespace,
                optional=True,
                max_forbidden=1,
                label_selector=DATA_PLANE_SELECTOR if resource is PODS else "",
            )

        self.resource = resource
        named = scope.named if resource.namespaced else ()
        self.whole = None if named else informer(None)
        fallback = scope.fallback if resource.namespaced and not named else ()
        self.parts = {name: informer(name) for name in (*named, *fallback)}

    async def run(self) -> None:
        """Watch until cancelled. Parts are watched only if the whole is forbidden."""
        async with asyncio.TaskGroup() as group:
            if self.whole is not None:
                group.create_task(self.whole.run())
                await _until_answered([self.whole])
            if self.whole is None or self.whole.forbidden:
                for part in self.parts.values():
                    group.create_task(part.run())

    @property
    def informers(self) -> list[Informer]:
        """Return the informers whose objects count."""
        if self.whole is not None and not self.whole.forbidden:
            return [self.whole]
        return list(self.parts.values()) or ([self.whole] if self.whole else [])

    def objects(self) -> Iterator[Object]:
        """Yield the objects as last seen."""
        for informer in self.informers:
            yield from informer.objects.values()

    def not_permitted(self) -> Iterator[UnreadableKind]:
        """Yield what the user may not list."""
        if self.whole is not None and self.whole.forbidden and not self.parts:
            yield UnreadableKind(self.resource.kind)
        if self.whole is None or self.whole.forbidden:
            for name, part in self.parts.items():
                if part.forbidden:
                    yield UnreadableKind(self.resource.kind, name)


async def _until_answered(informers: Sequence[Informer]) -> None:
    """Wait until each informer has its first list, or an error."""
    for informer in informers:
        await informer.answered.wait()


class ReadScope:
    """Namespaces to read."""

    def __init__(self, named: Sequence[str], fallback: str) -> None:
        self.named = tuple(named)
        """Namespaces that the user named; empty: all."""
        self.fallback = (fallback,)
        """Namespace to read if the user may not list a kind in all namespaces."""


class ObjectFeed:
    """Objects and their topology. Watches run while :meth:`used` is entered, and shortly after."""

    def __init__(self, client: kube.Client, scope: ReadScope) -> None:
        self.client = client
        self._scope = scope
        self.topology = Topology()
        self._kinds: list[_KindFeed] = []
        self._running: asyncio.Task[None] | None = None
        self._users = 0
        self._idle_since = time.monotonic()
        self._reported = asyncio.Event()
        # Revisions of an earlier server must not be mistaken for those of this one.
        self._series, self._changes = secrets.token_hex(4), count(1)
        self.objects_revision = ""
        """Revision of the watched objects. That of the topology stays if no report differs."""
        self._published = asyncio.Condition()

    @property
    def watching(self) -> bool:
        """Return whether watches run."""
        return self._running is not None and not self._running.done()

    @contextlib.asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Watch objects while this is entered. The topology is reported when it is entered."""
        self._users += 1
        try:
            if not self.watching:
                self._reported.clear()
                self._running = asyncio.create_task(self._run())
            await self._reported.wait()
            yield
        finally:
            self._users -= 1
            self._idle_since = time.monotonic()

    async def close(self) -> None:
        """End the watches."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def next_revision(self, known: str) -> str:
        """Return the revision when it is another than `known`."""
        async with self._published:
            await self._published.wait_for(lambda: self.topology.revision != known)
            return self.topology.revision

    def object_set(self) -> ObjectSet:
        """Return the objects as last seen."""
        pods = [item for kind in self._kinds if kind.resource is PODS for item in kind.objects()]
        others = [
            item for kind in self._kinds if kind.resource is not PODS for item in kind.objects()
        ]
        if self._class_forbidden():
            # A user of one namespace may not read classes. Its Gateways are not unmanaged for that.
            assumed, notes = assume_missing(others)
            return ObjectSet([*others, *assumed], pods, notes)
        return ObjectSet(others, pods, ())

    def _class_forbidden(self) -> bool:
        return UnreadableKind("GatewayClass") in self.not_permitted()

    async def with_credentials(self) -> ObjectSet:
        """Return the objects with those that hold credentials, which explanations need.

        They are read for each, and not kept. Raises ApiError.
        """
        credentials: list[Object] = []
        notes = [
            f"no permission to list {item.kind}: objects of this kind count as missing"
            for item in self.not_permitted()
        ]
        for resource in CREDENTIAL_RESOURCES:
            for namespace in self._namespaces() if resource.namespaced else (None,):
                try:
                    credentials += (await self.client.list(resource, namespace)).items
                except kube.NotFound:
                    # The server does not serve the kind.
                    continue
                except kube.Forbidden:
                    place = f" in namespace {namespace}" if namespace else ""
                    notes.append(
                        f"no permission to list {resource.plural}{place}: they count as missing"
                    )
        objects = self.object_set()
        notes += objects.notes
        return ObjectSet([*objects.objects, *credentials], objects.pods, tuple(sorted({*notes})))

    def _namespaces(self) -> Sequence[str | None]:
        """Return the namespaces in which Secrets are read: those in which Pods are read."""
        (pods,) = (kind for kind in self._kinds if kind.resource is PODS)
        if pods.whole is not None and not pods.whole.forbidden:
            return (None,)
        return tuple(pods.parts)

    def not_permitted(self) -> tuple[UnreadableKind, ...]:
        """Return what the user may not list."""
        return tuple(entry for kind in self._kinds for entry in kind.not_permitted())

    def _interruptions(self) -> tuple[str, ...]:
        """Return the errors of watches that have no other reason, each once."""
        errors = {
            informer.interruption
            for kind in self._kinds
            for informer in kind.informers
            if informer.interruption and not informer.unavailable_reason
        }
        return tuple(sorted(errors))

    async def _run(self) -> None:
        changed = asyncio.Event()
        watched = (*REPORTED_RESOURCES, PODS)

        def on_change() -> None:
            self.objects_revision = f"{self._series}-{next(self._changes)}"
            changed.set()

        self._kinds = [_KindFeed(self.client, item, self._scope, on_change) for item in watched]
        watches = [asyncio.create_task(kind.run()) for kind in self._kinds]
        try:
            await self._first_lists()
            while self._users or time.monotonic() - self._idle_since < WATCH_IDLE_SECONDS:
                changed.clear()
                started = time.monotonic()
                await self._report()
                duration = time.monotonic() - started
                period = max(_MIN_REPORT_SECONDS, _REPORT_SHARE * duration)
                await self._next_change(changed)
                rest = started + period - time.monotonic()
                await asyncio.sleep(max(_DEBOUNCE_SECONDS, rest))
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            self._reported.set()

    async def _first_lists(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_SYNC_SECONDS):
                while True:
                    informers = [item for kind in self._kinds for item in kind.informers]
                    await _until_answered(informers)
                    if informers == [item for kind in self._kinds for item in kind.informers]:
                        return

    async def _report(self) -> None:
        reported = report_status(self.object_set())
        if self._class_forbidden():
            # Classes are assumed then.
            reported = tuple(item for item in reported if item.kind != "GatewayClass")
        if self.topology.update(reported, self.not_permitted(), self._interruptions()):
            async with self._published:
                self._published.notify_all()
        self._reported.set()

    async def _next_change(self, changed: asyncio.Event) -> None:
        """Wait for a change of objects, of errors, or for the end of use."""
        errors = self._interruptions(), self.not_permitted()
        while not changed.is_set() and errors == (self._interruptions(), self.not_permitted()):
            if not self._users and time.monotonic() - self._idle_since >= WATCH_IDLE_SECONDS:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MIN_REPORT_SECONDS):
                    await changed.wait()
