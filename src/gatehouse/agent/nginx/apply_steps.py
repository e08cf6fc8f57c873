"""Named steps of an apply: their durations, and a hook for tests that kill the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

import msgspec

from gatehouse.agent.nginx.apply_errors import RejectedError
from gatehouse.dataplane.features import NGINX_REJECTED


class ApplyStep(StrEnum):
    """A completed step. An agent may be killed after any of them."""

    FETCHED = "fetched"
    """All contents are in the store."""
    STAGED = "staged"
    """The revision has its final name."""
    TESTED = "tested"
    ACCOMPANIED = "accompanied"
    """Sidecars are configured for old and new workers."""
    SWITCHED = "switched"
    """The revision is the current one."""
    RELOADED = "reloaded"
    """NGINX has been sent SIGHUP."""
    ANSWERED = "answered"
    """A new worker has responded for the first time."""
    CONFIRMED = "confirmed"
    """New workers are confirmed to serve the revision."""
    SWEPT = "swept"
    """Obsolete files are removed from the disk."""
    TAKEN = "taken"
    """NGINX has the endpoints."""
    AMENDED = "amended"
    """New endpoints are on disk, in the revision that is served."""
    REFUSED = "refused"
    """The reload failed."""
    RETURNED = "returned"
    """The previous revision is the current one again."""


class ApplyResult(msgspec.Struct, frozen=True):
    """The result of an apply, in the messages of NGINX Agent. An empty ``error`` means success."""

    message: str
    error: str = ""


OnStep = Callable[[ApplyStep], None]

_MEASURED = {
    ApplyStep.FETCHED: "fetch",
    ApplyStep.TESTED: "test",
    ApplyStep.ANSWERED: "reload",
    ApplyStep.CONFIRMED: "confirm",
}
"""Steps with a histogram, named as in :data:`gatehouse.agent.nginx.metrics.STEPS`."""


def failed_result(error: Exception) -> ApplyResult:
    """Return the result of an apply that raised."""
    what = NGINX_REJECTED if isinstance(error, RejectedError) else "Config apply failed"
    return ApplyResult(what, str(error) or type(error).__name__)


class Steps:
    """Durations of one apply at a time. `on_step` is called after each step."""

    def __init__(self, on_step: OnStep = lambda _step: None) -> None:
        self.seconds: dict[str, float] = {}
        """Duration of each completed step in seconds, in order."""
        self.observe: Callable[[str, float], None] = lambda _step, _seconds: None
        """Called with name and duration of each measured step."""
        self._on_step = on_step
        self._since = time.monotonic()

    def begin(self) -> None:
        """Start timing a new apply."""
        self.seconds = {}
        self._since = time.monotonic()

    def reached(self, step: ApplyStep) -> None:
        """Record that a step is complete."""
        now = time.monotonic()
        duration, self._since = now - self._since, now
        self.seconds[step.value] = round(duration, 4)
        if step in _MEASURED:
            self.observe(_MEASURED[step], duration)
        self._on_step(step)
