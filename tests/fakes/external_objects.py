"""Nodes, a Service and load balancers with external machines, and the status of these."""

from __future__ import annotations

from typing import Any

from fakes.installation import HOST_NET
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

FRONT = f"{HOST_NET}.240"
"""Address on which machines listen."""

NODES = {1: f"{HOST_NET}.201", 2: f"{HOST_NET}.202"}
WEB, TCP, UDP, TLS = 30180, 30181, 30182, 30183
"""Node ports."""


async def join(client: kube.Client, number: int) -> None:
    """Make a Node, which is ready at once."""
    node = await client.create(resources.NODES, {"metadata": {"name": f"n{number}"}})
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": NODES[number]}],
    }
    await client.update_status(resources.NODES, {**node, "status": status})


def service() -> dict[str, Any]:
    """Return a Service. Each of its ports is an external upstream."""
    ports = [
        {"name": "nlk-web", "port": 80, "nodePort": WEB},
        {"name": "nlk-tcp", "port": 81, "nodePort": TCP},
        {"name": "nlk-udp", "port": 82, "nodePort": UDP, "protocol": "UDP"},
        {"name": "nlk-tls", "port": 83, "nodePort": TLS},
    ]
    stream = {f"nginxinc.io/nlk-{name}": "stream" for name in ("tcp", "udp", "tls")}
    return {
        "metadata": {"name": "app", "namespace": "edge", "annotations": stream},
        "spec": {"type": "NodePort", "selector": {"app": "app"}, "ports": ports},
    }


def listeners(first: int) -> list[dict[str, Any]]:
    """Return listeners for its ports, on three ports from ``first`` on."""
    return [
        {"port": first, "protocol": "HTTP", "hostname": "shop.example", "upstream": "web"},
        {"port": first + 1, "protocol": "TCP", "upstream": "tcp"},
        {"port": first + 1, "protocol": "UDP", "upstream": "udp"},
        {"port": first + 2, "protocol": "TLS", "hostname": "*.secure.example", "upstream": "tls"},
    ]


def balancer(name: str, kind: str, hosts: tuple[str, ...], listening: Any) -> dict[str, Any]:
    spec = {
        "type": kind.title(),
        "hosts": [{"name": host} for host in hosts],
        "bindAddress": FRONT,
        "listeners": listening,
    }
    return {"metadata": {"name": name, "namespace": "edge"}, "spec": spec}


async def wait_for_status(
    client: kube.Client, name: str, reason: str, words: str = ""
) -> dict[str, Any]:
    """Wait until `Programmed` has this reason and message. Return the status."""
    status: dict[str, Any] = {}

    async def check() -> Any:
        result = await client.get(resources.EXTERNAL_LOAD_BALANCERS, name, "edge")
        status.update(result.get("status") or {})
        for condition in status.get("conditions") or ():
            if condition["type"] == "Programmed" and condition["reason"] == reason:
                return status if words in condition["message"] else None
        return None

    try:
        result: dict[str, Any] = await until(check)
    except TimeoutError:
        raise AssertionError(f"never {reason} {words!r}: {status}") from None
    return result
