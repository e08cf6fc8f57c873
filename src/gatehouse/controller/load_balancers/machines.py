"""Load balancers that are ours in whole: published like Gateways, reported like hosts.

Their agents come to us. Of one that is not there what was known last counts for a while, so that a
short break of a line does not make conditions blink.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.controller.pipelines import Unsupported, envoy_pipeline, nginx_pipeline
from gatehouse.controller.publisher import Publisher
from gatehouse.dataplane.delivery import DataPlaneReport, HostReport, InstanceReport
from gatehouse.dataplane.machine_identity import Machine
from gatehouse.incremental.query import Key
from gatehouse.transports.server import AgentServer, Denied, Identity, Unavailable

DISCONNECT_GRACE_SECONDS = 10.0
"""How long a machine's agent may be missing before that is said."""

DISCONNECTED_MESSAGE = "its agent is not connected"

_DIGITS = 12
"""Of versions, as they are shown."""


class MachineState(msgspec.Struct):
    """When a machine was last seen to be as it should; seconds of the monotonic clock."""

    missed: float
    """Connected, or first waited for."""
    agreed: float | None = None
    last: HostReport | None = None
    """What there was to say while it was connected."""


class MachineFleet:
    """Delivers to machines what they are to serve."""

    def __init__(self, delivery: AgentServer, wake: Callable[[], None]) -> None:
        """``wake`` is called when time alone made a report another one."""
        self._delivery = delivery
        self._wake = wake
        self._publisher = Publisher(
            {"nginx": nginx_pipeline(delivery), "envoy": envoy_pipeline(delivery.envoys)}
        )
        self._wanted: Mapping[str, Machines] = {}
        self._unsupported: dict[str, Unsupported] = {}
        self._standings: dict[tuple[str, str], MachineState] = {}
        self._timer: asyncio.TimerHandle | None = None

    def want(self, wanted: Iterable[Machines]) -> None:
        """Have these serve what they are to serve, and no others; idempotent."""
        before, self._wanted = self._wanted, {each.name: each for each in wanted}
        for name, machines in before.items():
            for host in _names(machines) - _names(self._wanted.get(name)):
                self._delivery.dismiss(name, host)
                self._standings.pop((name, host), None)
        self._publisher.withdraw_except(set(self._wanted))
        for name, each in self._wanted.items():
            self._unsupported[name] = self._publisher.publish(each.gateway, each.proxy)

    def version(self, name: str) -> str:
        """Give the version that machines are to serve; empty before one has connected."""
        return _short(self._publisher.report(name).desired)

    def reports(self, name: str) -> Iterable[HostReport]:
        """Give what there is to say of each machine of a load balancer."""
        machines = self._wanted.get(name)
        if machines is None:
            return
        found = self._publisher.report(name)
        connected = {each.instance: each for each in found.instances}
        strangers = self._of_other_proxy(name, machines.proxy)
        failing = _common(self._unsupported[name], found)
        for host in machines.hosts:
            yield self._report(name, host.name, connected, strangers, failing, found.desired)

    def _report(
        self,
        name: str,
        host: str,
        connected: Mapping[str, InstanceReport],
        strangers: Mapping[str, str],
        failing: tuple[tuple[str, str], ...],
        desired: str,
    ) -> HostReport:
        now = time.monotonic()
        standing = self._standings.setdefault((name, host), MachineState(now))
        instance = connected.get(host)
        all_ = len(self._wanted[name].upstreams)
        if instance is None:
            error = strangers.get(host) or self._away(standing, now)
            known = standing.last if not error else None
            return known or HostReport(host, error=error, behind=all_)
        standing.missed = now
        agrees = bool(desired) and instance.confirmed == desired
        if agrees:
            standing.agreed = now
        refused = tuple((" ".join(each.origins), each.reason) for each in instance.rejected)
        standing.last = HostReport(
            host,
            version=_short(instance.confirmed),
            server=instance.proxy,
            failing=(*failing, *refused),
            error=instance.error if instance.desired == desired else "",
            behind=0 if agrees else all_,
        )
        return standing.last

    def _away(self, standing: MachineState, now: float) -> str:
        left = standing.missed + DISCONNECT_GRACE_SECONDS - now
        if left <= 0:
            return DISCONNECTED_MESSAGE
        if self._timer is None:
            # Whoever is missed later is looked for again when this one rings.
            self._timer = asyncio.get_running_loop().call_later(left + 0.1, self._notify)
        return ""

    def _notify(self) -> None:
        self._timer = None
        self._wake()

    def _of_other_proxy(self, name: str, proxy: str) -> Mapping[str, str]:
        """Give the machines whose agent runs what was not asked for, and why that is no good."""
        line = self._delivery.envoys if proxy == "nginx" else self._delivery
        words = f"it runs another proxy than spec.type: {proxy.title()}"
        return {each.instance: words for each in line.report(name).instances}

    def connected(self) -> Mapping[tuple[str, str], bool]:
        """Say of each machine whether its agent is there."""
        return {
            (name, host.name): any(
                each.instance == host.name for each in self._publisher.report(name).instances
            )
            for name, machines in self._wanted.items()
            for host in machines.hosts
        }

    def agreed(self) -> Mapping[tuple[str, str], float]:
        """Give when each machine was last known to serve what it is to serve."""
        for name in self._wanted:
            # Who is as it should be is so until now, whenever that was reported.
            tuple(self.reports(name))
        return {
            place: each.agreed for place, each in self._standings.items() if each.agreed is not None
        }

    def identify(self, uri: str) -> Identity:
        """Give who the machine is that a certificate names; raises Denied or Unavailable."""
        try:
            machine = Machine.parse(uri)
        except ValueError as error:
            raise Denied(str(error)) from error
        key: Key = ("ExternalLoadBalancer", machine.namespace, machine.balancer)
        name = front.name_of(key)
        if machine.host not in _names(self._wanted.get(name)):
            # It may be about to be named: the agent shall try again, not give up.
            raise Unavailable(f"{name} has no host {machine.host!r}")
        return Identity(gateway=name, instance=machine.host)


def is_machines(gateway: str) -> bool:
    """Whether a name of what is delivered is that of machines, and not of a Gateway."""
    return gateway.startswith("ExternalLoadBalancer ")


def _names(machines: Machines | None) -> frozenset[str]:
    return frozenset(each.name for each in machines.hosts) if machines else frozenset()


def _short(version: str) -> str:
    return version[:_DIGITS]


def _common(unsupported: Unsupported, found: DataPlaneReport) -> tuple[tuple[str, str], ...]:
    """Give what the proxy cannot do, which holds for all machines; refusals are each one's own."""
    refused = set(found.rejected)
    return tuple(each for each in unsupported if each not in refused)
