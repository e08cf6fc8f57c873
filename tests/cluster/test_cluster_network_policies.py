"""NetworkPolicies of the chart and of data planes, which kube-router enforces on each node.

Each connection that must be refused has a counterpart that is accepted. All other tests of the
cluster run with these policies enforced, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster import example, layout, running
from cluster.conftest import CHART, NAMESPACE, install, leader, restart_leader
from cluster.example import DEPLOYMENTS, GATEWAYS, kubectl
from cluster.running import wait_until
from cluster.traffic import requests_to

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PODS = Path(__file__).parent / "peers.yaml"
STRANGER, LABELLED, PROMETHEUS = "strangers/stranger", "strangers/labelled", "monitoring/prometheus"
OUTSIDE = ""
"""The client outside of the cluster."""

CONNECT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 3) as connection:
        print("connected")
        connection.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
        print(connection.recv(12).decode(errors="replace"))
except OSError as error:
    print(error)
"""
AGENTS, HEALTH = 8443, 8081
"""Ports of the controller's Pods."""

NAMESPACE_LABEL = r"kubernetes\.io/metadata\.name"


@pytest.fixture(scope="module", autouse=True)
def pods(urls: tuple[str, ...]) -> Iterator[None]:
    """Run Pods that connect to others. At the end, install the chart with its defaults."""
    running.apply(PODS.read_text())
    for pod in (STRANGER, LABELLED, PROMETHEUS):
        namespace, _, name = pod.partition("/")
        words = ("wait", "--for=condition=Ready", f"pod/{name}", running.TIMEOUT)
        running.run("kubectl", "-n", namespace, *words)
    yield
    running.run("kubectl", "delete", "namespaces", "strangers", "monitoring", running.TIMEOUT)
    install(CHART)


def _response(client: str, address: str, port: int) -> str:
    """Return how a connection ends: "connected" and how a response begins, or an error."""
    words = ("-c", CONNECT, address, str(port))
    if client == OUTSIDE:
        return running.run(sys.executable, *words, network=layout.CLIENT).strip()
    namespace, _, name = client.partition("/")
    command = ("kubectl", "-n", namespace, "exec", name, "--", "python3", *words)
    return running.run(*command).strip()


def _connects(client: str, address: str, port: int) -> bool:
    return _response(client, address, port).startswith("connected")


def _refused(client: str, address: str, port: int) -> bool:
    return not _connects(client, address, port)


def _scrapes(client: str, address: str, port: int) -> bool:
    return _response(client, address, port).endswith(" 200")


def _allows(clients: Iterable[str], servers: Iterable[tuple[str, int]]) -> None:
    for client in clients:
        for server in servers:
            wait_until(f"{client or 'the client'} connects to {server}", _connects, client, *server)


def _refuses(clients: Iterable[str], servers: Iterable[tuple[str, int]]) -> None:
    for client in clients:
        for server in servers:
            wait_until(f"{client or 'the client'} is refused: {server}", _refused, client, *server)


def _scraped_by(client: str, servers: Iterable[tuple[str, int]]) -> None:
    for server in servers:
        wait_until(f"{client} scrapes {server}", _scrapes, client, *server)


def _controllers(port: int) -> list[tuple[str, int]]:
    selector = "app.kubernetes.io/name=gatehouse"
    items = running.kubectl_json("-n", NAMESPACE, "get", "pods", "-l", selector)["items"]
    addresses = [item["status"]["podIP"] for item in items]
    assert len(addresses) == 2
    return [(address, port) for address in addresses]


def _data_planes() -> list[Mapping[str, Any]]:
    """Return the Pods of both Gateways."""
    label = "gateway.networking.k8s.io/gateway-name"
    items: list[Mapping[str, Any]] = example.objects("pods", "-l", label)["items"]
    assert len(items) == 2 * len(GATEWAYS)
    return items


def _listeners() -> list[tuple[str, int]]:
    return [(pod["status"]["podIP"], 80) for pod in _data_planes()]


