"""The gRPC server of all agents and Envoys, and its interface to the controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import grpc.aio
import structlog

from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.xds.resources import ResourceSet
from gatehouse.runtime import grpc_limits
from gatehouse.runtime.certificate_watcher import CertificateWatcher
from gatehouse.transports.agents.call_auth import (
    CallAuthorizer,
    Identify,
    UnauthorizedRequest,
    by_certificate,
    by_token,
)
from gatehouse.transports.agents.certificate_auth import CertificateAuthenticator, IdentifyMachine
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.fleet_events import FleetEvents
from gatehouse.transports.agents.token_auth import (
    Authenticate,
    AuthenticationUnavailable,
    Denied,
    Identity,
    TokenReviews,
)
from gatehouse.transports.commander import services as commander
from gatehouse.transports.mpi import services as mpi
from gatehouse.transports.xds import services as xds
from gatehouse.transports.xds.fleet import EnvoyFleet
from kube_base.runtime.time_limits import scaled

__all__ = [
    "Authenticate",
    "Denied",
    "Identity",
    "AgentServer",
    "UnauthorizedRequest",
    "AuthenticationUnavailable",
]

APPLY_SECONDS = scaled(60.0)
"""Time in seconds within which an agent must answer a request to apply."""

log = structlog.get_logger("gatehouse.agents")

_OPTIONS = (
    *grpc_limits.server_options(grpc_limits.MAX_RESOURCE_LIST_BYTES, max_streams=100),
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Calls that wait to be accepted. From a thousand on, gRPC's defaults reject calls at random
    # with CANCELLED, and agent v3 does not retry these. The deadlines of the calls limit the wait
    # instead, and the number of open calls per agent is bounded.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
    ("grpc.server_max_unrequested_time_in_server", 90),
)


class Envoys:
    """Delivers resource sets to Envoys; implements
    :class:`gatehouse.dataplane.delivery.Delivery`."""

    def __init__(self, events: FleetEvents) -> None:
        self.fleet = EnvoyFleet(events)

    def publish(self, gateway: str, resources: ResourceSet) -> None:
        """Make ``resources`` the desired set of all instances of ``gateway``. The latest wins."""
        self.fleet.publish(gateway, resources)

    def withdraw(self, gateway: str) -> None:
        """Stop publishing for ``gateway``. Its instances keep their configuration."""
        self.fleet.withdraw(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Return the current report of ``gateway``."""
        return self.fleet.report(gateway)


class AgentServer:
    """Delivers file sets to NGINX agents; implements
    :class:`gatehouse.dataplane.delivery.Delivery`.

    Resource sets for Envoys go to :attr:`envoys`.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        *,
        config_dir: str = "/etc/nginx",
        apply_deadline: float = APPLY_SECONDS,
    ) -> None:
        """Create a server that does not listen yet.

        ``config_dir`` is the configuration directory of agents v3. ``apply_deadline`` is the time
        in seconds within which an agent must answer a request to apply.
        """
        self.events = FleetEvents()
        """Of data planes of both kinds."""
        self._fleet = AgentFleet(apply_deadline, time.monotonic, self.events)
        self.on_trespass: Callable[[UnauthorizedRequest], None] = lambda _trespass: None
        """Called when a request for another Gateway's data was denied. Must not raise or block."""
        self.envoys = Envoys(self.events)
        """Data planes with Envoy, on the same port."""
        self._config_dir = config_dir
        self._by_token = by_token(TokenReviews(authenticate, time.monotonic))
        self._servers: list[grpc.aio.Server] = []

    async def start(
        self, bind: str, tls_cert: Path, tls_key: Path, client_ca: Path | None = None
    ) -> int:
        """Listen on ``bind`` (``host:port``; port 0: any free port) and return the port.

        With ``client_ca``, agents need a certificate signed by one of its CAs as well as their
        token. Changed files are reloaded while serving. Raises OSError if the address is not
        available or a file cannot be read. Raises ssl.SSLError if key and certificate do not match
        or ``client_ca`` contains no certificate.
        """
        return await self._listen(
            bind, self._by_token, CertificateWatcher(tls_cert, tls_key, client_ca)
        )

    async def start_outside(
        self, bind: str, tls_cert: Path, tls_key: Path, ca: Path, identify: IdentifyMachine
    ) -> int:
        """Listen for external machines on a separate address; otherwise like :meth:`start`.

        A machine is identified by its client certificate, which must be signed by a CA in ``ca``.
        """
        identify_call = by_certificate(CertificateAuthenticator(identify))
        return await self._listen(bind, identify_call, CertificateWatcher(tls_cert, tls_key, ca))

    async def _listen(self, bind: str, identify: Identify, certificate: CertificateWatcher) -> int:
        server = grpc.aio.server(options=_OPTIONS)
        callers = CallAuthorizer(identify, lambda request: self.on_trespass(request))
        for protocol in (
            mpi.MpiServices(self._fleet, callers, self._config_dir),
            commander.CommanderServices(self._fleet, callers),
            xds.XdsServices(self.envoys.fleet, callers),
        ):
            server.add_generic_rpc_handlers(tuple(protocol.handlers()))
        credentials = certificate.credentials()
        try:
            port = server.add_secure_port(bind, credentials)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {bind}: {error}") from error
        await server.start()
        self._servers.append(server)
        log.info("listening", bind=bind, port=port)
        return port

    async def stop(self, grace: float = 1.0) -> None:
        """End all streams, wait up to ``grace`` seconds for calls to finish, and close.
        Idempotent."""
        servers, self._servers = self._servers, []
        if servers:
            self._fleet.end_all()
            self.envoys.fleet.end_all()
            await asyncio.gather(*(server.stop(grace) for server in servers))

    def publish(self, gateway: str, file_set: FileSet) -> None:
        """Make ``file_set`` the desired one of all instances of ``gateway``. The latest wins."""
        self._fleet.publish(gateway, file_set)

    def withdraw(self, gateway: str) -> None:
        """Stop publishing for ``gateway``. Its instances keep their configuration."""
        self._fleet.publish(gateway, None)

    def report(self, gateway: str) -> DataPlaneReport:
        """Return the current report of ``gateway``."""
        return self._fleet.report(gateway)

    def is_connected(self, gateway: str, instance: str) -> bool:
        """Return whether an instance of any kind has a stream."""
        fleets = (self._fleet, self.envoys.fleet)
        return any(fleet.is_connected(gateway, instance) for fleet in fleets)

    def dismiss(self, gateway: str, instance: str) -> None:
        """End the streams of an instance of any kind, because it does not belong to the Gateway
        now."""
        self._fleet.disconnect_all(gateway, instance)
        self.envoys.fleet.dismiss(gateway, instance)
