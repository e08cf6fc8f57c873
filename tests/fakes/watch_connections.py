"""Watches of kube-apiservers, opened from other machines by whatever way leads there."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from fakes import patience
from fakes.apiservers import ConnectionRejected
from fakes.hosting import SERVICE_NAME, Cluster
from fakes.machines import Machine

REQUEST = (
    "GET /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=3600 HTTP/1.1\r\n"
    "Host: {host}\r\n\r\n"
)


class Watch:
    """A watch of a cluster's ConfigMaps."""

    def __init__(
        self, cluster: Cluster, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.cluster = cluster
        self.events = 0
        self.ended = ""
        """Why it is over; empty while it goes on."""
        self._reader, self._writer = reader, writer
        self._reading: asyncio.Task[None] | None = None

    async def begin(self, host: str) -> None:
        """Ask for events. Raises Refused."""
        try:
            self._writer.write(REQUEST.format(host=host).encode())
            async with patience.limit():
                head = await self._reader.readuntil(b"\r\n\r\n")
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise ConnectionRejected(repr(error)) from error
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise ConnectionRejected(head.decode())
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                self.events += b'"type":"MODIFIED"' in line
            self.ended = "closed"
        except (OSError, ValueError) as error:
            self.ended = repr(error)

    def close(self) -> None:
        """End it."""
        self._writer.transport.abort()
        if self._reading is not None:
            self._reading.cancel()


async def _connected(
    machine: Machine, address: tuple[str, int], cluster: Cluster, sni: str, header: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    raw = machine.socket()
    raw.setblocking(False)
    try:
        async with patience.limit():
            await asyncio.get_running_loop().sock_connect(raw, address)
            if header:
                await asyncio.get_running_loop().sock_sendall(raw, header)
            return await asyncio.open_connection(
                sock=raw, ssl=cluster.trust, server_hostname=sni, limit=1 << 20
            )
    except (OSError, ssl.SSLError, TimeoutError) as error:
        raw.close()
        raise ConnectionRejected(repr(error)) from error


async def watch(
    machine: Machine, address: tuple[str, int], cluster: Cluster, sni: str, header: bytes = b""
) -> Watch:
    """Open one from a machine. The certificate must be the cluster's. Raises Refused."""
    connection = Watch(cluster, *await _connected(machine, address, cluster, sni, header))
    await connection.begin(sni)
    return connection


async def answers(
    machine: Machine,
    address: tuple[str, int],
    cluster: Cluster,
    header: bytes = b"",
    sni: str = SERVICE_NAME,
) -> bool:
    """Return whether a watch of a cluster works from there."""
    with contextlib.suppress(ConnectionRejected):
        (await watch(machine, address, cluster, sni, header)).close()
        return True
    return False
