"""All gateways: what each is to have, its instances' sessions, and the reports of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import structlog

from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.agents import session
from gatehouse.transports.agents.publication import Publication, Published
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.agents.token_auth import Identity

log = structlog.get_logger("gatehouse.agents")


REMEMBERED_SECONDS = 3600.0
"""How long an instance without a stream is remembered. Agent v2 says what it is only when it
starts; trying every minute, it has come back within an hour, or never will."""

STREAMS_MAX = 16
"""Streams that one instance may have, of which all but the newest are ending. One whose client
takes nothing ends only with its connection, and holds what was sent until then."""


class _Peer:
    def __init__(self, state: session.Session) -> None:
        self.session = state
        self.streams: dict[int, Stream] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.forgetting: asyncio.TimerHandle | None = None

    def apply(self, published: Published, correlation: str, upstream: str = "") -> Apply:
        """Give the request, as this instance is asked it."""
        state = self.session
        return Apply(published, correlation, state.about, upstream, state.unmanaged, state.attempt)

    def cancel_timers(self) -> None:
        """Let time alone change nothing more."""
        for timer in (self.timer, self.forgetting):
            if timer is not None:
                timer.cancel()
        self.timer = self.forgetting = None


class _DataPlane:
    def __init__(self, gateway: str, publication: Publication) -> None:
        self.gateway = gateway
        self.publication = publication
        self.peers: dict[str, _Peer] = {}
        self._instances: dict[str, InstanceReport] = {}
        self._report: DataPlaneReport | None = None

    def noted(self, instance: str) -> bool:
        """Take note of what an instance's session says now; returns whether the report changed."""
        peer = self.peers.get(instance)
        known = self._instances.get(instance)
        if peer is None or not peer.session.generation:
            if known is None:
                return False
            del self._instances[instance]
        else:
            found = _instance_report(instance, peer.session)
            if found == known:
                return False
            self._instances[instance] = found
        self._report = None
        return True

    def published(self) -> None:
        """Another bundle is the current one."""
        self._report = None

    @property
    def report(self) -> DataPlaneReport:
        """Made when it is asked for, not at each of the thousand changes before."""
        if self._report is None:
            current = self.publication.current
            self._report = DataPlaneReport(
                gateway=self.gateway,
                desired=current.bundle.version if current else "",
                instances=tuple(found for _, found in sorted(self._instances.items())),
            )
        return self._report


