"""A quarantine with several instances, and with an Envoy, which rejects parts of a version."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fakes.quarantine_loop import settle, to_publish
from fakes.search_world import BAD, World, origin, served
from gatehouse.compiler.ir import gateway as ir
from gatehouse.controller.quarantines import process_report
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection
from gatehouse.dataplane.origin import Origin, port_origin


class Instance:
    """An instance that answers each version on its own, as agents do."""

    def __init__(self, name: str, *, picky: bool) -> None:
        self.name, self.picky = name, picky
        self.confirmed = self.rejected = ""

    def apply(self, version: str) -> None:
        if self.picky and BAD in version:
            self.rejected = version
        else:
            self.confirmed, self.rejected = version, ""

    def report(self, desired: str) -> InstanceReport:
        return InstanceReport(
            self.name,
            desired=desired,
            confirmed=self.confirmed,
            proxy="nginx/1.31.3" if self.picky else "nginx/1.29.0",
            rejected_version=self.rejected,
            rejection="bad" if self.rejected else "",
            serving=bool(self.confirmed),
        )


@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
def test_object_that_one_of_three_instances_rejects_is_left_out_everywhere(order: str) -> None:
    """The instances answer in any order, each while the others still report the last version."""
    world = World()
    instances = {name: Instance(name, picky=name == "b") for name in order}
    versions: list[str] = []

    def settle_all() -> None:
        for _ in range(50):
            compiled = world.compile()
            world.serving = to_publish(world.quarantine, compiled)
            version = repr(world.serving)
            versions.append(version)
            changed = world.quarantine.published(version, world.serving, compiled)
            for instance in instances.values() if not changed else ():
                instance.apply(version)
                reports = tuple(answer.report(version) for answer in instances.values())
                changed |= process_report(
                    world.quarantine, DataPlaneReport("ns/gw", version, reports)
                )
            if not changed:
                return
        raise AssertionError("the quarantine does not settle")

    world.routes = {"old": ("", "")}
    settle_all()
    world.routes |= {"bad": (BAD, ""), "new": ("", "")}
    settle_all()
    assert world.left_out == {"HTTPRoute bad"}
    assert served(world.serving) == {"old", "new"}
    assert {instance.confirmed for instance in instances.values()} == {versions[-1]}
    (finding,) = world.quarantine.findings
    assert finding.reason == "match rejected by nginx/1.31.3: bad"


def settle_envoy(
    world: World, rejects: Callable[[ir.GatewayConfiguration], list[Rejection]]
) -> None:
    """Publish to an instance that rejects resources and serves the rest of each version."""

    def test(gateway: ir.GatewayConfiguration, version: str) -> InstanceReport:
        world.serving = gateway
        rejected = tuple(rejects(gateway))
        return InstanceReport("e", version, version, proxy="envoy/1", rejected=rejected)

    settle(world.quarantine, world.compile, test)


def test_certificate_is_left_out_again_if_only_its_listener_is_rejected() -> None:
    """Envoy names a Secret once. Later it rejects listeners that use the Secret."""
    secret, listener = origin("Secret", "tls"), port_origin("ns/gw", 80)
    world = World()
    world.routes = {"old": ("", "")}
    settle_envoy(world, lambda _: [])
    world.put("Secret", "tls", BAD)
    reported: list[Origin] = []

    def rejects(gateway: ir.GatewayConfiguration) -> list[Rejection]:
        if not gateway.certificates:
            return []
        reported.append(listener if reported else secret)
        return [Rejection((reported[-1],), "Failed to load certificate chain")]

    settle_envoy(world, rejects)
    world.quarantine.verdicts.hurry(0.0)
    assert world.quarantine.retry()
    settle_envoy(world, rejects)
    assert set(reported) == {secret, listener}
    assert world.left_out == {"Secret tls"}
    assert not world.quarantine.searching


def test_policy_is_left_out_if_a_listener_is_rejected_because_of_it() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    settle_envoy(world, lambda _: [])
    world.put("ClientSettingsPolicy", "limits", BAD)
    world.routes["new"] = ("", "")
    rejection = Rejection((port_origin("ns/gw", 80),), "body_size is negative")
    settle_envoy(world, lambda gateway: [rejection] if "body_size=-1" in repr(gateway) else [])
    assert world.left_out == {"ClientSettingsPolicy limits"}
    assert served(world.serving) == {"old", "new"}


def test_policy_is_left_out_if_a_new_controller_meets_a_listener_rejected_because_of_it() -> None:
    world = World()
    world.put("ClientSettingsPolicy", "limits", BAD)
    world.put("NginxProxy", "parameters", "good")
    world.routes = {"old": ("", ""), "new": ("", "")}
    rejection = Rejection((port_origin("ns/gw", 80),), "body_size is negative")
    settle_envoy(world, lambda gateway: [rejection] if "body_size=-1" in repr(gateway) else [])
    assert world.left_out == {"ClientSettingsPolicy limits"}
    assert served(world.serving) == {"old", "new"}
    assert world.serving.settings.nginx.error_level == "good"


def test_rejected_object_is_tried_again_while_a_port_is_taken() -> None:
    """A port that another program has tells nothing about objects."""
    world = World()
    taken = Rejection((port_origin("ns/gw", 80),), "cannot bind", transient=True)
    bad = Rejection((origin("Secret", "tls"),), "Failed to load certificate chain")
    world.routes = {"old": ("", "")}
    settle_envoy(world, lambda _: [taken])
    world.put("Secret", "tls", BAD)
    settle_envoy(world, lambda gateway: [bad, taken] if gateway.certificates else [taken])
    assert world.left_out == {"Secret tls"}
    world.quarantine.verdicts.hurry(0.0)
    assert world.quarantine.retry()
    settle_envoy(world, lambda _: [taken])
    assert world.left_out == set()
    assert not world.quarantine.searching
