"""Events of the instances of all Gateways, for the controller."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class FleetEvents(msgspec.Struct):
    """Functions that are called in the event loop. They must not raise or block."""

    on_report: Callable[[str], None] = lambda _gateway: None
    """The report of a Gateway changed."""
    on_unhealthy: Callable[[str, str, str], None] = lambda _gateway, _instance, _reason: None
    """The proxy of an instance served and does not serve now, for a reason."""
    on_disconnected: Callable[[str, str], None] = lambda _gateway, _instance: None
    """The last stream of an instance ended."""
