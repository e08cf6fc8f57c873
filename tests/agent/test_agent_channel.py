"""The channel while its certificates, CAs and tokens change: real agents, real TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from fakes import patience
from fakes.agent_command import agent
from fakes.agent_control_plane import GATEWAY, ControlPlane, authenticate
from fakes.authority import Authority
from gatehouse.cli.certs import certs
from gatehouse.dataplane.delivery import DataPlaneReport
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.standalone import pki
from gatehouse.transports.server import AgentServer, Identity

pytestmark = pytest.mark.process

SERVER = x509.DNSName("control.plane")


def idle(text: str, *more: File) -> FileSet:
    """Return a file set without listeners, which two agents on one machine can serve at once."""
    return FileSet([File.make("gatehouse/http.conf", f"# {text}\n"), *more])


class Channel:
    """A control plane with replaceable files, and the files of the agents."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.old, self.new = (Authority(directory, name) for name in ("old", "new"))
        self.plane = ControlPlane(directory)
        self.agents_ca = directory / "agents-ca.pem"
        self.agents_ca.write_bytes(self.old.pem)
        self.serve(self.old)
        self.seen: list[DataPlaneReport] = []
        self.log = directory / "agent.log"

    def serve(self, authority: Authority) -> bytes:
        """Replace the server's key pair by one signed by `authority`. Return the certificate."""
        cert, key = authority.issue("channel", SERVER)
        _replace(key, self.plane.key)
        _replace(cert, self.plane.cert)
        return ssl.PEM_cert_to_DER_cert(self.plane.cert.read_text())

    def environment(self, name: str, ca: Path | None = None) -> dict[str, str]:
        token = self.directory / f"{name}.token"
        token.write_text(f"good:{name}")
        return self.plane.environment(self.directory / name) | {
            "NGINX_AGENT_COMMAND_TLS_CA": str(ca or self.agents_ca),
            "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": str(token),
            "POD_NAME": name,
        }

    def on_report(self, gateway: str) -> None:
        self.seen.append(self.plane.server.report(gateway))
        self.plane._on_report(gateway)

    async def connected(self, *names: str) -> None:
        await self.plane.until(lambda report: {i.instance for i in report.instances} == set(names))

    async def logged(self, text: str) -> None:
        """Wait until the agent has logged a text."""
        deadline = time.monotonic() + 60
        while text not in (log := self.log.read_text()):
            assert time.monotonic() < deadline, f"the agent logged no {text}: {log}"
            await patience.pause()

    async def shown(self) -> bytes:
        """Return the certificate that a new connection receives."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        _, writer = await asyncio.open_connection("127.0.0.1", self.plane.port, ssl=context)
        result: bytes = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        return result


def _replace(source: Path, target: Path) -> None:
    """Replace a file atomically, as a kubelet does."""
    staged = target.with_suffix(".staged")
    shutil.copyfile(source, staged)
    staged.replace(target)


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[Channel]:
    agent_channel = Channel(tmp_path)
    await agent_channel.plane.start()
    yield agent_channel
    await agent_channel.plane.server.stop(0.1)


async def test_server_certificate_change_applies_to_new_connections_only(
    channel: Channel,
) -> None:
    plane = channel.plane
    large = File.make("gatehouse/assets/large", b"\0" * (8 << 20))
    async with agent(channel.environment("pod-1"), channel.log):
        await channel.connected("pod-1")
        plane.server.events.on_report = channel.on_report
        # While the configuration is being fetched, tested and loaded.
        expected = idle("one", large)
        plane.server.publish(GATEWAY, expected)
        fresh = channel.serve(channel.old)
        assert await channel.shown() == fresh
        assert (await plane.programmed(expected)).error == ""
        assert all(report.instances for report in channel.seen)
        async with agent(channel.environment("pod-2"), channel.log):
            await channel.connected("pod-1", "pod-2")
            await plane.programmed(idle("two"))
    assert channel.log.read_text().count('"connected"') == 2, "an agent connected twice"


async def test_ca_rotation_accepts_old_and_new_agents(
    channel: Channel,
) -> None:
    both, only_new = channel.directory / "both.pem", channel.directory / "only-new.pem"
    both.write_bytes(channel.old.pem + channel.new.pem)
    only_new.write_bytes(channel.new.pem)
    async with agent(channel.environment("pod-old"), channel.log):
        await channel.connected("pod-old")
        # First all agents trust both CAs, then the server uses a certificate of the new one.
        _replace(both, channel.agents_ca)
        channel.serve(channel.new)
        async with (
            agent(channel.environment("pod-both"), channel.log),
            agent(channel.environment("pod-new", only_new), channel.log),
        ):
            await channel.connected("pod-old", "pod-both", "pod-new")
            await channel.plane.programmed(idle("one"))
            # Agents that connected under the old CA reconnect under the new one.
            await channel.plane.restart()
            await channel.connected("pod-old", "pod-both", "pod-new")


async def test_agent_reads_ca_file_at_each_connection(channel: Channel) -> None:
    async with agent(channel.environment("pod-1"), channel.log):
        await channel.connected("pod-1")
        channel.serve(channel.new)
        await channel.plane.restart()

        await channel.logged("CERTIFICATE_VERIFY_FAILED")
        assert channel.plane.server.report(GATEWAY).instances == ()
        _replace(channel.new.file, channel.agents_ca)
        await channel.connected("pod-1")


async def test_agent_without_client_certificate_is_rejected_when_required(channel: Channel) -> None:
    plane, directory = channel.plane, channel.directory
    plane.client_ca = directory / "client-ca.pem"
    _replace(channel.old.file, plane.client_ca)
    await plane.restart()
    pair = directory / "mine.crt", directory / "mine.key"
    for issued, mine in zip(channel.old.issue("pod-1"), pair, strict=True):
        _replace(issued, mine)
    client_certificate = {
        "NGINX_AGENT_COMMAND_TLS_CERT": str(pair[0]),
        "NGINX_AGENT_COMMAND_TLS_KEY": str(pair[1]),
    }
    bare = directory / "bare.log"
    async with (
        agent(channel.environment("pod-bare"), bare),
        agent(channel.environment("pod-1") | client_certificate, channel.log),
    ):
        await channel.connected("pod-1")
        while "connection lost" not in bare.read_text():
            await patience.pause()
        # The accepted client CA changes while the server runs. No connection is closed.
        _replace(channel.new.file, plane.client_ca)
        await plane.programmed(idle("one"))
        for issued, mine in zip(channel.new.issue("pod-1"), pair, strict=True):
            _replace(issued, mine)
        await plane.restart()
        await channel.connected("pod-1")
    assert '"connected"' not in bare.read_text()


async def test_token_change_applies_to_next_call(
    channel: Channel,
) -> None:
    plane = channel.plane
    reviews: list[str] = []

    async def noting(token: str) -> Identity:
        reviews.append(token)
        return await authenticate(token.partition("#")[0])

    await plane.server.stop(0.1)
    plane.server = AgentServer(noting)
    plane.server.events.on_report = plane._on_report
    await plane.start()
    async with agent(channel.environment("pod-1"), channel.log):
        await channel.connected("pod-1")
        assert reviews == ["good:pod-1"], "one review is enough for many calls"
        token = channel.directory / "pod-1.token"
        staged = channel.directory / "staged"
        staged.write_text("good:pod-1#second\n")
        staged.replace(token)
        await plane.programmed(idle("one"))
        assert reviews == ["good:pod-1", "good:pod-1#second"]
        assert channel.log.read_text().count('"connected"') == 1, "an agent reconnected"


async def test_certificates_renewed_by_gatehouse_certs_are_reloaded(
    channel: Channel,
) -> None:
    plane, directory = channel.plane, channel.directory / "certs"
    directory.mkdir()
    almost_over = datetime.now(UTC) - pki.CA_LIFE + timedelta(days=30)
    pki.ensure_channel(directory, ["control.plane"], [], almost_over)
    pair = pki.KeyPair(directory / "tls.crt", directory / "tls.key")
    authority = pki.KeyPair(directory / "ca.crt", directory / "ca.key")
    leaf = pki.InstallationCertificate("tls", "control.plane", dns=("control.plane",), server=True)
    pki.issue(authority, leaf, pair, datetime.now(UTC) - pki.LEAF_LIFE + timedelta(days=30))
    plane.cert, plane.key = pair.cert, pair.key
    known_for_long = channel.directory / "known-for-long.pem"
    _replace(authority.cert, known_for_long)
    await plane.restart()
    async with agent(channel.environment("pod-old", known_for_long), channel.log):
        await channel.connected("pod-old")
        fingerprint = await channel.shown()
        words = ["--dir", str(directory), "--name", "control.plane"]
        result = await asyncio.to_thread(CliRunner().invoke, certs, words)
        assert "ca.crt" in result.output
        assert "tls.crt" in result.output
        assert await channel.shown() != fingerprint
        async with agent(channel.environment("pod-new", authority.cert), channel.log):
            await channel.connected("pod-old", "pod-new")
            await plane.programmed(idle("one"))
            # An agent that knows only the old CA reconnects too, because the CA key is unchanged.
            await plane.restart()
            await channel.connected("pod-old", "pod-new")
