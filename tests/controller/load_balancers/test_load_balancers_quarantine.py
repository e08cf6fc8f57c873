"""Quarantine of an external machine: what its proxy rejects is left out there."""

from __future__ import annotations

import pytest

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.load_balancers.quarantine_inputs import QuarantineInputs
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key

KEY = ("ExternalLoadBalancer", "edge", "front")
NAME = "ExternalLoadBalancer edge/front"


def origin(port: int) -> Origin:
    return Origin("ExternalLoadBalancer", "edge", "front", port=port)


def listener(port: int) -> ir.Listener:
    action = http.Forward((http.Backend("web"),))
    route = http.Route(f"edge/front/{port}", http.Match(), action, origin=origin(port))
    return ir.Listener(port, "HTTP", (http.VirtualHost("", (route,)),))


GATEWAY = ir.GatewayConfiguration(
    NAME,
    listeners=(listener(80), listener(81)),
    l4_listeners=(ir.L4Listener(90, "TCP", (ir.L4Host(""),)),),
)


class World:
    """A machine with its quarantine."""

    def __init__(self, *suspects: Suspect) -> None:
        self.inputs, self.keys = QuarantineInputs(), set[Key]()
        inputs = self.inputs
        self.quarantine = Quarantine(KEY, lambda *_: suspects, inputs.spec_of, inputs.reads)
        self.version = 0

    def publish(self) -> ir.GatewayConfiguration:
        compiled = self.inputs.without_rejected(KEY, GATEWAY)
        gateway = self.inputs.without_held_back(KEY, compiled)
        self.version += 1
        self.quarantine.published(f"v{self.version}", gateway, compiled)
        return gateway

    def report(self, *, rejects: bool) -> None:
        """Let the machine reject or confirm the newest version."""
        version = f"v{self.version}"
        instance = InstanceReport(
            "lb-1",
            desired=version,
            confirmed="" if rejects else version,
            proxy="nginx/1",
            rejected_version=version if rejects else "",
            rejection="bad" if rejects else "",
        )
        process_report(self.quarantine, DataPlaneReport(NAME, version, (instance,)))
        inputs = self.quarantine.inputs
        for key in self.keys | inputs.keys():
            self.inputs.put_input(key, inputs.get(key))
        self.keys = set(inputs)


def ports(gateway: ir.GatewayConfiguration) -> list[int]:
    return [
        *(http_listener.port for http_listener in gateway.listeners),
        *(e.port for e in gateway.l4_listeners),
    ]


@pytest.mark.parametrize("port", [80, 81, 90])
def test_port_that_the_proxy_rejects_is_left_out(port: int) -> None:
    world = World(Suspect(origin(port)))
    assert world.publish() == GATEWAY
    world.report(rejects=True)
    assert ports(world.publish()) == [number for number in (80, 81, 90) if number != port]
    assert not world.quarantine.left_out, "it is not proven"
    world.report(rejects=False)
    assert ports(world.publish()) == [number for number in (80, 81, 90) if number != port]
    (finding,) = world.quarantine.findings
    assert (finding.origin, finding.reason) == (origin(port), "rejected by nginx/1: bad")
    assert world.quarantine.left_out == (origin(port),)


def test_cause_that_is_not_named_is_searched() -> None:
    world = World()
    for _ in range(10):
        served = world.publish()
        good = {
            route.origin.port: isinstance(route.action, http.Forward)
            for http_listener in served.listeners
            for host in http_listener.virtual_hosts
            for route in host.routes
        }
        world.report(rejects=good.get(81, False))
    assert good == {80: True, 81: False}
    assert ports(served) == [80, 81, 90]
    assert world.quarantine.left_out == (origin(81),)
