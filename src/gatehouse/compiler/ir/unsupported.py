"""Unsupported parts of the IR: what a back end found that its proxy cannot serve."""

from __future__ import annotations

import msgspec

from gatehouse.dataplane.origin import Origin


class Unsupported(msgspec.Struct, frozen=True, order=True):
    """A part of the IR that a proxy cannot serve. Front ends report it on its origin."""

    origin: Origin
    reason: str
    served: bool = False
    """True: the origin is served without the unsupported setting."""
