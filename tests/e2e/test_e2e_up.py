"""`gatehouse up` as users have it: real processes, NGINX and clients; then things are killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.kube import client as kube
from gatehouse.standalone import echo, processes

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PORT = 8080
HOST_NET = f"127.{random.randint(120, 220)}.{random.randint(0, 255)}"
BACKEND = (f"{HOST_NET}.250", 9080)
REVISED = (f"{HOST_NET}.251", 9080)


class Installation:
    """One `gatehouse up`."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def start(self) -> None:
        arguments = ("--api-address", "127.0.0.1:0", "--agent-address", "127.0.0.1:0")
        command = (
            *(sys.executable, "-m", "gatehouse", "up", "--state-dir", str(self.state)),
            *arguments,
            *("--address-pool", f"{HOST_NET}.0/25", "--snippets", "--log-format", "json"),
        )
        with (self.state / "up.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def part(self, name: str) -> processes.Record:
        found = processes.recorded(self.state / "run" / f"{name}.json")
        assert found is not None, f"{name} does not run"
        return found

    def agent(self) -> processes.Record:
        found = [processes.recorded(p) for p in self.state.glob("node/pods/*/process.json")]
        running = [record for record in found if record is not None]
        assert len(running) == 1
        return running[0]

    def nginx(self) -> int:
        (pid,) = self.state.glob("node/pods/*/volumes/run/nginx.pid")
        return int(pid.read_text())

    async def client(self) -> kube.Client:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(Exception):
                    client = kube.Client.from_kubeconfig(self.kubeconfig)
                    await client.__aenter__()
                    try:
                        await client.list(resources.GATEWAYS)
                        return client
                    except kube.ApiError:
                        await client.__aexit__(None, None, None)
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        made = Installation(Path(directory))
        made.start()
        yield made
        assert made.process is not None
        if made.process.poll() is None:
            made.stop()


@pytest.fixture
async def client(installation: Installation) -> AsyncIterator[kube.Client]:
    found = await installation.client()
    yield found
    await found.__aexit__(None, None, None)


@pytest.fixture
async def backends() -> AsyncIterator[None]:
    async with echo.serve({BACKEND: "app", REVISED: "revised"}):
        yield


def hello() -> list[dict[str, Any]]:
    text = (ROOT / "examples" / "hello.yaml").read_text().replace("127.0.0.1", BACKEND[0])
    return list(yaml.safe_load_all(text.replace("9000", str(BACKEND[1]))))


def resource_of(kind: str) -> Resource:
    return next(
        item
        for item in vars(resources).values()
        if isinstance(item, Resource) and item.kind == kind
    )


async def apply(client: kube.Client, manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        resource, metadata = resource_of(manifest["kind"]), manifest["metadata"]
        try:
            await client.create(resource, manifest)
        except kube.AlreadyExists:
            await client.patch(resource, metadata["name"], manifest, metadata["namespace"])


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            found = await condition()
            if found:
                return found
            await asyncio.sleep(0.05)


async def condition(client: kube.Client, kind: str, name: str, type_: str) -> dict[str, Any] | None:
    current = await client.get(resource_of(kind), name, "default")
    status = current.get("status") or {}
    if kind == "HTTPRoute":
        status = next(iter(status.get("parents") or ()), {})
    for found in status.get("conditions") or ():
        fresh = found.get("observedGeneration") == current["metadata"]["generation"]
        if found["type"] == type_ and fresh:
            return {**found, "addresses": status.get("addresses") or []}
    return None


async def holds(client: kube.Client, kind: str, name: str, type_: str, status: str = "True") -> Any:
    async def check() -> Any:
        found = await condition(client, kind, name, type_)
        return found if found and found["status"] == status else None

    return await until(check)


async def address(client: kube.Client) -> str:
    found = await holds(client, "Gateway", "web", "Programmed")
    return str(found["addresses"][0]["value"])


async def get(address: str, path: str = "/", **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}:{PORT}{path}", headers=headers) as response,
    ):
        return response.status, response.headers.get("X-Backend", "")


@contextlib.asynccontextmanager
async def traffic(address: str) -> AsyncIterator[Counter[str]]:
    """Send requests all the time, kept-alive and new connections; count what came back."""
    answers: Counter[str] = Counter()

    async def send(force_close: bool) -> None:
        connector = aiohttp.TCPConnector(force_close=force_close)
        async with aiohttp.ClientSession(connector=connector) as session:
            while True:
                try:
                    async with session.get(f"http://{address}:{PORT}/") as response:
                        await response.read()
                        answers[str(response.status)] += 1
                except aiohttp.ClientError as error:
                    answers[type(error).__name__] += 1
                await asyncio.sleep(0.01)

    tasks = [asyncio.create_task(send(force)) for force in (True, False)]
    try:
        yield answers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def route(name: str, path: str, service: str = "app", **rule: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parentRefs": [{"name": "web"}],
            "rules": [
                {
                    "matches": [{"path": {"value": path}}],
                    "backendRefs": [{"name": service, "port": 80}],
                    **rule,
                }
            ],
        },
    }


