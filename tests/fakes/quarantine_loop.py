"""The loop of a controller with a quarantine and one instance, which tests each version at once."""

from __future__ import annotations

from collections.abc import Callable

from fakes.instance_reports import data_plane_report
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.controller.held_back import held_back_key, without_held_back
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.dataplane.delivery import InstanceReport
from gatehouse.incremental.query import Key

GATEWAY: Key = ("Gateway", "ns", "gw")

MAX_VERSIONS = 300


def to_publish(quarantine: Quarantine, compiled: GatewayConfiguration) -> GatewayConfiguration:
    """Return the configuration of the Gateway without what a search holds back."""
    held = quarantine.inputs.get(held_back_key(GATEWAY))
    return compiled if held is None else without_held_back(held, compiled)


def settle(
    quarantine: Quarantine,
    compiler: Callable[[], GatewayConfiguration],
    test: Callable[[GatewayConfiguration, str], InstanceReport],
) -> bool:
    """Publish until nothing changes. Return whether the last version is accepted.

    `test` returns the instance's report of a configuration and its version.
    """
    for _ in range(MAX_VERSIONS):
        compiled = compiler()
        gateway = to_publish(quarantine, compiled)
        version = repr(gateway)
        if quarantine.published(version, gateway, compiled):
            continue
        report = test(gateway, version)
        if not process_report(quarantine, data_plane_report(report)):
            return not report.rejected_version and not report.rejected
    raise AssertionError("the quarantine does not settle")
