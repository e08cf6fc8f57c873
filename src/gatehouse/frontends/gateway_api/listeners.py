"""The listeners of a Gateway: which are valid, which conflict, which kinds of route they take."""

from __future__ import annotations

import msgspec

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api.certificates import listener_certificates
from gatehouse.frontends.gateway_api.findings import Finding, Reason
from gatehouse.ir.gateway import Certificate
from gatehouse.query import Ask, Key

PROTOCOLS = {"HTTP": ("HTTPRoute",), "HTTPS": ("HTTPRoute",)}
"""The kinds of route of each protocol that is served."""


class Shape(msgspec.Struct, frozen=True):
    """What routes need to know of a listener."""

    name: str
    port: int
    protocol: str
    hostname: str
    namespaces: gateway.RouteNamespaces
    kinds: tuple[str, ...]
    accepted: bool


class ListenerState(msgspec.Struct, frozen=True):
    """Everything known of a listener."""

    shape: Shape
    findings: tuple[Finding, ...]
    certificates: tuple[Certificate, ...]

    @property
    def served(self) -> bool:
        """Whether it can be served: valid, without conflict, with the certificates it needs."""
        return self.shape.accepted and (self.shape.protocol == "HTTP" or bool(self.certificates))


def listeners(ask: Ask, key: Key) -> tuple[ListenerState, ...]:
    """Give the listeners of a Gateway, in its own order."""
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return ()
    everyone = found.spec.listeners
    unserved = tuple(f"spec.tls.{field}" for field in sorted(found.spec.tls))
    return tuple(_state(ask, key[1], listener, everyone, unserved) for listener in everyone)


def shapes(ask: Ask, key: Key) -> tuple[Shape, ...]:
    """Give what routes need of the listeners: certificates may change without touching a route."""
    return tuple(state.shape for state in ask(listeners, key))


def _state(
    ask: Ask,
    namespace: str,
    listener: gateway.Listener,
    everyone: tuple[gateway.Listener, ...],
    unserved: tuple[str, ...],
) -> ListenerState:
    findings = [*_validity(listener), *_conflicts(listener, everyone)]
    if unserved and listener.protocol == "HTTPS":
        # Without it clients would go unchecked: better not served than served to anybody.
        message = (
            f"listener {listener.name}: {', '.join(unserved)} of the Gateway is not served yet"
        )
        findings.append(Finding(Reason.UNSUPPORTED_VALUE, message))
    accepted = not findings
    kinds, kind_findings = _kinds(listener)
    findings += kind_findings
    certificates: tuple[Certificate, ...] = ()
    if listener.protocol == "HTTPS":
        certificates, certificate_findings = listener_certificates(ask, namespace, listener)
        findings += certificate_findings
    shape = Shape(
        name=listener.name,
        port=listener.port,
        protocol=listener.protocol,
        hostname=listener.hostname.lower(),
        namespaces=listener.allowed_routes.namespaces,
        kinds=kinds,
        accepted=accepted,
    )
    return ListenerState(shape, tuple(findings), certificates)


def _validity(listener: gateway.Listener) -> list[Finding]:
    where = f"listener {listener.name}"
    if listener.protocol not in PROTOCOLS:
        message = f"{where}: protocol {listener.protocol} is not served; HTTP and HTTPS are"
        return [Finding(Reason.UNSUPPORTED_PROTOCOL, message)]
    mode = listener.tls.mode if listener.tls else "Terminate"
    if listener.protocol == "HTTPS" and mode != "Terminate":
        message = f"{where}: tls.mode {mode} is not served for HTTPS; Terminate is"
        return [Finding(Reason.UNSUPPORTED_VALUE, message)]
    return []


def _conflicts(listener: gateway.Listener, everyone: tuple[gateway.Listener, ...]) -> list[Finding]:
    """Listeners of one port must speak one protocol and have distinct hostnames; else all lose."""
    rivals = [other for other in everyone if other.port == listener.port and other != listener]
    rivals = [other for other in rivals if other.protocol in PROTOCOLS]
    other_protocol = [other.name for other in rivals if other.protocol != listener.protocol]
    same_name = [
        other.name
        for other in rivals
        if other.protocol == listener.protocol
        and other.hostname.lower() == listener.hostname.lower()
    ]
    where = f"listener {listener.name}"
    if other_protocol and listener.protocol in PROTOCOLS:
        message = (
            f"{where}: port {listener.port} has another protocol in {', '.join(other_protocol)}"
        )
        return [
            Finding(Reason.PROTOCOL_CONFLICT, message),
            Finding(Reason.LISTENER_CONFLICTED, message),
        ]
    if same_name and listener.protocol in PROTOCOLS:
        message = f"{where}: port {listener.port} and hostname are those of {', '.join(same_name)}"
        return [
            Finding(Reason.HOSTNAME_CONFLICT, message),
            Finding(Reason.LISTENER_CONFLICTED, message),
        ]
    return []


def _kinds(listener: gateway.Listener) -> tuple[tuple[str, ...], list[Finding]]:
    """Give the kinds of route it takes, and a finding for kinds it was asked to take but cannot."""
    possible = PROTOCOLS.get(listener.protocol, ())
    asked = listener.allowed_routes.kinds
    if not asked:
        return possible, []
    good = tuple(
        kind.kind for kind in asked if kind.group == gateway.GROUP and kind.kind in possible
    )
    bad = [kind.kind for kind in asked if kind.group != gateway.GROUP or kind.kind not in possible]
    if not bad:
        return good, []
    place = f"listener {listener.name}: allowedRoutes.kinds"
    message = f"{place}: {', '.join(bad)} cannot be served over {listener.protocol}"
    return good, [Finding(Reason.INVALID_ROUTE_KINDS, message)]
