"""`gatehouse version`: versions of everything that is known."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner

import gatehouse
from fakes.inprocess import Server
from gatehouse.agent import build_info
from gatehouse.apis import resources
from gatehouse.cli.version import read_versions, show_versions, version_lines
from gatehouse.runtime import prometheus
from gatehouse.standalone.state_directory import State

POD = {
    "metadata": {
        "name": "web-1", "namespace": "default",
        "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
    },
    "spec": {"containers": [{"name": "agent", "image": "gatehouse-nginx:0.9"}]},
}  # fmt: skip
LABELS = {"app.kubernetes.io/name": "gatehouse", "app.kubernetes.io/version": "0.8"}
CONTROLLER = {
    "metadata": {"name": "gatehouse", "namespace": "default", "labels": LABELS},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "controller", "image": "gatehouse:0.8"}]},
        },
    },
}  # fmt: skip


def test_api_server_that_is_not_reachable_is_no_error(tmp_path: Path) -> None:
    words = ["--kubeconfig", str(tmp_path / "none"), "-o", "json"]
    result = CliRunner().invoke(show_versions, words)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["client"] == gatehouse.__version__
    assert document["apiServer"] == ""
    assert "No such file or directory" in document["problems"][0]


@pytest.mark.process
async def test_versions_of_components_are_shown(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client:
        await client.create(resources.PODS, POD)
        await client.create(resources.DEPLOYMENTS, CONTROLLER)
        words = ["--kubeconfig", str(server.state.kubeconfig)]
        result = await asyncio.to_thread(CliRunner().invoke, show_versions, words)
    lines = result.output.splitlines()
    assert lines[0].startswith(f"client       {gatehouse.__version__} (Python 3.")
    assert lines[1].startswith("API server   v1.")
    assert lines[2:] == [
        "controller   default/gatehouse: 0.8 (gatehouse:0.8), not ready",
        "data plane   default/web-1: unknown (gatehouse-nginx:0.9), not ready",
    ]


AGENT = prometheus.format_samples([build_info.build_sample("nginx", "1.31.3")], {"pod": "web-1"})
OLD_CONTROLLER = """# TYPE gatehouse_controller_build_info gauge
gatehouse_controller_build_info{version="0.7"} 1.0
"""


@contextlib.asynccontextmanager
async def serving(text: str) -> AsyncIterator[str]:
    """Serve a page of metrics. Yield its port."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=text)

    application = web.Application()
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield str(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def started(name: str, labels: dict[str, str], port: str) -> dict[str, Any]:
    """Return a Pod with an address, whose metrics are on a port."""
    annotations = {"prometheus.io/port": port}
    return {
        "metadata": {
            "name": name, "namespace": "default", "labels": labels, "annotations": annotations,
        },
        "spec": {"containers": [{"name": "main", "image": "image"}]},
    }  # fmt: skip


@pytest.mark.process
async def test_versions_of_running_programs_come_from_their_metrics(tmp_path: Path) -> None:
    server = Server(State(tmp_path / "state"))
    plane = {"app.kubernetes.io/managed-by": "gatehouse"}
    async with (
        server.running(),
        server.client() as client,
        serving(AGENT) as agent,
        serving(OLD_CONTROLLER) as controller,
    ):
        await client.create(resources.DEPLOYMENTS, CONTROLLER)
        for pod in (
            started("web-1", plane, agent),
            started("gatehouse-1", LABELS, controller),
            # Nothing listens on port 9 of this machine.
            started("web-2", plane, "9"),
        ):
            name = pod["metadata"]["name"]
            await client.create(resources.PODS, pod)
            status = {"status": {"podIP": "127.0.0.1"}}
            await client.patch(resources.PODS, name, status, "default", subresource="status")
        versions = await read_versions(server.state.kubeconfig)
    (known,) = versions.controllers
    assert (known.name, known.version, known.running) == ("default/gatehouse", "0.8", ("0.7",))
    first, second = versions.data_planes
    assert (first.running, first.proxy) == ((gatehouse.__version__,), "nginx 1.31.3")
    assert (second.running, second.proxy) == ((), "")
    assert [problem.partition(" is not")[0] for problem in versions.problems] == [
        "default/web-2: http://127.0.0.1:9/metrics"
    ]
    lines = list(version_lines(versions))
    assert lines[2] == "controller   default/gatehouse: 0.7 (gatehouse:0.8), not ready"
    own = f"{gatehouse.__version__}, nginx 1.31.3 (image), not ready"
    assert lines[3] == f"data plane   default/web-1: {own}"
