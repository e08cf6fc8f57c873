"""All gateways that are served by Envoys: what each is to have, its streams, and the reports."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection
from gatehouse.dataplane.xds import delta, sotw
from gatehouse.dataplane.xds.resources import ResourceSet
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.transports.agents.fleet import STREAMS_MAX
from gatehouse.transports.agents.token_auth import Identity

log = structlog.get_logger("gatehouse.envoys")

Dialogue = delta.DeltaStream | sotw.SotwStream


class Stream:
    """The stream of one instance."""

    def __init__(self, identity: Identity, dialogue: Dialogue) -> None:
        self.identity = identity
        self.dialogue = dialogue
        self.speaker = delta.NodeInfo()
        self.ended = False
        self.woken = asyncio.Event()
        """Set when there may be something to say."""
        self.report = InstanceReport(identity.instance)
        self.on_end: Callable[[], object] = lambda: None
        """What is to happen when it is to end, also while its client takes nothing."""

    def end(self) -> None:
        """Ask that the stream be ended."""
        self.ended = True
        self.on_end()


class _DataPlane:
    def __init__(self) -> None:
        self.publication = SnapshotCache()
        self.streams: dict[str, Stream] = {}
        """By instance; the newest of each."""
        self.unended: Counter[str] = Counter()
        """Streams of each instance, also older ones."""
        self.reported: DataPlaneReport | None = None
        """What was last asked for, while it holds; there may be thousands of instances."""


class Fleet:
    """Keeps every stream's publication the newest; tells how far each instance is."""

    def __init__(self, on_report: Callable[[str], None]) -> None:
        self._on_report = on_report
        self._gateways: dict[str, _DataPlane] = {}

    def publish(self, gateway: str, resources: ResourceSet) -> None:
        """Make ``resources`` what every instance of ``gateway`` is to have; latest wins."""
        plane = self._plane(gateway)
        if plane.publication.publish(resources):
            for stream in plane.streams.values():
                stream.woken.set()
            self._report(gateway)

    def withdraw(self, gateway: str) -> None:
        """Forget ``gateway``: its instances keep what they have, and are told nothing more."""
        plane = self._gateways.get(gateway)
        if plane is not None:
            plane.publication.withdraw()
            self._report(gateway)
            self._forget_if_idle(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
        plane = self._gateways.get(gateway)
        if plane is None:
            return DataPlaneReport(gateway=gateway, desired="")
        if plane.reported is None:
            publication = plane.publication
            plane.reported = DataPlaneReport(
                gateway=gateway,
                desired=publication.current.version if publication.open else "",
                instances=tuple(stream.report for _, stream in sorted(plane.streams.items())),
            )
        return plane.reported

    def open(self, identity: Identity, make: Callable[[SnapshotCache], Dialogue]) -> Stream | None:
        """Give a stream to ``identity``; an older one of the same instance is ended.

        None: too many have not ended yet.
        """
        plane = self._plane(identity.gateway)
        if plane.unended[identity.instance] >= STREAMS_MAX:
            return None
        plane.unended[identity.instance] += 1
        stream = Stream(identity, make(plane.publication))
        older = plane.streams.pop(identity.instance, None)
        if older is not None:
            older.end()
        plane.streams[identity.instance] = stream
        log.info("instance subscribed", gateway=identity.gateway, instance=identity.instance)
        self._report(identity.gateway)
        return stream

    def close(self, stream: Stream) -> None:
        """Take note that ``stream`` ended."""
        identity = stream.identity
        plane = self._gateways[identity.gateway]
        plane.unended[identity.instance] -= 1
        if not plane.unended[identity.instance]:
            del plane.unended[identity.instance]
        if plane.streams.get(identity.instance) is stream:
            del plane.streams[identity.instance]
            log.info("instance gone", gateway=identity.gateway, instance=identity.instance)
            self._report(identity.gateway)
        self._forget_if_idle(identity.gateway)

    def note(self, stream: Stream) -> None:
        """Take note of how far the instance is."""
        report = _instance_report(stream)
        if report != stream.report:
            _log_refusals(stream.identity, stream.report, report)
            stream.report = report
            if not stream.ended:
                self._report(stream.identity.gateway)

    def dismiss(self, gateway: str, instance: str) -> None:
        """End the stream of an instance: it is no longer to be spoken to."""
        plane = self._gateways.get(gateway)
        stream = plane.streams.get(instance) if plane else None
        if stream is not None:
            stream.end()

    def end_all(self) -> None:
        """Ask every stream to end."""
        for plane in self._gateways.values():
            for stream in plane.streams.values():
                stream.end()

    def _plane(self, gateway: str) -> _DataPlane:
        return self._gateways.setdefault(gateway, _DataPlane())

    def _forget_if_idle(self, gateway: str) -> None:
        plane = self._gateways[gateway]
        if not plane.publication.open and not plane.unended:
            del self._gateways[gateway]

    def _report(self, gateway: str) -> None:
        self._gateways[gateway].reported = None
        self._on_report(gateway)


def _instance_report(stream: Stream) -> InstanceReport:
    conversation = stream.dialogue.conversation
    refused: set[Rejection] = set()
    nobodys: list[str] = []
    for each in conversation.refused():
        if each.resource.origins:
            refused.add(Rejection(each.resource.origins, each.reason))
        else:
            kind = each.resource.type_url.rpartition(".")[2]
            nobodys.append(f"{kind} {each.resource.name}: {each.reason}")
    return InstanceReport(
        instance=stream.identity.instance,
        desired=conversation.target_version,
        confirmed=conversation.confirmed,
        # What came of no object has nobody else to be told.
        error="; ".join(sorted(nobodys)),
        proxy=stream.speaker.proxy,
        modules=stream.speaker.extensions,
        features=stream.speaker.features,
        rejected=tuple(sorted(refused, key=lambda each: (each.origins, each.reason))),
    )


def _log_refusals(identity: Identity, before: InstanceReport, now: InstanceReport) -> None:
    for each in set(now.rejected) - set(before.rejected):
        log.warning(
            "resource refused",
            gateway=identity.gateway,
            instance=identity.instance,
            origins=each.origins,
            reason=each.reason,
        )
    if now.error and now.error != before.error:
        log.error(
            "resource refused",
            gateway=identity.gateway,
            instance=identity.instance,
            reason=now.error,
        )
