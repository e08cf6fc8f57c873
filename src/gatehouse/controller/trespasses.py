"""What agents asked for and may not have, told to the authors of the Gateways concerned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.kube.events import Recorder
from gatehouse.transports.server import Trespass

REASON = "AgentRefused"


def record(
    recorder: Recorder,
    gateway: Callable[[tuple[str, str]], Mapping[str, Any] | None],
    trespass: Trespass,
) -> None:
    """Note a trespass on the Gateway of the agent, and on the one whose property was asked for.

    ``gateway`` gives an object by namespace and name. Equal trespasses are one Event with a count.
    """
    own = trespass.identity.gateway
    pod = f"{own.partition('/')[0]}/{trespass.identity.instance}"
    messages = {own: f"Pod {pod} {trespass.what} of another Gateway, and was refused."}
    if trespass.gateway:
        messages[trespass.gateway] = (
            f"Pod {pod} of Gateway {own} {trespass.what} of this one, and was refused."
        )
    for name, message in messages.items():
        namespace, _, bare = name.partition("/")
        found = gateway((namespace, bare))
        if found is not None:
            recorder.record(found, "Warning", REASON, message)
