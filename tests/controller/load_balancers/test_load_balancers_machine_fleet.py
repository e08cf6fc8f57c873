"""Fleet of external machines: a delivery, quarantine and version for each, and shared outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir import load_balancing as lb
from gatehouse.controller.load_balancers.machines import MachineFleet
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.file_set import FileSet
from gatehouse.dataplane.origin import port_of

KEY = ("ExternalLoadBalancer", "edge", "front")
BALANCER = "ExternalLoadBalancer edge/front"


class Delivery:
    """Published content by machine, and what their agents report."""

    envoys: Delivery
    """The delivery to Envoys."""

    def __init__(self) -> None:
        self.published: dict[str, FileSet] = {}
        self.instances: dict[str, InstanceReport] = {}
        self.on_report: Callable[[str], None] = lambda _: None
        self.dismissed: list[tuple[str, str]] = []

    def publish(self, name: str, content: FileSet) -> None:
        self.published[name] = content

    def withdraw(self, name: str) -> None:
        self.published.pop(name, None)

    def dismiss(self, name: str, host: str) -> None:
        self.dismissed.append((name, host))

    def report(self, name: str) -> DataPlaneReport:
        content = self.published.get(name)
        known = self.instances.get(name)
        desired = content.version if content is not None else ""
        return DataPlaneReport(name, desired, (known,) if known is not None else ())


class Machines:
    """A fleet with machines that answer as the test says."""

    def __init__(self) -> None:
        self.nginx = Delivery()
        self.nginx.envoys = Delivery()
        delivery: Any = self.nginx
        self.fleet = MachineFleet(delivery, lambda: None)
        self.desired = machines(80)

    def set_desired(self, *ports: int) -> None:
        self.desired = machines(*ports)
        self.run()

    def run(self) -> None:
        self.fleet.set_desired([self.desired])

    def connect(self, host: str, proxy: str = "nginx/1.27.4", **fields: Any) -> None:
        """Let an agent report something, or connect first."""
        name = f"{BALANCER}/{host}"
        report = self.nginx.instances.get(name) or InstanceReport(host)
        fields = {"proxy": proxy, "serving": True, **fields}
        self.nginx.instances[name] = msgspec.structs.replace(report, **fields)
        self.run()

    def disconnect(self, host: str) -> None:
        del self.nginx.instances[f"{BALANCER}/{host}"]

    def content(self, host: str) -> FileSet:
        content = self.nginx.published[f"{BALANCER}/{host}"]
        assert isinstance(content, FileSet)
        return content

    def answer(self, host: str, *, rejects: Callable[[FileSet], bool] = lambda _: False) -> None:
        """Let a machine confirm or reject versions until nothing changes."""
        for _ in range(20):
            content = self.content(host)
            if rejects(content):
                fields = {"rejected_version": content.version, "rejection": "bad"}
            else:
                fields = {"confirmed": content.version, "rejected_version": "", "rejection": ""}
            self.connect(host, desired=content.version, **fields)
            if self.content(host) == content and not rejects(content):
                return
        raise AssertionError("the fleet does not settle")

    def failing(self, host: str) -> tuple[tuple[str, str], ...]:
        return next(item.failing for item in self.fleet.reports(BALANCER) if item.host == host)


def machines(*ports: int) -> lb.Machines:
    """Return two machines that listen on ports."""
    action = http.Forward((http.Backend("http-web"),))
    listeners = tuple(
        ir.Listener(
            port,
            "HTTP",
            (
                http.VirtualHost(
                    f"p{port}.example",
                    (http.Route(f"r{port}", http.Match(), action, origin=port_of(KEY, port)),),
                ),
            ),
        )
        for port in ports
    )
    cluster = http.Cluster("http-web", (http.Endpoint("127.0.0.1", 9),))
    gateway = ir.GatewayConfiguration(BALANCER, "127.0.0.1", listeners, clusters=(cluster,))
    hosts = (lb.Machine("lb-1"), lb.Machine("lb-2"))
    return lb.Machines(BALANCER, "nginx", hosts, (), gateway)


def forwards(content: FileSet, port: int) -> bool:
    """Return whether the server of a port passes requests on."""
    texts = [file.content.decode() for file in content.files.values()]
    return any(f"p{port}.example" in text and "proxy_pass" in text for text in texts)


def test_equal_machines_share_one_output_and_others_have_their_own() -> None:
    world = Machines()
    world.connect("lb-1")
    world.connect("lb-2")
    assert world.content("lb-1") is world.content("lb-2")
    world.connect("lb-2", proxy="nginx/1.22.1")
    assert world.content("lb-1") is not world.content("lb-2")


async def test_part_that_one_machine_rejects_is_left_out_there_and_changes_reach_both() -> None:
    world = Machines()
    for host in ("lb-1", "lb-2"):
        world.connect(host)
        world.answer(host)
    world.set_desired(80, 81)
    world.answer("lb-1")
    world.answer("lb-2", rejects=lambda content: forwards(content, 81))
    assert forwards(world.content("lb-1"), 81)
    assert not forwards(world.content("lb-2"), 81)
    assert forwards(world.content("lb-2"), 80)
    assert world.failing("lb-1") == ()
    assert world.failing("lb-2") == (("port 81", "rejected by nginx/1.27.4: bad"),)
    world.set_desired(80, 81, 82)
    world.answer("lb-1")
    world.answer("lb-2", rejects=lambda content: forwards(content, 81))
    for host in ("lb-1", "lb-2"):
        assert forwards(world.content(host), 82)
    versions = {report.host: report.version for report in world.fleet.reports(BALANCER)}
    assert set(versions.values()) == {world.fleet.version(BALANCER)}


async def test_configuration_of_the_time_without_a_connection_is_not_taken_for_good() -> None:
    world = Machines()
    world.connect("lb-1")
    served = world.content("lb-1")
    world.disconnect("lb-1")
    world.set_desired(80, 81, 82)
    assert world.content("lb-1") is served
    world.connect("lb-1", confirmed=served.version)
    world.answer("lb-1", rejects=lambda content: forwards(content, 81))
    assert forwards(world.content("lb-1"), 82)
    assert world.failing("lb-1") == (("port 81", "rejected by nginx/1.27.4: bad"),)


def test_removed_machine_is_dismissed() -> None:
    world = Machines()
    world.connect("lb-1")
    world.connect("lb-2")
    world.desired = msgspec.structs.replace(world.desired, hosts=(lb.Machine("lb-1"),))
    world.run()
    assert world.nginx.dismissed == [(f"{BALANCER}/lb-2", "lb-2")]
    assert world.nginx.published.keys() == {f"{BALANCER}/lb-1"}


async def test_serving_machine_finds_by_trials_what_it_rejects_after_a_controller_restart() -> None:
    """The first version that it gets is rejected, and its proxy names no port."""
    world = Machines()
    world.connect("lb-1", takes_trials=True)
    world.set_desired(80, 81, 82)
    offered: list[FileSet] = []

    def rejects(content: FileSet) -> bool:
        offered.append(content)
        return forwards(content, 81)

    world.answer("lb-1", rejects=rejects)
    assert any(content.trial for content in offered)
    served = [content for content in offered if not content.trial and not forwards(content, 81)]
    assert served
    for content in served:
        assert forwards(content, 80)
        assert forwards(content, 82)
    assert [name for name, _ in world.failing("lb-1")] == ["port 81"]
