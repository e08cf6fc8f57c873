"""`gatehouse up` renews what will expire, and the agents' channel takes it over as it runs."""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fakes import patience
from gatehouse.standalone import pki, up
from gatehouse.standalone.state_directory import State

pytestmark = pytest.mark.process


async def shown(address: str, ca: Path) -> x509.Certificate | None:
    """Return the certificate that the agent channel presents to a new connection."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    try:
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname=pki.CONTROLLER_NAME
        )
    except OSError:
        return None
    certificate = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    return x509.load_der_x509_certificate(certificate)


async def test_agent_channel_certificate_is_renewed_before_expiry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(up, "RENEW_SECONDS", 2.0)
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        stop, ready = asyncio.Event(), asyncio.Event()
        options = up.InstallationOptions(
            state_dir=Path(directory),
            api_address="127.0.0.1:0",
            agent_address="127.0.0.1:0",
            address_pool="127.99.77.0/28",
        )
        states: list[State] = []

        def on_ready(state: State, _server: str) -> None:
            states.append(state)
            ready.set()

        task = asyncio.create_task(up.run_installation(options, stop, on_ready))
        try:
            async with patience.limit():
                await ready.wait()
                (state,) = states
                ca, channel = state.pki.ca(), state.pki.leaf(pki.CHANNEL)
                chosen = state.addresses(options.api_address, options.agent_address).agent
                soon = datetime.now(UTC) - pki.LEAF_LIFE + timedelta(days=30)
                pki.issue(ca, pki.CHANNEL, channel, soon)
                short = x509.load_pem_x509_certificate(channel.cert.read_bytes())
                while True:
                    written = x509.load_pem_x509_certificate(channel.cert.read_bytes())
                    if written != short and await shown(chosen, ca.cert) == written:
                        break
                    await patience.pause()
                assert written.not_valid_after_utc - datetime.now(UTC) > pki.RENEW_BEFORE
        finally:
            stop.set()
            await task
