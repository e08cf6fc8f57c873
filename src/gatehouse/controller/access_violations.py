"""Events for agents that request data of another Gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.apis.event_reasons import EventReason
from gatehouse.controller.load_balancers import balancer_of, is_machine
from gatehouse.kube.events import Recorder
from gatehouse.transports.server import UnauthorizedRequest


def record_unauthorized_request(
    recorder: Recorder,
    published_for: Callable[[str], Mapping[str, Any] | None],
    request: UnauthorizedRequest,
) -> None:
    """Record a Warning on the object that an agent requested data of, or else on its own object.

    The agent's own Gateway has no Event about foreign data: its Events would tell its users which
    content another Gateway has.

    ``published_for`` returns the object whose configuration is delivered under a name. Equal
    requests are one Event with a count.
    """
    agent_owner = request.identity.gateway
    agent = _agent_text(agent_owner, request.identity.instance)
    message = f"{agent} {request.what} of another Gateway, and was refused."
    if request.gateway:
        machine = is_machine(agent_owner)
        owner_text = balancer_of(agent_owner) if machine else f"Gateway {agent_owner}"
        message = f"{agent} of {owner_text} {request.what} of this one, and was refused."
    regarding = published_for(request.gateway or agent_owner)
    if regarding is not None:
        recorder.record(regarding, "Warning", EventReason.UNAUTHORIZED_AGENT, message)


def _agent_text(gateway: str, instance: str) -> str:
    if is_machine(gateway):
        return f"Machine {instance}"
    return f"Pod {gateway.partition('/')[0]}/{instance}"
