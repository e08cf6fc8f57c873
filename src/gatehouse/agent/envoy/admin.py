"""What Envoy answers on its administration socket."""

from __future__ import annotations

from pathlib import Path

import aiohttp

SECONDS = 5.0
"""A busy Envoy answers late, one that has 5,000 clusters to warm too."""


class Admin:
    """Asks one Envoy. Every question raises OSError if it is not answered."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def ask(self, path: str, *, post: bool = False) -> tuple[int, str]:
        """Give status and text of the answer."""
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(str(self._socket)), timeout=timeout
                ) as client,
                client.request("POST" if post else "GET", f"http://envoy{path}") as response,
            ):
                return response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OSError(f"{self._socket}: {error or type(error).__name__}") from error

    async def ready(self) -> str:
        """Give why Envoy takes no traffic; empty: it does."""
        try:
            status, text = await self.ask("/ready")
        except OSError as error:
            return str(error)
        return "" if status == 200 else f"Envoy is {text.strip()}"

    async def fail_health_checks(self) -> None:
        """Have health checks answered as by one that is about to end."""
        await self.ask("/healthcheck/fail", post=True)

    async def shed(self) -> None:
        """Have every connection closed after the answer that is on its way; take new ones still."""
        await self.ask("/drain_listeners?graceful&skip_exit", post=True)

    async def close_listeners(self) -> None:
        """Take no new connections; those that there are go on."""
        await self.ask("/drain_listeners", post=True)

    async def connections(self) -> int:
        """Give the number of clients' connections."""
        query = "/stats?filter=^listener%5C..*%5C.downstream_cx_active$"
        _, text = await self.ask(query)
        lines = (line.rpartition(": ") for line in text.splitlines())
        return sum(
            int(value)
            for name, _, value in lines
            if value.isdecimal() and ".worker_" not in name and "listener.admin." not in name
        )
