"""A whole installation of which parts are killed while routes change and traffic flows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from fakes import patience
from fakes.installation import (
    BACKEND,
    PORT,
    REVISED,
    Installation,
    address,
    apply,
    get,
    hello,
    holds,
    route,
    traffic,
)
from fakes.key_server import key_server
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.runtime import procfs as agents
from gatehouse.standalone import echo, process_records

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

SECONDS = float(os.environ.get("FAULT_SECONDS", "30"))


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[kube.Client]:
    async with (
        installation.client() as result,
        echo.serve_echo({BACKEND: "app", REVISED: "revised"}),
    ):
        yield result


async def reloads(where: str) -> int:
    """Return the number of reloads by the agent."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{where}:9113/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    result = (line for line in lines if line.startswith("gatehouse_agent_reloads_total"))
    return int(float(next(result).split()[-1]))


def marked(name: str, path: str) -> dict[str, Any]:
    """Return a route whose responses show its path, since another route matches every path."""
    edit = {"set": [{"name": "X-Route", "value": path}]}
    filters = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": edit}]
    return route(name, path, filters=filters)


async def shown(where: str, path: str) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{where}:{PORT}{path}") as response,
    ):
        assert response.status == 200
        return response.headers.get("X-Route", "")


async def answers(where: str, path: str) -> None:
    async def reached() -> bool:
        return await shown(where, path) == path

    await until(reached)


@pytest.mark.smoke
async def test_traffic_continues_while_controller_is_killed_during_changes(
    installation: Installation, client: kube.Client
) -> None:
    await apply(client, hello())
    where = await address(client)
    chance = random.Random(SECONDS)
    nginx, begun, number, kills = installation.nginx(), time.monotonic(), 0, 0
    async with traffic(where) as statuses:
        while time.monotonic() - begun < SECONDS:
            number += 1
            await client.create(resources.HTTP_ROUTES, marked(f"r{number}", f"/r{number}"))
            if number > 3:
                await client.delete(resources.HTTP_ROUTES, f"r{number - 3}", "default")
            await asyncio.sleep(chance.uniform(0, 0.5))
            record = process_records.recorded(installation.state / "run" / "controller.json")
            if record is not None and chance.random() < 0.5:
                record.signal(signal.SIGKILL)
                kills += 1
        for last in range(number - 2, number + 1):
            await answers(where, f"/r{last}")
            await holds(client, "HTTPRoute", f"r{last}", "Accepted")
        assert await shown(where, f"/r{number - 3}") == ""
    print(f"{number} changes, {kills} kills, {statuses}")
    assert statuses.keys() == {"200"}
    assert kills > 3
    assert installation.nginx() == nginx


async def test_filter_stays_valid_when_controller_restarts(
    installation: Installation, client: kube.Client, tmp_path: Path
) -> None:
    """The restarted controller has not yet fetched the remote keys."""
    await apply(client, hello())
    where = await address(client)
    key = b"a secret that signs the tokens of tests"
    token = jwt.encode(
        {"exp": int(time.time()) + 600}, key, algorithm="HS256", headers={"kid": "a"}
    )
    async with key_server(tmp_path / "pki") as server:
        server.serve(key)
        metadata = {"name": "remote", "namespace": "default"}
        trusted = base64.b64encode(server.authority.encode()).decode()
        remote = {"uri": server.url, "caCertificateRefs": [{"name": "remote"}]}
        spec = {"type": "JWT", "jwt": {"realm": "api", "source": "Remote", "remote": remote}}
        api = "gateway.nginx.org/v1alpha1"
        kind = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "remote"}
        uses = {"type": "ExtensionRef", "extensionRef": kind}
        await apply(
            client,
            [
                {"kind": "Secret", "metadata": metadata, "data": {"ca.crt": trusted}},
                {"apiVersion": api, "kind": kind["kind"], "metadata": metadata, "spec": spec},
                route("remote", "/remote", filters=[uses]),
            ],
        )
        headers = {"Authorization": f"Bearer {token}"}

        async def guarded() -> bool:
            return (await get(where, "/remote"))[0] == 401

        await until(guarded)
        assert (await get(where, "/remote", **headers))[0] == 200
        before = await reloads(where)
        # Longer than an agent takes to reconnect and get its configuration.
        server.pause = 3.0
        for _ in range(2):
            former = installation.part("controller")
            former.signal(signal.SIGKILL)
            request_count = len(server.asked)
            while len(server.asked) == request_count:
                assert (await get(where, "/remote", **headers))[0] == 200
                await patience.pause()
            name = f"after-{former.pid}"
            await client.create(resources.HTTP_ROUTES, marked(name, f"/{name}"))
            while await shown(where, f"/{name}") == "":
                assert (await get(where, "/remote", **headers))[0] == 200
                await patience.pause()
            assert (await get(where, "/remote", **headers))[0] == 200
        # One for each route, and one that leaves out what an upstream began with.
        assert await reloads(where) <= before + 3


