"""Back end, publisher and quarantine of a Gateway, with one agent that runs a real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from envoy.config.route.v3 import scoped_route_pb2

from fakes.agent_control_plane import GATEWAY
from fakes.envoy_running import EnvoyControlPlane, backend
from fakes.loopback import free_port
from gatehouse.agent.envoy import paths
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.compiler.backends.configuration import Incremental
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.controller.load_balancers.quarantine_inputs import QuarantineInputs
from gatehouse.controller.pipelines import envoy_pipeline
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.quarantines import Quarantines
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import ResourceSet, XdsResource
from gatehouse.incremental.query import Key

KEY: Key = ("Gateway", *GATEWAY.split("/"))
GOOD = ir.Forward((ir.Backend("app"),))
BAD = ir.Redirect(hostname="rejected.example")
"""An action that is made invalid after generation: the back end generates only what it knows to be
valid."""


def route(name: str, action: ir.Action = GOOD) -> ir.Route:
    origin = Origin("HTTPRoute", "shop", name, "rules[0].matches[0]")
    match = ir.Match(ir.PathPrefix(f"/{name}"))
    return ir.Route(f"shop/{name}/0/0", match, action, origin=origin)


def with_invalid_redirects(resources: ResourceSet, *, late: bool = False) -> ResourceSet:
    """Return resources in which redirects of :data:`BAD` have a status that Envoy rejects.

    ``late``: instead, a path that Envoy rejects after it has processed other resources.
    """
    result = []
    for kind, named in resources.by_type.items():
        for resource in named.values():
            if b"rejected.example" not in resource.body:
                result.append(resource)
                continue
            scope = scoped_route_pb2.ScopedRouteConfiguration.FromString(resource.body)
            for host in scope.route_configuration.virtual_hosts:
                for entry in host.routes:
                    if entry.redirect.host_redirect == "rejected.example" and late:
                        entry.match.safe_regex.regex = "/("
                    elif entry.redirect.host_redirect == "rejected.example":
                        # Envoy accepts only the values of the enumeration.
                        entry.redirect.response_code = 99  # type: ignore[assignment]
            body = scope.SerializeToString()
            result.append(XdsResource.make(kind, resource.name, body, origins=resource.origins))
    return ResourceSet(result)


class Controller:
    """Back end, publisher and quarantine of a Gateway, with one agent that runs an Envoy."""

    def __init__(self, directory: Path, plane: EnvoyControlPlane, endpoint: ir.Endpoint) -> None:
        self.plane, self.port = plane, free_port()
        self.health = free_port()
        """Port of the agent's health page."""
        self.clusters = (ir.Cluster("app", (endpoint,)),)
        self.hosts: dict[str, tuple[ir.Route, ...]] = {}
        self.more_ports: tuple[int, ...] = ()
        """Ports of further listeners."""
        self.rejects_redirects = True
        """True if the generator writes redirects of :data:`BAD` that Envoy rejects."""
        self.rejects_late = False
        """True if Envoy rejects them after it has processed other resources of the response."""
        self.trials = 0
        """Number of trials that were published."""
        self._environment = plane.environment(directory)
        health = f"127.0.0.1:{self.health}"
        self._environment["GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS"] = health
        self.admin = paths.envoy_paths(directory / "root", directory / "run").admin
        """Socket of Envoy's admin interface."""
        self._agent: subprocess.Popen[bytes] | None = None
        self._start(StatusHistory.NEW)

    def start_agent(self) -> None:
        """Start the agent, which starts or adopts its Envoy."""
        command = [sys.executable, "-m", "gatehouse", "agent", "--proxy", "envoy"]
        self._agent = subprocess.Popen(command, env=os.environ | self._environment)

    async def kill_agent(self) -> None:
        """Kill the agent. Its Envoy continues."""
        assert self._agent is not None
        self._agent.kill()
        await asyncio.to_thread(self._agent.wait)
        await self.plane.until(lambda report: not report.instances)

    async def stop_agent(self) -> None:
        """Stop the agent and its Envoy."""
        assert self._agent is not None
        self._agent.terminate()
        assert await asyncio.to_thread(self._agent.wait) == 0

    async def scopes(self) -> set[str]:
        """Return the names of the scopes that Envoy has."""
        path = "/config_dump?resource=dynamic_scoped_route_configs&name_regex=.*"
        _, text = await AdminClient(self.admin).get(path)
        dumped = (entry["scoped_route_configs"] for entry in json.loads(text)["configs"])
        return {scope["name"] for scopes in dumped for scope in scopes}

    def _start(self, history: StatusHistory) -> None:
        self.events: list[str] = []
        self.inputs = QuarantineInputs()
        self.pipeline = envoy_pipeline(self.plane.server.envoys)
        self.publisher = Publisher({"envoy": self.pipeline})
        self.quarantines = Quarantines(
            self.publisher,
            self.inputs,
            lambda: None,
            lambda _, text: self.events.append(text),
            history=lambda _: history,
        )
        self.queries: Incremental[ResourceSet] | None = None

    async def restart(self) -> None:
        """Be replaced by a controller to which statuses say that all objects are served."""
        await self.plane.restart()
        self._start(StatusHistory.SERVED)

    async def settle(self, trials: int = 0) -> None:
        """Publish until Envoy has everything, except what is left out.

        ``trials``: if not 0, stop after that many trials.
        """
        if self.queries is None:
            await self.plane.until(lambda report: bool(report.equipment))
            capabilities = self.pipeline.capabilities(GATEWAY)
            self.queries = Incremental(self.pipeline.output, capabilities)
        for _ in range(40):
            hosts = tuple(ir.VirtualHost(name, self.hosts[name]) for name in sorted(self.hosts))
            desired = ir_gateway.GatewayConfiguration(
                GATEWAY,
                bind_address="127.0.0.1",
                listeners=tuple(
                    ir_gateway.Listener(port, "HTTP", hosts)
                    for port in sorted((self.port, *self.more_ports))
                ),
                clusters=self.clusters,
            )
            compiled = self.inputs.without_rejected(KEY, desired)
            gateway = self.inputs.without_held_back(KEY, compiled)
            output = self.queries.run(gateway)
            if self.rejects_redirects:
                content = with_invalid_redirects(output.content, late=self.rejects_late)
                output = msgspec.structs.replace(output, content=content)
            trial = self.inputs.is_trial(KEY)
            self.trials += trial
            self.publisher.publish(GATEWAY, "envoy", output, trial=trial)
            changed = self.quarantines.published(KEY, gateway, compiled)
            await self.plane.until(lambda report: report.programmed)
            changed |= self.quarantines.reported(KEY, self.publisher.report(GATEWAY))
            if not changed or self.trials == trials > 0:
                return
        raise AssertionError("the quarantine does not settle")


@contextlib.asynccontextmanager
async def controller_with_envoy(tmp_path: Path) -> AsyncIterator[Controller]:
    """Run a controller and its Envoy."""
    async with (
        EnvoyControlPlane(tmp_path / "control-plane") as plane,
        backend("app") as address,
    ):
        result = Controller(tmp_path, plane, ir.Endpoint(*address))
        # A publication is needed before an Envoy describes itself.
        result.start_agent()
        try:
            yield result
        finally:
            await result.stop_agent()