async def test_a_gateway_and_a_route_carry_traffic_when_their_status_says_so(
    client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    await holds(client, "HTTPRoute", "app", "Accepted")
    assert where.startswith(HOST_NET)
    assert await get(where) == (200, "app")


async def test_endpoints_are_followed(client: kube.Client, backends: None) -> None:
    await apply(client, hello())
    where = await address(client)
    current = await client.get(resources.ENDPOINT_SLICES, "app-1", "default")
    current["endpoints"] = [{"addresses": [REVISED[0]]}]
    await client.update(resources.ENDPOINT_SLICES, current)
    await until(lambda: _answers(where, "/", (200, "revised")))
    await apply(client, hello())
    await until(lambda: _answers(where, "/", (200, "app")))


async def _answers(where: str, path: str, expected: tuple[int, str]) -> bool:
    return await get(where, path) == expected


async def test_a_route_to_a_service_that_is_missing_answers_500_and_the_rest_is_served(
    client: kube.Client, backends: None
) -> None:
    await apply(client, [*hello(), route("broken", "/broken", "nowhere")])
    where = await address(client)
    found = await holds(client, "HTTPRoute", "broken", "ResolvedRefs", "False")
    assert found["reason"] == "BackendNotFound"
    assert "Service default/nowhere does not exist" in found["message"]
    assert (await get(where, "/broken"))[0] == 500
    assert await get(where) == (200, "app")
    await client.delete(resources.HTTP_ROUTES, "broken", "default")


async def test_what_nginx_refuses_leaves_traffic_alone_and_is_shown_in_its_words(
    client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    snippet = {
        "apiVersion": "gateway.nginx.org/v1alpha1",
        "kind": "SnippetsFilter",
        "metadata": {"name": "bad", "namespace": "default"},
        "spec": {"snippets": [{"context": "http.server.location", "value": "no_such_thing on;"}]},
    }
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    async with traffic(where) as answers:
        await apply(client, [snippet, route("bad", "/bad", filters=filters)])
        refused = await holds(client, "Gateway", "web", "Programmed", "False")
        assert refused["reason"] == "Invalid"
        assert 'unknown directive "no_such_thing"' in refused["message"]
        await client.delete(resources.HTTP_ROUTES, "bad", "default")
        await holds(client, "Gateway", "web", "Programmed")
    assert answers.keys() == {"200"}


async def _a_change_reaches_traffic(client: kube.Client, where: str, path: str) -> None:
    await client.create(resources.HTTP_ROUTES, route(path.strip("/"), f"{path}/sub"))
    await holds(client, "HTTPRoute", path.strip("/"), "Accepted")
    assert await get(where, f"{path}/sub") == (200, "app")
    await client.delete(resources.HTTP_ROUTES, path.strip("/"), "default")


@pytest.mark.parametrize("part", ["apiserver", "controller", "node"])
async def test_traffic_goes_on_while_a_part_is_killed(
    installation: Installation, client: kube.Client, backends: None, part: str
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    async with traffic(where) as answers:
        before = installation.part(part)
        before.signal(signal.SIGKILL)

        async def restarted() -> bool:
            record = processes.recorded(installation.state / "run" / f"{part}.json")
            return record is not None and record != before

        await until(restarted)
        fresh = await installation.client()
        await _a_change_reaches_traffic(fresh, where, f"/after-{part}")
        await fresh.__aexit__(None, None, None)
    assert answers.keys() == {"200"}
    assert (installation.agent(), installation.nginx()) == (agent, nginx)


async def test_traffic_goes_on_while_the_agent_is_killed(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    async with traffic(where) as answers:
        agent.signal(signal.SIGKILL)

        async def adopted() -> bool:
            found = [
                processes.recorded(p) for p in installation.state.glob("node/pods/*/process.json")
            ]
            return any(record is not None and record != agent for record in found)

        await until(adopted)
        await _a_change_reaches_traffic(client, where, "/after-agent")
    assert answers.keys() == {"200"}
    assert installation.nginx() == nginx


async def test_a_killed_nginx_master_is_replaced(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    os.kill(installation.nginx(), signal.SIGKILL)

    async def serving() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return await get(where) == (200, "app")
        return False

    await asyncio.sleep(0.3)
    await until(serving)
    await _a_change_reaches_traffic(client, where, "/after-nginx")


async def test_a_killed_supervisor_leaves_traffic_and_the_next_one_takes_over(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    assert installation.process is not None
    async with traffic(where) as answers:
        installation.process.kill()
        installation.process.wait()
        installation.start()
        fresh = await installation.client()
        await _a_change_reaches_traffic(fresh, where, "/after-up")
        await fresh.__aexit__(None, None, None)
    assert answers.keys() == {"200"}
    assert (installation.agent(), installation.nginx()) == (agent, nginx)


async def test_a_restart_keeps_objects_and_addresses_and_leaves_no_process(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    where = await address(client)
    agent, nginx = installation.agent(), installation.nginx()
    assert await asyncio.to_thread(installation.stop) == 0
    assert not agent.alive()
    assert processes.start_time(nginx) is None
    installation.start()
    fresh = await installation.client()
    await until(lambda: _reachable(where))
    assert await address(fresh) == where
    await fresh.__aexit__(None, None, None)


async def _reachable(where: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        return await get(where) == (200, "app")
    return False


async def test_a_second_up_on_the_same_directory_is_refused_in_one_line(
    installation: Installation, client: kube.Client
) -> None:
    command = (sys.executable, "-m", "gatehouse", "up", "--state-dir", str(installation.state))
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"gatehouse: {installation.state} is in use by another `gatehouse up`"
    ]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on PATH")
async def test_kubectl_takes_it_for_real(
    installation: Installation, client: kube.Client, backends: None, tmp_path: Path
) -> None:
    home = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(installation.kubeconfig)}

    async def kubectl(*words: str, ok: bool = True) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            ("kubectl", *words),
            env=home,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    old = "1.20" in await kubectl("version", "--client")
    loose = ("--validate=false",) if old else ()
    manifest = tmp_path / "hello.yaml"
    manifest.write_text(yaml.safe_dump_all(hello()))
    await kubectl("delete", "--ignore-not-found", "-f", str(manifest))
    assert "gateway.gateway.networking.k8s.io/web created" in await kubectl(
        "apply", *loose, "-f", str(manifest)
    )
    before = await client.get(resources.GATEWAYS, "web", "default")
    assert "service/app unchanged" in await kubectl("apply", *loose, "-f", str(manifest))
    # kubectl says "configured" where a server adds defaults inside lists; nothing is written.
    after = await client.get(resources.GATEWAYS, "web", "default")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    await kubectl("wait", "--for=condition=Programmed", "--timeout=30s", "gateway/web")
    table = await kubectl("get", "gateways")
    assert table.split()[:5] == ["NAME", "CLASS", "ADDRESS", "PROGRAMMED", "AGE"]
    assert "gatehouse-nginx" in table
    assert "Programmed" in await kubectl("describe", "gateway", "web")
    listed = json.loads(await kubectl("get", "httproutes", "-A", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["app"]
    bad = hello()[-1]
    bad["spec"]["rulez"] = []
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(bad))
    if not old:
        refused = await kubectl("apply", "-f", str(tmp_path / "bad.yaml"), ok=False)
        assert 'unknown field "spec.rulez"' in refused
    invalid = hello()[-1]
    invalid["spec"]["rules"][0]["backendRefs"][0]["port"] = 70000
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(invalid))
    refused = await kubectl("apply", *loose, "-f", str(tmp_path / "bad.yaml"), ok=False)
    assert "spec.rules[0].backendRefs[0].port" in refused
    # From 1.32 on kubectl sends these as protobuf.
    assert "namespace/made created" in await kubectl("create", "namespace", "made")
    await kubectl("create", "configmap", "c", "-n", "made", "--from-literal=a=b")
    await kubectl("create", "secret", "generic", "s", "-n", "made", "--from-literal=a=b")
    assert "YQ==" not in await kubectl("get", "secret", "s", "-n", "made", "-o", "yaml")
    assert "Yg==" in await kubectl("get", "secret", "s", "-n", "made", "-o", "yaml")
    await kubectl("create", "serviceaccount", "a", "-n", "made")
    if not old:
        assert len((await kubectl("create", "token", "a", "-n", "made")).split(".")) == 3
        assert "gatehouse-admin" in await kubectl("auth", "whoami")
    assert "deleted" in await kubectl("delete", "namespace", "made")
    assert 'httproute.gateway.networking.k8s.io "app" deleted' in await kubectl(
        "delete", "httproute", "app"
    )
    await kubectl("get", "httproute", "app", ok=False)


async def test_status_and_config_show_what_is_served(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    await address(client)

    async def gatehouse(*words: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run,
            (sys.executable, "-m", "gatehouse", *words),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        return done.stdout

    shown = await gatehouse("status", "--kubeconfig", str(installation.kubeconfig))
    assert "default/web" in shown
    assert "default/app" in shown
    served = await gatehouse("config", "default/web", "--state-dir", str(installation.state))
    assert "proxy_pass http://c-default-app-80" in served


def test_the_demonstration_ends_well(tmp_path: Path) -> None:
    pool = f"127.{random.randint(221, 250)}.{random.randint(0, 255)}.0/24"
    done = subprocess.run(
        (sys.executable, "-m", "gatehouse", "demo", "--once", "--address-pool", pool),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every answer was right." in done.stdout


def test_a_busy_address_ends_the_start_with_a_reason(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        address = f"127.0.0.1:{busy.getsockname()[1]}"
        done = subprocess.run(
            (
                *(sys.executable, "-m", "gatehouse", "up"),
                *("--state-dir", str(tmp_path / "s"), "--api-address", address),
            ),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert "address already in use" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("gatehouse: apiserver does not start")
