"""Events for instances whose containers died, or whose agents stay away."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.patience import limit
from gatehouse.apis.event_reasons import EventReason
from gatehouse.controller.instance_events import InstanceEvents, instance_problems
from gatehouse.kube.errors import ApiError, NotFound

LEFT = datetime(2026, 1, 2, 3, 4, 40, tzinfo=UTC)
BEFORE, AFTER = "2026-01-02T03:04:05Z", "2026-01-02T03:04:45Z"
OOM = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
KILLED = "container nginx died: OOMKilled, exit code 137"
AWAY = "the agent is disconnected. The proxy may still serve its last configuration"


def container(state: dict[str, Any], restarts: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": "nginx", "state": state, "restartCount": restarts, **more}


def running(since: str, restarts: int = 0, **more: Any) -> dict[str, Any]:
    return container({"running": {"startedAt": since}}, restarts, **more)


def pod(*containers: dict[str, Any], deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"deletionTimestamp": AFTER} if deleted else {}
    return {"metadata": metadata, "status": {"containerStatuses": list(containers), **status}}


@pytest.mark.parametrize(
    ("status", "connected", "message"),
    [
        (running(BEFORE), True, None),
        (running(BEFORE, 3, lastState=OOM), True, None),
        (running(AFTER), True, None),
        (running(AFTER, 1, lastState=OOM), True, KILLED),
        (running(AFTER, 1, lastState=OOM), False, KILLED),
        (running(AFTER, 1), True, "container nginx died and was restarted"),
        (container(OOM), False, KILLED),
        (container({"waiting": {"reason": "CrashLoopBackOff"}}, 1, lastState=OOM), False, KILLED),
        (container({"waiting": {"reason": "CrashLoopBackOff"}}, 1), False,
         "container nginx died: CrashLoopBackOff"),
        (container({"terminated": {"reason": "Completed"}}), True, None),
        (running(BEFORE), False, AWAY),
    ],
)  # fmt: skip
def test_problem_names_the_container_and_its_end(
    status: dict[str, Any], connected: bool, message: str | None
) -> None:
    reason = EventReason.INSTANCE_DISCONNECTED if message == AWAY else EventReason.INSTANCE_CRASHED
    expected = ((reason, message),) if message else ()
    assert instance_problems(pod(status), LEFT, connected=connected) == expected
    # A Pod that is deleted leaves as it should.
    assert instance_problems(pod(status, deleted=True), LEFT, connected=connected) == ()


def test_problem_names_the_eviction_of_the_pod() -> None:
    failed = pod(phase="Failed", reason="Evicted", message="The node had no memory")
    message = "the Pod failed: Evicted: The node had no memory"
    expected = ((EventReason.INSTANCE_CRASHED, message),)
    assert instance_problems(failed, LEFT, connected=False) == expected


async def test_disconnected_instances_are_read_once_and_recorded() -> None:
    """A Pod that is gone, and one that cannot be read, do not keep others from their Events."""
    reads: list[str] = []
    recorded: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    async def read(namespace: str, name: str) -> Any:
        reads.append(f"{namespace}/{name}")
        if name == "deleted":
            raise NotFound(404, "NotFound", "pods not found")
        if name == "hidden":
            raise ApiError(403, "Forbidden", "no permission")
        return pod(running(BEFORE))

    events = InstanceEvents(
        read,
        lambda gateway, instance: (gateway, instance) == ("shop/web", "returned"),
        lambda *event: recorded.put_nowait(event),
        return_seconds=0.0,
    )
    names = ("deleted", "hidden", "returned", "lost", "lost")
    for name in names:
        events.on_disconnected("shop/web", name)
    events.on_disconnected("ExternalLoadBalancer shop/edge/host", "host")
    task = asyncio.create_task(events.run())
    async with limit():
        event = await recorded.get()
        assert event == ("shop/web", EventReason.INSTANCE_DISCONNECTED, f"lost: {AWAY}")
        events.on_disconnected("shop/web", "lost")
        assert await recorded.get() == event
    task.cancel()
    assert reads == [f"shop/{name}" for name in (*names[:4], "lost")]
