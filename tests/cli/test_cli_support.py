"""`gatehouse support`: metrics of data planes in a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from gatehouse.cli.support_collection import collect_support
from gatehouse.standalone.state_directory import State

TEXT = "gatehouse_agent_ready 1\n"


def _pod(name: str, address: str = "127.0.0.1") -> dict[str, Any]:
    # Nothing listens on port 9 of this machine.
    annotations = {"prometheus.io/port": "9"}
    metadata = {"namespace": "shop", "name": name, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "nginx", "image": "i"}]},
        "status": {"podIP": address} if address else {},
    }


async def _serve(request: web.Request) -> web.Response:
    """Serve three Pods and the metrics of one as kube-apiserver does."""
    pods = [_pod("web-0"), _pod("web-1"), _pod("web-2", "")]
    match request.path:
        case "/version":
            return web.json_response({"gitVersion": "v1.31.0"})
        case "/api/v1/pods":
            metadata = {"resourceVersion": "1"}
            return web.json_response({"kind": "PodList", "metadata": metadata, "items": pods})
        case "/api/v1/namespaces/shop/pods/web-0:9/proxy/metrics":
            return web.Response(text=TEXT)
    return web.json_response({"kind": "Status", "message": "no such object"}, status=404)


async def test_metrics_of_unreachable_pod_come_through_the_api_server(tmp_path: Path) -> None:
    application = web.Application()
    application.router.add_get("/{path:.*}", _serve)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    try:
        collection = await collect_support(tmp_path / "kubeconfig", State(tmp_path / "state"))
    finally:
        await runner.cleanup()
    pages = {path: text for path, text in collection.files.items() if "metrics" in path}
    assert pages == {"data-planes/shop/web-0/metrics.txt": TEXT}
    problems = [problem for problem in collection.problems if problem.startswith("metrics of")]
    assert any("shop/web-1" in problem and "not reachable" in problem for problem in problems)
    assert "metrics of shop/web-2: has no address yet" in problems
    (unread,) = (p for p in collection.problems if p.startswith("configuration of shop/web-0 "))
    assert unread.endswith("no command can be run in the Pod: no such object")
