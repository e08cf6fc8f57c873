"""Table of listener protocols, and validation of listeners against it.

A new protocol is an entry here. Objects of other API groups attach to a listener like routes: their
front end reads
:func:`~gatehouse.compiler.frontends.gateway_api.listeners.listeners.ordered_listeners`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.apis import gateway
from gatehouse.apis.gateway import CONTROLLERS
from gatehouse.compiler.frontends.gateway_api.inputs import ENVOY

KUBE_APISERVER = "gatehouse.dev/KubeAPIServer"
"""Protocol of a listener of a Gateway: it terminates TLS in front of kube-apiservers (decision
0011).
"""

PROXY_PROTOCOL = "gatehouse.dev/ProxyProtocol"
"""Protocol of a listener of a Gateway: node proxies of hosted clusters forward connections to it,
with their destination in a PROXY header.
"""

HTTP_CONNECT = "gatehouse.dev/HTTPConnect"
"""Protocol of a listener of a Gateway: node proxies of hosted clusters open tunnels to it, with
their destination in a CONNECT request.
"""

NODE_PROXY_PROTOCOLS = frozenset({PROXY_PROTOCOL, HTTP_CONNECT})
"""Protocols of listeners for node proxies."""

_HOSTED = gateway.RouteGroupKind("HostedAPIServer", "gatehouse.dev")
_UPSTREAM_CLUSTER = gateway.RouteGroupKind("UpstreamCluster", "proxy.kubegateway.io")


def _routes(*kinds: str) -> tuple[gateway.RouteGroupKind, ...]:
    return tuple(gateway.RouteGroupKind(kind) for kind in kinds)


class ListenerProtocol(msgspec.Struct, frozen=True):
    """Properties of a protocol."""

    name: str
    family: str
    """Protocols of one family can share a port; hostnames select between them."""
    kinds: tuple[gateway.RouteGroupKind, ...]
    """Kinds of objects that can attach."""
    terminated_kinds: tuple[gateway.RouteGroupKind, ...] = ()
    """Further kinds that can attach if the listener terminates TLS."""
    certificates: Literal["needed", "optional", "none"] = "none"
    """Use of ``tls.certificateRefs``, for protocols that terminate TLS."""
    modes: tuple[str, ...] = ()
    """Supported values of ``tls.mode``; empty for all that the CRD allows."""
    validates: bool = False
    """``tls.frontend`` of the Gateway applies to it."""
    named: bool = True
    """Listeners can have a hostname."""
    transport: Literal["TCP", "UDP"] = "TCP"
    controllers: tuple[str, ...] = CONTROLLERS
    """Controllers whose data planes support it."""


_LISTED = (
    ListenerProtocol("HTTP", "HTTP", _routes("HTTPRoute", "GRPCRoute")),
    ListenerProtocol(
        "HTTPS",
        "TLS",
        _routes("HTTPRoute", "GRPCRoute"),
        certificates="needed",
        modes=("Terminate",),
        validates=True,
    ),
    ListenerProtocol(
        "TLS",
        "TLS",
        _routes("TLSRoute"),
        terminated_kinds=_routes("TCPRoute"),
        certificates="needed",
    ),
    ListenerProtocol("TCP", "TCP", _routes("TCPRoute")),
    ListenerProtocol("UDP", "UDP", _routes("UDPRoute"), transport="UDP"),
    ListenerProtocol(
        KUBE_APISERVER,
        KUBE_APISERVER,
        (_UPSTREAM_CLUSTER,),
        certificates="optional",
        modes=("Terminate",),
        validates=True,
        named=False,
        controllers=(ENVOY,),
    ),
    ListenerProtocol(PROXY_PROTOCOL, PROXY_PROTOCOL, (_HOSTED,), named=False, controllers=(ENVOY,)),
    ListenerProtocol(HTTP_CONNECT, HTTP_CONNECT, (_HOSTED,), named=False, controllers=(ENVOY,)),
)

PROTOCOLS = {protocol.name: protocol for protocol in _LISTED}
"""Protocols by name."""

KIND_GROUPS = {kind.kind: kind.group for protocol in _LISTED for kind in protocol.kinds}
"""API group of each kind that can attach to a listener."""


def supported_protocols(controller: str) -> tuple[str, ...]:
    """Return the names of the protocols that a controller's data planes support."""
    return tuple(protocol.name for protocol in _LISTED if controller in protocol.controllers)


def unsupported_reason(listener: gateway.ListenerSpec, controller: str) -> str:
    """Return why the protocol of a listener is not supported; empty if it is."""
    known = PROTOCOLS.get(listener.protocol)
    if known is None:
        served = ", ".join(supported_protocols(controller))
        return f"protocol {listener.protocol} is not supported: must be one of {served}"
    if controller not in known.controllers:
        able = ", ".join(known.controllers)
        return f"protocol {listener.protocol} is not supported by {controller}, only by {able}"
    return ""


def invalid_value(listener: gateway.ListenerSpec) -> str:
    """Return the invalid value of a listener with a supported protocol; empty if there is none."""
    known = PROTOCOLS[listener.protocol]
    mode = listener.tls.mode if listener.tls else "Terminate"
    if known.modes and mode not in known.modes:
        modes = ", ".join(known.modes)
        return f"tls.mode: {mode} is not supported for protocol {known.name}: must be {modes}"
    if listener.hostname and not known.named:
        return f"hostname: must be empty for protocol {known.name}: attached objects have hostnames"
    return ""
