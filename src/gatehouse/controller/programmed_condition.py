"""What a data plane's report means for a Gateway's ``Programmed`` condition. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.compiler.frontends.gateway_api import ProgrammedInput
from gatehouse.dataplane.delivery import DataPlaneReport


class ProvisioningError(msgspec.Struct, frozen=True):
    """Why a data plane is not provisioned as its Gateway asks."""

    message: str
    quota_exceeded: bool = False
    """Whether a quota does not allow it."""
    degraded: bool = False
    """Whether all is as it should be but that there are fewer Pods: those may serve."""


class ProgrammedState(msgspec.Struct, frozen=True):
    """Where one Gateway's data plane stands, and for which generation of the Gateway."""

    state: ProgrammedInput
    generation: int = 0
    """The newest generation of the Gateway that was confirmed."""


def evaluate(
    before: ProgrammedState | None,
    report: DataPlaneReport,
    generation: int,
    trouble: ProvisioningError | None = None,
    *,
    served: bool,
) -> ProgrammedState:
    """Say where the data plane stands now.

    ``served``: every instance has confirmed a bundle that holds this generation of the Gateway,
    whatever was published after it. While an instance has not, what was true before stays said,
    unless the Gateway is newer: one more instance must not make ``Programmed`` blink.
    ``trouble`` is why the data plane could not be provisioned. What was true of this generation
    stays true, and is said with the trouble; a newer one is not in traffic while its Service or its
    Pods are not as it asks. A Gateway is not Programmed while the proxy of an instance is down.
    """
    confirmed = before.generation if before else 0
    if report.unhealthy:
        return ProgrammedState(
            ProgrammedInput(programmed=False, message=report.unhealthy), confirmed
        )
    if report.error:
        return ProgrammedState(
            ProgrammedInput(programmed=False, reason="Invalid", message=report.error), confirmed
        )
    held = before is not None and before.state.programmed and confirmed == generation
    if trouble and not held and not (trouble.degraded and served):
        return ProgrammedState(_unprovisioned(trouble), confirmed)
    if trouble and served:
        return ProgrammedState(
            ProgrammedInput(programmed=True, message=trouble.message), generation
        )
    if served:
        return ProgrammedState(ProgrammedInput(programmed=True), generation)
    if not report.instances:
        if trouble:
            return ProgrammedState(_unprovisioned(trouble), confirmed)
        message = "waiting for the data plane to connect"
        return ProgrammedState(ProgrammedInput(programmed=False, message=message), confirmed)
    if before is not None and held:
        return before
    message = "waiting for the data plane to confirm its configuration"
    return ProgrammedState(ProgrammedInput(programmed=False, message=message), confirmed)


def _unprovisioned(trouble: ProvisioningError) -> ProgrammedInput:
    reason: Literal["NoResources", "Pending"] = (
        "NoResources" if trouble.quota_exceeded else "Pending"
    )
    return ProgrammedInput(programmed=False, reason=reason, message=trouble.message)


def is_settled(report: DataPlaneReport) -> bool:
    """Whether nothing is on its way: confirmed, refused, or nobody is there to confirm."""
    stuck = report.error or report.unhealthy
    return report.programmed or bool(stuck) or not report.instances
