"""Parts of the IR that cannot be served: unsupported by a back end, or rejected by a proxy."""

from __future__ import annotations

import msgspec

from gatehouse.dataplane.origin import NO_ORIGIN, Origin

UNTRACKED_TIMEOUT = "is supported for cookies with lifetimeType Permanent only"
"""Why no proxy ends sessions after ``absolute_timeout``: it would have to remember them."""


class Unsupported(msgspec.Struct, frozen=True, order=True):
    """A part of the IR that a proxy cannot serve. Front ends report it on its origin."""

    origin: Origin
    reason: str
    served: bool = False
    """True: the origin is served without the unsupported setting."""
    rejected: bool = False
    """True: the back end generated it, and a proxy rejected it."""
    in_match: bool = False
    """True: the proxy rejected the match of a route, so that it has no such route."""
    setting: Origin = NO_ORIGIN
    """The field of another object that is the cause."""


class UnsupportedSetting(msgspec.Struct, frozen=True):
    """A setting that a proxy does not support."""

    setting: Origin
    reason: str


class Suspect(msgspec.Struct, frozen=True):
    """A part of the IR whose configuration a proxy rejected."""

    origin: Origin
    in_match: bool = False
    """True: the match of a route is rejected, so that its requests cannot be recognized."""
    credential: str = ""
    """Name of the certificate, trust bundle or secret that is rejected; empty: none is."""
