"""All gateways: what each is to have, its instances' sessions, and the reports of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

import structlog

from gatehouse.bundle import Bundle, File
from gatehouse.delivery import DataPlaneReport, InstanceReport
from gatehouse.transports.mpi import messages, session
from gatehouse.transports.mpi.authentication import Identity
from gatehouse.transports.mpi.publication import Publication

log = structlog.get_logger("gatehouse.mpi")


class Stream:
    """The way to one instance: serialised requests, then None when it is to end."""

    def __init__(self, identity: Identity, generation: int) -> None:
        self.identity = identity
        self.generation = generation
        self.outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()


class _Peer:
    def __init__(self, state: session.Session) -> None:
        self.session = state
        self.streams: dict[int, Stream] = {}
        self.timer: asyncio.TimerHandle | None = None


class _DataPlane:
    def __init__(self, publication: Publication) -> None:
        self.publication = publication
        self.peers: dict[str, _Peer] = {}
        self.reported: DataPlaneReport | None = None


class Fleet:
    """Feeds the sessions with events and carries out their effects. One event loop, no waiting."""

    def __init__(
        self,
        config_dir: str,
        apply_deadline: float,
        clock: Callable[[], float],
        on_report: Callable[[DataPlaneReport], None],
    ) -> None:
        self._config_dir = config_dir
        self._apply_deadline = apply_deadline
        self._clock = clock
        self._on_report = on_report
        self._gateways: dict[str, _DataPlane] = {}
        self._generation = 0

    def publish(self, gateway: str, bundle: Bundle | None) -> None:
        """Make ``bundle`` what every instance of ``gateway`` is to have; None: nothing more."""
        if bundle is None and gateway not in self._gateways:
            return
        plane = self._plane(gateway)
        requests = [peer.session.in_flight for peer in plane.peers.values()]
        in_flight = {request.version for request in requests if request is not None}
        if not plane.publication.publish(bundle, in_flight, self._clock()):
            return
        version = "" if bundle is None else bundle.version
        for instance in list(plane.peers):
            self.receive(Identity(gateway, instance), session.Publish(version))
        self._report(gateway)
        self._forget_if_idle(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
        plane = self._gateways.get(gateway)
        if plane is None:
            return DataPlaneReport(gateway=gateway, desired="")
        current = plane.publication.current
        return DataPlaneReport(
            gateway=gateway,
            desired=current.bundle.version if current else "",
            instances=tuple(
                _instance_report(name, peer.session)
                for name, peer in sorted(plane.peers.items())
                if peer.session.generation
            ),
        )

    def find(self, identity: Identity, digest: str) -> File | None:
        """Give a file of the caller's own gateway by its content."""
        plane = self._gateways.get(identity.gateway)
        return plane.publication.find(digest) if plane else None

    def overview(self, identity: Identity, version: str) -> bytes | None:
        """Give the serialised overview of the current version (also for an empty ``version``)."""
        plane = self._gateways.get(identity.gateway)
        current = plane.publication.current if plane else None
        if current is None or version not in ("", current.bundle.version):
            return None
        return current.overview

    def greet(self, identity: Identity, about: session.Register) -> None:
        """Take note of a new connection, which comes before its stream.

        An instance that never opens one is forgotten a deadline later.
        """
        self.receive(identity, session.Reconnect())
        self.receive(identity, about)
        asyncio.get_running_loop().call_later(
            self._apply_deadline, self._forget_if_silent, identity
        )

    def open(self, identity: Identity) -> Stream:
        """Give a stream to ``identity``; an older one of the same instance is ended."""
        self._generation += 1
        stream = Stream(identity, self._generation)
        self._peer(identity).streams[stream.generation] = stream
        self.receive(identity, session.StreamOpen(stream.generation))
        log.info("instance subscribed", gateway=identity.gateway, instance=identity.instance)
        return stream

    def close(self, stream: Stream) -> None:
        """Take note that ``stream`` ended. Of an instance without a stream nothing is kept."""
        identity = stream.identity
        peer = self._peer(identity)
        peer.streams.pop(stream.generation, None)
        self.receive(identity, session.StreamClosed(stream.generation))
        if not peer.streams:
            self._cancel_timer(peer)
            self._plane(identity.gateway).peers.pop(identity.instance, None)
            log.info("instance gone", gateway=identity.gateway, instance=identity.instance)
        self._report(identity.gateway)
        self._forget_if_idle(identity.gateway)

    def receive(self, identity: Identity, event: session.Event) -> None:
        """Hand an event to the instance's session, and do what follows from it."""
        peer = self._peer(identity)
        for effect in peer.session.receive(event, self._clock()):
            self._carry_out(identity, peer, effect)
        self._set_timer(identity, peer)
        self._report(identity.gateway)

    def end_all(self) -> None:
        """Ask every stream to end."""
        for plane in self._gateways.values():
            for peer in plane.peers.values():
                self._cancel_timer(peer)
                for stream in peer.streams.values():
                    stream.outgoing.put_nowait(None)

    def _carry_out(self, identity: Identity, peer: _Peer, effect: session.Effect) -> None:
        stream = peer.streams.get(effect.generation)
        if stream is None:
            return
        if isinstance(effect, session.End):
            stream.outgoing.put_nowait(None)
            return
        current = self._plane(identity.gateway).publication.current
        assert current is not None
        assert current.bundle.version == effect.version
        stream.outgoing.put_nowait(
            messages.apply_request(
                current.overview, effect.version, effect.nginx_id, effect.correlation
            )
        )
        log.debug(
            "apply sent",
            gateway=identity.gateway,
            instance=identity.instance,
            version=effect.version,
            correlation=effect.correlation,
        )

    def _set_timer(self, identity: Identity, peer: _Peer) -> None:
        self._cancel_timer(peer)
        wake_at = peer.session.wake_at
        if wake_at is not None:
            delay = max(0.0, wake_at - self._clock())
            peer.timer = asyncio.get_running_loop().call_later(
                delay, self.receive, identity, session.Elapsed()
            )

    @staticmethod
    def _cancel_timer(peer: _Peer) -> None:
        if peer.timer is not None:
            peer.timer.cancel()
            peer.timer = None

    def _plane(self, gateway: str) -> _DataPlane:
        plane = self._gateways.get(gateway)
        if plane is None:
            # A real agent fetches for up to a minute after its request; twice that is plenty.
            publication = Publication(self._config_dir, keep_seconds=2 * self._apply_deadline)
            plane = self._gateways[gateway] = _DataPlane(publication)
        return plane

    def _peer(self, identity: Identity) -> _Peer:
        plane = self._plane(identity.gateway)
        peer = plane.peers.get(identity.instance)
        if peer is None:
            state = session.Session(lambda: str(uuid.uuid4()), self._apply_deadline)
            peer = plane.peers[identity.instance] = _Peer(state)
            current = plane.publication.current
            if current is not None:
                state.receive(session.Publish(current.bundle.version), self._clock())
        return peer

    def _forget_if_silent(self, identity: Identity) -> None:
        plane = self._gateways.get(identity.gateway)
        peer = plane.peers.get(identity.instance) if plane else None
        if plane is not None and peer is not None and not peer.streams:
            del plane.peers[identity.instance]
            self._forget_if_idle(identity.gateway)

    def _forget_if_idle(self, gateway: str) -> None:
        plane = self._gateways.get(gateway)
        if plane is not None and plane.publication.current is None and not plane.peers:
            del self._gateways[gateway]

    def _report(self, gateway: str) -> None:
        plane = self._gateways[gateway]
        report = self.report(gateway)
        if report != plane.reported:
            plane.reported = report
            self._on_report(report)


def _instance_report(name: str, state: session.Session) -> InstanceReport:
    return InstanceReport(
        instance=name,
        desired=state.told,
        confirmed=state.confirmed,
        error=state.error,
        proxy=state.proxy,
        modules=state.modules,
        features=state.features,
    )
