"""File sets, sessions and reports of all Gateways with NGINX data planes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import structlog

from gatehouse.dataplane import features
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import session
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.publication import Publication, Published
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.agents.token_auth import Identity

log = structlog.get_logger("gatehouse.agents")


SESSION_TTL_SECONDS = 3600.0
"""Time in seconds for which the session of an instance without a stream is kept. Agent v2 describes
itself only when it starts. It retries every minute, so it is back within an hour or gone."""

MAX_OPEN_STREAMS = 16
"""Maximum number of open streams per instance; all but the newest are ending. A stream whose client
reads nothing ends only with its connection and buffers sent messages until then."""


class _Peer:
    def __init__(self, state: session.AgentSession) -> None:
        self.session = state
        self.streams: dict[int, Stream] = {}
        self.serving = False
        """True if it has reported a version, or confirmed one that is no trial."""
        self.timer: asyncio.TimerHandle | None = None
        self.removal_timer: asyncio.TimerHandle | None = None

    @property
    def takes_trials(self) -> bool:
        """True if it gets trials: its agent only tests them, or it serves nothing."""
        return features.TRIALS in self.session.about.features or not self.serving

    def apply(self, published: Published, correlation: str, upstream: str = "") -> Apply:
        """Build a request to apply for this instance."""
        state = self.session
        return Apply(published, correlation, state.about, upstream, state.unmanaged, state.attempt)

    def cancel_timers(self) -> None:
        """Cancel all timers."""
        for timer in (self.timer, self.removal_timer):
            if timer is not None:
                timer.cancel()
        self.timer = self.removal_timer = None


class _DataPlane:
    def __init__(self, gateway: str, publication: Publication, events: FleetEvents) -> None:
        self.gateway, self._events = gateway, events
        self.publication = publication
        self.peers: dict[str, _Peer] = {}
        self._instances: dict[str, InstanceReport] = {}
        self._report: DataPlaneReport | None = None

    def update_report(self, instance: str) -> bool:
        """Update the report of an instance from its session. Return whether it changed."""
        peer = self.peers.get(instance)
        known = self._instances.get(instance)
        if peer is None or not peer.session.generation:
            if known is None:
                return False
            del self._instances[instance]
        else:
            current = _instance_report(instance, peer)
            if current == known:
                return False
            self._instances[instance] = current
            if known is not None and current.unhealthy and not known.unhealthy:
                self._events.on_unhealthy(self.gateway, instance, current.unhealthy)
        self._report = None
        return True

    def desired_by(self, peer: _Peer) -> Published | None:
        """Return what an instance is to apply; None: it keeps what it has."""
        desired = self.publication.desired_by(peer.session.confirmed)
        return None if self.withholds(peer) else desired

    def withholds(self, peer: _Peer) -> bool:
        """Return whether an instance does not get the current file set, which is a trial."""
        current = self.publication.current
        return current is not None and current.trial and not peer.takes_trials

    def invalidate_report(self) -> None:
        """Discard the cached report after another file set was published."""
        self._report = None

    @property
    def report(self) -> DataPlaneReport:
        """The current report. It is built on demand, not at each of possibly thousands of
        changes."""
        if self._report is None:
            current = self.publication.current
            self._report = DataPlaneReport(
                gateway=self.gateway,
                desired=current.file_set.version if current else "",
                instances=tuple(
                    instance_report for _, instance_report in sorted(self._instances.items())
                ),
            )
        return self._report


class AgentFleet:
    """Feeds events to the sessions and executes their effects in one event loop, without
    blocking."""

    def __init__(
        self,
        apply_deadline: float,
        clock: Callable[[], float],
        events: FleetEvents,
    ) -> None:
        self._apply_deadline, self._events = apply_deadline, events
        self._clock = clock
        self._gateways: dict[str, _DataPlane] = {}
        self._generation = 0

    def publish(self, gateway: str, file_set: FileSet | None) -> None:
        """Make ``file_set`` the desired file set of all instances of ``gateway``; None withdraws
        it."""
        if file_set is None and gateway not in self._gateways:
            return
        plane = self._plane(gateway)
        requests = [peer.session.in_flight for peer in plane.peers.values()]
        in_flight = {request.version for request in requests if request is not None}
        if not plane.publication.publish(file_set, in_flight, self._clock()):
            return
        plane.invalidate_report()
        for instance, peer in plane.peers.items():
            event = _publish_event(plane.desired_by(peer))
            self._receive(Identity(gateway, instance), peer, event)
            plane.update_report(instance)
        self._events.on_report(gateway)
        self._remove_gateway_if_idle(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Return the current report of ``gateway``."""
        plane = self._gateways.get(gateway)
        if plane is None:
            return DataPlaneReport(gateway=gateway, desired="")
        return plane.report

    def find(self, identity: Identity, digest: str) -> File | None:
        """Return the file with this digest from the caller's own Gateway, or None."""
        plane = self._gateways.get(identity.gateway)
        if plane is None:
            return None
        self.fetching(identity)
        return plane.publication.find(digest)

    def fetch_units(self, identity: Identity) -> float:
        """Return the largest size of a file set that the caller may fetch, counted as calls."""
        plane = self._gateways.get(identity.gateway)
        return plane.publication.fetch_units if plane else 0.0

    def fetching(self, identity: Identity) -> None:
        """Extend the caller's deadline, because it is fetching files of a request."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        if peer is not None:
            # This only moves a deadline, which is checked when the timer fires.
            peer.session.receive(session.FileFetched(), self._clock())

    def desired(self, identity: Identity) -> Published | None:
        """Return the publication that the caller is to apply, or None."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        if plane is None:
            return None
        return plane.desired_by(peer) if peer else plane.publication.desired_by("")

    def published(self, identity: Identity, version: str) -> Published | None:
        """Return the publication of the caller's own Gateway with this version, or None."""
        plane = self._gateways.get(identity.gateway)
        return plane.publication.get(version) if plane else None

    def owner_of(self, predicate: Callable[[Publication], object]) -> str:
        """Return the first Gateway whose publication fulfils ``predicate``, or ""."""
        names = (name for name, plane in self._gateways.items() if predicate(plane.publication))
        return next(names, "")

    def pending_for(self, correlation: str) -> str:
        """Return the Gateway with an instance that has a request ``correlation``, or ""."""
        for name, plane in self._gateways.items():
            if any(peer.session.pending_version(correlation) for peer in plane.peers.values()):
                return name
        return ""

    def knows(self, identity: Identity) -> bool:
        """Return whether the caller has described its NGINX."""
        return bool(self.about(identity).nginx_id)

    def is_connected(self, gateway: str, instance: str) -> bool:
        """Return whether an instance has a stream."""
        plane = self._gateways.get(gateway)
        return plane is not None and instance in plane.peers and bool(plane.peers[instance].streams)

    def about(self, identity: Identity) -> session.Register:
        """Return the caller's latest description of its NGINX."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        return peer.session.about if peer is not None else session.Register("", "")

    def request(self, identity: Identity, correlation: str) -> Apply | None:
        """Return the caller's request ``correlation``, whose files it is about to fetch, or
        None."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        if plane is None or peer is None:
            return None
        version = peer.session.pending_version(correlation)
        published = plane.publication.get(version) if version else None
        return peer.apply(published, correlation) if published else None

    def on_connect(self, identity: Identity, about: session.Register) -> None:
        """Process a new connection. Its stream follows."""
        self.receive(identity, session.Reconnected(about))
        self._remove_after(self._apply_deadline, identity)

    def open(self, identity: Identity) -> Stream | None:
        """Open a stream for ``identity`` and end an older one of the same instance.

        Return None if too many streams are still ending.
        """
        peer = self._peer(identity)
        if len(peer.streams) >= MAX_OPEN_STREAMS:
            return None
        self._generation += 1
        stream = Stream(identity, self._generation)
        peer.cancel_timers()
        peer.streams[stream.generation] = stream
        self.receive(identity, session.StreamOpen(stream.generation))
        log.info("instance subscribed", gateway=identity.gateway, instance=identity.instance)
        return stream

    def close(self, stream: Stream) -> None:
        """Process the end of ``stream``. The session is kept for :data:`SESSION_TTL_SECONDS`."""
        identity = stream.identity
        peer = self._peer(identity)
        peer.streams.pop(stream.generation, None)
        self.receive(identity, session.StreamClosed(stream.generation))
        if not peer.streams:
            self._remove_after(SESSION_TTL_SECONDS, identity)
            log.info("instance disconnected", gateway=identity.gateway, instance=identity.instance)
            self._events.on_disconnected(identity.gateway, identity.instance)

    def receive(self, identity: Identity, event: session.AgentEvent) -> None:
        """Pass an event to the instance's session and execute the effects."""
        peer, plane = self._peer(identity), self._plane(identity.gateway)
        self._receive(identity, peer, event)
        if plane.publication.confirm(peer.session.confirmed):
            for instance, other in tuple(plane.peers.items()):
                self._catch_up(plane, Identity(identity.gateway, instance), other)
        elif peer.session.confirmed or plane.withholds(peer):
            self._catch_up(plane, identity, peer)
        if plane.update_report(identity.instance):
            self._events.on_report(identity.gateway)

    def _catch_up(self, plane: _DataPlane, identity: Identity, peer: _Peer) -> None:
        """Publish the newest file set to an instance that started with an older, good one."""
        event = _publish_event(plane.desired_by(peer))
        if peer.session.desired != event.version:
            self._receive(identity, peer, event)
            plane.update_report(identity.instance)

    def _receive(self, identity: Identity, peer: _Peer, event: session.AgentEvent) -> None:
        for effect in peer.session.receive(event, self._clock()):
            self._execute(identity, peer, effect)
        if not peer.serving:
            peer.serving = self._is_serving(identity, peer, event)
        self._set_timer(identity, peer)

    def _is_serving(self, identity: Identity, peer: _Peer, event: session.AgentEvent) -> bool:
        reported = event.version if isinstance(event, session.HasVersion) else ""
        publication = self._plane(identity.gateway).publication
        versions = filter(None, (reported, peer.session.confirmed))
        known = [publication.get(version) for version in versions]
        return any(published is None or not published.trial for published in known)

    def disconnect_all(self, gateway: str, instance: str) -> None:
        """End the streams of an instance that must not be served now."""
        plane = self._gateways.get(gateway)
        peer = plane.peers.get(instance) if plane else None
        for stream in tuple(peer.streams.values()) if peer else ():
            stream.end()

    def end_all(self) -> None:
        """End all streams."""
        for plane in self._gateways.values():
            for peer in plane.peers.values():
                peer.cancel_timers()
                for stream in peer.streams.values():
                    stream.end()

    def _execute(self, identity: Identity, peer: _Peer, effect: session.Effect) -> None:
        stream = peer.streams.get(effect.generation)
        if stream is None:
            return
        if isinstance(effect, session.End):
            stream.end()
            return
        published = self._plane(identity.gateway).publication.get(effect.version)
        assert published is not None
        stream.send_apply(peer.apply(published, effect.correlation, effect.upstream))
        log.debug(
            "apply sent",
            gateway=identity.gateway,
            instance=identity.instance,
            version=effect.version,
            upstream=effect.upstream,
            correlation=effect.correlation,
        )

    def _set_timer(self, identity: Identity, peer: _Peer) -> None:
        if peer.timer is not None:
            peer.timer.cancel()
            peer.timer = None
        wake_at = peer.session.wake_at
        if wake_at is not None:
            delay = max(0.0, wake_at - self._clock())
            peer.timer = asyncio.get_running_loop().call_later(
                delay, self.receive, identity, session.Elapsed()
            )

    def _plane(self, gateway: str) -> _DataPlane:
        plane = self._gateways.get(gateway)
        if plane is None:
            # Agents fetch for up to a minute after a request; twice that is enough.
            publication = Publication(keep_seconds=2 * self._apply_deadline)
            plane = self._gateways[gateway] = _DataPlane(gateway, publication, self._events)
        return plane

    def _peer(self, identity: Identity) -> _Peer:
        plane = self._plane(identity.gateway)
        peer = plane.peers.get(identity.instance)
        if peer is None:
            state = session.AgentSession(lambda: str(uuid.uuid4()), self._apply_deadline)
            peer = plane.peers[identity.instance] = _Peer(state)
            state.receive(_publish_event(plane.desired_by(peer)), self._clock())
            self._remove_after(self._apply_deadline, identity)
        return peer

    def _remove_after(self, seconds: float, identity: Identity) -> None:
        peer = self._peer(identity)
        if not peer.streams:
            peer.cancel_timers()
            peer.removal_timer = asyncio.get_running_loop().call_later(
                seconds, self._remove, identity
            )

    def _remove(self, identity: Identity) -> None:
        plane = self._gateways.get(identity.gateway)
        if plane is not None and plane.peers.pop(identity.instance, None) is not None:
            self._remove_gateway_if_idle(identity.gateway)

    def _remove_gateway_if_idle(self, gateway: str) -> None:
        plane = self._gateways.get(gateway)
        if plane is not None and plane.publication.current is None and not plane.peers:
            del self._gateways[gateway]


def _publish_event(desired: Published | None) -> session.Publish:
    return session.Publish("") if desired is None else desired.publish_event


def _instance_report(name: str, peer: _Peer) -> InstanceReport:
    state = peer.session
    return InstanceReport(
        instance=name,
        desired=state.sent_version,
        confirmed=state.confirmed,
        error=state.error,
        rejected_version=state.rejected_version,
        rejection=state.rejection,
        serving=peer.serving,
        takes_trials=peer.takes_trials,
        proxy=state.about.proxy,
        modules=state.about.modules,
        features=state.about.features,
        unhealthy=state.problem,
    )
