"""Name of an upstream of an NGINX Plus host."""

from __future__ import annotations

from typing import Literal

import msgspec

UpstreamContext = Literal["http", "stream"]


class UpstreamName(msgspec.Struct, frozen=True, order=True):
    """Name of an upstream. The contexts ``http`` and ``stream`` are separate name spaces."""

    context: UpstreamContext
    name: str

    def __str__(self) -> str:
        return f"{self.context}/{self.name}"
