"""DNS lookups of hosts, each in a thread of its own.

The few threads of the event loop could all block on names that no DNS server answers, and delay the
hosts with working names.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult


class Resolver(AbstractResolver):
    """Resolver of one host; uses no thread for an address."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "gatehouse-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises OSError."""
        lookup = functools.partial(
            socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        addresses = await asyncio.get_running_loop().run_in_executor(self._thread, lookup)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in addresses
        ]

    async def close(self) -> None:
        """Shut down without waiting."""
        self._thread.shutdown(wait=False, cancel_futures=True)
