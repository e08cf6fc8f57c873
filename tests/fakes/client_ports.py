"""A Gateway with ports that verify clients, and a proxy that rejects some of the credentials.

No I/O: each version is tested as soon as it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from fakes.instance_reports import instance_report
from fakes.quarantine_loop import GATEWAY, settle
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.delivery import InstanceReport, Rejection
from gatehouse.dataplane.origin import Origin


class Port(msgspec.Struct, frozen=True):
    """A port with hostnames, each with the certificate of its name."""

    hostnames: tuple[str, ...]
    authority: str = ""
    """CA certificates of clients; empty: it verifies none."""


class ClientPorts:
    """The quarantine of the Gateway, and its proxy.

    A proxy reads a certificate and the CA certificates of its port together, if the port has the
    certificate.
    """

    def __init__(self, *, bad: Iterable[str] = (), envoy: bool = True) -> None:
        self.ports: dict[int, Port] = {}
        self.bad, self.envoy = frozenset(bad), envoy
        self.named: Callable[[frozenset[str]], Iterable[str]] = lambda _: ()
        """Returns the credentials that a message names, from those of a rejected hostname."""
        self.serving = self.trials = False
        self.served: list[frozenset[tuple[int, str]]] = []
        """Port and hostname of each route, in each accepted version that is no trial."""
        self.changes, self.now, self.tests = ChangeLog(), 0.0, 0
        self.quarantine = Quarantine(
            GATEWAY,
            lambda gateway, _: map(suspect, self._names(gateway)),
            lambda _: "spec",
            lambda _: True,
            self.changes,
            lambda _: StatusHistory.SERVED,
            clock=lambda: self.now,
        )

    def put(self, number: int, authority: str, *hostnames: str) -> None:
        """Store a port. Its credentials change in the order of the arguments."""
        self.ports[number] = Port(hostnames, authority)
        for name in filter(None, (authority, *hostnames)):
            self.changes.record(gateway_api.key_of(suspect(name).origin))

    def compile(self) -> ir.GatewayConfiguration:
        """Compile as the front end does: without its CA certificates, a port is not served, and
        without its certificate, a hostname is not."""
        inputs = self.quarantine.inputs

        def left_out(name: str) -> bool:
            return gateway_api.rejected_credential_key(GATEWAY, name) in inputs

        compiled = ir.GatewayConfiguration("ns/gw")
        for number, port in sorted(self.ports.items()):
            if left_out(port.authority):
                continue
            names = tuple(name for name in port.hostnames if not left_out(name))
            if not names:
                continue
            clients = ir.ClientValidation(port.authority) if port.authority else None
            hosts = tuple(map(_host, names))
            listener = ir.Listener(number, "HTTPS", hosts, client_validation=clients)
            compiled = _with_port(compiled, listener, names, port.authority)
        return compiled

    def _rejected_hosts(self, gateway: ir.GatewayConfiguration) -> Iterator[frozenset[str]]:
        """Yield the credentials of each hostname of which the proxy rejects any."""
        known = {entry.name for entry in gateway.credentials}
        for l4_host in (host for port in gateway.l4_listeners for host in port.hosts):
            if not self.bad.isdisjoint(l4_host.certificates):
                yield frozenset(l4_host.certificates)
        for listener in gateway.listeners:
            clients = listener.client_validation
            trust = {clients.trust} if clients is not None else set()
            for host in listener.virtual_hosts:
                read = frozenset({*host.certificates, *trust})
                assert read <= known, "a file is missing"
                assert clients is not None or listener.port not in self._private, "open"
                if not read.isdisjoint(self.bad):
                    yield read

    @property
    def _private(self) -> set[int]:
        return {number for number, port in self.ports.items() if port.authority}

    def _names(self, gateway: ir.GatewayConfiguration) -> list[str]:
        return sorted({n for read in self._rejected_hosts(gateway) for n in self.named(read)})

    def settle(self) -> bool:
        """Publish until nothing changes. Return whether the last version is accepted."""
        return settle(self.quarantine, self.compile, self._test)

    def _test(self, gateway: ir.GatewayConfiguration, version: str) -> InstanceReport:
        self.tests += 1
        rejected = any(self._rejected_hosts(gateway))
        names = self._names(gateway) if self.envoy else []
        assert bool(names) == (rejected and self.envoy), "an Envoy names what it rejects"
        if not rejected and not self.quarantine.trial:
            self.served.append(frozenset(_served(gateway)))
        return instance_report(
            version,
            rejected=rejected and not self.envoy,
            resources=tuple(Rejection((suspect(name).origin,), "bad") for name in names),
            serving=self.serving,
            trials=self.trials,
        )

    @property
    def left_out(self) -> set[str]:
        return {entry.name for entry in self.quarantine.left_out}


def suspect(name: str) -> Suspect:
    kind = "ConfigMap" if name.startswith("ca") else "Secret"
    return Suspect(Origin(kind, "ns", name), credential=name)


def _host(name: str) -> http.VirtualHost:
    action = http.Forward((http.Backend(name),))
    route = http.Route(name, http.Match(), action, origin=Origin("HTTPRoute", "ns", name))
    return http.VirtualHost(name, (route,), (name,))


def _with_port(
    gateway: ir.GatewayConfiguration, listener: ir.Listener, names: Iterable[str], authority: str
) -> ir.GatewayConfiguration:
    credentials = {entry.name for entry in gateway.credentials}
    new = [name for name in names if name not in credentials]
    certificates = (
        ir.Certificate(name, b"", ir.SecretBytes(b""), suspect(name).origin) for name in new
    )
    bundles = (ir.TrustBundle(authority, b"", (suspect(authority).origin,)),) if authority else ()
    return msgspec.structs.replace(
        gateway,
        listeners=(*gateway.listeners, listener),
        clusters=(*gateway.clusters, *(http.Cluster(name, ()) for name in new)),
        certificates=(*gateway.certificates, *certificates),
        trust_bundles=(*gateway.trust_bundles, *bundles),
    )


def _served(gateway: ir.GatewayConfiguration) -> Iterator[tuple[int, str]]:
    for listener in gateway.listeners:
        for host in listener.virtual_hosts:
            yield from ((listener.port, host.hostname) for _ in host.routes)
