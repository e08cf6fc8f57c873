"""What a particular Envoy has around it."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True):
    """Of one Envoy and its agent."""

    system_trust: str = "/etc/ssl/certs/ca-certificates.crt"
    """The file of the authorities that everybody trusts, where Envoy runs."""
    authenticators: bool = False
    """Whether its agent runs an authenticator where routes need one."""
