"""An Envoy gateway of hosted API servers: by server name, PROXY header and CONNECT."""

from __future__ import annotations

import asyncio

from fakes import patience
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Endpoint
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import Origin

ONE = Origin("HostedAPIServer", "garden", "one")
SERVICE = Origin("Service", "garden", "kube-apiserver")
NAMES, INSIDE, TUNNELS = 8443, 9443, 9444


def gateway(endpoint: Endpoint, settings: DataPlaneSettings) -> ir.GatewayConfiguration:
    backends = (ir.L4Backend("one"),)
    sources = ("127.0.9.0/24",)
    hosts = (
        ir.L4Host(""),
        ir.L4Host("api.broken.test", (ir.L4Backend("broken"),)),
        ir.L4Host("api.listed.test", backends, sources=sources, origin=ONE),
        ir.L4Host("api.one.test", backends, origin=ONE),
    )
    return ir.GatewayConfiguration(
        "edge/apis",
        l4_listeners=(ir.L4Listener(NAMES, "TLS", hosts),),
        proxy_protocol_listeners=(
            ir.ProxyProtocolListener(
                INSIDE, (ir.Destination("10.1.2.3", 443, "one", origin=ONE),), ("127.0.9.0/24",)
            ),
        ),
        http_connect_listeners=(
            ir.HttpConnectListener(
                TUNNELS, (ir.ConnectDestination("10.1.2.3:443", "one", sources, ONE),)
            ),
        ),
        clusters=(
            Cluster("broken", (Endpoint("127.0.0.1", 1),), "tcp"),
            Cluster("one", (endpoint,), "tcp", origin=SERVICE),
        ),
        settings=settings,
    )


async def send(address: tuple[str, int], data: bytes, source: str = "127.0.0.1") -> bytes:
    """Send data, and return what comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
    try:
        writer.write(data)
        async with patience.limit():
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()
