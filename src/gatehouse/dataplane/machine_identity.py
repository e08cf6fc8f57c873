"""Identity of an external machine: the name in its agent's certificate. No I/O.

A certificate names one machine of one ExternalLoadBalancer by a URI (a SPIFFE ID) in its subject
alternative names. The control plane trusts the CA for these names.
"""

from __future__ import annotations

import re

import msgspec

_PREFIX = "spiffe://gatehouse.dev/load-balancer/"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL.pattern}(\.{_LABEL.pattern})*")


class MachineIdentity(msgspec.Struct, frozen=True):
    """One machine of one ExternalLoadBalancer."""

    namespace: str
    balancer: str
    host: str
    """Name of the machine in ``spec.hosts``."""

    @property
    def uri(self) -> str:
        """The URI in the machine's certificate."""
        return f"{_PREFIX}{self.namespace}/{self.balancer}/{self.host}"

    @classmethod
    def parse(cls, uri: str) -> MachineIdentity:
        """Parse the URI of a certificate. Raises ValueError if it does not name a machine."""
        parts = uri.removeprefix(_PREFIX).split("/")
        if not uri.startswith(_PREFIX) or len(parts) != 3:
            raise ValueError(f"{uri!r} is not of the form {_PREFIX}<namespace>/<name>/<host>")
        namespace, balancer, host = parts
        valid = _LABEL.fullmatch(namespace) and _NAME.fullmatch(balancer) and _NAME.fullmatch(host)
        if not valid:
            raise ValueError(f"{uri!r}: invalid namespace, name or host")
        return cls(namespace, balancer, host)
