"""Messages of an ADS stream, without the difference between its protocol variants. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.dataplane.xds.nacks import Nack
from gatehouse.dataplane.xds.resources import XdsResource


class AdsRequest(msgspec.Struct, frozen=True):
    """A request or acknowledgement of one type."""

    type_url: str
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    """Versions by name that it has from an earlier stream; only in its first request of the
    type."""
    nonce: str = ""
    """Nonce of the response that this answers; empty for a request."""
    nack: Nack | None = None
    """NACK of the response; None if the response is accepted."""


class Response(msgspec.Struct, frozen=True):
    """A response for one type."""

    type_url: str
    nonce: str
    resources: tuple[XdsResource, ...] = ()
    removed: tuple[str, ...] = ()
    incomplete: bool = False
    """True if further responses have the rest of the type."""
