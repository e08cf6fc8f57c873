"""The steps of an apply, by name: how long each took, and a place for tests to end the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

import msgspec


class Step(StrEnum):
    """What has just been done. An agent may be killed after any of them."""

    FETCHED = "fetched"
    """Every content is in the store."""
    STAGED = "staged"
    """The generation has its name."""
    TESTED = "tested"
    ACCOMPANIED = "accompanied"
    """Companions are ready for old and new workers."""
    SWITCHED = "switched"
    """The generation is the current one."""
    RELOADED = "reloaded"
    """NGINX was told."""
    ANSWERED = "answered"
    """New workers were seen for the first time."""
    CONFIRMED = "confirmed"
    """New workers were seen to serve it."""
    SWEPT = "swept"
    """What is needed no more is gone from the disk."""
    TAKEN = "taken"
    """NGINX has the endpoints."""
    AMENDED = "amended"
    """Other endpoints are on disk, in the generation that is served."""
    REFUSED = "refused"
    """NGINX did not take it up."""
    RETURNED = "returned"
    """The former generation is the current one again."""


class ApplyResult(msgspec.Struct, frozen=True):
    """The result of an apply, in the messages of NGINX Agent. An empty ``error`` means success."""

    message: str
    error: str = ""


OnStep = Callable[[Step], None]

_MEASURED = {
    Step.FETCHED: "fetch",
    Step.TESTED: "test",
    Step.ANSWERED: "reload",
    Step.CONFIRMED: "confirm",
}
"""As :data:`gatehouse.agent.nginx.metrics.STEPS` names them."""


class Steps:
    """Times one apply at a time; ``on_step`` is called after each step."""

    def __init__(self, on_step: OnStep = lambda _step: None) -> None:
        self.seconds: dict[str, float] = {}
        """How long each step took, in their order."""
        self.observe: Callable[[str, float], None] = lambda _step, _seconds: None
        """Told how long those that are measured took."""
        self._on_step = on_step
        self._since = time.monotonic()

    def begin(self) -> None:
        """Time anew."""
        self.seconds = {}
        self._since = time.monotonic()

    def reached(self, step: Step) -> None:
        """Note that a step is done."""
        now = time.monotonic()
        took, self._since = now - self._since, now
        self.seconds[step.value] = round(took, 4)
        if step in _MEASURED:
            self.observe(_MEASURED[step], took)
        self._on_step(step)
