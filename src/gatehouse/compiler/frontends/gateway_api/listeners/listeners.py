"""Listeners of a Gateway and its ListenerSets: validity and supported kinds of routes."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.classes import class_controller
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.listeners import frontend_tls
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import listener_certificates
from gatehouse.compiler.frontends.gateway_api.listeners.conflicts import (
    MAX_NAMED_LISTENERS,
    ListenerEntry,
    conflicts,
)
from gatehouse.compiler.frontends.gateway_api.listeners.listener_filters import filter_findings
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import listener_owners
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import (
    NODE_PROXY_PROTOCOLS,
    PROTOCOLS,
    invalid_value,
    unsupported_reason,
)
from gatehouse.compiler.frontends.gateway_api.listeners.tls_options import (
    NO_OPTIONS,
    TlsOptions,
    tls_options,
)
from gatehouse.compiler.frontends.gateway_api.listeners.trusted_proxies import trusted
from gatehouse.compiler.frontends.shortened_lists import shortened_list
from gatehouse.compiler.ir.gateway import Certificate
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.incremental.query import Ask, Key


class ListenerProperties(msgspec.Struct, frozen=True):
    """The properties of a listener that routes depend on."""

    owner: Key
    """The Gateway or ListenerSet that contains it."""
    name: str
    port: int
    protocol: str
    hostname: str
    namespaces: gateway.RouteNamespaces
    kinds: tuple[str, ...]
    accepted: bool
    passthrough: bool = False

    @property
    def key(self) -> tuple[Key, str]:
        """Owner and name, unique among all listeners of the Gateway."""
        return self.owner, self.name


class ListenerState(msgspec.Struct, frozen=True):
    """A listener with findings and certificates."""

    spec: ListenerProperties
    findings: tuple[Finding, ...]
    certificates: tuple[Certificate, ...]
    tls: ServerTls = ServerTls()
    unsupported: tuple[str, ...] = ()
    """Messages about settings without which the listener is served."""
    has_filters: bool = False
    """True if it checks requests before a route is chosen."""

    @property
    def served(self) -> bool:
        """Return whether the listener is accepted and has the certificates that it needs."""
        known = PROTOCOLS.get(self.spec.protocol)
        needed = known is not None and known.certificates == "needed" and not self.spec.passthrough
        return self.spec.accepted and (not needed or bool(self.certificates))


def ordered_listeners(ask: Ask, key: Key) -> tuple[ListenerState, ...]:
    """Return the listeners of a Gateway and its ListenerSets in order of precedence."""
    entries: list[ListenerEntry] = []
    invalid: list[tuple[list[Finding], TlsOptions]] = []
    controller = ask(class_controller, key)
    for owner in ask(listener_owners, key):
        for listener in ask(own_listeners, owner):
            options = tls_options(listener, controller) if listener.tls else NO_OPTIONS
            findings = _validity(listener, controller, options)
            findings = findings or _invalid_proxies(ask, key, listener)
            if listener.filters.requests and not findings:
                findings = filter_findings(ask, key, listener, controller)
            invalid.append((findings, options))
            entries.append(ListenerEntry(owner, listener, not findings))
    entry_findings = zip(entries, invalid, conflicts(entries), strict=True)
    return _overlapping(
        [
            _state(ask, key, entry, [*bad, *rivals], options)
            for entry, (bad, options), rivals in entry_findings
        ]
    )


def own_listeners(ask: Ask, owner: Key) -> tuple[gateway.ListenerSpec, ...]:
    """Return the listeners in the spec of a Gateway or ListenerSet."""
    parent = ask.read(owner)
    if isinstance(parent, gateway.Gateway | gateway.ListenerSet):
        return parent.spec.listeners
    return ()


def listener_specs(ask: Ask, key: Key) -> tuple[ListenerProperties, ...]:
    """Return the listeners without certificates, whose changes do not concern routes."""
    return tuple(state.spec for state in ask(ordered_listeners, key))


def owned_hostnames(ask: Ask, key: Key) -> frozenset[tuple[int, str, str]]:
    """Return port, protocol family and hostname of each accepted listener of a Gateway."""
    return frozenset(
        (spec.port, PROTOCOLS[spec.protocol].family, spec.hostname)
        for spec in ask(listener_specs, key)
        if spec.accepted
    )


def service_ports(ask: Ask, key: Key) -> tuple[tuple[int, str], ...]:
    """Return the (port, TCP or UDP) pairs that clients of a Gateway connect to."""
    pairs = {
        (spec.port, PROTOCOLS[spec.protocol].transport)
        for spec in ask(listener_specs, key)
        if spec.accepted
    }
    return tuple(sorted(pairs))


def _state(
    ask: Ask, key: Key, entry: ListenerEntry, findings: list[Finding], options: TlsOptions
) -> ListenerState:
    listener, known = entry.listener, PROTOCOLS.get(entry.listener.protocol)
    kinds, kind_findings = _kinds(listener, ask(class_controller, key))
    certificates: tuple[Certificate, ...] = ()
    passthrough = listener.protocol == "TLS" and _mode(listener) == "Passthrough"
    needed = known is not None and known.certificates == "needed"
    optional = known is not None and known.certificates == "optional" and _named(listener)
    if (needed or optional) and not passthrough:
        certificates, certificate_findings = listener_certificates(ask, key, entry.owner, listener)
        kind_findings += certificate_findings
    if known is not None and known.validates:
        unresolved, refused = ask(frontend_tls.validation_findings, key, listener.port)
        findings += refused
        kind_findings += unresolved
    spec = ListenerProperties(
        owner=entry.owner,
        name=listener.name,
        port=listener.port,
        protocol=listener.protocol,
        hostname=listener.hostname.lower(),
        namespaces=listener.allowed_routes.namespaces,
        kinds=kinds,
        accepted=not findings,
        passthrough=passthrough,
    )
    every = (*findings, *kind_findings)
    filtered = bool(listener.filters.requests)
    return ListenerState(spec, every, certificates, options.tls, options.unsupported, filtered)


def _overlapping(states: list[ListenerState]) -> tuple[ListenerState, ...]:
    """Add findings about listeners that a client may confuse when it reuses a TLS connection."""
    same: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    """Numbers of the listeners by port and hostname."""
    narrower: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    """Numbers of the listeners by port and each wider hostname."""
    for number, state in enumerate(states):
        if _terminates(state):
            same[state.spec.port, state.spec.hostname].append(number)
            for wide in hostnames.wider(state.spec.hostname):
                narrower[state.spec.port, wide].append(number)
    result = list(states)
    for place, numbers in same.items():
        wide_numbers = [same.get((place[0], wide), ()) for wide in hostnames.wider(place[1])]
        around = sorted(chain(numbers, narrower.get(place, ()), *wide_numbers))
        for number in numbers:
            rivals = [states[other].spec.name for other in around if other != number]
            if rivals:
                state = states[number]
                names = shortened_list(rivals, MAX_NAMED_LISTENERS)
                message = f"listener {state.spec.name}: hostname overlaps with listener {names}"
                overlap = Finding(Reason.OVERLAPPING_TLS, message)
                findings = (*state.findings, overlap)
                result[number] = msgspec.structs.replace(state, findings=findings)
    return tuple(result)


def _terminates(state: ListenerState) -> bool:
    spec = state.spec
    return spec.accepted and spec.protocol in ("HTTPS", "TLS") and bool(state.certificates)


def _mode(listener: gateway.ListenerSpec) -> str:
    return listener.tls.mode if listener.tls else "Terminate"


def _named(listener: gateway.ListenerSpec) -> bool:
    return listener.tls is not None and bool(listener.tls.certificate_refs)


def _validity(
    listener: gateway.ListenerSpec, controller: str, options: TlsOptions
) -> list[Finding]:
    where = f"listener {listener.name}"
    refused = unsupported_reason(listener, controller)
    if refused:
        return [Finding(Reason.UNSUPPORTED_PROTOCOL, f"{where}: {refused}")]
    bad = invalid_value(listener) or options.problem
    return [Finding(Reason.UNSUPPORTED_VALUE, f"{where}: {bad}")] if bad else []


def _invalid_proxies(ask: Ask, key: Key, listener: gateway.ListenerSpec) -> list[Finding]:
    if listener.protocol not in NODE_PROXY_PROTOCOLS:
        return []
    ranges = ask(trusted, key)
    message = f"listener {listener.name}: {ranges}"
    return [Finding(Reason.UNSUPPORTED_VALUE, message)] if isinstance(ranges, str) else []


def _kinds(
    listener: gateway.ListenerSpec, controller: str
) -> tuple[tuple[str, ...], list[Finding]]:
    """Return the supported kinds of routes, and a finding for requested kinds that are not."""
    known = PROTOCOLS.get(listener.protocol)
    served = known is not None and controller in known.controllers
    possible = known.kinds if known is not None and served else ()
    if known is not None and served and _mode(listener) == "Terminate":
        possible += known.terminated_kinds
    requested = listener.allowed_routes.kinds
    if not requested:
        return tuple(kind.kind for kind in possible), []
    good = tuple(kind.kind for kind in requested if kind in possible)
    bad = [kind.kind for kind in requested if kind not in possible]
    if not bad:
        return good, []
    place = f"listener {listener.name}: allowedRoutes.kinds"
    mode = f" in mode {_mode(listener)}" if listener.protocol == "TLS" else ""
    message = f"{place}: {', '.join(bad)} not supported for protocol {listener.protocol}{mode}"
    return good, [Finding(Reason.INVALID_ROUTE_KINDS, message)]
