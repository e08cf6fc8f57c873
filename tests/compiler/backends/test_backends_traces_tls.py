"""Export of traces with TLS: a real Envoy and a real OpenTelemetry Collector."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import pytest
from cryptography import x509

from fakes import collector_process, envoy_serving
from fakes.authority import Authority
from fakes.collector_process import CollectorProcess, running_collector
from fakes.envoy_serving import Served, backend, host, plain, route_to
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.compiler.backends.envoy import names
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import (
    Certificate,
    GatewayConfiguration,
    SecretBytes,
    TrustBundle,
)
from gatehouse.compiler.ir.settings import DataPlaneSettings, Settings
from gatehouse.compiler.ir.tracing import TraceExport, Tracing
from gatehouse.dataplane.origin import Origin

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not collector_process.executable().exists(), reason="run `make collector`"),
]

ADDRESS = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
NAME = x509.DNSName("localhost")
OTHER_NAME = x509.DNSName("other.example")


def gateway(endpoint: ir.Endpoint, collector: str, port: int) -> GatewayConfiguration:
    """Return a gateway whose requests are all traced, with TLS to a collector."""
    export = TraceExport(
        collector, port, "gatehouse:ns:gw", tls=True, interval=0.1, batch_size=1,
        origin=Origin("GatewayParameters", "ns", "p"),
    )  # fmt: skip
    policy = Origin("ObservabilityPolicy", "ns", "traces")
    settings = Settings(tracing=Tracing(100, origin=policy))
    return plain(
        [host("a.example", route_to("c", "ns/web/0/0", settings=settings))],
        [ir.Cluster("c", (endpoint,))],
        settings=DataPlaneSettings(traces=export),
    )


@pytest.mark.parametrize(
    ("collector", "certified"), [("127.0.0.1", (ADDRESS,)), ("localhost", (NAME, OTHER_NAME))]
)
async def test_collector_with_a_valid_certificate_receives_spans(
    tmp_path: Path, collector: str, certified: Sequence[x509.GeneralName]
) -> None:
    authority, port = Authority(tmp_path), free_port()
    async with (
        backend("one") as endpoint,
        running_collector(tmp_path, port, authority.issue("collector", *certified)) as real,
        envoy_serving.serving(
            gateway(endpoint, collector, port), system_trust=authority.file
        ) as served,
    ):
        await _until_received(served, real)
    assert {span.name for span in real.spans} == {"ns/web/0"}


@pytest.mark.parametrize(
    ("collector", "certified", "trusted", "failure"),
    [
        ("127.0.0.1", (NAME,), True, "fail_verify_san"),
        ("localhost", (OTHER_NAME, ADDRESS), True, "fail_verify_san"),
        ("127.0.0.1", (ADDRESS,), False, "fail_verify_error"),
    ],
)
async def test_collector_without_a_valid_certificate_receives_no_span(
    tmp_path: Path,
    collector: str,
    certified: Sequence[x509.GeneralName],
    trusted: bool,
    failure: str,
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    port = free_port()
    trust = (authority if trusted else stranger).file
    async with (
        backend("one") as endpoint,
        running_collector(tmp_path, port, authority.issue("collector", *certified)) as real,
        envoy_serving.serving(gateway(endpoint, collector, port), system_trust=trust) as served,
    ):
        await _until_rejected(served, real, failure)


def with_credentials(
    config: GatewayConfiguration, trust: Authority, client: tuple[Path, Path] | None = None
) -> GatewayConfiguration:
    """Return a gateway with CA certificates of the collector, and a client certificate."""
    export = config.settings.traces
    assert export is not None
    certificates: tuple[Certificate, ...] = ()
    if client is not None:
        chain, key = (path.read_bytes() for path in client)
        certificates = (Certificate("client", chain, SecretBytes(key)),)
    export = msgspec.structs.replace(
        export, trust="ca", certificate="client" if client is not None else ""
    )
    return msgspec.structs.replace(
        config,
        settings=msgspec.structs.replace(config.settings, traces=export),
        certificates=certificates,
        trust_bundles=(TrustBundle("ca", trust.pem),),
    )


async def test_collector_with_a_private_ca_that_requires_client_certificates_receives_spans(
    tmp_path: Path,
) -> None:
    system, private = Authority(tmp_path, "system"), Authority(tmp_path, "private")
    clients, port = Authority(tmp_path, "clients"), free_port()
    async with (
        backend("one") as endpoint,
        running_collector(
            tmp_path, port, private.issue("collector", ADDRESS), clients.file
        ) as real,
        envoy_serving.serving(
            with_credentials(gateway(endpoint, "127.0.0.1", port), private, clients.issue("plane")),
            system_trust=system.file,
        ) as served,
    ):
        await _until_received(served, real)
    assert {span.name for span in real.spans} == {"ns/web/0"}


@pytest.mark.parametrize("client", ["none", "of another CA"])
async def test_collector_that_requires_client_certificates_receives_no_span_without_one(
    tmp_path: Path, client: str
) -> None:
    private, clients = Authority(tmp_path, "private"), Authority(tmp_path, "clients")
    port, other = free_port(), private.issue("plane") if client == "of another CA" else None
    async with (
        backend("one") as endpoint,
        running_collector(
            tmp_path, port, private.issue("collector", ADDRESS), clients.file
        ) as real,
        envoy_serving.serving(
            with_credentials(gateway(endpoint, "127.0.0.1", port), private, other),
            system_trust=clients.file,
        ) as served,
    ):
        # Envoy verified the collector, which then rejected Envoy.
        await _until_rejected(served, real, "handshake")
        # A renewed client certificate is used without a change of the listener.
        renewed = with_credentials(
            gateway(endpoint, "127.0.0.1", port), private, clients.issue("renewed")
        )
        await served.serve(renewed)

        async def received() -> bool:
            assert (await served.ask("a.example"))[0] == 200
            await real.refresh()
            return bool(real.spans)

        await served.until(received)


async def test_collector_of_the_system_ca_receives_no_span_if_another_ca_is_set(
    tmp_path: Path,
) -> None:
    system, private = Authority(tmp_path, "system"), Authority(tmp_path, "private")
    port = free_port()
    async with (
        backend("one") as endpoint,
        running_collector(tmp_path, port, system.issue("collector", ADDRESS)) as real,
        envoy_serving.serving(
            with_credentials(gateway(endpoint, "127.0.0.1", port), private),
            system_trust=system.file,
        ) as served,
    ):
        await _until_rejected(served, real, "fail_verify_error")


async def _until_received(served: Served, real: CollectorProcess) -> None:
    """Send requests until the collector has both spans of one. Envoy drops spans before it has the
    address of the collector."""

    async def received() -> bool:
        assert (await served.ask("a.example"))[0] == 200
        await real.refresh()
        return len(real.spans) >= 2

    await until(received)


async def _until_rejected(served: Served, real: CollectorProcess, failure: str) -> None:
    """Wait until exports fail with a TLS error, and check that the collector got no span."""

    async def rejected() -> bool:
        # Each export connects, and requests succeed meanwhile.
        assert (await served.ask("a.example"))[0] == 200
        return await _is_counted(served, f"cluster.{names.TRACE_COLLECTOR}.ssl.{failure}")

    await served.until(rejected)
    await real.refresh()
    assert real.spans == []


async def _is_counted(served: Served, name: str) -> bool:
    connector = aiohttp.UnixConnector(str(served.running.admin))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get("http://envoy/stats", params={"filter": f"^{name}$"}) as answer,
    ):
        return int((await answer.text()).rpartition(":")[2]) > 0
