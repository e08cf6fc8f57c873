"""An API server with users who contend for its capacity: an attacker, a tenant, a controller."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from fakes.inprocess import Server
from gatehouse.standalone.state_directory import State

GROUP = "rbac.authorization.k8s.io"
MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DEADLINE_SECONDS = 10.0
"""Deadline of the others' requests. On an idle machine they take less than a tenth of a second."""

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


async def others_succeed(sessions: dict[str, aiohttp.ClientSession], rounds: int = 5) -> None:
    """Renew a Lease as the controller, and write as another tenant, several times."""
    lease = {"metadata": {"name": "gatehouse"}, "spec": {"holderIdentity": "a"}}
    for number in range(rounds):
        started = time.perf_counter()
        async with sessions["controller"].post(LEASES, json=lease) as response:
            assert response.status in (201, 409), await response.text()
        lease["spec"] = {"holderIdentity": f"holder-{number}"}
        patch = json.dumps({"spec": lease["spec"]})
        headers = {"Content-Type": "application/merge-patch+json"}
        http = sessions["controller"]
        async with http.patch(f"{LEASES}/gatehouse", data=patch, headers=headers) as response:
            assert response.status == 200, await response.text()
        body = {"metadata": {"generateName": "b-"}}
        async with sessions["tenant"].post(MAPS, json=body) as response:
            assert response.status == 201, await response.text()
        assert time.perf_counter() - started < DEADLINE_SECONDS


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
