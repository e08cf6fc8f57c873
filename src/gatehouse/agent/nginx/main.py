"""Start-up and shutdown order of an agent that runs an NGINX."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import structlog

from gatehouse.agent import (
    build_info,
    client_connections,
    lifecycle,
    request_lines,
    sidecars,
    timeouts,
)
from gatehouse.agent.configuration_state import ConfigurationState
from gatehouse.agent.connection_metrics import NGINX_CONNECTIONS, ConnectionMetrics
from gatehouse.agent.liveness import LivenessMonitor
from gatehouse.agent.nginx import binary as binaries
from gatehouse.agent.nginx import paths
from gatehouse.agent.nginx.apply import Applier
from gatehouse.agent.nginx.apply_steps import OnStep
from gatehouse.agent.nginx.backend_endpoints import RevisionEndpoints
from gatehouse.agent.nginx.dns_upstreams import DNSUpstreams
from gatehouse.agent.nginx.instance_info import InstanceInfo
from gatehouse.agent.nginx.main_conf import STATUS
from gatehouse.agent.nginx.metrics import AgentMetrics
from gatehouse.agent.nginx.mpi_session import MPISession
from gatehouse.agent.nginx.nameserver import Nameserver
from gatehouse.agent.nginx.plus import metrics as plus_metrics
from gatehouse.agent.nginx.plus.upstreams import PlusUpstreams
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import Stager
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.agent.nginx.upstreams import Upstreams
from gatehouse.agent.nginx.worker_probe import WorkerProbe
from gatehouse.agent.options import (
    AgentOptions,
    AgentOptionsError,
    load_options,
    options_from_environment,
)
from gatehouse.agent.request_metrics import RouteMetrics
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import Sample

__all__ = [
    "AgentOptions",
    "AgentOptionsError",
    "load_options",
    "options_from_environment",
    "run_nginx_agent",
]

log = structlog.get_logger("gatehouse.agent")


class NginxAgent:
    """Components of one agent."""

    def __init__(self, options: AgentOptions, on_step: OnStep) -> None:
        """Find NGINX and create the directories. Raises NginxMissingError or OSError."""
        self.paths = paths.nginx_paths(options.root, options.run_dir)
        self.paths.prepare()
        binary = _find_nginx(options)
        self.build = build_info.build_sample("nginx", binary.version_and_release)
        self.plus = binary.plus
        if self.plus:
            self.paths.prepare_plus()
        self.revisions = RevisionStore(options.root)
        self.nameserver = Nameserver()
        self.supervisor = NginxSupervisor(binary, self.paths, options.drain_seconds)
        self.worker_probe = WorkerProbe(self.supervisor, self.paths.version_socket)
        self.liveness = LivenessMonitor(
            options.liveness, self.worker_probe.silent, self.supervisor.kill
        )
        self.sidecars = sidecars.create(
            sidecars.NGINX_SIDECARS, self.paths.run, options.drain_seconds
        )
        self.applier = Applier(
            self._stager(binary, options),
            self.paths,
            self.revisions,
            self.supervisor,
            self._upstreams(),
            self.sidecars,
            on_step,
        )
        self.uses_nameserver = binary.numbers >= binaries.RESOLVING and not self.plus
        socket, own_endpoints = self.paths.api_socket, self.uses_nameserver or self.plus
        instance_info = InstanceInfo(
            options, binary, self.supervisor, self.liveness, socket, endpoints=own_endpoints
        )
        self.session = MPISession(
            options, instance_info, self.applier, self.revisions, socket if self.plus else None
        )
        self.supervisor.on_change = self.session.notify_changed
        self.liveness.on_change = self.session.notify_changed
        self.endpoints = RevisionEndpoints(self.revisions)
        self.configuration = ConfigurationState(
            lambda: self.applier.confirmed or "", self.revisions.certificate_chains
        )
        labels = options.metric_labels
        self.requests, self.connections = self._counted_logs(labels)
        status = self.paths.version_socket if STATUS in binary.modules else None
        self.metrics = AgentMetrics(labels, self.samples, status, self._more_samples)
        self.applier.steps.observe = self.metrics.observe
        not_live = self.liveness.not_live
        self.health = HealthServer(self.not_ready, self._page, not_live=not_live)

    def _counted_logs(self, labels: Mapping[str, str]) -> tuple[RouteMetrics, ConnectionMetrics]:
        run, completed = self.paths, self.supervisor.causes.counted_lines
        lines = request_lines.NGINX_LINES
        return (
            RouteMetrics(run.request_log, lines, labels, completed=completed),
            ConnectionMetrics(run.connection_log, NGINX_CONNECTIONS, labels, completed),
        )

    def _stager(self, binary: binaries.NginxBinary, options: AgentOptions) -> Stager:
        return Stager(
            binary,
            self.paths,
            self.revisions,
            options.workers,
            timeouts.shutdown_seconds(options.drain_seconds),
            strict=options.treat_warnings_as_errors,
        )

    async def _page(self) -> bytes:
        """Return the /metrics page."""
        return await self.metrics.text() + (self.requests.text() + self.connections.text()).encode()

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
        yield self.build
        yield Sample("nginx_up", "1 if NGINX runs, else 0.", self.supervisor.running)
        yield from self.configuration.samples()
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
        yield from self.supervisor.access_log.samples()
        yield from self.requests.samples()
        yield from self.connections.samples()
        yield from self.supervisor.failures.samples()
        yield from self.liveness.samples()
        yield from sidecars.metrics(self.sidecars)

    async def _more_samples(self) -> Iterable[Sample]:
        """Return the metrics of connections and of NGINX Plus."""
        master = self.supervisor.process
        pid = master.pid if master else None
        plus = plus_metrics.PlusMetrics([], None)
        if self.plus:
            plus = await plus_metrics.read(self.paths.api_socket)
        connections = await asyncio.to_thread(client_connections.connection_samples, pid)
        endpoints = await asyncio.to_thread(self.endpoints.samples, plus.endpoints)
        return (*connections, *endpoints, *plus.samples)

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
        return self.liveness.unhealthy


def _find_nginx(options: AgentOptions) -> binaries.NginxBinary:
    """Return the NGINX of this agent. Raises NginxMissingError."""
    binary = binaries.probe_nginx(binaries.find_nginx_binary(options.nginx))
    log.info("nginx found", path=str(binary.path), version=binary.version_and_release)
    return binary


async def run_nginx_agent(
    options: AgentOptions, stop: asyncio.Event, on_step: OnStep = lambda _step: None
) -> None:
    """Run an agent until `stop` is set, then drain NGINX and stop it.

    NGINX refuses connections once it drains. So it keeps accepting them for
    `shutdown_delay_seconds`, then drains for at most `drain_seconds`.

    `on_step` is called after each step of an apply. If the agent is cancelled or killed instead,
    NGINX and its sidecars continue, and the next agent adopts them. Raises NginxMissingError, or
    OSError if a directory or the health address is not available.
    """
    agent = NginxAgent(options, on_step)
    lifecycle.warn_ignored_options(options)
    await agent.start_nameserver()
    await agent.applier.start()
    try:
        await lifecycle.run_until_stopped(options, agent.health, _run_tasks(agent), stop)
    finally:
        agent.worker_probe.close()
    await asyncio.sleep(options.shutdown_delay_seconds)
    await agent.supervisor.quit(options.drain_seconds)
    for sidecar in agent.sidecars:
        await sidecar.quit()
    agent.nameserver.stop()
    log.info("stopped")


async def _run_tasks(agent: NginxAgent) -> None:
    async with asyncio.TaskGroup() as group:
        lifecycle.start_supervision(group, "nginx", agent.supervisor, agent.sidecars)
        await agent.applier.ensure_serving()
        maintain = agent.applier.reconcile_endpoints if agent.plus else agent.applier.drop_seeds
        group.create_task(maintain())
        group.create_task(agent.session.apply_requests())
        group.create_task(agent.session.run())
        group.create_task(agent.liveness.run())
        group.create_task(agent.requests.run())
        group.create_task(agent.connections.run())
        group.create_task(agent.configuration.run())