class Fleet:
    """Feeds the sessions with events and carries out their effects. One event loop, no waiting."""

    def __init__(
        self,
        apply_deadline: float,
        clock: Callable[[], float],
        on_report: Callable[[str], None],
    ) -> None:
        self._apply_deadline = apply_deadline
        self._clock = clock
        self._on_report = on_report
        self._gateways: dict[str, _DataPlane] = {}
        self._generation = 0

    def publish(self, gateway: str, bundle: FileSet | None) -> None:
        """Make ``bundle`` what every instance of ``gateway`` is to have; None: nothing more."""
        if bundle is None and gateway not in self._gateways:
            return
        plane = self._plane(gateway)
        requests = [peer.session.in_flight for peer in plane.peers.values()]
        in_flight = {request.version for request in requests if request is not None}
        if not plane.publication.publish(bundle, in_flight, self._clock()):
            return
        current = plane.publication.current
        wanted = session.Publish("") if current is None else current.wanted
        plane.published()
        for instance, peer in plane.peers.items():
            self._feed(Identity(gateway, instance), peer, wanted)
            plane.noted(instance)
        self._on_report(gateway)
        self._forget_if_idle(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
        plane = self._gateways.get(gateway)
        if plane is None:
            return DataPlaneReport(gateway=gateway, desired="")
        return plane.report

    def find(self, identity: Identity, digest: str) -> File | None:
        """Give a file of the caller's own gateway by its content."""
        plane = self._gateways.get(identity.gateway)
        if plane is None:
            return None
        self.fetching(identity)
        return plane.publication.find(digest)

    def fetching(self, identity: Identity) -> None:
        """Give the caller more time to answer, for it fetches what it was asked to apply."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        if peer is not None:
            # It moves a deadline at most, which the timer finds out when it rings.
            peer.session.receive(session.Fetching(), self._clock())

    def current(self, identity: Identity) -> Published | None:
        """Give what the caller's gateway is to have."""
        plane = self._gateways.get(identity.gateway)
        return plane.publication.current if plane else None

    def published(self, identity: Identity, version: str) -> Published | None:
        """Give a bundle of the caller's own gateway by its version."""
        plane = self._gateways.get(identity.gateway)
        return plane.publication.get(version) if plane else None

    def owner_of(self, holds: Callable[[Publication], object]) -> str:
        """Name the first gateway whose bundles fulfil ``holds``; empty: none does."""
        found = (name for name, plane in self._gateways.items() if holds(plane.publication))
        return next(found, "")

    def pending_for(self, correlation: str) -> str:
        """Name the gateway of which an instance was asked ``correlation``; empty: none was."""
        for name, plane in self._gateways.items():
            if any(peer.session.pending_version(correlation) for peer in plane.peers.values()):
                return name
        return ""

    def knows(self, identity: Identity) -> bool:
        """Whether the caller has said which NGINX it has."""
        return bool(self.about(identity).nginx_id)

    def about(self, identity: Identity) -> session.Register:
        """Give what the caller last said of its NGINX."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        return peer.session.about if peer is not None else session.Register("", "")

    def asked(self, identity: Identity, correlation: str) -> Apply | None:
        """Give the request ``correlation`` again, for which the caller comes to fetch a bundle."""
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        if plane is None or peer is None:
            return None
        version = peer.session.pending_version(correlation)
        published = plane.publication.get(version) if version else None
        return peer.apply(published, correlation) if published else None

    def on_connect(self, identity: Identity, about: session.Register) -> None:
        """Take note of a new connection, which comes before its stream."""
        self.receive(identity, session.Reconnect(about))
        self._forget_after(self._apply_deadline, identity)

    def open(self, identity: Identity) -> Stream | None:
        """Give a stream to ``identity``; an older one of the same instance is ended.

        None: too many have not ended yet.
        """
        peer = self._peer(identity)
        if len(peer.streams) >= STREAMS_MAX:
            return None
        self._generation += 1
        stream = Stream(identity, self._generation)
        peer.cancel_timers()
        peer.streams[stream.generation] = stream
        self.receive(identity, session.StreamOpen(stream.generation))
        log.info("instance subscribed", gateway=identity.gateway, instance=identity.instance)
        return stream

    def close(self, stream: Stream) -> None:
        """Take note that ``stream`` ended; its instance is remembered for a while."""
        identity = stream.identity
        peer = self._peer(identity)
        peer.streams.pop(stream.generation, None)
        self.receive(identity, session.StreamClosed(stream.generation))
        if not peer.streams:
            self._forget_after(REMEMBERED_SECONDS, identity)
            log.info("instance gone", gateway=identity.gateway, instance=identity.instance)

    def receive(self, identity: Identity, event: session.Event) -> None:
        """Hand an event to the instance's session, and do what follows from it."""
        self._feed(identity, self._peer(identity), event)
        if self._plane(identity.gateway).noted(identity.instance):
            self._on_report(identity.gateway)

    def _feed(self, identity: Identity, peer: _Peer, event: session.Event) -> None:
        for effect in peer.session.receive(event, self._clock()):
            self._carry_out(identity, peer, effect)
        self._set_timer(identity, peer)

    def disconnect_all(self, gateway: str, instance: str) -> None:
        """End the streams of an instance: it is no longer to be spoken to."""
        plane = self._gateways.get(gateway)
        peer = plane.peers.get(instance) if plane else None
        for stream in tuple(peer.streams.values()) if peer else ():
            stream.end()

    def end_all(self) -> None:
        """Ask every stream to end."""
        for plane in self._gateways.values():
            for peer in plane.peers.values():
                peer.cancel_timers()
                for stream in peer.streams.values():
                    stream.end()

    def _carry_out(self, identity: Identity, peer: _Peer, effect: session.Effect) -> None:
        stream = peer.streams.get(effect.generation)
        if stream is None:
            return
        if isinstance(effect, session.End):
            stream.end()
            return
        current = self._plane(identity.gateway).publication.current
        assert current is not None
        assert current.bundle.version == effect.version
        stream.ask(peer.apply(current, effect.correlation, effect.upstream))
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
            # A real agent fetches for up to a minute after its request; twice that is plenty.
            publication = Publication(keep_seconds=2 * self._apply_deadline)
            plane = self._gateways[gateway] = _DataPlane(gateway, publication)
        return plane

    def _peer(self, identity: Identity) -> _Peer:
        plane = self._plane(identity.gateway)
        peer = plane.peers.get(identity.instance)
        if peer is None:
            state = session.Session(lambda: str(uuid.uuid4()), self._apply_deadline)
            peer = plane.peers[identity.instance] = _Peer(state)
            current = plane.publication.current
            if current is not None:
                state.receive(current.wanted, self._clock())
            self._forget_after(self._apply_deadline, identity)
        return peer

    def _forget_after(self, seconds: float, identity: Identity) -> None:
        peer = self._peer(identity)
        if not peer.streams:
            peer.cancel_timers()
            peer.forgetting = asyncio.get_running_loop().call_later(seconds, self._forget, identity)

    def _forget(self, identity: Identity) -> None:
        plane = self._gateways.get(identity.gateway)
        if plane is not None and plane.peers.pop(identity.instance, None) is not None:
            self._forget_if_idle(identity.gateway)

    def _forget_if_idle(self, gateway: str) -> None:
        plane = self._gateways.get(gateway)
        if plane is not None and plane.publication.current is None and not plane.peers:
            del self._gateways[gateway]


def _instance_report(name: str, state: session.Session) -> InstanceReport:
    return InstanceReport(
        instance=name,
        desired=state.sent_version,
        confirmed=state.confirmed,
        error=state.error,
        proxy=state.about.proxy,
        modules=state.about.modules,
        features=state.about.features,
        unhealthy=state.trouble,
    )
