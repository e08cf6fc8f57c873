"""Start-up and shutdown order of an agent that runs an Envoy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
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
from gatehouse.agent.connection_metrics import ENVOY_CONNECTIONS, ConnectionMetrics
from gatehouse.agent.envoy import binary as binaries
from gatehouse.agent.envoy import kube_metrics, paths
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.backend_endpoints import ClusterEndpoints
from gatehouse.agent.envoy.bootstrap import bootstrap_config
from gatehouse.agent.envoy.certificates import certificate_chains
from gatehouse.agent.envoy.downstream import Downstream
from gatehouse.agent.envoy.envoy_probe import EnvoyProbe
from gatehouse.agent.envoy.first_configuration import FirstConfiguration
from gatehouse.agent.envoy.limit_use_monitor import LimitUseMonitor
from gatehouse.agent.envoy.metrics import CONVERTED, ENVOY_PAGE, FAMILIES, page, raw_page
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.envoy.resource_store import ResourceStore
from gatehouse.agent.envoy.served_check import ServedCheck
from gatehouse.agent.envoy.server_health import ServerHealthMonitor
from gatehouse.agent.envoy.sidecar_manager import SidecarManager
from gatehouse.agent.envoy.start_gate import StartGate
from gatehouse.agent.envoy.supervisor import EnvoySupervisor
from gatehouse.agent.envoy.upstream import ControlPlaneStream
from gatehouse.agent.liveness import LivenessMonitor
from gatehouse.agent.options import AgentOptions
from gatehouse.agent.request_metrics import RouteMetrics
from gatehouse.dataplane import features
from gatehouse.dataplane.unready_servers import UnreadyServers
from gatehouse.dataplane.xds.listener_drains import ListenerDrains
from gatehouse.runtime import unix_http
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import Sample
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.reviewer import config as reviewer
from kube_base.runtime import private_files

log = structlog.get_logger("gatehouse.agent")

AGENT_FEATURES = (
    features.ENVOY_AUTHENTICATOR,
    features.ENVOY_REVIEWER,
    features.ENVOY_REQUEST_COUNTS,
    features.ENVOY_CONNECTION_COUNTS,
    features.ENVOY_TRIALS,
)

_UNCHECKED = "Envoy has not been checked yet"

_POLL_SECONDS = 0.5
"""Interval in seconds of Envoy's readiness check."""


def _relay(store: ResourceStore, options: AgentOptions) -> Relay:
    relay = Relay(store.load(), AGENT_FEATURES, options.pod_name)
    relay.drains = ListenerDrains(timeouts.shutdown_seconds(options.drain_seconds))
    return relay


def _probed_binary(options: AgentOptions) -> binaries.EnvoyBinary:
    binary = binaries.probe_envoy(binaries.find_envoy_binary(options.envoy))
    log.info("envoy found", path=str(binary.path), version=binary.version)
    return binary


def _log_metrics(
    places: paths.EnvoyPaths, labels: Mapping[str, str]
) -> tuple[RouteMetrics, ConnectionMetrics]:
    # Envoy's own log has nothing about them.
    failures = FailureLog(lambda line: log.warning("envoy message", text=line))
    return (
        RouteMetrics(places.request_log, request_lines.ENVOY_LINES, labels, failures.record),
        ConnectionMetrics(places.connection_log, ENVOY_CONNECTIONS, labels),
    )


