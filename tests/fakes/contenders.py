"""An API server with users who contend for its capacity: an attacker, a tenant, a controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from fakes.inprocess import Server
from fakes.patience import until
from gatehouse.standalone.state_directory import State

GROUP = "rbac.authorization.k8s.io"
MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

USERS = {
    "attacker": ("system:serviceaccount:team-a:a", "system:serviceaccounts"),
    "tenant": ("system:serviceaccount:team-b:b", "system:serviceaccounts"),
    "controller": ("system:gatehouse:controller", ""),
}


@contextlib.asynccontextmanager
async def users(
    tmp_path: Path, **options: Any
) -> AsyncIterator[tuple[Server, dict[str, aiohttp.ClientSession]]]:
    """Run a server with users who may write ConfigMaps and Leases."""
    tokens = tmp_path / "tokens.csv"
    lines = [f'{token},{name},{token},"{group}"' for token, (name, group) in USERS.items()]
    tokens.write_text("\n".join(lines) + "\n")
    server = Server(State(tmp_path / "state"), token_file=tokens, **options)
    resources = {"resources": ["configmaps", "leases"], "verbs": ["*"]}
    rules = [{"apiGroups": ["", "coordination.k8s.io"], **resources}]
    role = {"metadata": {"name": "writer"}, "rules": rules}
    binding = {
        "metadata": {"name": "writer"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "writer"},
        "subjects": [
            {"apiGroup": GROUP, "kind": "User", "name": name} for name, _ in USERS.values()
        ],
    }
    async with server.running(), contextlib.AsyncExitStack() as stack:
        admin = await stack.enter_async_context(server.raw())
        for plural, obj in (("clusterroles", role), ("clusterrolebindings", binding)):
            async with admin.post(f"/apis/{GROUP}/v1/{plural}", json=obj) as response:
                assert response.status == 201, await response.text()
        sessions = {"admin": admin}
        for token in USERS:
            http = await stack.enter_async_context(server.raw(Authorization=f"Bearer {token}"))
            assert isinstance(http.connector, aiohttp.TCPConnector)
            http.connector._limit = 1000
            sessions[token] = http
        yield server, sessions


class Flood:
    """Requests of several clients of one user, without a pause."""

    def __init__(self, clients: int, send: Callable[[], Awaitable[bool]], turns: int = 1) -> None:
        """``send`` returns whether the server served the request. ``turns``: number of requests of
        each client that the server may serve before one of another user."""
        self._clients, self._send = clients, send
        self._max_overtaken = turns * clients
        self._served = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Flood:
        self._tasks = [asyncio.create_task(self._repeat()) for _ in range(self._clients)]
        await until(lambda: self._served)
        return self

    async def __aexit__(self, *_: object) -> None:
        failed = [task.exception() for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert failed == []

    async def _repeat(self) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                served = await self._send()
                self._served += served

    @contextlib.contextmanager
    def overtaken(self) -> Iterator[None]:
        """Assert that what the block sends does not wait for all requests before it."""
        before = self._served
        yield
        assert self._served - before < self._max_overtaken


async def others_succeed(
    sessions: dict[str, aiohttp.ClientSession], rounds: int = 5, flood: Flood | None = None
) -> None:
    """Renew a Lease as the controller, and write as another tenant, several times."""

    def prompt() -> contextlib.AbstractContextManager[None]:
        return flood.overtaken() if flood else contextlib.nullcontext()

    lease = {"metadata": {"name": "gatehouse"}, "spec": {"holderIdentity": "a"}}
    for number in range(rounds):
        with prompt():
            async with sessions["controller"].post(LEASES, json=lease) as response:
                assert response.status in (201, 409), await response.text()
        lease["spec"] = {"holderIdentity": f"holder-{number}"}
        patch = json.dumps({"spec": lease["spec"]})
        headers = {"Content-Type": "application/merge-patch+json"}
        http = sessions["controller"]
        with prompt():
            async with http.patch(f"{LEASES}/gatehouse", data=patch, headers=headers) as response:
                assert response.status == 200, await response.text()
        body = {"metadata": {"generateName": "b-"}}
        with prompt():
            async with sessions["tenant"].post(MAPS, json=body) as response:
                assert response.status == 201, await response.text()


async def fill(http: aiohttp.ClientSession, count: int) -> None:
    for start in range(0, count, 100):
        bodies = ({"metadata": {"name": f"m{start + n}", "labels": {"a": "b"}}} for n in range(100))
        responses = await asyncio.gather(*(http.post(MAPS, json=body) for body in bodies))
        assert {response.status for response in responses} == {201}
        for response in responses:
            response.release()


async def metrics(http: aiohttp.ClientSession) -> str:
    async with http.get("/metrics") as response:
        return await response.text()
