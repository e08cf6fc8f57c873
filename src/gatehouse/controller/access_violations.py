"""Events for agents that request data of another Gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.apis.event_reasons import EventReason
from gatehouse.controller.load_balancers import is_machines
from gatehouse.kube.events import Recorder
from gatehouse.transports.server import UnauthorizedRequest


def record_unauthorized_request(
    recorder: Recorder,
    published_for: Callable[[str], Mapping[str, Any] | None],
    request: UnauthorizedRequest,
) -> None:
    """Record a Warning on the object the agent serves and on the object it requested data of.

    ``published_for`` returns the object whose configuration is delivered under a name. Equal
    requests are one Event with a count.
    """
    agent_owner = request.identity.gateway
    agent = _agent_text(agent_owner, request.identity.instance)
    messages = {agent_owner: f"{agent} {request.what} of another Gateway, and was refused."}
    if request.gateway:
        owner_text = agent_owner if is_machines(agent_owner) else f"Gateway {agent_owner}"
        what = f"{request.what} of this one"
        messages[request.gateway] = f"{agent} of {owner_text} {what}, and was refused."
    for name, message in messages.items():
        regarding = published_for(name)
        if regarding is not None:
            recorder.record(regarding, "Warning", EventReason.UNAUTHORIZED_AGENT, message)


def _agent_text(gateway: str, instance: str) -> str:
    if is_machines(gateway):
        return f"Machine {instance}"
    return f"Pod {gateway.partition('/')[0]}/{instance}"
