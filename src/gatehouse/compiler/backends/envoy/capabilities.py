"""Capabilities of an Envoy and its agent."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True):
    """Capabilities of one Envoy and its agent."""

    system_trust: str = "/etc/ssl/certs/ca-certificates.crt"
    """File of the CA certificates of the system where Envoy runs."""
    authenticators: bool = False
    """True if the agent runs an authenticator for routes that need one."""
