"""`gatehouse status` against an API server: reading, watching, and failed requests."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from fakes import loopback, patience, request_causes
from fakes.inprocess import Server
from fakes.installation import apply
from fakes.status_objects import CLASS, GOOD, Object, programmed, route
from gatehouse.apis import resources
from gatehouse.cli import status_watch
from gatehouse.cli.object_source import read_cluster
from gatehouse.cli.status import StatusView, status
from gatehouse.cli.status_watch import watch_status
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Path]:
    server = Server(State(tmp_path / "state"))
    async with server.running():
        async with server.client() as client:
            await client.create(resources.GATEWAY_CLASSES, CLASS)
            manifests = [programmed("web"), request_causes.service("app")]
            await apply(client, [*manifests, route("orphan", "app", parentRefs=[{"name": "no"}])])
        yield server.state.kubeconfig


async def run(kubeconfig: Path, *words: str) -> Result:
    arguments = ["--kubeconfig", str(kubeconfig), *words]
    return await asyncio.to_thread(CliRunner().invoke, status, arguments)


@pytest.mark.process
async def test_command_reads_objects_of_the_api_server(server: Path) -> None:
    result = await run(server)
    assert result.exit_code == 0, result.output
    assert "default/web" in result.output
    problems = await run(server, "--problems", "-n", "default")
    assert problems.exit_code == 3
    assert "HTTPRoute default/orphan: parentRefs[0]: Gateway default/no not found" in (
        problems.output
    )
    assert (await run(server, "-o", "name", "default/web")).output.strip() == (
        "gateway.gateway.networking.k8s.io/web"
    )
    for words, message in (
        (("-n", "a", "-A"), "--namespace must not be set with --all-namespaces"),
        (("--tree", "-o", "json"), "--tree must not be set with --output"),
        (("nope",), "no Gateway, route, kube-apiserver or data plane nope"),
    ):
        assert message in str((await run(server, *words)).exception)
    balancers = await run(server, "lb")
    assert (balancers.exit_code, "Load balancers" in balancers.output) == (0, True)


@pytest.mark.process
async def test_watch_shows_changed_lines_without_polling(server: Path) -> None:
    view = StatusView(problems=True)
    written: list[str] = []
    before = await asyncio.to_thread(lambda: view.text_of(read_cluster(server)))
    watching = asyncio.create_task(watch_status(server, before, view, written.append))

    async def appears(text: str) -> None:
        async with patience.limit():
            while not any(text in line for line in written):
                assert not watching.done(), watching.exception()
                await patience.pause()

    async with kube.Client.from_kubeconfig(server) as client:
        await apply(client, [route("late", "app", parentRefs=[{"name": "gone"}])])
        await appears("+ HTTPRoute default/late: parentRefs[0]: Gateway default/gone not found")
        await client.delete(resources.HTTP_ROUTES, "late", "default")
        await appears("- HTTPRoute default/late: parentRefs[0]: Gateway default/gone not found")
    assert not any("orphan" in line for line in written)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.process
async def test_watch_continues_when_a_named_object_is_deleted(server: Path) -> None:
    view = StatusView(names=("orphan",), problems=True)
    written: list[str] = []
    watching = asyncio.create_task(watch_status(server, "", view, written.append))

    async def appears(text: str, count: int) -> None:
        async with patience.limit():
            while sum(text in line for line in written) < count:
                assert not watching.done(), watching.exception()
                await patience.pause()

    async with kube.Client.from_kubeconfig(server) as client:
        await appears("+ HTTPRoute default/orphan", 1)
        await client.delete(resources.HTTP_ROUTES, "orphan", "default")
        await appears("+ no Gateway, route, kube-apiserver or data plane orphan", 1)
        await apply(client, [route("orphan", "app", parentRefs=[{"name": "no"}])])
        await appears("+ HTTPRoute default/orphan", 2)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.fixture
async def refused(server: Path) -> AsyncIterator[Counter[str]]:
    """Serve metrics of a data plane. Yield the number of failed requests, by reason."""
    counts = Counter({"connection_failure": 3})

    async def page(_: web.Request) -> web.Response:
        name = "gatehouse_backend_requests_total"
        samples = [
            f'{name}{{backend="Service/default/app",reason="{reason}"}} {count}\n'
            for reason, count in counts.items()
        ]
        return web.Response(text=f"# TYPE {name} counter\n{''.join(samples)}")

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    port = loopback.free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    labels = {
        "app.kubernetes.io/managed-by": "gatehouse",
        "gateway.networking.k8s.io/gateway-name": "web",
    }
    annotations = {"prometheus.io/port": str(port)}
    metadata = {"name": "web-1", "namespace": "default", "labels": labels}
    pod: Object = {
        "metadata": {**metadata, "annotations": annotations},
        "spec": {"containers": [{"name": "proxy", "image": "proxy"}]},
    }
    async with kube.Client.from_kubeconfig(server) as client:
        await apply(client, [route("fine", "app", *GOOD)])
        created = await client.create(resources.PODS, pod)
        await client.update_status(resources.PODS, {**created, "status": {"podIP": "127.0.0.1"}})
    yield counts
    await runner.cleanup()


FAILED = "Service default/app: 3 of 3, reason connection_failure"


@pytest.mark.process
@pytest.mark.parametrize("words", [["web"], ["fine"], ["--tree"]])
async def test_texts_list_failed_requests_by_reason(
    server: Path, refused: Counter[str], words: list[str]
) -> None:
    assert FAILED in (await run(server, *words)).output


@pytest.mark.process
async def test_documents_have_failed_requests_by_reason(
    server: Path, refused: Counter[str]
) -> None:
    document = json.loads((await run(server, "-o", "json")).output)
    (fine,) = (item for item in document if item["name"] == "fine")
    ((failure,),) = (backend["failures"] for backend in fine["backends"])
    assert (failure["reason"], failure["requests"]) == ("connection_failure", 3)
    assert "targetPort of Service default/app" in failure["cause"]


@pytest.mark.process
async def test_watch_shows_requests_that_fail_without_a_change_of_objects(
    server: Path, refused: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_watch, "METRICS_SECONDS", 0.05)
    written: list[str] = []
    view = StatusView(names=("fine",))
    watching = asyncio.create_task(status_watch.watch_status(server, "", view, written.append))

    def appears(text: str) -> Callable[[], bool]:
        return lambda: watching.done() or any(text in line for line in written)

    await patience.until(appears(f"+   {FAILED}"))
    refused["connection_failure"] += 1
    await patience.until(appears("+   Service default/app: 4 of 4, reason connection_failure"))
    assert not watching.done()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
