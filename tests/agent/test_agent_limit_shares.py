"""Real Envoys of two Gateways that share a limit by their use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fakes import kube_upstream, patience, upstream_worlds
from fakes.agent_control_plane import GATEWAY as FIRST
from fakes.authority import Authority
from fakes.durations import pace
from fakes.envoy_agent import running
from fakes.envoy_running import EnvoyControlPlane
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.paths import envoy_paths
from gatehouse.agent.options import AgentOptions, options_from_environment
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.frontends.inputs import limit_use_key, replicas_key, sharing_key
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.incremental.query import Key

pytestmark = [pytest.mark.process, pytest.mark.long]

HOST = "a.kube.test"
TOTAL = 20
OTHER = "ns/other"
KEYS: dict[str, Key] = {FIRST: upstream_worlds.GATEWAY, OTHER: ("Gateway", "ns", "other")}


class Shared:
    """Two Gateways with one data plane each, behind one control plane."""

    def __init__(self, plane: EnvoyControlPlane, directory: Path, server: int) -> None:
        self.plane, self.directory = plane, directory
        self.ports = {FIRST: free_port(), OTHER: free_port()}
        self.authority = Authority(directory, "servers")
        self.server = ir.KubeApiServer("http://one", "127.0.0.1", server)
        self.world = self.new_world()
        self.rounds = 0
        """Number of publications after reports."""
        self.pair = self.authority.issue(HOST)
        self.trust = ssl.create_default_context(cafile=str(self.authority.file))
        self.trust.load_cert_chain(*self.authority.issue_to("alice"))

    def new_world(self) -> upstream_worlds.World:
        """Return a compilation that has no reports yet."""
        world = upstream_worlds.World()
        for key in KEYS.values():
            world.gateway(key[2])
        schema = {
            "name": "s", "strategy": "globalAllocate",
            "maxRequestsInflight": {"max": 1}, "globalMaxRequestsInflight": {"max": TOTAL},
        }  # fmt: skip
        everything = {**upstream_worlds.EVERYTHING, "nonResourceURLs": ["*"]}
        world.cluster(
            HOST,
            annotations={"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"},
            flowControl={"flowControlSchemas": [schema]},
            dispatchPolicies=[{"rules": [everything], "flowControlSchemaName": "s"}],
        )
        return world

    def agent(self, gateway: str, pod: str) -> AgentOptions:
        directory = self.directory / pod
        directory.mkdir()
        token = directory / "token"
        token.write_text(f"good:{pod}" + ("" if gateway == FIRST else f"@{gateway}"))
        return options_from_environment(
            self.plane.environment(directory)
            | {"POD_NAME": pod, "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": str(token)}
        )

    @contextlib.asynccontextmanager
    async def controlled(self) -> AsyncIterator[None]:
        """Compile and publish after each report, as the controller does."""
        task = asyncio.create_task(self._control())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _control(self) -> None:
        while True:
            for gateway, key in KEYS.items():
                report = self.plane.server.envoys.report(gateway)
                use = report.limit_use.get(HOST)
                inputs = {
                    replicas_key(key): report.names,
                    sharing_key(key): report.sharing,
                    limit_use_key(key, HOST): use,
                }
                self.world.engine.commit(inputs)
            for gateway in KEYS:
                generated = self._generator.generate(self._configuration(gateway))
                self.plane.server.envoys.publish(gateway, generated.resources)
            self.rounds += 1
            await pace(0.1)

    _generator = envoy.EnvoyGenerator(envoy.EnvoyCapabilities(runtime_limits=True))

    def _configuration(self, gateway: str) -> ir_gateway.GatewayConfiguration:
        rule = ir.DispatchRule(verbs=ir.ANY, groups=ir.ANY, resources=ir.ANY, paths=ir.ANY)
        cluster = ir.ApiCluster(
            HOST, (HOST,), (self.server,), (ir.DispatchPolicy((rule,), schema="s"),),
            schemas=self.world.served(KEYS[gateway])[HOST].schemas, client_trust="clients",
        )  # fmt: skip
        secret = ir_gateway.SecretBytes(self.pair[1].read_bytes())
        return ir_gateway.GatewayConfiguration(
            gateway,
            api_listeners=(ir.ApiListener(self.ports[gateway], (cluster,), ("c",)),),
            certificates=(ir_gateway.Certificate("c", self.pair[0].read_bytes(), secret),),
            trust_bundles=(ir_gateway.TrustBundle("clients", self.authority.pem),),
            bind_address="127.0.0.1",
        )

    def shares(self) -> dict[str, int]:
        """Return the shares of both data planes as allocated."""
        return {
            name: share
            for key in KEYS.values()
            for schema in self.world.served(key)[HOST].schemas
            if schema.divided
            for name, share in schema.divided.shares
        }


class Clients:
    """Clients of one data plane."""

    def __init__(self, shared: Shared, gateway: str, http: aiohttp.ClientSession) -> None:
        self._url = f"https://127.0.0.1:{shared.ports[gateway]}"
        self._trust, self._http = shared.trust, http
        self._done = asyncio.Event()
        self.tries = 0
        """Number of requests to hold that were rejected."""

    async def status(self, path: str = "/version") -> int:
        request = self._http.get(
            self._url + path, headers={"Host": HOST}, ssl=self._trust, server_hostname=HOST
        )
        try:
            async with request as response:
                await response.read()
                return response.status
        except aiohttp.ClientError:
            return 0

    async def ready(self) -> None:
        async with patience.limit():
            while await self.status() != 200:
                await patience.pause()

    async def _hold(self) -> None:
        while await self.status("/slow") != 200 and not self._done.is_set():
            self.tries += 1
            await pace(0.1)

    @contextlib.asynccontextmanager
    async def holding(self, count: int, upstream: kube_upstream.Upstream) -> AsyncIterator[None]:
        """Keep trying to have so many requests in flight."""
        self._done.clear()
        tasks = [asyncio.create_task(self._hold()) for _ in range(count)]
        try:
            yield
        finally:
            self._done.set()
            while not all(task.done() for task in tasks):
                upstream.release()
                await pace(0.05)


async def until_busy(upstream: kube_upstream.Upstream, count: int) -> None:
    await patience.until(lambda: upstream.busy >= count)


async def limit(agent: AgentOptions) -> int:
    """Return the limit that an Envoy has in its runtime."""
    admin = AdminClient(envoy_paths(agent.root, agent.run_dir).admin)
    _, text = await admin.get("/runtime")
    key = f"circuit_breakers.kube:{HOST}/flow/s.default.max_requests"
    return int(json.loads(text)["entries"][key]["final_value"])


async def test_share_outlasts_a_restart_of_the_control_plane(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        upstream = await enter(kube_upstream.serving("one", None))
        shared = Shared(plane, tmp_path, upstream.port)
        http = await enter(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        agents = [shared.agent(FIRST, "pod-1"), shared.agent(OTHER, "pod-2")]
        await enter(running(agents[0]))
        leave = await enter(running(agents[1]))
        control = await enter(contextlib.AsyncExitStack())
        await control.enter_async_context(shared.controlled())
        first = Clients(shared, FIRST, http)
        await asyncio.gather(first.ready(), Clients(shared, OTHER, http).ready())
        async with first.holding(16, upstream):
            await until_busy(upstream, 16)
            await control.aclose()
            await plane.restart()
            shared.world = shared.new_world()
            await control.enter_async_context(shared.controlled())
            least, end = TOTAL, time.monotonic() + 6
            while time.monotonic() < end:
                least = min(least, await limit(agents[0]))
                await pace(0.05)
            assert least >= 16
            assert set(shared.shares()) == {"pod-1", "pod-2"}
            # The share of a data plane that leaves goes to the others.
            leave.set()
            async with patience.limit():
                while await limit(agents[0]) != TOTAL:
                    await patience.pause()
            assert upstream.busy == 16


async def test_data_plane_with_the_traffic_gets_most_of_the_limit(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        upstream = await enter(kube_upstream.serving("one", None))
        shared = Shared(plane, tmp_path, upstream.port)
        http = await enter(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        await enter(running(shared.agent(FIRST, "pod-1")))
        await enter(running(shared.agent(OTHER, "pod-2")))
        await enter(shared.controlled())
        first, other = Clients(shared, FIRST, http), Clients(shared, OTHER, http)
        await asyncio.gather(first.ready(), other.ready())
        for busy, idle in ((first, other), (other, first)):
            async with busy.holding(16, upstream):
                # An even division would let 10 pass.
                started = time.monotonic()
                await until_busy(upstream, 16)
                print(f"16 of {TOTAL} after {time.monotonic() - started:.1f} s")
                assert await idle.status() == 200
                assert sum(shared.shares().values()) <= TOTAL
        assert upstream.busiest == 16
        # Both need all of it: neither is left without, and together they do not exceed it.
        async with first.holding(TOTAL, upstream), other.holding(TOTAL, upstream):
            await until_busy(upstream, TOTAL - 1)
            # The shares move, and every client that waits tries again and again.
            rounds = shared.rounds + 25
            await until(lambda: shared.rounds >= rounds)
            tries = first.tries + other.tries + 400
            await until(lambda: first.tries + other.tries >= tries)
            assert upstream.busiest <= TOTAL
