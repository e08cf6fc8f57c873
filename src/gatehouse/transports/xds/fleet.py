"""Resource sets, streams and reports of all Gateways with Envoy data planes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import structlog

from gatehouse.dataplane.agent_limits import (
    MAX_ERROR_CHARACTERS,
    MAX_SUBSCRIPTION_BYTES,
    MessageRefused,
)
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection
from gatehouse.dataplane.limit_use import LimitUse
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import is_bind_error
from gatehouse.dataplane.xds.resources import ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.transports.agents.fleet import MAX_OPEN_STREAMS
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.token_auth import Identity

log = structlog.get_logger("gatehouse.envoys")

RequestT = TypeVar("RequestT", contravariant=True)


TOO_MANY_NAMES = "the stream requests too many names"
"""Reason of the end of a stream beyond MAX_SUBSCRIPTION_BYTES."""


class Dialogue(Protocol[RequestT]):
    """An ADS session in one variant of the protocol."""

    conversation: AdsSession
    list_fields: frozenset[int]
    """Numbers of the fields of a request that are lists of names."""

    def is_answer(self, message: RequestT) -> bool:
        """Return whether a request only answers the response in flight."""

    def receive(self, message: RequestT) -> None:
        """Process a request."""

    def next(self) -> bytes | None:
        """Return the next response, or None if there is nothing to send now."""


class AdsStream(Generic[RequestT]):
    """The stream of one instance."""

    def __init__(self, identity: Identity, dialogue: Dialogue[RequestT]) -> None:
        self.identity = identity
        self.dialogue = dialogue
        self.node = delta.NodeInfo()
        self.ended = False
        self.refusal: MessageRefused | None = None
        """Refusal of a request, which ends the stream."""
        self.woken = asyncio.Event()
        """Set when there may be a response to send."""
        self.report = InstanceReport(identity.instance)
        self.on_end: Callable[[], object] = lambda: None
        """Called to end the stream, even if its client reads nothing."""

    def receive(self, message: RequestT) -> None:
        """Process a request. Raises MessageRefused if the stream requests too much."""
        self.dialogue.receive(message)
        if self.dialogue.conversation.requested_bytes > MAX_SUBSCRIPTION_BYTES:
            raise MessageRefused(TOO_MANY_NAMES)
        self.woken.set()

    def release(self) -> None:
        """Drop the state of the session: only the end of the call is still to be sent."""
        del self.dialogue
        self.on_end = lambda: None

    def end(self) -> None:
        """End the stream."""
        self.ended = True
        self.on_end()


AnyStream = AdsStream[Any]
"""Stream of any variant, which must not receive requests."""


class _DataPlane:
    def __init__(self) -> None:
        self.publication = SnapshotCache()
        self.streams: dict[str, AnyStream] = {}
        """The newest stream of each instance."""
        self.open_streams: Counter[str] = Counter()
        """Number of open streams of each instance, including older ones."""
        self.cached_report: DataPlaneReport | None = None
        """The last report, until it changes; there may be thousands of instances."""


class EnvoyFleet:
    """Updates the snapshot of every stream, and reports the state of each instance."""

    def __init__(self, events: FleetEvents) -> None:
        self._events = events
        self._gateways: dict[str, _DataPlane] = {}

    def publish(self, gateway: str, resources: ResourceSet) -> None:
        """Make ``resources`` the desired set of all instances of ``gateway``. The latest wins."""
        plane = self._plane(gateway)
        if plane.publication.publish(resources):
            for stream in plane.streams.values():
                stream.woken.set()
            self._report(gateway)

    def withdraw(self, gateway: str) -> None:
        """Stop publishing for ``gateway``. Its instances keep their configuration."""
        plane = self._gateways.get(gateway)
        if plane is not None:
            plane.publication.withdraw()
            self._report(gateway)
            self._remove_if_idle(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Return the current report of ``gateway``."""
        plane = self._gateways.get(gateway)
        if plane is None:
            return DataPlaneReport(gateway=gateway, desired="")
        if plane.cached_report is None:
            publication = plane.publication
            plane.cached_report = DataPlaneReport(
                gateway=gateway,
                desired=publication.current.version if publication.open else "",
                instances=tuple(stream.report for _, stream in sorted(plane.streams.items())),
            )
        return plane.cached_report

    def open(
        self, identity: Identity, make: Callable[[SnapshotCache], Dialogue[RequestT]]
    ) -> AdsStream[RequestT] | None:
        """Open a stream for ``identity`` and end an older one of the same instance.

        Return None if too many streams are still open.
        """
        plane = self._plane(identity.gateway)
        if plane.open_streams[identity.instance] >= MAX_OPEN_STREAMS:
            return None
        plane.open_streams[identity.instance] += 1
        stream = AdsStream(identity, make(plane.publication))
        older = plane.streams.pop(identity.instance, None)
        if older is not None:
            older.end()
        plane.streams[identity.instance] = stream
        log.info("instance subscribed", gateway=identity.gateway, instance=identity.instance)
        self._report(identity.gateway)
        return stream

    def close(self, stream: AnyStream) -> None:
        """Process the end of ``stream``."""
        identity = stream.identity
        plane = self._gateways[identity.gateway]
        plane.open_streams[identity.instance] -= 1
        if not plane.open_streams[identity.instance]:
            del plane.open_streams[identity.instance]
        if plane.streams.get(identity.instance) is stream:
            del plane.streams[identity.instance]
            log.info("instance disconnected", gateway=identity.gateway, instance=identity.instance)
            self._events.on_disconnected(identity.gateway, identity.instance)
            self._report(identity.gateway)
        self._remove_if_idle(identity.gateway)

    def published_resources(self, identity: Identity) -> int:
        """Return the number of resources that the caller's Gateway has."""
        return sum(map(len, self._gateways[identity.gateway].publication.current.by_type.values()))

    def update_report(self, stream: AnyStream) -> None:
        """Update the report of the instance."""
        report = _instance_report(stream)
        if report != stream.report:
            _log_rejections(stream.identity, stream.report, report)
            if report.unhealthy and not stream.report.unhealthy and not stream.ended:
                self._events.on_unhealthy(
                    stream.identity.gateway, report.instance, report.unhealthy
                )
            stream.report = report
            if not stream.ended:
                self._report(stream.identity.gateway)

    def is_connected(self, gateway: str, instance: str) -> bool:
        """Return whether an instance has a stream."""
        plane = self._gateways.get(gateway)
        return plane is not None and instance in plane.streams

    def dismiss(self, gateway: str, instance: str) -> None:
        """End the stream of an instance that must not be served now."""
        plane = self._gateways.get(gateway)
        stream = plane.streams.get(instance) if plane else None
        if stream is not None:
            stream.end()

    def end_all(self) -> None:
        """End all streams."""
        for plane in self._gateways.values():
            for stream in plane.streams.values():
                stream.end()

    def _plane(self, gateway: str) -> _DataPlane:
        return self._gateways.setdefault(gateway, _DataPlane())

    def _remove_if_idle(self, gateway: str) -> None:
        plane = self._gateways[gateway]
        if not plane.publication.open and not plane.open_streams:
            del self._gateways[gateway]

    def _report(self, gateway: str) -> None:
        self._gateways[gateway].cached_report = None
        self._events.on_report(gateway)


