"""Who a machine outside the cluster is: the name in its agent's certificate. Pure.

A certificate names one machine of one ExternalLoadBalancer, by a URI among its alternative names
(a SPIFFE ID). Whoever signs for the control plane's authority vouches for it.
"""

from __future__ import annotations

import re

import msgspec

_PREFIX = "spiffe://gatehouse.dev/load-balancer/"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL.pattern}(\.{_LABEL.pattern})*")


class Machine(msgspec.Struct, frozen=True):
    """One machine of one ExternalLoadBalancer."""

    namespace: str
    balancer: str
    host: str
    """Its name in ``spec.hosts``."""

    @property
    def uri(self) -> str:
        """Give what stands in its certificate."""
        return f"{_PREFIX}{self.namespace}/{self.balancer}/{self.host}"

    @classmethod
    def parse(cls, uri: str) -> Machine:
        """Read what stands in a certificate; raises ValueError."""
        parts = uri.removeprefix(_PREFIX).split("/")
        if not uri.startswith(_PREFIX) or len(parts) != 3:
            raise ValueError(f"{uri!r} is not of the form {_PREFIX}<namespace>/<name>/<host>")
        namespace, balancer, host = parts
        known = _LABEL.fullmatch(namespace) and _NAME.fullmatch(balancer) and _NAME.fullmatch(host)
        if not known:
            raise ValueError(f"{uri!r} has parts that are no names")
        return cls(namespace, balancer, host)
