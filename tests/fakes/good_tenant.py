"""A tenant whose changes must be served beside a flood of another tenant's objects."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import aiohttp

from fakes import hostile_flood
from fakes.installation import BACKEND, PORT, REVISED, Installation, apply
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

Object = dict[str, Any]

SHARED, OWN = ("gh", "gw"), ("good", "own")
"""Gateways of `hostile_flood.world`."""


class GoodTenant:
    """A tenant who measures until its changes are served."""

    def __init__(self, client: kube.Client, session: aiohttp.ClientSession) -> None:
        self.routes: list[str] = []
        self.seconds: dict[str, list[float]] = {}
        """Seconds until each change was served by both Gateways, by the kind of change."""
        self.addresses: dict[tuple[str, str], str] = {}
        self._client, self._session = client, session
        self._changes = 0

    async def started(self) -> None:
        """Wait until both Gateways have an address, and serve the routes that change later."""
        for space, name in (SHARED, OWN):

            async def address(space: str = space, name: str = name) -> str:
                gateway = await self._client.get(resources.GATEWAYS, name, space)
                addresses = gateway.get("status", {}).get("addresses") or [{}]
                return str(addresses[0].get("value", ""))

            self.addresses[space, name] = await until(address)
        await self._apply(hostile_flood.moving_endpoints(BACKEND))
        for name, service in (("steady", "app"), ("edited", "app"), ("moved", "moving")):
            await self._apply(hostile_flood.good_route(name, SHARED, OWN, service=service))
            await until(lambda name=name: self.serves(name))  # type: ignore[misc]
            self.routes.append(name)

    async def change(self) -> None:
        """Make a change of each kind, and measure until both Gateways serve it."""
        self._changes += 1
        number = str(self._changes)
        created = hostile_flood.good_route(f"r{number}", SHARED, OWN)
        await self._measure("new route", created, f"r{number}", ("app", "1"))
        self.routes.append(f"r{number}")
        edited = hostile_flood.good_route("edited", SHARED, OWN, version=f"{number}e")
        await self._measure("edited route", edited, "edited", ("app", f"{number}e"))
        backend, text = (REVISED, "revised") if self._changes % 2 else (BACKEND, "app")
        slice_ = hostile_flood.moving_endpoints(backend)
        await self._measure("moved endpoints", slice_, "moved", (text, "1"))

    async def _measure(self, kind: str, obj: Object, name: str, expected: tuple[str, str]) -> None:
        started = time.monotonic()
        await self._apply(obj)
        await until(lambda: self.serves(name, expected))
        self.seconds.setdefault(kind, []).append(round(time.monotonic() - started, 2))

    async def _apply(self, obj: Object) -> None:
        await apply(self._client, [obj])

    async def serves(self, name: str, expected: tuple[str, str] | None = None) -> bool:
        """Return whether both Gateways serve a route; with this backend and version, if any."""
        responses = [await self._response(key, name) for key in (SHARED, OWN)]
        if expected is None:
            return None not in responses
        return responses == [expected, expected]

    async def serves_all(self) -> bool:
        """Return whether both Gateways serve all routes."""
        return all([await self.serves(name) for name in self.routes])

    async def _response(self, gateway: tuple[str, str], name: str) -> tuple[str, str] | None:
        """Return backend and version of a good response; None for others."""
        url = f"http://{self.addresses[gateway]}:{PORT}/"
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            headers = {"Host": f"{name}.good.example"}
            async with self._session.get(url, headers=headers) as response:
                if response.status == 200:
                    return response.headers["X-Backend"], response.headers.get("X-Version", "")
        return None


def failures(installation: Installation) -> list[str]:
    """Return the lines of all logs about processes that ended or failed."""
    logs = [installation.state / "up.log", *installation.state.glob("node/pods/*/log")]
    lines = (line for log in logs for line in log.read_text(errors="replace").splitlines())
    return [line for line in lines if "process died" in line or "Traceback" in line]