def _instance_report(stream: AnyStream) -> InstanceReport:
    session = stream.dialogue.conversation
    rejections: set[Rejection] = set()
    without_origin: list[str] = []
    tests = session.tests if session.tests.finished else None
    for rejection in session.rejected_resources() if tests is None else tests.rejected():
        if rejection.resource.origins:
            origins, reason = rejection.resource.origins, rejection.reason
            rejections.add(Rejection(origins, reason, transient=is_bind_error(reason)))
        else:
            kind = rejection.resource.type_url.rpartition(".")[2]
            without_origin.append(f"{kind} {rejection.resource.name}: {rejection.reason}")
    unhealthy = f"Envoy is not healthy: {session.unhealthy}" if session.unhealthy else ""
    return InstanceReport(
        instance=stream.identity.instance,
        desired=session.target_version if tests is None else tests.version,
        confirmed=session.confirmed if tests is None else tests.version,
        # A rejection without an origin cannot be reported on an object, so it is reported here.
        error="; ".join(sorted(without_origin))[:MAX_ERROR_CHARACTERS],
        proxy=stream.node.proxy,
        modules=stream.node.extensions,
        features=stream.node.features,
        rejected=tuple(
            sorted(rejections, key=lambda rejection: (rejection.origins, rejection.reason))
        ),
        unhealthy=unhealthy,
        unready_servers=session.unready_servers,
        limit_use=_limit_use(session, stream.identity.instance),
        serving=session.serving,
        takes_trials=session.takes_trials,
    )


def _limit_use(session: AdsSession, instance: str) -> LimitUse | None:
    """Return the use of shared limits, if the agent knows the name under which it has shares."""
    name, use = session.limit_use or ("", None)
    return use if name == instance else None


def _log_rejections(identity: Identity, before: InstanceReport, now: InstanceReport) -> None:
    for rejection in set(now.rejected) - set(before.rejected):
        log.warning(
            "resource rejected",
            gateway=identity.gateway,
            instance=identity.instance,
            origins=rejection.origins,
            reason=rejection.reason,
        )
    if now.error and now.error != before.error:
        log.error(
            "resource rejected",
            gateway=identity.gateway,
            instance=identity.instance,
            reason=now.error,
        )
