"""A tenant with 100,000 HTTPRoutes, a part of them hostile, beside another tenant.

Who: a tenant whose namespace has no ResourceQuota. Through what: routes at the Gateway that all
tenants share, of which all but the oldest exceed `routesPerNamespace`. What must hold: no process
ends, and the memory of each has a limit. Changes of the other tenant are served while the
controller writes a status to each excess route, while more routes are created, and after the
controller was killed. No excess route costs a data plane anything: each applies what the other
tenant changes, and nothing else. Times are in `bench/RESULTS.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from fakes import good_tenant, hostile_flood, many_routes
from fakes.good_tenant import GoodTenant
from fakes.installation import BACKEND, REVISED, Installation, apply
from fakes.patience import limit, pause, until
from gatehouse.kube import client as kube
from gatehouse.standalone import echo
from gatehouse.standalone.state_directory import State

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(1200)]

ROUTES = 100_000
CREATED = 2_000
"""Number of routes that are created while everything runs. The others exist before."""
SERVED = 500
"""`routesPerNamespace`."""
SEED = 31
START_LIMITS = 3
"""Number of the usual limits in which a controller with all routes must serve after its start."""
LATE_APPLIES = 2
"""Configurations of the phase before that an agent logs after they are served."""
CHANGES = 5
"""Number of changes of each kind in each phase."""
MEMORY_BYTES = {"apiserver": 2 << 30, "controller": 2 << 30, "node": 256 << 20}
"""Limits of the largest resident memory. The API server took 881 MiB, the controller 1,386 MiB and
the node 46 MiB.
"""
DATA_PLANE_BYTES = 1 << 30


class Outcome(msgspec.Struct):
    """Measurements of an installation with all routes."""

    answers: Counter[str] = msgspec.field(default_factory=Counter)
    """Answers of the API server to the routes that are created."""
    applied: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Configurations that each Gateway's data plane applied, by phase and Gateway."""
    changes: dict[str, int] = msgspec.field(default_factory=dict)
    """Changes of the other tenant that were served, by phase."""
    seconds: dict[str, dict[str, list[float]]] = msgspec.field(default_factory=dict)
    """Seconds until each was served. Nothing asserts them."""
    ended: list[str] = msgspec.field(default_factory=list)
    memory: dict[str, int] = msgspec.field(default_factory=dict)
    """Largest resident memory of each process in bytes."""


class Flooded:
    """An installation with the routes, and the other tenant."""

    def __init__(self, installation: Installation) -> None:
        self.outcome = Outcome()
        self._installation = installation
        self._routes = many_routes.routes(SEED)
        self._addresses: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Run all phases."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(echo.serve_echo({BACKEND: "app", REVISED: "revised"}))
            connector = aiohttp.TCPConnector(force_close=True)
            timeout = aiohttp.ClientTimeout(total=2)
            session = aiohttp.ClientSession(connector=connector, timeout=timeout)
            await stack.enter_async_context(session)
            await self._prepare(session)
            client = await stack.enter_async_context(self._installation.client())
            tenant = GoodTenant(client, session)
            await self._until_served(tenant)
            await tenant.started()
            await self._phases(client, tenant)

    async def _prepare(self, session: aiohttp.ClientSession) -> None:
        """Start an installation, stop it, and write all but the last routes into its database."""
        self._installation.start()
        async with self._installation.client() as client:
            await apply(client, hostile_flood.world("gatehouse-nginx", BACKEND))
            tenant = GoodTenant(client, session)
            await tenant.started()
            self._addresses = tenant.addresses
        await asyncio.to_thread(self._installation.stop)
        existing = itertools.islice(self._routes, ROUTES - CREATED)
        await many_routes.fill(State(self._installation.state).database, existing)
        self._installation.start()

    async def _until_served(self, tenant: GoodTenant) -> None:
        """Wait until the other tenant is served. The first pass follows a list of all routes."""
        tenant.addresses = self._addresses
        async with limit(START_LIMITS):
            while not await tenant.serves("steady"):
                await pause()

    async def _phases(self, client: kube.Client, tenant: GoodTenant) -> None:
        processes = hostile_flood.processes(self._installation)
        await self._phase("statuses", tenant)
        new = [*itertools.islice(self._routes, CREATED)]
        writing = asyncio.create_task(hostile_flood.write(client, new))
        await self._phase("creation", tenant)
        self.outcome.answers = await writing
        self._measure(processes)
        self.outcome.ended += good_tenant.failures(self._installation)
        os.kill(self._installation.part("controller").pid, signal.SIGKILL)
        await self._until_ready()
        await self._phase("restart", tenant)
        await until(tenant.serves_all)
        self._measure(hostile_flood.processes(self._installation))

    async def _until_ready(self) -> None:
        """Wait until a new controller has compiled everything and leads."""
        async with limit(START_LIMITS):
            while not await asyncio.to_thread(self._is_ready):
                await pause()

    def _is_ready(self) -> bool:
        addresses = json.loads((self._installation.state / "addresses.json").read_bytes())
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{addresses['health']}/readyz", timeout=5) as answer,
        ):
            return bool(answer.status == 200)
        return False

    async def _phase(self, name: str, tenant: GoodTenant) -> None:
        before = self._applied()
        for _ in range(CHANGES):
            await tenant.change()
        after = self._applied()
        outcome = self.outcome
        outcome.applied[name] = {gateway: after[gateway] - before[gateway] for gateway in after}
        outcome.changes[name] = sum(map(len, tenant.seconds.values()))
        outcome.seconds[name], tenant.seconds = tenant.seconds, {}

    def _measure(self, processes: dict[str, hostile_flood.Process]) -> None:
        for name, process in processes.items():
            if process.record.alive():
                self.outcome.memory[name] = process.resident_bytes()
            else:
                self.outcome.ended.append(name)

    def _applied(self) -> dict[str, int]:
        """Return the number of configurations that each data plane has applied."""
        logs = self._installation.state.glob("node/pods/*/log")
        return {
            path.parent.name: len(
                [
                    line
                    for line in path.read_text(errors="replace").splitlines()
                    if "configuration applied" in line or "endpoints updated" in line
                ]
            )
            for path in logs
        }


@pytest.fixture(scope="module")
def outcome() -> Iterator[Outcome]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        limits = f'{{"routesPerNamespace": {SERVED}}}'
        installation = Installation(Path(directory), "--resource-limits", limits)
        flooded = Flooded(installation)
        try:
            asyncio.run(flooded.run())
            print(msgspec.json.format(msgspec.json.encode(flooded.outcome)).decode())
            yield flooded.outcome
        finally:
            installation.stop()


def test_all_routes_are_accepted_by_the_api_server(outcome: Outcome) -> None:
    assert outcome.answers == {"accepted": CREATED}


def test_no_process_ends_beside_the_routes(outcome: Outcome) -> None:
    assert outcome.ended == []


def test_memory_of_each_process_has_a_limit(outcome: Outcome) -> None:
    for name, resident in outcome.memory.items():
        assert resident < MEMORY_BYTES.get(name, DATA_PLANE_BYTES), name


@pytest.mark.parametrize("phase", ["statuses", "creation", "restart"])
def test_data_planes_apply_nothing_but_the_changes_of_the_other_tenant(
    outcome: Outcome, phase: str
) -> None:
    for gateway, applied in outcome.applied[phase].items():
        assert applied <= outcome.changes[phase] + LATE_APPLIES, gateway
