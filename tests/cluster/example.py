"""The example of `examples/in-cluster.yaml`, at a Gateway of each class with two instances."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cluster import layout, running
from cluster.running import wait_until

NAMESPACE = "hello"
EXAMPLE = (layout.ROOT / "examples" / "in-cluster.yaml").read_text()
GATEWAYS = {"web": "gatehouse-nginx", "envoy": "gatehouse-envoy"}
DEPLOYMENTS = tuple(f"{name}-{gateway_class}" for name, gateway_class in GATEWAYS.items())
PARAMETERS = {
    "apiVersion": "gatehouse.dev/v1alpha1",
    "kind": "GatewayParameters",
    "metadata": {"name": "two", "namespace": NAMESPACE},
    "spec": {
        "kubernetes": {
            "deployment": {"replicas": 2, "podDisruptionBudget": {"maxUnavailable": 1}},
        }
    },
}
BACKEND_BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "echo", "namespace": NAMESPACE},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "echo"}}},
}


def kubectl(*words: str) -> str:
    """Run kubectl in the namespace of the example."""
    return running.run("kubectl", "-n", NAMESPACE, *words)


def objects(*words: str) -> Any:
    """Return objects of the namespace: ``kubectl get``."""
    return running.kubectl_json("-n", NAMESPACE, "get", *words)


def patch(resource: str, value: dict[str, Any]) -> None:
    """Merge a value into an object such as ``gateway/web``."""
    kubectl("patch", resource, "--type=merge", "-p", json.dumps(value))


def start() -> tuple[str, ...]:
    """Apply the example, and wait until it is served. Return the URL of each Gateway."""
    running.apply(EXAMPLE)
    for manifest in (PARAMETERS, BACKEND_BUDGET):
        running.apply(json.dumps(manifest))
    # A backend goes on serving until data planes know that it ends, also while controllers change.
    container = {"name": "echo", "lifecycle": {"preStop": {"sleep": {"seconds": 20}}}}
    template = {"spec": {"template": {"spec": {"containers": [container]}}}}
    kubectl("patch", "deployment/echo", "-p", json.dumps(template))
    reference = {"group": "gatehouse.dev", "kind": "GatewayParameters", "name": "two"}
    for name, gateway_class in GATEWAYS.items():
        gateway = next(part for part in EXAMPLE.split("---") if "kind: Gateway\n" in part)
        text = gateway.replace("name: web", f"name: {name}")
        running.apply(text.replace("gatehouse-nginx", gateway_class))
        patch(f"gateway/{name}", {"spec": {"infrastructure": {"parametersRef": reference}}})
    patch("httproute/echo", {"spec": {"parentRefs": [{"name": name} for name in GATEWAYS]}})
    for name in GATEWAYS:
        wait_until(f"{name} is served", gateway_address, name)
    rolled_out("echo", *DEPLOYMENTS)
    return served()


def served() -> tuple[str, ...]:
    """Wait until both Gateways answer. Return their URLs."""
    urls = []
    for name in GATEWAYS:
        url = f"http://{wait_until(f'{name} is served', gateway_address, name)}/"
        wait_until(f"{url} answers", _answers, url)
        urls.append(url)
    return tuple(urls)


def _answers(url: str) -> bool:
    words = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", url)
    return running.run(*words, network=layout.CLIENT) == "200"


def gateway_address(name: str) -> str:
    """Return the address of a programmed Gateway, or ""."""
    status = objects("gateway", name)["status"]
    programmed = [c["status"] for c in status["conditions"] if c["type"] == "Programmed"]
    addresses = status.get("addresses") or [{}]
    return str(addresses[0].get("value", "")) if programmed == ["True"] else ""


def owned(kind: str) -> dict[str, str]:
    """Return the names and UIDs of a kind's objects that Gateways own."""
    items = objects(kind, "-l", "app.kubernetes.io/managed-by=gatehouse")["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def rolled_out(*names: str) -> None:
    """Wait until Deployments have all their replicas."""
    for name in names:
        kubectl("rollout", "status", f"deployment/{name}", running.TIMEOUT)


def set_header(value: str) -> None:
    """Let the route add a header to its responses."""
    header = {"name": "X-Number", "value": value}
    change = {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [header]}}
    rule = {"filters": [change], "backendRefs": [{"name": "echo", "port": 80}]}
    patch("httproute/echo", {"spec": {"rules": [rule]}})


def has_header(url: str, value: str) -> bool:
    """Return whether responses have the header with this value."""
    words = ("curl", "-s", "-o", "/dev/null", "-w", "%header{x-number}", url)
    return running.run(*words, network=layout.CLIENT) == value


def change_is_served(urls: Iterable[str], value: str) -> None:
    """Change the route, and wait until every Gateway serves the change."""
    set_header(value)
    for url in urls:
        wait_until("the change is served", has_header, url, value)
