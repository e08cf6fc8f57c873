"""A control plane and agents, over real TLS, on this machine."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fakes import patience
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.server import AgentServer, Denied, Identity

GATEWAY = "shop/web"


def write_certificate(directory: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for ``control.plane`` and 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "control.plane")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("control.plane"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = directory / "tls.crt", directory / "tls.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path


def connected(report: DataPlaneReport) -> bool:
    return bool(report.instances)


async def authenticate(token: str) -> Identity:
    """Take tokens of the form ``good:<pod>``, and ``good:<pod>@<gateway>`` for others."""
    kind, _, pod = token.partition(":")
    if kind != "good":
        raise Denied("unknown token")
    pod, _, gateway = pod.partition("@")
    owner = "" if gateway else "shop_web"
    return Identity(gateway=gateway or GATEWAY, instance=pod, owner=owner)


def error_of(report: DataPlaneReport, instance: str) -> str:
    """Return the error of an instance in a report; empty if it has none or is not connected."""
    return next((one.error for one in report.instances if one.instance == instance), "")


class ControlPlane:
    """A server, its files, and the reports it made."""

    def __init__(self, directory: Path, apply_deadline: float = 30.0) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.cert, self.key = write_certificate(directory)
        self.token = directory / "token"
        self.token.write_text("good:pod-1")
        self.client_ca: Path | None = None
        """CA of the client certificates that agents must present."""
        self.port = 0
        self.incidents: list[tuple[str, str, str]] = []
        """Gateway, instance and reason of each proxy that became unhealthy."""
        self._changed = asyncio.Condition()
        self._apply_deadline = apply_deadline
        self.server = self._make()

    def _make(self) -> AgentServer:
        server = AgentServer(authenticate, apply_deadline=self._apply_deadline)
        server.events.on_report = self._on_report
        server.events.on_unhealthy = self._on_unhealthy
        return server

    def _on_report(self, _gateway: str) -> None:
        self._wake = asyncio.ensure_future(self._notify())

    def _on_unhealthy(self, gateway: str, instance: str, why: str) -> None:
        self.incidents.append((gateway, instance, why))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self.port = await self.server.start(
            f"127.0.0.1:{self.port}", self.cert, self.key, self.client_ca
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop(0.1)

    async def restart(self) -> None:
        """Be replaced by a server that knows nothing yet."""
        await self.server.stop(0.1)
        self.server = self._make()
        await self.start()

    def report(self) -> DataPlaneReport:
        """Return the newest report."""
        return self.server.report(GATEWAY)

    async def until(
        self, condition: Callable[[DataPlaneReport], bool], times: int = 1
    ) -> DataPlaneReport:
        """Wait for a report that fulfils ``condition``, for several times the limit."""
        async with patience.limit(times), self._changed:
            await self._changed.wait_for(lambda: condition(self.report()))
        return self.report()

    async def programmed(self, bundle: FileSet) -> DataPlaneReport:
        """Publish ``bundle`` and wait until every instance confirmed it."""
        self.server.publish(GATEWAY, bundle)
        return await self.until(lambda report: report.programmed)

    def environment(self, directory: Path) -> dict[str, str]:
        """Return the environment of an agent of this control plane."""
        return {
            "NGINX_AGENT_COMMAND_SERVER_HOST": "127.0.0.1",
            "NGINX_AGENT_COMMAND_SERVER_PORT": str(self.port),
            "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": str(self.token),
            "NGINX_AGENT_COMMAND_TLS_CA": str(self.cert),
            "NGINX_AGENT_COMMAND_TLS_SERVER_NAME": "control.plane",
            "NGINX_AGENT_LABELS": "owner-name=shop_web,owner-type=Deployment",
            "POD_NAME": "pod-1",
            "GATEHOUSE_AGENT_STATE_DIR": str(directory / "root"),
            "GATEHOUSE_AGENT_RUN_DIR": str(directory / "run"),
            "GATEHOUSE_AGENT_WORKERS": "1",
        }


def answering(port: int, text: str, *extra: File) -> FileSet:
    """Return a file set whose NGINX answers ``text`` on ``port``."""
    conf = f"server {{ listen 127.0.0.1:{port}; include gatehouse/sites/*.conf; }}\n"
    site = f"location / {{ return 200 {text}; }}\n"
    return FileSet(
        [
            File.make("gatehouse/http.conf", conf),
            File.make("gatehouse/sites/a.conf", site),
            *extra,
        ]
    )
