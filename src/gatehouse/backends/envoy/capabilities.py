"""What a particular Envoy has around it."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True):
    """Of one Envoy and its agent."""

    system_trust: str = "system.pem"
    """The file of the authorities that everybody trusts, for Envoy to read; the agent's own."""