async def test_killed_worker_is_replaced_and_logged(
    installation: Installation, client: kube.Client
) -> None:
    await apply(client, hello())
    where = await address(client)
    master = installation.nginx()
    workers = agents.children(master)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)

    async def replaced() -> bool:
        children = agents.children(master)
        return len(children) == len(workers) and children.isdisjoint(workers)

    await until(replaced)
    async with traffic(where) as statuses:
        await client.create(resources.HTTP_ROUTES, marked("after-worker", "/after-worker"))
        await answers(where, "/after-worker")
    assert statuses.keys() == {"200"}
    assert installation.nginx() == master

    async def said() -> bool:
        logs = installation.state.glob("node/pods/*/log")
        return any("exited on signal 9" in path.read_text(errors="replace") for path in logs)

    await until(said)


async def test_port_in_use_fails_one_listener_until_it_is_free(
    installation: Installation, client: kube.Client
) -> None:
    await apply(client, hello())
    where = await address(client)
    gateway = await client.get(resources.GATEWAYS, "web", "default")
    more = {"name": "more", "port": 8099, "protocol": "HTTP"}
    listeners = [*gateway["spec"]["listeners"], more]
    taken = await asyncio.start_server(lambda _r, w: w.close(), where, 8099)
    async with traffic(where) as statuses:
        patch = {"spec": {"listeners": listeners}}
        await client.patch(resources.GATEWAYS, "web", patch, "default")

        async def programmed() -> dict[str, dict[str, Any]]:
            result = await client.get(resources.GATEWAYS, "web", "default")
            return {
                listener["name"]: condition
                for listener in result["status"]["listeners"]
                for condition in listener["conditions"]
                if condition["type"] == "Programmed"
            }

        async def rejected() -> bool:
            more = (await programmed()).get("more", {"message": ""})
            return f"bind() to {where}:8099 failed" in more["message"]

        await until(rejected)
        assert (await programmed())["more"]["status"] == "False"
        assert (await programmed())["http"]["status"] == "True"
        result = await holds(client, "Gateway", "web", "Programmed")
        assert "Gateway default/web: port 8099" in result["message"]
        # Everything else of the Gateway still changes.
        await apply(client, [route("beside", "/beside")])
        await holds(client, "HTTPRoute", "beside", "Accepted")
        taken.close()
        await taken.wait_closed()

        async def answers() -> bool:
            with contextlib.suppress(aiohttp.ClientError):
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://{where}:8099/") as response,
                ):
                    return response.status == 200
            return False

        await until(answers)

        async def recovered() -> bool:
            return bool((await programmed())["more"]["status"] == "True")

        await until(recovered)
    assert statuses.keys() == {"200"}


async def test_hundred_changes_in_a_second_are_debounced(
    installation: Installation, client: kube.Client
) -> None:
    await apply(client, hello())
    await client.create(resources.HTTP_ROUTES, marked("busy", "/busy"))
    where = await address(client)
    await answers(where, "/busy")
    before = await reloads(where)
    async with traffic(where) as statuses:
        begun = time.monotonic()
        for number in range(100):
            changed = marked("busy", f"/busy-{number}")
            await client.patch(resources.HTTP_ROUTES, "busy", changed, "default")
            await asyncio.sleep(max(0.0, begun + number / 100 - time.monotonic()))
        took = time.monotonic() - begun
        await answers(where, "/busy-99")
        await holds(client, "HTTPRoute", "busy", "Accepted")
        assert await shown(where, "/busy-98") == ""
    count = await reloads(where) - before
    print(f"100 changes in {took:.1f} s: {count} reloads")
    assert statuses.keys() == {"200"}
    assert count <= 10 + 10 * took


async def test_traffic_continues_while_the_agent_token_is_invalid(
    installation: Installation, client: kube.Client
) -> None:
    """The node restores a valid token when it renews the token."""
    await apply(client, hello())
    where = await address(client)
    (path,) = installation.state.glob("node/pods/*/volumes/*/token")
    good = path.read_text()
    bad = good[:-8] + "AAAAAAAA"
    async with traffic(where) as statuses:
        _replace(path, bad)
        installation.part("controller").signal(signal.SIGKILL)

        async def is_denied(times: int = 1) -> bool:
            # Once a minute the node looks whether volumes hold what they should.
            _replace(path, bad)
            return denials() >= times

        def denials() -> int:
            log = (installation.state / "up.log").read_text(errors="replace")
            return log.count("agent denied")

        await until(is_denied)
        await client.create(resources.HTTP_ROUTES, marked("waiting", "/waiting"))
        await holds(client, "HTTPRoute", "waiting", "Accepted")
        await until(functools.partial(is_denied, denials() + 1))
        assert await shown(where, "/waiting") == ""
        _replace(path, good)
        await answers(where, "/waiting")
    assert statuses.keys() == {"200"}


def _replace(path: Path, text: str) -> None:
    new = path.with_name(".token-new")
    new.write_text(text)
    new.replace(path)
