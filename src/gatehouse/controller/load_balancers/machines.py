"""External machines: load balancers configured in whole, published like Gateways.

Their agents connect to the controller. The last report of a disconnected machine stays valid for a
while, so that a short interruption does not make conditions flap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from gatehouse.compiler.backends.configuration import Incremental
from gatehouse.compiler.backends.fragments import Output
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.pipelines import AnyPipeline, envoy_pipeline, nginx_pipeline
from gatehouse.controller.publisher import Publisher
from gatehouse.dataplane.delivery import DataPlaneReport, HostReport, InstanceReport
from gatehouse.dataplane.machine_identity import Machine
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key
from gatehouse.transports.server import AgentServer, Denied, Identity, Unavailable

DISCONNECT_GRACE_SECONDS = 10.0
"""Time in seconds after which a disconnected agent is reported."""

DISCONNECTED_MESSAGE = "agent is not connected"

_DIGITS = 12
"""Length of versions in reports."""


class MachineState(msgspec.Struct):
    """Last known state of a machine. Times are seconds of the monotonic clock."""

    connected_at: float
    """Last time it was connected, or first time it was desired."""
    synchronized_at: float | None = None
    """Last time it served the desired version; None before."""
    last: HostReport | None = None
    """Last report while it was connected."""


class _Generator(msgspec.Struct, frozen=True):
    proxy: str
    capabilities: Any
    queries: Incremental[Any]


class MachineFleet:
    """Publishes configuration to machines."""

    def __init__(self, delivery: AgentServer, wake: Callable[[], None]) -> None:
        """``wake`` is called when a report changes only because time has passed."""
        self._delivery = delivery
        self._wake = wake
        self._pipelines: Mapping[str, AnyPipeline] = {
            "nginx": nginx_pipeline(delivery),
            "envoy": envoy_pipeline(delivery.envoys),
        }
        self._publisher = Publisher(self._pipelines)
        self._generators: dict[str, _Generator] = {}
        self._desired: Mapping[str, Machines] = {}
        self._unsupported: dict[str, tuple[Unsupported, ...]] = {}
        self._states: dict[tuple[str, str], MachineState] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set_desired(self, desired: Iterable[Machines]) -> None:
        """Publish to these machines and withdraw all others. Idempotent."""
        previous, self._desired = self._desired, {each.name: each for each in desired}
        for name, machines in previous.items():
            for host in _names(machines) - _names(self._desired.get(name)):
                self._delivery.dismiss(name, host)
                self._states.pop((name, host), None)
        for name in previous.keys() - self._desired.keys():
            self._generators.pop(name, None)
        self._publisher.withdraw_except(set(self._desired))
        for name, each in self._desired.items():
            output = self._generate(name, each)
            self._publisher.publish(name, each.proxy, output)
            generated = output.unsupported if output is not None else ()
            self._unsupported[name] = (*generated, *self._publisher.rejected(name))

    def _generate(self, name: str, machines: Machines) -> Output[Any, Any] | None:
        """Return the output for machines; None before one has connected."""
        pipeline = self._pipelines[machines.proxy]
        known, capabilities = self._generators.get(name), pipeline.capabilities(name)
        if capabilities is None:
            return None
        if known is None or (known.proxy, known.capabilities) != (machines.proxy, capabilities):
            queries = Incremental(pipeline.output, capabilities)
            known = self._generators[name] = _Generator(machines.proxy, capabilities, queries)
        return known.queries.run(machines.gateway)

    def version(self, name: str) -> str:
        """Return the desired version of machines; empty before one has connected."""
        return _short(self._publisher.report(name).desired)

    def reports(self, name: str) -> Iterable[HostReport]:
        """Return a report for each machine of a load balancer."""
        machines = self._desired.get(name)
        if machines is None:
            return
        report = self._publisher.report(name)
        connected = {instance.instance: instance for instance in report.instances}
        wrong_proxy = self._wrong_proxy_errors(name, machines.proxy)
        failing = _common(self._unsupported[name], report)
        for host in machines.hosts:
            yield self._report(name, host.name, connected, wrong_proxy, failing, report.desired)

    def _report(
        self,
        name: str,
        host: str,
        connected: Mapping[str, InstanceReport],
        wrong_proxy: Mapping[str, str],
        failing: tuple[tuple[str, str], ...],
        desired: str,
    ) -> HostReport:
        now = time.monotonic()
        state = self._states.setdefault((name, host), MachineState(now))
        instance = connected.get(host)
        upstream_count = len(self._desired[name].upstreams)
        if instance is None:
            error = wrong_proxy.get(host) or self._disconnected_error(state, now)
            last = state.last if not error else None
            return last or HostReport(host, error=error, behind=upstream_count)
        state.connected_at = now
        synchronized = bool(desired) and instance.confirmed == desired
        if synchronized:
            state.synchronized_at = now
        rejected = tuple(
            (_part(origin), each.reason) for each in instance.rejected for origin in each.origins
        )
        state.last = HostReport(
            host,
            version=_short(instance.confirmed),
            server=instance.proxy,
            failing=(*failing, *rejected),
            error=instance.error if instance.desired == desired else "",
            behind=0 if synchronized else upstream_count,
        )
        return state.last

    def _disconnected_error(self, state: MachineState, now: float) -> str:
        seconds_left = state.connected_at + DISCONNECT_GRACE_SECONDS - now
        if seconds_left <= 0:
            return DISCONNECTED_MESSAGE
        if self._timer is None:
            # Machines that disconnect later are checked again when this timer fires.
            self._timer = asyncio.get_running_loop().call_later(seconds_left + 0.1, self._notify)
        return ""

    def _notify(self) -> None:
        self._timer = None
        self._wake()

    def _wrong_proxy_errors(self, name: str, proxy: str) -> Mapping[str, str]:
        """Return an error for each machine whose agent runs another proxy than ``proxy``."""
        delivery = self._delivery.envoys if proxy == "nginx" else self._delivery
        message = f"agent runs another proxy than spec.type: {proxy.title()}"
        return {each.instance: message for each in delivery.report(name).instances}

    def connected(self) -> Mapping[tuple[str, str], bool]:
        """Return for each machine whether its agent is connected."""
        return {
            (name, host.name): any(
                instance.instance == host.name
                for instance in self._publisher.report(name).instances
            )
            for name, machines in self._desired.items()
            for host in machines.hosts
        }

    def synchronized_at(self) -> Mapping[tuple[str, str], float]:
        """Return when each machine last served the desired version."""
        for name in self._desired:
            # A machine that is synchronized has been so until now, whenever it reported that.
            tuple(self.reports(name))
        return {
            name_and_host: state.synchronized_at
            for name_and_host, state in self._states.items()
            if state.synchronized_at is not None
        }

    def identify(self, uri: str) -> Identity:
        """Return the identity of the machine that a certificate's URI names.

        Raises Denied if the URI is invalid, Unavailable if no such host is known (yet).
        """
        try:
            machine = Machine.parse(uri)
        except ValueError as error:
            raise Denied(str(error)) from error
        key: Key = ("ExternalLoadBalancer", machine.namespace, machine.balancer)
        name = front.name_of(key)
        if machine.host not in _names(self._desired.get(name)):
            # The host may be added soon: the agent must retry, not give up.
            raise Unavailable(f"{name} has no host {machine.host!r}")
        return Identity(gateway=name, instance=machine.host)


def is_machines(gateway: str) -> bool:
    """Return whether a delivery name is that of machines, not of a Gateway."""
    return gateway.startswith("ExternalLoadBalancer ")


def _names(machines: Machines | None) -> frozenset[str]:
    return frozenset(host.name for host in machines.hosts) if machines else frozenset()


def _short(version: str) -> str:
    return version[:_DIGITS]


def _common(
    unsupported: Iterable[Unsupported], report: DataPlaneReport
) -> tuple[tuple[str, str], ...]:
    """Return what the proxy does not support, which applies to all machines; not rejections."""
    rejected = set(report.rejected)
    found = ((each.origin, each.reason) for each in unsupported)
    return tuple((_part(entry[0]), entry[1]) for entry in found if entry not in rejected)


def _part(origin: Origin) -> str:
    """Return the part of a load balancer that a finding is about."""
    return f"port {origin.port}" if origin.port else str(origin)