class EnvoyAgent:
    """Components of one agent."""

    def __init__(self, options: AgentOptions) -> None:
        """Find Envoy and create the directories. Raises EnvoyMissingError or OSError."""
        self.paths = paths.envoy_paths(options.root, options.run_dir)
        self.paths.prepare()
        binary = _probed_binary(options)
        self.build = build_info.build_sample("envoy", binary.version)
        self.store = ResourceStore(self.paths.store)
        self.relay = _relay(self.store, options)
        self.admin = AdminClient(self.paths.admin)
        drain, held = options.drain_seconds, lambda: self.relay.held
        self.supervisor = EnvoySupervisor(binary, self.paths, options.workers, drain)
        self.supervisor.on_change = self._on_start_or_exit
        self.probe = EnvoyProbe(self.supervisor, self.paths.admin, self.paths.probe)
        self.liveness = LivenessMonitor(options.liveness, self.probe.silent, self.supervisor.kill)
        self.liveness.on_change = self._report_health
        self.upstream = ControlPlaneStream(
            options, self.relay, self._on_response, self._holds_requests
        )
        processes = sidecars.create(sidecars.ENVOY_SIDECARS, self.paths.run, drain)
        self.sidecar_manager = SidecarManager(processes, self.paths, self.relay, self._flush)
        self.gate = StartGate(self._flush)
        self.relay.is_starting = lambda: self.gate.closed
        self.downstream = Downstream(self.relay, self._flush, self.gate.handler())
        self.server_health = ServerHealthMonitor(self.admin, held, self._report_servers)
        self.served_check = ServedCheck(
            self.admin, self.relay, self.downstream.wake, self._report_health
        )
        self.limit_use = LimitUseMonitor(
            self.admin,
            held,
            lambda use: self._report(use=use, instance=options.pod_name),
        )
        self.requests, self.connections = _log_metrics(self.paths, options.metric_labels)
        self.configuration = ConfigurationState(
            lambda: self.relay.cache.accepted.version if self.relay.serving else "",
            lambda: certificate_chains(self.relay.cache.accepted),
        )
        self.endpoints = ClusterEndpoints(held)
        self.health = HealthServer(
            self.not_ready,
            self.metrics,
            not_live=self.liveness.not_live,
            pages={ENVOY_PAGE: self.envoy_metrics},
        )
        self._options = options
        self._unready: UnreadyServers | None = None
        """Last reasons written for the reviewer; None before the first."""
        self._changed, self._write_lock = asyncio.Event(), asyncio.Lock()
        self._readiness, self._first = _UNCHECKED, FirstConfiguration()

    def write_bootstrap(self) -> None:
        """Write the bootstrap configuration for the next Envoy. Raises OSError."""
        text = bootstrap_config(
            node=self._options.pod_name or "envoy",
            service_cluster=self._options.gateway or "gatehouse",
            relay=self.paths.relay,
            admin=self.paths.admin,
            probe=self.paths.probe,
            max_connections=self._options.max_connections,
        )
        private_files.replace_private_file(self.paths.bootstrap, text.encode())

    def _on_start_or_exit(self) -> None:
        self.gate.expected = self.supervisor.running
        self._readiness = _UNCHECKED
        self._report_health()

    def _report_health(self) -> None:
        running = self.supervisor.running
        unhealthy = self.liveness.unhealthy if running else "Envoy is not running"
        self._report(unhealthy=unhealthy or self.served_check.problem)

    def _on_response(self) -> None:
        self.downstream.wake()
        self.sidecar_manager.wake()
        self._flush()

    def _holds_requests(self) -> bool:
        """Return whether Envoy has accepted a configuration that it does not serve yet.

        The control plane learns what Envoy accepted last when Envoy serves it.
        """
        return self.gate.opening or (self.gate.expected and self.relay.serving)

    def _flush(self) -> None:
        if self.gate.closed and not self._missing():
            self.gate.open()
        self.upstream.flush()
        if self.relay.changed:
            self._changed.set()

    def _report_servers(self, unready: UnreadyServers) -> None:
        """Report servers that are not ready to the control plane, and to the reviewer in a file."""
        if unready != self._unready:
            self._unready = unready
            try:
                private_files.replace_private_file(
                    self.paths.run / reviewer.UNREADY, json.dumps(unready).encode()
                )
            except OSError as error:
                log.warning("reasons of servers not written", error=str(error))
        self._report(unready=unready)

    def _report(self, **changes: Any) -> None:
        self.relay.report(msgspec.structs.replace(self.relay.health, **changes))
        self._flush()

    async def store_changes(self) -> None:
        """Write accepted resources to disk until cancelled, and once more then."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await asyncio.shield(self._write())
        finally:
            # Waits for a write in progress: only one thread may write.
            await self._write()

    async def _write(self) -> None:
        async with self._write_lock:
            try:
                await asyncio.to_thread(self.store.write, self.relay.changes())
            except OSError as error:
                log.warning("resources not stored", error=str(error))

    async def poll_readiness(self) -> None:
        """Poll Envoy's readiness until cancelled."""
        while True:
            self._readiness = await self.admin.ready()
            # The time that a rejected resource delays the start may be over.
            self._flush()
            await asyncio.sleep(_POLL_SECONDS)

    def not_ready(self) -> str:
        """Return why the agent should get no traffic. Empty if it is ready."""
        if not self.supervisor.running:
            return "Envoy is not running"
        missing = "" if self.relay.serving and not self.gate.closed else self._missing()
        return missing or self.liveness.unhealthy or self._readiness

    def _missing(self) -> str:
        """Return what Envoy lacks before it may start."""
        stream = self.relay.stream
        if stream is None or not self.relay.serving:
            return "no configuration is confirmed to be served"
        if self.relay.incomplete:
            return "the control plane has not sent all of the first configuration"
        now = time.monotonic()
        return self._first.missing(stream.conversation, now, trial=self.relay.trial)

    def samples(self) -> Iterator[Sample]:
        """Yield the current metrics of this agent."""
        name = "gatehouse_agent"
        yield Sample(
            f"{name}_control_plane_connected",
            "1 if the agent is connected to the control plane, else 0.",
            self.upstream.connected,
        )
        help_ = "1 if the proxy serves a confirmed configuration, else 0."
        yield Sample(f"{name}_ready", help_, not self.not_ready())
        yield self.build
        yield Sample("envoy_up", "1 if Envoy runs, else 0.", self.supervisor.running)
        help_ = "1 if Envoy is connected to the relay, else 0."
        yield Sample(f"{name}_envoy_connected", help_, self.downstream.connected)
        yield from self.configuration.samples()
        yield Sample(f"{name}_resources", "Resources held for Envoy.", len(self.relay.held))
        text = "Envoy processes that died."
        yield Sample(f"{name}_envoy_restarts", text, self.supervisor.restarts, "counter")
        text = "Resources that Envoy had in another version than confirmed."
        number = self.served_check.mismatches
        yield Sample(f"{name}_config_mismatches", text, number, "counter")
        yield from self.supervisor.access_log.samples()
        yield from self.requests.samples()
        yield from self.connections.samples()
        yield from self.liveness.samples()
        yield from sidecars.metrics(self.sidecar_manager.processes)

    async def metrics(self) -> bytes:
        """Return the /metrics page, after querying Envoy and the reviewer."""
        statistics = await self._statistics(CONVERTED)
        endpoints = await asyncio.to_thread(self.endpoints.samples, statistics)
        text = kube_metrics.convert(statistics)
        text += await unix_http.get(self.paths.run / reviewer.REVIEWER_SOCKET, "/metrics") or ""
        process = self.supervisor.process
        connections = await asyncio.to_thread(
            client_connections.connection_samples, process.pid if process else None
        )
        counted = (self.requests.text() + self.connections.text()).encode()
        samples = (*self.samples(), *connections, *endpoints)
        return page(samples, text, self._options.metric_labels) + counted

    async def envoy_metrics(self) -> bytes:
        """Return the page of Envoy's own metrics."""
        return raw_page(await self._statistics(FAMILIES), self._options.metric_labels)

    async def _statistics(self, chosen: str) -> str:
        """Return the used statistics of Envoy that match a filter. Empty if it does not respond."""
        path = f"/stats/prometheus?usedonly&filter={quote(chosen, safe='')}"
        try:
            return (await self.admin.get(path))[1]
        except OSError:
            return ""


