"""Start-up and shutdown order of an agent that runs an NGINX."""

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
from gatehouse.agent.nginx.metrics import AgentMetrics
from gatehouse.agent.nginx.mpi_session import MPISession
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.agent.nginx.plus import metrics as plus_metrics
from gatehouse.agent.nginx.plus.upstreams import PlusUpstreams
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import Stager
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.agent.nginx.upstreams import Upstreams
from gatehouse.agent.options import Options, OptionsError, load_options, options_from_environment
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import Sample

__all__ = ["Options", "OptionsError", "load_options", "options_from_environment", "run"]

log = structlog.get_logger("gatehouse.agent")


class Agent:
    """Components of one agent."""

    def __init__(self, options: Options, on_step: OnStep) -> None:
        """Find NGINX and create the directories. Raises NginxMissingError or OSError."""
        self.paths = paths.of(options.root, options.run_dir)
        self.paths.prepare()
        binary = binaries.probe(binaries.find(options.nginx))
        log.info("nginx found", path=str(binary.path), version=binary.version_and_release)
        self.plus = binary.plus
        if self.plus:
            self.paths.prepare_plus()
        self.revisions = RevisionStore(options.root)
        self.nameserver = Nameserver()
        self.supervisor = NginxSupervisor(binary, self.paths)
        drain = options.drain_seconds
        self.sidecars = sidecars.create(sidecars.NGINX_SIDECARS, self.paths.run, drain)
        self.applier = Applier(
            Stager(
                binary,
                self.paths,
                self.revisions,
                options.workers,
                timeouts.shutdown_seconds(drain),
                strict=options.treat_warnings_as_errors,
            ),
            self.paths,
            self.revisions,
            self.supervisor,
            self._upstreams(),
            self.sidecars,
            on_step,
        )
        self.uses_nameserver = binary.numbers >= binaries.RESOLVING and not self.plus
        socket = self.paths.api_socket
        instance_info = InstanceInfo(
            options, binary, self.supervisor, socket, endpoints=self.uses_nameserver or self.plus
        )
        self.session = MPISession(
            options, instance_info, self.applier, self.revisions, socket if self.plus else None
        )
        self.supervisor.on_change = self.session.notify_changed
        labels = {
            "namespace": options.pod_namespace,
            "pod": options.pod_name,
            "gateway": options.gateway,
        }
        self.metrics = AgentMetrics(
            labels, self.samples, self.paths.version_socket, self._plus_samples
        )
        self.applier.steps.observe = self.metrics.observe
        self.health = HealthServer(self.not_ready, self.metrics.text)

    def samples(self) -> Iterator[Sample]:
        """Yield the current metrics of this agent."""
        name = "gatehouse_agent"
        applier = self.applier
        yield Sample(
            f"{name}_control_plane_connected",
            "1 if the agent is connected to the control plane, else 0.",
            self.session.connected,
        )
        help_ = "1 if the proxy serves a confirmed configuration, else 0."
        yield Sample(f"{name}_ready", help_, not self.not_ready())
        yield Sample("nginx_up", "1 if NGINX runs, else 0.", self.supervisor.running)
        version = {"version": applier.confirmed or ""}
        yield Sample(
            f"{name}_configuration_info", "Confirmed configuration version.", 1, labels=version
        )
        totals = {
            "applies": ("Configurations to apply.", applier.applies),
            "apply_failures": ("Configurations that failed to apply.", applier.failures),
            "reloads": ("Reloads of NGINX.", applier.reloads),
            "endpoint_updates": ("Endpoint updates without a reload.", applier.endpoint_updates),
            "dns_queries": ("DNS queries of NGINX.", self.nameserver.queries),
            "nginx_restarts": ("NGINX masters that died.", self.supervisor.restarts),
        }
        for total, (text, value) in totals.items():
            yield Sample(f"{name}_{total}", text, value, "counter")
        yield from sidecars.metrics(self.sidecars)

    async def _plus_samples(self) -> Iterable[Sample]:
        """Return the metrics of NGINX Plus; none for open-source NGINX."""
        return await plus_metrics.samples(self.paths.api_socket) if self.plus else ()

    def _upstreams(self) -> Upstreams:
        if self.plus:
            return PlusUpstreams(self.paths.api_socket, self.paths.states, self.revisions)
        return DNSUpstreams(self.nameserver, self.revisions)

    async def start_nameserver(self) -> None:
        """Listen on the port that a running NGINX may still query. Raises OSError."""
        if self.uses_nameserver:
            current = self.revisions.current()
            port = 0 if current is None else self.revisions.manifest(current).nameserver
            await self.nameserver.start(port)

    def not_ready(self) -> str:
        """Return why the agent should get no traffic. Empty if it is ready."""
        if not self.supervisor.running:
            return "NGINX is not running"
        if not self.applier.seen:
            return "no configuration is confirmed to be served"
        return ""


async def run(options: Options, stop: asyncio.Event, on_step: OnStep = lambda _step: None) -> None:
    """Run an agent until `stop` is set, then drain NGINX and stop it.

    NGINX refuses connections once it drains. So it keeps accepting them for
    `shutdown_delay_seconds`, then drains for at most `drain_seconds`.

    `on_step` is called after each step of an apply. If the agent is cancelled or killed instead,
    NGINX and its sidecars continue, and the next agent adopts them. Raises NginxMissingError, or
    OSError if a directory or the health address is not available.
    """
    agent = Agent(options, on_step)
    lifecycle.warn_ignored_options(options)
    await agent.start_nameserver()
    await agent.applier.start()
    await lifecycle.run_until_stopped(options, agent.health, _run_tasks(agent), stop)
    await asyncio.sleep(options.shutdown_delay_seconds)
    await agent.supervisor.quit(options.drain_seconds)
    for sidecar in agent.sidecars:
        await sidecar.quit()
    agent.nameserver.stop()
    log.info("stopped")


async def _run_tasks(agent: Agent) -> None:
    async with asyncio.TaskGroup() as group:
        lifecycle.start_supervision(group, "nginx", agent.supervisor, agent.sidecars)
        await agent.applier.ensure_serving()
        maintain = agent.applier.reconcile_endpoints if agent.plus else agent.applier.drop_seeds
        group.create_task(maintain())
        group.create_task(agent.session.apply_requests())
        group.create_task(agent.session.run())
