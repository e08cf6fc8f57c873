"""Access of Pods to the API server: its loopback address does not exist in their networks."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from fakes.loopback import free_port

SERVER_NAME = "kubernetes.default.svc"


async def serve_api(kubeconfig: Path, address: str, pod_kubeconfig: Path) -> None:
    """Relay an address that Pods reach to the API server until the process ends.

    ``pod_kubeconfig`` is written for Pods, with the rights of ``kubeconfig``.
    """
    config = yaml.safe_load(await asyncio.to_thread(kubeconfig.read_text))
    cluster = config["clusters"][0]["cluster"]
    server = urlsplit(cluster["server"])

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection(server.hostname, server.port)
            await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))

    port = free_port()
    await asyncio.start_server(relay, address, port)
    cluster |= {"server": f"https://{address}:{port}", "tls-server-name": SERVER_NAME}
    await asyncio.to_thread(pod_kubeconfig.write_text, yaml.safe_dump(config))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
