"""A controller in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from fakes import patience
from fakes.inprocess import Server
from fakes.loopback import free_port
from fakes.process import ApiServer
from gatehouse.controller import main as controllers
from gatehouse.controller import options as controller_options
from gatehouse.standalone import pki


class Replica:
    """A controller over a server; ``options`` overrides how it is run."""

    def __init__(
        self, server: Server | ApiServer, kubeconfig: Path | None = None, **options: Any
    ) -> None:
        self.agents = free_port()
        self.health = f"127.0.0.1:{free_port()}"
        self._stop = asyncio.Event()
        pair = server.state.pki.leaf(pki.CHANNEL)
        agent_options = controller_options.ControllerOptions(
            kubeconfig=kubeconfig or server.state.kubeconfig,
            agent_bind=f"127.0.0.1:{self.agents}",
            agent_advertise=f"127.0.0.1:{self.agents}",
            tls_cert=pair.cert,
            tls_key=pair.key,
            ca=server.state.pki.ca().cert,
            health=self.health,
        )
        agent_options = msgspec.structs.replace(agent_options, **options)
        self.task = asyncio.create_task(controllers.run_controller(agent_options, self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.wait([self.task])

    async def get(self, path: str) -> tuple[int, str]:
        url = f"http://{self.health}{path}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status, await response.text()

    async def until(self, holds: Callable[[int, str], bool]) -> str:
        """Wait for an answer of /readyz."""
        answer = (0, "")
        try:
            async with patience.limit():
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        answer = await self.get("/readyz")
                        if holds(*answer):
                            return answer[1]
                    assert not self.task.done(), self.task
                    await patience.pause()
        except TimeoutError:
            raise AssertionError(f"last answer: {answer}") from None

    async def until_ready(self) -> str:
        return await self.until(lambda status, _: status == 200)
