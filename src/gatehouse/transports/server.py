"""The server of all agents and Envoys, and what the controller sees of it."""

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
from gatehouse.runtime.certificate_watcher import CertificateWatcher
from gatehouse.transports.agents.call_auth import (
    CallAuthorizer,
    Identify,
    UnauthorizedRequest,
    by_certificate,
    by_token,
)
from gatehouse.transports.agents.certificate_auth import CertificateAuthenticator, IdentifyMachine
from gatehouse.transports.agents.fleet import Fleet
from gatehouse.transports.agents.token_auth import (
    Authenticate,
    Denied,
    Identity,
    TokenReviews,
    Unavailable,
)
from gatehouse.transports.commander import services as commander
from gatehouse.transports.mpi import services as mpi
from gatehouse.transports.xds import services as xds
from gatehouse.transports.xds.fleet import Fleet as EnvoyFleet

__all__ = [
    "Authenticate",
    "Denied",
    "Identity",
    "AgentServer",
    "UnauthorizedRequest",
    "Unavailable",
]

log = structlog.get_logger("gatehouse.agents")

OPTIONS = (
    # Agent v3 of the field pings every 20 s, also while nothing else happens; gRPC's defaults end
    # the connection with "too_many_pings" after a minute of that.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 8_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 15_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_send_message_length", -1),
    # Calls that wait to be taken up. gRPC's defaults reject them at random from a thousand on, as
    # CANCELLED, after which agent v3 does not try again; their own deadlines are to decide, and
    # what one agent may have open at once bounds them.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
    ("grpc.server_max_unrequested_time_in_server", 90),
    ("grpc.max_concurrent_streams", 100),
    # An Envoy that comes back says the name and version of all that it has.
    ("grpc.max_receive_message_length", 32 << 20),
    # Two servers on one port would each get half of the agents.
    ("grpc.so_reuseport", 0),
)


class Envoys:
    """Delivers resources to Envoys; implements :class:`gatehouse.delivery.Delivery`."""

    def __init__(self) -> None:
        self.on_report: Callable[[str], None] = lambda _gateway: None
        self.fleet = EnvoyFleet(lambda gateway: self.on_report(gateway))

    def publish(self, gateway: str, resources: ResourceSet) -> None:
        """Make ``resources`` what every instance of ``gateway`` is to have; latest wins."""
        self.fleet.publish(gateway, resources)

    def withdraw(self, gateway: str) -> None:
        """Forget ``gateway``: its instances keep what they have, and are told nothing more."""
        self.fleet.withdraw(gateway)

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
        return self.fleet.report(gateway)


class AgentServer:
    """Delivers bundles to NGINX agents; implements :class:`gatehouse.delivery.Delivery`.

    What is for Envoys goes to :attr:`envoys`.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        *,
        config_dir: str = "/etc/nginx",
        apply_deadline: float = 60.0,
    ) -> None:
        """Make a server that is not yet listening.

        ``config_dir``: where agents v3 have their files; ``apply_deadline``: seconds within which
        an agent must answer a request to apply.
        """
        self.on_report: Callable[[str], None] = lambda _gateway: None
        self._fleet = Fleet(apply_deadline, time.monotonic, lambda gateway: self.on_report(gateway))
        self.on_trespass: Callable[[UnauthorizedRequest], None] = lambda _trespass: None
        """Called when an agent was refused what is not its gateway's. Must not raise or block."""
        self.envoys = Envoys()
        """The data planes that are Envoys, on the same port."""
        self._config_dir = config_dir
        self._by_token = by_token(TokenReviews(authenticate, time.monotonic))
        self._servers: list[grpc.aio.Server] = []

    async def start(
        self, bind: str, tls_cert: Path, tls_key: Path, client_ca: Path | None = None
    ) -> int:
        """Listen on ``bind`` (``host:port``, port 0: any); returns the port.

        With ``client_ca``, agents must show a certificate of one of its authorities as well as
        their token. The files are followed while serving. Raises OSError if the address cannot be
        had or a file cannot be read, ssl.SSLError if key and certificate do not belong together or
        ``client_ca`` has no certificate.
        """
        return await self._listen(
            bind, self._by_token, CertificateWatcher(tls_cert, tls_key, client_ca)
        )

    async def start_outside(
        self, bind: str, tls_cert: Path, tls_key: Path, ca: Path, identify: IdentifyMachine
    ) -> int:
        """Listen for machines outside on an address of its own; otherwise as :meth:`start`.

        They are who the certificate that they must show says, one of the authorities in ``ca``.
        """
        by_name = by_certificate(CertificateAuthenticator(identify))
        return await self._listen(bind, by_name, CertificateWatcher(tls_cert, tls_key, ca))

    async def _listen(self, bind: str, identify: Identify, certificate: CertificateWatcher) -> int:
        server = grpc.aio.server(options=OPTIONS)
        callers = CallAuthorizer(identify, lambda trespass: self.on_trespass(trespass))
        for dialect in (
            mpi.Services(self._fleet, callers, self._config_dir),
            commander.Services(self._fleet, callers),
            xds.Services(self.envoys.fleet, callers),
        ):
            server.add_generic_rpc_handlers(tuple(dialect.handlers()))
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
        """End all streams, wait ``grace`` seconds for calls to finish, close. Idempotent."""
        servers, self._servers = self._servers, []
        if servers:
            self._fleet.end_all()
            self.envoys.fleet.end_all()
            await asyncio.gather(*(server.stop(grace) for server in servers))

    def publish(self, gateway: str, bundle: FileSet) -> None:
        """Make ``bundle`` the one that every instance of ``gateway`` is to have; latest wins."""
        self._fleet.publish(gateway, bundle)

    def withdraw(self, gateway: str) -> None:
        """Forget ``gateway``: its instances keep what they have, and are told nothing more."""
        self._fleet.publish(gateway, None)

    def report(self, gateway: str) -> DataPlaneReport:
        """Give the present report of ``gateway``."""
        return self._fleet.report(gateway)

    def dismiss(self, gateway: str, instance: str) -> None:
        """End what is open with an instance, whatever it runs: it is not ours any more."""
        self._fleet.disconnect_all(gateway, instance)
        self.envoys.fleet.dismiss(gateway, instance)
