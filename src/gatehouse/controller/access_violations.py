"""What agents asked for and may not have, told to the authors of the objects concerned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.controller.load_balancers import is_machines
from gatehouse.kube.events import Recorder
from gatehouse.transports.server import UnauthorizedRequest

REASON = "UnauthorizedAgent"


def record_unauthorized_request(
    recorder: Recorder,
    published_for: Callable[[str], Mapping[str, Any] | None],
    trespass: UnauthorizedRequest,
) -> None:
    """Note a trespass on what the agent serves, and on that whose property was asked for.

    ``published_for`` gives an object by the name under which its configuration is delivered. Equal
    trespasses are one Event with a count.
    """
    own = trespass.identity.gateway
    who = _who(own, trespass.identity.instance)
    messages = {own: f"{who} {trespass.what} of another Gateway, and was refused."}
    if trespass.gateway:
        owner = own if is_machines(own) else f"Gateway {own}"
        what = f"{trespass.what} of this one"
        messages[trespass.gateway] = f"{who} of {owner} {what}, and was refused."
    for name, message in messages.items():
        found = published_for(name)
        if found is not None:
            recorder.record(found, "Warning", REASON, message)


def _who(gateway: str, instance: str) -> str:
    if is_machines(gateway):
        return f"Machine {instance}"
    return f"Pod {gateway.partition('/')[0]}/{instance}"
