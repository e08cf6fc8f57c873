"""State of a Gateway's ``Programmed`` condition, computed from its data plane's report."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from gatehouse.compiler.frontends.gateway_api import ProgrammedInput, Reason
from gatehouse.controller.compilation import CompiledGateway
from gatehouse.controller.held_back import count_held_back
from gatehouse.dataplane.delivery import DataPlaneReport

_SINCE = re.compile(r"\bsince (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ): ")


class ProvisioningError(msgspec.Struct, frozen=True):
    """Why a data plane is not provisioned as its Gateway specifies."""

    message: str
    quota_exceeded: bool = False
    """True if a quota is exceeded."""
    degraded: bool = False
    """True if only the number of Pods is too low; the existing ones may serve."""


class ProgrammedState(msgspec.Struct, frozen=True):
    """State of ``Programmed`` of one Gateway, and the confirmed generation of the Gateway."""

    state: ProgrammedInput
    generation: int = 0
    """The newest generation of the Gateway that was confirmed."""
    incomplete_since: str = ""
    """Time since when objects are left out or held back; empty if none is."""


class Incomplete(msgspec.Struct, frozen=True):
    """Objects that are missing in the configuration that the data plane serves."""

    left_out: str = ""
    """Message about objects that the proxy rejected."""
    held_back: int = 0
    """Number of objects that wait for the search for the cause of a rejection."""
    now: str = ""
    """Present time, as in RFC 3339."""

    def message(self, since: str) -> str:
        """Return what is missing since when; empty if nothing is."""
        waiting = ""
        if self.held_back:
            objects = "object waits" if self.held_back == 1 else "objects wait"
            waiting = f"{self.held_back} {objects} for the search for the cause of a rejection"
        parts = "; ".join(filter(None, (waiting, self.left_out)))
        return f"since {since}: {parts}" if parts else ""

    @staticmethod
    def since(message: str) -> str:
        """Return the time in a message that has one; empty if it has none."""
        match = _SINCE.search(message)
        return match[1] if match is not None else ""


COMPLETE = Incomplete()
"""Nothing is missing."""


def incomplete_now(left_out: str, compiled: CompiledGateway) -> Incomplete:
    """Return what is missing at present in the published configuration of a Gateway."""
    if not left_out and compiled.published is compiled.gateway:
        return COMPLETE
    held_back = count_held_back(compiled.published, compiled.gateway)
    return Incomplete(left_out, held_back, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")


def evaluate_programmed(
    previous: ProgrammedState | None,
    report: DataPlaneReport,
    generation: int,
    error: ProvisioningError | None = None,
    *,
    served: bool,
    awaited: bool = False,
    incomplete: Incomplete = COMPLETE,
) -> ProgrammedState:
    """Return the new state of ``Programmed``.

    ``awaited``: all instances disconnected a short time ago, and may connect again.
    Its message names what is ``incomplete``, and since when. This time ends when a complete version
    is confirmed, so that the start of another controller does not begin another one.
    """
    state = _evaluate(previous, report, generation, error, served=served, awaited=awaited)
    since = (previous.incomplete_since if previous else "") or incomplete.now
    if not since:
        return state
    left_out = incomplete.message(since)
    message = msgspec.structs.replace(state.state, left_out=left_out)
    if not left_out and report.complete:
        since = ""
    return msgspec.structs.replace(state, state=message, incomplete_since=since)


def _evaluate(
    previous: ProgrammedState | None,
    report: DataPlaneReport,
    generation: int,
    error: ProvisioningError | None,
    *,
    served: bool,
    awaited: bool,
) -> ProgrammedState:
    """Return the new state of ``Programmed``, except what is incomplete.

    ``served``: every instance has confirmed a publication that contains this generation of the
    Gateway, whatever was published after it. While an instance has not, the previous state stays,
    unless the Gateway is newer: a new instance must not make ``Programmed`` flap.

    ``error`` is why the data plane could not be provisioned. A state confirmed for this generation
    stays, with the error as message. A newer generation is not Programmed while its Service or its
    Pods are not as specified. A Gateway is not Programmed while the proxy of an instance is down.
    """
    confirmed = previous.generation if previous else 0
    if report.unhealthy:
        return ProgrammedState(
            ProgrammedInput(programmed=False, message=report.unhealthy), confirmed
        )
    if report.error:
        invalid = Reason.NOT_PROGRAMMED
        rejected = ProgrammedInput(programmed=False, reason=invalid, message=report.error)
        return ProgrammedState(rejected, confirmed)
    still_programmed = (
        previous is not None and previous.state.programmed and confirmed == generation
    )
    if error and not still_programmed and not (error.degraded and served):
        return ProgrammedState(_unprovisioned(error), confirmed)
    programmed = ProgrammedInput(programmed=True, message=error.message if error else "")
    if served:
        return ProgrammedState(programmed, generation)
    if report.instances or awaited:
        if previous is not None and still_programmed:
            return previous
        if 0 < confirmed == generation and (report.serving or awaited):
            # It was Programmed before the controller was replaced, or its instances disconnected.
            return ProgrammedState(programmed, confirmed)
    elif error:
        return ProgrammedState(_unprovisioned(error), confirmed)
    event = "confirm its configuration" if report.instances else "connect"
    message = f"waiting for the data plane to {event}"
    return ProgrammedState(ProgrammedInput(programmed=False, message=message), confirmed)


def _unprovisioned(error: ProvisioningError) -> ProgrammedInput:
    reason = Reason.NO_RESOURCES if error.quota_exceeded else Reason.PENDING
    return ProgrammedInput(programmed=False, reason=reason, message=error.message)


def is_settled(report: DataPlaneReport) -> bool:
    """Return whether no confirmation is pending: confirmed, rejected, or no instances."""
    stuck = report.error or report.unhealthy
    return report.programmed or bool(stuck) or not report.instances
