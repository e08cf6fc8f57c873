"""Configuration that the controller sends to the hosts of external load balancers, for tests."""

from __future__ import annotations

import json
from typing import Any

from fakes.compiled_objects import CAPABLE_NGINX
from gatehouse.apis.gateway import NGINX_CONTROLLER
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]


class BalancerOutputs:
    """Configuration of ExternalLoadBalancers of one proxy.

    NGINX Plus hosts belong to NGINX.
    """

    def __init__(self, objects: list[Object], controller: str) -> None:
        self._proxy = "nginx" if controller == NGINX_CONTROLLER else "envoy"
        self._engine = Engine(Snapshot(front.LOAD_BALANCER_INDEXES))
        self._raw: dict[Key, Object] = {}
        for raw in objects:
            self.put(raw)
            if raw["kind"] == "ExternalLoadBalancer":
                # Upstreams that no Service claims any longer.
                key = (
                    "ExternalLoadBalancer",
                    raw["metadata"]["namespace"],
                    raw["metadata"]["name"],
                )
                service: Key = ("Service", "ns", "gone")
                self._engine.commit({front.owned(key): {UpstreamName("http", "gone"): service}})

    def put(self, raw: Object) -> Object:
        """Store an object. Return the object that it replaces."""
        key = (raw["kind"], raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        before = self._raw.get(key, raw)
        self._raw[key] = raw
        if any(key[0] == kind.kind for kind in front.LOAD_BALANCER_KINDS):
            self._engine.commit({key: front.decode_balancer_object(key[0], raw)})
        return before

    def compiled(self) -> tuple[Any, dict[Key, str]]:
        """Return what is sent to hosts, and the text of each status."""
        sent: list[Any] = []
        texts: dict[Key, str] = {}
        with self._engine.compile() as ask:
            for key in ask(front.load_balancer_sources):
                result = ask(front.compile_balancer, key)
                machines = result.balancer if isinstance(result.balancer, Machines) else None
                if (machines.proxy if machines else "nginx") != self._proxy:
                    continue
                status = front.balancer_status(result, {}, "", (), 1)
                texts[key] = json.dumps([status, [str(note) for note in result.notes]])
                if machines is None:
                    sent.append(result.balancer)
                else:
                    generated = self._generated(machines)
                    sent.append((machines.hosts, machines.retained_upstreams, generated))
        return sent, texts

    def _generated(self, machines: Machines) -> Any:
        if self._proxy == "nginx":
            return nginx.NginxGenerator(CAPABLE_NGINX).generate(machines.gateway).file_set.version
        generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities(authenticators=True))
        return generator.generate(machines.gateway).resources.version
