"""External machines: load balancers configured in whole, published like Gateways.

Their agents connect to the controller. Each machine is a data plane of its own, since it has its
own version of the proxy and other programs beside it: what its proxy rejects is left out there
only. The last report of a disconnected machine stays valid for a while, so that a short
interruption does not make conditions flap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from gatehouse.compiler.backends.fragments import Output
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.controller.load_balancers.machine_names import machine_key, machine_name
from gatehouse.controller.load_balancers.machine_outputs import MachineConfiguration, MachineOutputs
from gatehouse.controller.load_balancers.quarantine_inputs import QuarantineInputs
from gatehouse.controller.pipelines import AnyPipeline, envoy_pipeline, nginx_pipeline
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.quarantines import Quarantines
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.delivery import HostReport, InstanceReport
from gatehouse.dataplane.machine_identity import MachineIdentity
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key
from gatehouse.transports.server import AgentServer, AuthenticationUnavailable, Denied, Identity

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
        self._inputs = QuarantineInputs()
        self._quarantines = Quarantines(
            self._publisher,
            self._inputs,
            wake,
            lambda *_: None,
            name_of=front.source_name,
            # The status of a load balancer does not tell which part of it is served.
            history=lambda _: StatusHistory.SERVED,
        )
        self._outputs = MachineOutputs({name: p.output for name, p in self._pipelines.items()})
        self._desired: Mapping[str, Machines] = {}
        self._unsupported: dict[str, tuple[Unsupported, ...]] = {}
        """By machine."""
        self._states: dict[tuple[str, str], MachineState] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set_desired(self, desired: Iterable[Machines]) -> None:
        """Publish to these machines and withdraw all others. Idempotent."""
        previous, self._desired = self._desired, {machines.name: machines for machines in desired}
        for balancer, machines in previous.items():
            for host in _names(machines) - _names(self._desired.get(balancer)):
                name = machine_name(balancer, host)
                self._delivery.dismiss(name, host)
                self._states.pop((balancer, host), None)
                self._unsupported.pop(name, None)
                self._quarantines.withdraw(machine_key(name))
        names = [
            (name, machines)
            for machines in self._desired.values()
            for name in _machine_names(machines)
        ]
        self._publisher.withdraw_except({name for name, _ in names})
        configurations = {name: self._configure(name, machines) for name, machines in names}
        outputs = self._outputs.run(configurations)
        for name, machines in names:
            self._publish(name, machines, configurations[name], outputs[name])

    def _configure(self, name: str, machines: Machines) -> MachineConfiguration:
        """Return the configuration of one machine, without what its proxy rejected."""
        key = machine_key(name)
        self._quarantines.reported(key, self._publisher.report(name))
        compiled = self._inputs.without_rejected(key, machines.gateway)
        gateway = self._inputs.without_held_back(key, compiled)
        capabilities = self._pipelines[machines.proxy].capabilities(name)
        return MachineConfiguration(machines.proxy, capabilities, gateway, compiled)

    def _publish(
        self,
        name: str,
        machines: Machines,
        configuration: MachineConfiguration,
        output: Output[Any, Any] | None,
    ) -> None:
        key = machine_key(name)
        self._publisher.publish(name, machines.proxy, output, trial=self._inputs.is_trial(key))
        gateway, compiled = configuration.gateway, configuration.compiled
        # Without an output, the published version is that of an earlier configuration.
        if output is not None and self._quarantines.published(key, gateway, compiled):
            self._wake()
        generated = output.unsupported if output is not None else ()
        self._unsupported[name] = (*generated, *self._quarantines.findings(key))

    def version(self, balancer: str) -> str:
        """Return the desired version of machines; empty before one has connected.

        It is that of the first machine. Others may differ in what their proxies support or reject.
        """
        machines = self._desired.get(balancer)
        names = _machine_names(machines) if machines is not None else ()
        desired = (self._publisher.report(name).desired for name in names)
        return _short(next(filter(None, desired), ""))

    def reports(self, balancer: str) -> Iterable[HostReport]:
        """Return a report for each machine of a load balancer."""
        machines = self._desired.get(balancer)
        if machines is None:
            return
        version = self.version(balancer)
        for host in machines.hosts:
            yield self._report(machines, host.name, version)

    def _report(self, machines: Machines, host: str, version: str) -> HostReport:
        now = time.monotonic()
        name = machine_name(machines.name, host)
        state = self._states.setdefault((machines.name, host), MachineState(now))
        upstream_count = len(machines.upstreams)
        report = self._publisher.report(name)
        instance = next(iter(report.instances), None)
        if instance is None:
            wrong_proxy = self._wrong_proxy_error(name, machines.proxy)
            error = wrong_proxy or self._disconnected_error(state, now)
            last = state.last if not error else None
            return last or HostReport(host, error=error, behind=upstream_count)
        state.connected_at = now
        synchronized = bool(report.desired) and instance.confirmed == report.desired
        if synchronized:
            state.synchronized_at = now
        state.last = HostReport(
            host,
            version=version if synchronized else _other_version(instance, version),
            server=instance.proxy,
            failing=tuple(self._failing(name, instance)),
            error=instance.error if instance.desired == report.desired else "",
            behind=0 if synchronized else upstream_count,
        )
        return state.last

    def _failing(self, name: str, instance: InstanceReport) -> Iterator[tuple[str, str]]:
        """Yield what a machine does not serve, and why."""
        for unsupported in self._unsupported[name]:
            yield _part(unsupported.origin), unsupported.reason
        for rejection in instance.rejected:
            for origin in rejection.origins:
                yield _part(origin), rejection.reason

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

    def _wrong_proxy_error(self, name: str, proxy: str) -> str:
        """Return an error if the agent of a machine runs another proxy than ``proxy``."""
        delivery = self._delivery.envoys if proxy == "nginx" else self._delivery
        if not delivery.report(name).instances:
            return ""
        return f"agent runs another proxy than spec.type: {proxy.title()}"

    def connected(self) -> Mapping[tuple[str, str], bool]:
        """Return for each machine whether its agent is connected."""
        return {
            (balancer, host.name): bool(
                self._publisher.report(machine_name(balancer, host.name)).instances
            )
            for balancer, machines in self._desired.items()
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
            machine = MachineIdentity.parse(uri)
        except ValueError as error:
            raise Denied(str(error)) from error
        key: Key = ("ExternalLoadBalancer", machine.namespace, machine.balancer)
        balancer = front.source_name(key)
        if machine.host not in _names(self._desired.get(balancer)):
            # The host may be added soon: the agent must retry, not give up.
            raise AuthenticationUnavailable(f"{balancer} has no host {machine.host!r}")
        return Identity(machine_name(balancer, machine.host), instance=machine.host)


def _names(machines: Machines | None) -> frozenset[str]:
    return frozenset(host.name for host in machines.hosts) if machines else frozenset()


def _machine_names(machines: Machines) -> tuple[str, ...]:
    return tuple(machine_name(machines.name, host.name) for host in machines.hosts)


def _other_version(instance: InstanceReport, version: str) -> str:
    """Return the version that a machine serves; empty if that only looks like the desired one.

    It is the desired version of another machine, at which something else is left out.
    """
    confirmed = _short(instance.confirmed)
    return confirmed if confirmed != version else ""


def _short(version: str) -> str:
    return version[:_DIGITS]


def _part(origin: Origin) -> str:
    """Return the part of a load balancer that a finding is about."""
    return f"port {origin.port}" if origin.port else str(origin)
