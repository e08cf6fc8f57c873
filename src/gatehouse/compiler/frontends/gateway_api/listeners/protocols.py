"""The protocols that listeners can have: a table, and what a listener of each of them may say.

A new one is a line here. Objects of other API groups attach to a listener like routes: the front
end of theirs reads :func:`~gatehouse.compiler.frontends.gateway_api.listeners.listeners.listeners`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api.inputs import CONTROLLERS, ENVOY

KUBE_APISERVER = "gatehouse.dev/KubeAPIServer"
"""TLS ends here, and requests are for kube-apiservers (decision 0011)."""

PROXY_PROTOCOL = "gatehouse.dev/ProxyProtocol"
"""Connections that node proxies of hosted clusters took, with where they were wanted to go."""

_HOSTED = gateway.RouteGroupKind("HostedAPIServer", "gatehouse.dev")
_UPSTREAM_CLUSTER = gateway.RouteGroupKind("UpstreamCluster", "proxy.kubegateway.io")


def _routes(*kinds: str) -> tuple[gateway.RouteGroupKind, ...]:
    return tuple(gateway.RouteGroupKind(kind) for kind in kinds)


class Protocol(msgspec.Struct, frozen=True):
    """What holds of every listener of a protocol."""

    name: str
    family: str
    """Protocols of one family share a port, told apart by hostname."""
    kinds: tuple[gateway.RouteGroupKind, ...]
    """What may attach."""
    certificates: Literal["needed", "optional", "none"] = "none"
    """``tls.certificateRefs``, where TLS ends at the listener."""
    modes: tuple[str, ...] = ()
    """The values of ``tls.mode`` that are served; empty for all that the API server takes."""
    validates: bool = False
    """Whether ``tls.frontend`` of the Gateway is about it."""
    named: bool = True
    """Whether a listener may have a hostname."""
    transport: Literal["TCP", "UDP"] = "TCP"
    controllers: tuple[str, ...] = CONTROLLERS
    """Whose data planes can serve it."""


_LISTED = (
    Protocol("HTTP", "HTTP", _routes("HTTPRoute", "GRPCRoute")),
    Protocol(
        "HTTPS",
        "TLS",
        _routes("HTTPRoute", "GRPCRoute"),
        certificates="needed",
        modes=("Terminate",),
        validates=True,
    ),
    Protocol("TLS", "TLS", _routes("TLSRoute"), certificates="needed"),
    Protocol("TCP", "TCP", _routes("TCPRoute")),
    Protocol("UDP", "UDP", _routes("UDPRoute"), transport="UDP"),
    Protocol(
        KUBE_APISERVER,
        KUBE_APISERVER,
        (_UPSTREAM_CLUSTER,),
        certificates="optional",
        modes=("Terminate",),
        validates=True,
        named=False,
        controllers=(ENVOY,),
    ),
    Protocol(PROXY_PROTOCOL, PROXY_PROTOCOL, (_HOSTED,), named=False, controllers=(ENVOY,)),
)

PROTOCOLS = {each.name: each for each in _LISTED}
"""By name."""

GROUPS = {kind.kind: kind.group for each in _LISTED for kind in each.kinds}
"""The API group of every kind that may attach to a listener."""


def supported_protocols(controller: str) -> tuple[str, ...]:
    """Give the names of the protocols that a controller's data planes serve."""
    return tuple(each.name for each in _LISTED if controller in each.controllers)


def unsupported_reason(listener: gateway.Listener, controller: str) -> str:
    """Say why a listener cannot be served whatever its values are; empty if it can."""
    known = PROTOCOLS.get(listener.protocol)
    if known is None:
        served = ", ".join(supported_protocols(controller))
        return f"protocol {listener.protocol} is not served; {served} are"
    if controller not in known.controllers:
        able = ", ".join(known.controllers)
        return f"protocol {listener.protocol} is not served by {controller}; {able} does"
    return ""


def invalid_value(listener: gateway.Listener) -> str:
    """Say which value a listener of a protocol that is served may not have; empty if none."""
    known = PROTOCOLS[listener.protocol]
    mode = listener.tls.mode if listener.tls else "Terminate"
    if known.modes and mode not in known.modes:
        modes = ", ".join(known.modes)
        return f"tls.mode {mode} is not served for {known.name}; {modes} is"
    if listener.hostname and not known.named:
        return f"hostname is not for {known.name}: what attaches says its own names"
    return ""
