"""Backends that are not Services, and policies of Services: XBackends, InferencePools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import layout, running
from cluster.running import wait_until
from cluster.traffic import requests_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE = "backends"
MANIFESTS = Path(__file__).parent / "backends.yaml"
PICKER = layout.ROOT / "examples" / "inference" / "picker.py"
GATEWAYS = ("nginx", "envoy")
OUTSIDE = "outside of the cluster"


def _kubectl(*words: str) -> str:
    return running.run("kubectl", "-n", NAMESPACE, *words)


def _objects(*words: str) -> Any:
    return running.kubectl_json("-n", NAMESPACE, "get", *words)


@pytest.fixture(scope="module")
def addresses(chart: str) -> Iterator[dict[str, str]]:
    """Apply the manifests. Return the address of each Gateway by its name."""
    running.apply(MANIFESTS.read_text())
    metadata, data = {"name": "picker", "namespace": NAMESPACE}, {PICKER.name: PICKER.read_text()}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    running.apply(json.dumps(config))
    _rolled_out("cart")
    yield {name: wait_until(f"{name} is programmed", _address, name) for name in GATEWAYS}
    running.run("kubectl", "delete", "namespace", NAMESPACE, running.TIMEOUT)
    classes = (f"gatewayclass/backends-{name}" for name in GATEWAYS)
    running.run("kubectl", "delete", *classes, "xmesh/backends")


def _rolled_out(name: str) -> None:
    _kubectl("rollout", "status", f"deployment/{name}", running.TIMEOUT)


def _restart(name: str) -> None:
    """Restart the Pods of a Deployment, and wait until the old ones have ended."""
    before = {pod["metadata"]["uid"] for pod in _pods(name)}
    _kubectl("rollout", "restart", f"deployment/{name}")
    _rolled_out(name)
    wait_until("no old Pod is left", _are_others, name, before)


def _are_others(name: str, before: set[str]) -> bool:
    return before.isdisjoint(pod["metadata"]["uid"] for pod in _pods(name))


def _pods(name: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _objects("pods", "-l", f"app={name}")["items"]
    return items


def _address(name: str) -> str:
    status = _objects("gateway", name)["status"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    return str(status["addresses"][0]["value"]) if conditions["Programmed"] == "True" else ""


def _curl(*words: str) -> str:
    return running.run("curl", "-s", "--fail", "--max-time", "10", *words, network=layout.CLIENT)


def _pod(url: str, *words: str) -> str:
    """Return the name of the Pod that answers."""
    return str(json.loads(_curl(*words, url))["pod"])


def _answering(url: str, number: int = 20) -> set[str]:
    """Return the Pods that answer some requests."""
    return {_pod(url) for _ in range(number)}


def test_backend_selects_pods_by_labels_and_their_restart_loses_no_request(
    addresses: dict[str, str],
) -> None:
    urls = [f"http://{address}/pods" for address in addresses.values()]
    for url in urls:
        wait_until(f"{url} answers", _pod, url)
        assert _answering(url) == {pod["metadata"]["name"] for pod in _pods("cart")}
    with requests_to(*urls):
        _restart("cart")


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Iterator[None]:
    """Run a server outside of the cluster, whose DNS has its name."""
    directory = tmp_path_factory.mktemp("outside")
    (directory / "outside").write_text(OUTSIDE)
    address = ("--bind", layout.CLIENT_ADDRESS, "--directory", str(directory), "8000")
    words = running.enter(sys.executable, "-m", "http.server", *address, network=layout.CLIENT)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        yield
        server.kill()


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_backend_names_a_host_outside(
    addresses: dict[str, str], outside: None, gateway: str
) -> None:
    url = f"http://{addresses[gateway]}/outside"
    assert wait_until(f"{url} answers", _curl, url) == OUTSIDE


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_policy_of_a_service_keeps_sessions(
    addresses: dict[str, str], gateway: str, tmp_path: Path
) -> None:
    url = f"http://{addresses[gateway]}/sessions"
    wait_until(f"{url} answers", _pod, url)
    wait_until("both Pods answer", lambda: len(_answering(url)) == 2)
    cookies = ("--cookie", str(tmp_path / "jar"), "--cookie-jar", str(tmp_path / "jar"))
    first = _pod(url, *cookies)
    assert "cart-" in (tmp_path / "jar").read_text()
    assert {_pod(url, *cookies) for _ in range(20)} == {first}


def test_mesh_is_not_accepted(addresses: dict[str, str]) -> None:
    wait_until("the mesh has a status", lambda: _mesh() == ("False", "Unsupported"))


def _mesh() -> tuple[str, str]:
    (condition,) = running.kubectl_json("get", "xmesh", "backends")["status"]["conditions"]
    return condition["status"], condition["reason"]


def test_picker_chooses_the_pod_and_its_restart_loses_no_request(
    addresses: dict[str, str],
) -> None:
    endpoints = [f"{pod['status']['podIP']}:3000" for pod in _pods("cart")]
    template = {"spec": {"containers": [{"name": "picker", "args": endpoints}]}}
    picker = {"spec": {"replicas": 1, "template": template}}
    _kubectl("patch", "deployment/picker", "-p", json.dumps(picker))
    _rolled_out("picker")
    url = f"http://{addresses['envoy']}/models"
    wait_until("the pool answers", _pod, url)
    chosen = set()
    for number in range(8):
        # The first message decides. Without a picker, both Pods would get requests of each number.
        answers = {_pod(url, "--json", _conversation(number, length)) for length in range(1, 5)}
        assert len(answers) == 1
        chosen |= answers
    assert chosen == {pod["metadata"]["name"] for pod in _pods("cart")}
    with requests_to(url):
        _restart("picker")


def _conversation(number: int, length: int) -> str:
    return json.dumps({"messages": [{"role": "user", "content": f"talk {number}"}] * length})