async def run_envoy_agent(options: AgentOptions, stop: asyncio.Event) -> None:
    """Run an agent until `stop` is set, then drain Envoy and stop it.

    If the agent is cancelled or killed instead, Envoy and its sidecars continue, and the next agent
    adopts them. Raises EnvoyMissingError, or OSError if a directory or an address is not available.
    """
    agent = EnvoyAgent(options)
    lifecycle.warn_ignored_options(options)
    await agent.downstream.start(agent.paths.relay)
    agent.supervisor.adopt()
    agent.write_bootstrap()
    await agent.sidecar_manager.start()
    await lifecycle.run_until_stopped(options, agent.health, _run_tasks(agent), stop)
    agent.probe.close()
    await agent.supervisor.stop(agent.admin, options.shutdown_delay_seconds, options.drain_seconds)
    for sidecar in agent.sidecar_manager.processes:
        await sidecar.quit()
    await agent.downstream.stop()
    agent.store.close()
    log.info("stopped")


async def _run_tasks(agent: EnvoyAgent) -> None:
    async with asyncio.TaskGroup() as group:
        lifecycle.start_supervision(
            group, "envoy", agent.supervisor, agent.sidecar_manager.processes
        )
        group.create_task(agent.sidecar_manager.run())
        group.create_task(agent.upstream.run())
        group.create_task(agent.store_changes())
        group.create_task(agent.poll_readiness())
        group.create_task(agent.liveness.run())
        group.create_task(agent.requests.run())
        group.create_task(agent.connections.run())
        group.create_task(agent.configuration.run())
        group.create_task(agent.server_health.run())
        group.create_task(agent.limit_use.run())
        group.create_task(agent.served_check.run())
