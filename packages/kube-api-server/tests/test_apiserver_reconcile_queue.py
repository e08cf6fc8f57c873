"""Work queues of the API server's controllers."""

from __future__ import annotations

import asyncio

import pytest

from fakes import virtual_time
from kube_api_server import errors
from kube_api_server.controllers.reconcile_queue import ReconcileQueue


class Controller:
    """A controller whose first attempt at each key raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.queue = ReconcileQueue("test", self._work, lambda: ["first"])
        self.attempts: list[tuple[float, str]] = []
        self._error = error

    async def _work(self, key: str) -> None:
        self.attempts.append((round(asyncio.get_running_loop().time(), 3), key))
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def run(self, seconds: float) -> None:
        """Run the queue for this time."""
        await asyncio.wait_for(self.queue.run(), seconds)


def attempts(controller: Controller, seconds: float = 10.0) -> list[tuple[float, str]]:
    """Return the times and keys of attempts in this time."""
    with pytest.raises(TimeoutError):
        virtual_time.run(controller.run(seconds))
    return controller.attempts


@pytest.mark.parametrize(
    "error",
    [
        errors.conflict("pods", "", "a"),
        errors.unavailable_error("no storage"),
        LookupError("bug"),
    ],
    ids=str,
)
def test_failed_key_is_retried(error: Exception) -> None:
    assert attempts(Controller(error)) == [(0, "first"), (0.1, "first")]


def test_key_is_not_retried_when_its_object_is_gone() -> None:
    assert attempts(Controller(errors.not_found_error("pods", "", "a"))) == [(0, "first")]


def test_queue_ignores_keys_while_it_does_not_run() -> None:
    async def main() -> None:
        controller.queue.add("before")
        controller.queue.add_after("before", 1.0)
        running = asyncio.create_task(controller.run(5.0))
        await asyncio.sleep(1.5)
        controller.queue.add("second")
        controller.queue.add_after("late", 10.0)
        await asyncio.wait({running})
        controller.queue.add("after")
        with pytest.raises(TimeoutError):
            await controller.run(20.0)

    controller = Controller()
    virtual_time.run(main())
    assert controller.attempts == [(0, "first"), (1.5, "second"), (5, "first")]
