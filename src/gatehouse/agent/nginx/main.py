"""The order of the life of an agent that runs an NGINX."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import structlog

from gatehouse.agent import lifecycle, sidecars, timeouts
from gatehouse.agent.nginx import binary as binaries
from gatehouse.agent.nginx import paths
from gatehouse.agent.nginx.apply import Applier
from gatehouse.agent.nginx.apply_steps import OnStep
from gatehouse.agent.nginx.dns_upstreams import DNSUpstreams
from gatehouse.agent.nginx.instance_info import InstanceInfo
from gatehouse.agent.nginx.metrics import Measurements
from gatehouse.agent.nginx.mpi_session import MPISession
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.agent.nginx.plus import metrics as plus_metrics
from gatehouse.agent.nginx.plus.upstreams import PlusUpstreams
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import Stager
from gatehouse.agent.nginx.supervisor import Supervisor
from gatehouse.agent.nginx.upstreams import Upstreams
from gatehouse.agent.options import Options, OptionsError, load_options, options_from_environment
from gatehouse.runtime.health_minimal import HealthServer
from gatehouse.runtime.prometheus import Figure

__all__ = ["Options", "OptionsError", "load_options", "options_from_environment", "run"]

log = structlog.get_logger("gatehouse.agent")


class Agent:
    """Everything one agent is made of."""

    def __init__(self, options: Options, on_step: OnStep) -> None:
        """Find the NGINX and make the directories; raises NginxMissingError or OSError."""
        self.places = paths.of(options.root, options.run_dir)
        self.places.prepare()
        binary = binaries.probe(binaries.find(options.nginx))
        log.info("nginx found", path=str(binary.path), version=binary.described)
        self.plus = binary.plus
        if self.plus:
            self.places.prepare_plus()
        self.generations = RevisionStore(options.root)
        self.nameserver = Nameserver()
        self.supervisor = Supervisor(binary, self.places)
        drain = options.drain_seconds
        self.companions = sidecars.create(sidecars.NGINX_SIDECARS, self.places.run, drain)
        self.applier = Applier(
            Stager(
                binary,
                self.places,
                self.generations,
                options.workers,
                timeouts.shutdown_seconds(drain),
                strict=options.treat_warnings_as_errors,
            ),
            self.places,
            self.generations,
            self.supervisor,
            self._upstreams(),
            self.companions,
            on_step,
        )
        self.resolving = binary.numbers >= binaries.RESOLVING and not self.plus
        socket = self.places.api_socket
        describer = InstanceInfo(
            options, binary, self.supervisor, socket, endpoints=self.resolving or self.plus
        )
        self.link = MPISession(
            options, describer, self.applier, self.generations, socket if self.plus else None
        )
        self.supervisor.on_change = self.link.notify_changed
        labels = {
            "namespace": options.pod_namespace,
            "pod": options.pod_name,
            "gateway": options.gateway,
        }
        self.measurements = Measurements(
            labels, self.figures, self.places.version_socket, self._plus_figures
        )
        self.applier.steps.observe = self.measurements.observe
        self.health = HealthServer(self.not_ready, self.measurements.text)

    def figures(self) -> Iterator[Figure]:
        """What is measured of this agent at this moment."""
        name = "gatehouse_agent"
        applier = self.applier
        yield Figure(
            f"{name}_control_plane_connected", sidecars.CONNECTED_HELP, self.link.connected
        )
        help_ = "1 if NGINX serves a confirmed configuration, else 0."
        yield Figure(f"{name}_ready", help_, not self.not_ready())
        yield Figure("nginx_up", "1 if NGINX is running, else 0.", self.supervisor.running)
        version = {"version": applier.confirmed or ""}
        yield Figure(
            f"{name}_configuration_info",
            "Version of the configuration that is served.",
            1,
            labels=version,
        )
        totals = {
            "applies": ("Configurations received from the control plane.", applier.applies),
            "apply_failures": ("Configurations that could not be applied.", applier.failures),
            "reloads": ("Reloads of NGINX.", applier.reloads),
            "endpoint_updates": (
                "Endpoint changes applied without a reload.",
                applier.endpoint_updates,
            ),
            "dns_queries": ("DNS queries of NGINX.", self.nameserver.questions),
            "nginx_restarts": (
                "Restarts of the NGINX master process after a crash.",
                self.supervisor.restarts,
            ),
        }
        for total, (about, value) in totals.items():
            yield Figure(f"{name}_{total}", about, value, "counter")
        yield from sidecars.metrics(self.companions)

    async def _plus_figures(self) -> Iterable[Figure]:
        """What NGINX Plus counts; the open-source NGINX does not."""
        return await plus_metrics.figures(self.places.api_socket) if self.plus else ()

    def _upstreams(self) -> Upstreams:
        if self.plus:
            places = self.places
            return PlusUpstreams(places.api_socket, places.states, self.generations)
        return DNSUpstreams(self.nameserver, self.generations)

    async def start_nameserver(self) -> None:
        """Listen where the NGINX that may still run asks; raises OSError."""
        if self.resolving:
            current = self.generations.current()
            known = 0 if current is None else self.generations.manifest(current).nameserver
            await self.nameserver.start(known)

    def not_ready(self) -> str:
        """Why traffic should not come here yet; empty if it should."""
        if not self.supervisor.running:
            return "NGINX is not running"
        if not self.applier.seen:
            return "no configuration is confirmed to be served"
        return ""


async def run(options: Options, stop: asyncio.Event, on_step: OnStep = lambda _step: None) -> None:
    """Run an agent until ``stop`` is set, then let NGINX drain and end it.

    Before that it goes on for ``shutdown_delay_seconds``, since it refuses connections once it
    drains, for ``drain_seconds`` at most.

    ``on_step`` is called after each step of an apply.
    If cancelled or killed instead, NGINX and its companions go on, and the next agent adopts them.
    Raises NginxMissingError, or OSError if a directory or the health address cannot be had.
    """
    agent = Agent(options, on_step)
    lifecycle.warn_ignored_options(options)
    await agent.start_nameserver()
    await agent.applier.start()
    await lifecycle.run_until_stopped(options, agent.health, _parts(agent), stop)
    await asyncio.sleep(options.shutdown_delay_seconds)
    await agent.supervisor.quit(options.drain_seconds)
    for companion in agent.companions:
        await companion.quit()
    agent.nameserver.stop()
    log.info("stopped")


async def _parts(agent: Agent) -> None:
    async with asyncio.TaskGroup() as group:
        lifecycle.start_supervision(group, "nginx", agent.supervisor, agent.companions)
        await agent.applier.ensure_serving()
        tending = agent.applier.reconcile_endpoints if agent.plus else agent.applier.drop_seeds
        group.create_task(tending())
        group.create_task(agent.link.apply_requests())
        group.create_task(agent.link.run())
