"""Secrets of the control plane's namespace that data planes need beside them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Use = Literal["pull", "license", "usage-ca", "usage-client"]
"""``pull``: of images; the others are NGINX Plus': its licence (key ``license.jwt``), authorities
(``ca.crt``) and a client certificate (``tls.crt``, ``tls.key``) for where it reports its use."""


class Copied(msgspec.Struct, frozen=True):
    """A Secret to be copied to where data planes run."""

    name: str
    """Of the source."""
    use: Use
    type: str = "Opaque"
    data: Mapping[str, str] = {}
    """Base64, as in the source."""

    def named(self, prefix: str) -> str:
        """Give the copy's name beside a Gateway's other objects."""
        return f"{prefix}-{self.name}"


def read(name: str, use: Use, source: Mapping[str, Any] | None) -> Copied | None:
    """Give a Secret as it is to be copied; None while there is none."""
    if source is None:
        return None
    return Copied(name, use, source.get("type") or "Opaque", source.get("data") or {})