def _metrics() -> list[tuple[str, int]]:
    """Return the addresses that the Pods' annotations name."""
    return [
        (pod["status"]["podIP"], int(pod["metadata"]["annotations"]["prometheus.io/port"]))
        for pod in _data_planes()
    ]


def test_only_data_planes_reach_the_port_of_agents() -> None:
    service = running.kubectl_json("-n", NAMESPACE, "get", "service", "gatehouse")["spec"]
    leads = wait_until("one controller leads", leader)
    pod = running.kubectl_json("-n", NAMESPACE, "get", "pod", leads)
    servers = [
        (service["clusterIP"], service["ports"][0]["port"]),
        (f"gatehouse.{NAMESPACE}.svc", service["ports"][0]["port"]),
        (pod["status"]["podIP"], AGENTS),
    ]
    _allows([LABELLED], servers)
    _refuses([STRANGER, PROMETHEUS, OUTSIDE], servers)


def test_metrics_of_controllers_are_for_everyone_or_for_those_of_the_value() -> None:
    servers = _controllers(HEALTH)
    for client in (STRANGER, PROMETHEUS, OUTSIDE):
        _scraped_by(client, servers)
    peer = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels"
    install(CHART, f"{peer}.{NAMESPACE_LABEL}=monitoring")
    servers = _controllers(HEALTH)
    _refuses([STRANGER, OUTSIDE], servers)
    _scraped_by(PROMETHEUS, servers)


def test_data_planes_serve_everyone_and_pods_read_their_metrics(urls: tuple[str, ...]) -> None:
    with requests_to(*urls):
        _allows([STRANGER, OUTSIDE], _listeners())
        _scraped_by(STRANGER, _metrics())
        _refuses([OUTSIDE], _metrics())
        peer = "dataPlanes.networkPolicy.metricsFrom[0].namespaceSelector.matchLabels"
        install(CHART, f"{peer}.{NAMESPACE_LABEL}=monitoring")
        _refuses([STRANGER, OUTSIDE], _metrics())
        _scraped_by(PROMETHEUS, _metrics())
        _allows([STRANGER, OUTSIDE], _listeners())


def test_data_planes_connect_only_to_permitted_backends_and_the_control_plane(
    urls: tuple[str, ...],
) -> None:
    clients = [f"{example.NAMESPACE}/{pod['metadata']['name']}" for pod in _data_planes()]
    server = (layout.CONTROL_PLANE.address, 6443)
    _allows(clients, [server])
    with requests_to(*urls):
        peer = "dataPlanes.networkPolicy.egressTo[0].namespaceSelector.matchLabels"
        install(CHART, f"{peer}.{NAMESPACE_LABEL}={example.NAMESPACE}")
        clients = [f"{example.NAMESPACE}/{pod['metadata']['name']}" for pod in _data_planes()]
        _refuses(clients, [server])
        restart_leader()
        example.change_is_served(urls, "narrow")


def test_namespaces_that_deny_by_default_lose_no_request(urls: tuple[str, ...]) -> None:
    policies = [_denied(example.NAMESPACE, "Ingress", "Egress"), _denied(NAMESPACE, "Ingress")]
    echo = {
        "podSelector": {"matchLabels": {"app": "echo"}},
        "ingress": [{"from": [{"podSelector": {"matchLabels": _DATA_PLANE}}]}],
    }
    backend = _policy(example.NAMESPACE, "echo", echo)
    with requests_to(*urls):
        for policy in (backend, *policies):
            running.apply(json.dumps(policy))
        restart_leader()
        for name in DEPLOYMENTS:
            kubectl("rollout", "restart", f"deployment/{name}")
        example.rolled_out(*DEPLOYMENTS)
        example.change_is_served(urls, "denied")
        for policy in (*policies, backend):
            running.run("kubectl", "delete", "-f", "-", text=json.dumps(policy))


_DATA_PLANE = {"app.kubernetes.io/managed-by": "gatehouse"}


def _denied(namespace: str, *directions: str) -> dict[str, Any]:
    return _policy(namespace, "deny", {"podSelector": {}, "policyTypes": [*directions]})


def _policy(namespace: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
