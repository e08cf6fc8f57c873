"""Rejected certificates of one of several tenants, without a confirmed version and with one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec
import pytest

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import (
    HeldBack,
    changed_parts,
    held_back_key,
    without_held_back,
)
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantined_routes import configured_routes
from gatehouse.controller.quarantines import process_report
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection
from gatehouse.dataplane.origin import Origin, port_origin

GATEWAY = ("Gateway", "ns", "gw")


def secret(tenant: str) -> Origin:
    return Origin("Secret", tenant, "tls")


def credential(tenant: str) -> Suspect:
    return Suspect(secret(tenant), credential=f"cert-{tenant}")


class World:
    """A new controller, and an instance that rejects the certificates of some tenants.

    Each tenant has a hostname with a certificate and a route.
    """

    def __init__(self, *tenants: str, bad: Iterable[str] = (), envoy: bool = False) -> None:
        self.tenants, self.bad, self.envoy = tenants, frozenset(bad), envoy
        self.rejected_listener: Rejection | None = None
        """An Envoy's rejection of the listener with a rejected certificate; None: of the Secret."""
        self.bad_routes: frozenset[str] = frozenset()
        """Tenants whose routes the instance rejects."""
        self.named: Callable[[frozenset[str]], list[Suspect]] = lambda _: []
        self.serving, self.trials = False, False
        self.served: list[frozenset[str]] = []
        """Tenants in each accepted version that is no trial."""
        self.now, self.tests, self.changes = 0.0, 0, ChangeLog()
        self.quarantine = Quarantine(
            GATEWAY,
            lambda gateway, _: self.named(self.tenants_of(gateway)),
            lambda _: "spec",
            lambda _: True,
            self.changes,
            lambda _: StatusHistory.SERVED,
            clock=lambda: self.now,
        )

    @staticmethod
    def tenants_of(gateway: ir.GatewayConfiguration) -> frozenset[str]:
        """Return the tenants whose certificates a proxy reads."""
        return frozenset(
            host.hostname
            for listener in gateway.listeners
            for host in listener.virtual_hosts
            if set(host.certificates) & {entry.name for entry in gateway.certificates}
        )

    def compile(self) -> ir.GatewayConfiguration:
        """Compile as the front end does: a hostname without its certificate is not served."""
        inputs, hosts, certificates = self.quarantine.inputs, [], []
        for tenant in self.tenants:
            name = f"cert-{tenant}"
            if gateway_api.rejected_credential_key(GATEWAY, name) in inputs:
                continue
            certificates.append(ir.Certificate(name, b"", ir.SecretBytes(b""), secret(tenant)))
            part = Origin("HTTPRoute", tenant, "r", "rules[0].matches[0]")
            item = http.Route(f"{tenant}/r", http.Match(), http.Redirect(), origin=part)
            replacement = inputs.get(gateway_api.replacement_key(GATEWAY, part))
            replaced = dict(replacement.routes) if replacement is not None else {}
            route = replaced.get(item, item)
            hosts.append(http.VirtualHost(tenant, (route,) if route is not None else (), (name,)))
        listeners = (ir.Listener(443, "HTTPS", tuple(hosts)),) if hosts else ()
        return ir.GatewayConfiguration(
            "ns/gw", listeners=listeners, certificates=tuple(certificates)
        )

    def report(self, gateway: ir.GatewayConfiguration, version: str) -> InstanceReport:
        rejected = self.tenants_of(gateway) & self.bad | self.bad_routes.intersection(
            route.name.partition("/")[0]
            for route in configured_routes(gateway)
            if isinstance(route.action, http.Redirect)
        )
        if self.envoy:
            rejections = tuple(Rejection((secret(one),), "bad") for one in sorted(rejected))
            if rejected and self.rejected_listener is not None:
                rejections = (self.rejected_listener,)
            return InstanceReport(
                "e",
                version,
                version,
                proxy="envoy/1",
                rejected=rejections,
                serving=self.serving,
                takes_trials=self.trials,
            )
        return InstanceReport(
            "i",
            desired=version,
            confirmed="" if rejected else version,
            proxy="nginx/1",
            rejected_version=version if rejected else "",
            rejection="bad" if rejected else "",
            serving=self.serving,
            takes_trials=self.trials,
        )

    def settle(self) -> bool:
        """Publish until nothing changes. Return whether the last version is accepted."""
        for _ in range(100):
            compiled = self.compile()
            held = self.quarantine.inputs.get(held_back_key(GATEWAY))
            gateway = compiled if held is None else without_held_back(held, compiled)
            version = repr(gateway)
            if self.quarantine.published(version, gateway, compiled):
                continue
            self.tests += 1
            report = self.report(gateway, version)
            rejected = bool(report.rejected_version or report.rejected)
            if not rejected and not (held is not None and held.trial):
                self.served.append(self.tenants_of(gateway))
            if not process_report(self.quarantine, DataPlaneReport("ns/gw", version, (report,))):
                return not rejected
        raise AssertionError("the quarantine does not settle")

    @property
    def left_out(self) -> set[str]:
        return {f"{entry.kind} {entry.namespace}" for entry in self.quarantine.left_out}


MESSAGES: dict[str, Callable[[frozenset[str], frozenset[str]], list[Suspect]]] = {
    "named": lambda tenants, bad: [credential(min(tenants & bad))],
    "silent": lambda _tenants, _bad: [],
    "false": lambda tenants, _bad: [credential("a")] if "a" in tenants else [],
}
"""Suspects that the message about a configuration of some tenants names; ``bad``: the cause."""


@pytest.mark.parametrize("bad", ["b", "bc", "abc"])
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize(
    ("serving", "trials"), [(False, False), (False, True), (True, True)], ids=str
)
def test_rejected_certificates_cost_only_their_hostnames(
    messages: str, bad: str, serving: bool, trials: bool
) -> None:
    """No version was ever confirmed: of a new controller, or of a new Gateway."""
    world = World("a", "b", "c", "d", bad=bad)
    world.serving, world.trials = serving, trials
    world.named = lambda tenants: MESSAGES[messages](tenants, world.bad)
    assert world.settle()
    good = frozenset("abcd") - world.bad
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert world.served[-1] == good
    if trials and messages == "silent":
        assert set(world.served) == {good}, "nothing that is good is taken away to search"


@pytest.mark.parametrize("trials", [True, False])
def test_rejected_certificate_and_route_of_two_tenants_cost_nothing_else(trials: bool) -> None:
    world = World("a", "b", "c", "d", bad="b")
    world.bad_routes, world.trials = frozenset("c"), trials
    assert world.settle()
    assert world.left_out == {"Secret b", "HTTPRoute c"}
    assert world.served[-1] == frozenset("acd")


def test_rejected_certificate_among_many_is_found_with_few_tests() -> None:
    world = World(*(f"t{number}" for number in range(256)), bad=["t77"])
    world.serving = world.trials = True
    assert world.settle()
    assert world.left_out == {"Secret t77"}
    assert world.tests <= math.log2(256) + 8


@pytest.mark.parametrize("bad", ["b", "bc"])
def test_certificates_that_envoy_rejects_cost_only_their_hostnames(bad: str) -> None:
    world = World("a", "b", "c", "d", bad=bad, envoy=True)
    assert world.settle()
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert world.served[-1] == frozenset("abcd") - world.bad


LISTENER = Rejection((port_origin("ns/gw", 443),), "Failed to load certificate chain")


@pytest.mark.parametrize("bad", ["b", "bc"])
@pytest.mark.parametrize("trials", [True, False])
def test_certificate_is_found_if_a_new_controller_meets_only_its_rejected_listener(
    bad: str, trials: bool
) -> None:
    """A restarted Envoy, which serves nothing yet."""
    world = World("a", "b", "c", "d", bad=bad, envoy=True)
    world.rejected_listener, world.trials = LISTENER, trials
    assert world.settle()
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert world.served[-1] == frozenset("abcd") - world.bad


@pytest.mark.parametrize("transient", [True, False])
def test_new_controller_takes_nothing_away_from_an_envoy_that_rejects_a_listener(
    transient: bool,
) -> None:
    """It serves other listeners, and tests only scopes. A port in use starts no search at all."""
    world = World("a", "b", "c", "d", bad="b", envoy=True)
    world.rejected_listener = msgspec.structs.replace(LISTENER, transient=transient)
    world.serving, world.trials = not transient, True
    assert not world.settle()
    assert world.tests == 1
    assert world.left_out == set()
    assert not world.quarantine.searching


def validating(trust: str, *hostnames: str) -> ir.GatewayConfiguration:
    """Return a port whose clients need a certificate of a CA; without one for an empty name."""
    origin = Origin("ConfigMap", "ns", "clients")
    bundles = (ir.TrustBundle(trust, trust.encode(), (origin,)),) if trust else ()
    clients = ir.ClientValidation(trust) if trust else None
    hosts, clusters = [], []
    for name in hostnames:
        action = http.Forward((http.Backend(name),))
        route = http.Route(name, http.Match(), action, origin=Origin("HTTPRoute", "ns", name))
        hosts.append(http.VirtualHost(name, (route,)))
        clusters.append(http.Cluster(name, ()))
    listener = ir.Listener(443, "HTTPS", tuple(hosts), client_validation=clients)
    return ir.GatewayConfiguration(
        "ns/gw", listeners=(listener,), clusters=tuple(clusters), trust_bundles=bundles
    )


@pytest.mark.parametrize(
    ("good", "expected"),
    [
        (validating("ca-old", "a", "b"), validating("ca-old", "b", "c")),
        (validating("", "a", "b"), validating("", "a", "b")),
        (ir.GatewayConfiguration("ns/gw"), ir.GatewayConfiguration("ns/gw")),
    ],
    ids=["other CA", "no validation", "no such port"],
)
def test_held_back_client_ca_opens_no_hostname_to_other_clients(
    good: ir.GatewayConfiguration, expected: ir.GatewayConfiguration
) -> None:
    """A port that validated goes on; one that did not is as in the good version."""
    new = validating("ca-new", "b", "c")
    (part,) = (one for one in changed_parts(good, new, lambda _: True) if one.credential)
    assert without_held_back(HeldBack(good, frozenset({part})), new) == expected


@pytest.mark.parametrize("trials", [True, False])
@pytest.mark.parametrize("bad", ["ca-bad", "ca-none"])
def test_new_controller_finds_rejected_ca_certificates_of_clients(bad: str, trials: bool) -> None:
    """No message names them. Routes of the port and of other ports are not the cause."""
    other = ir.Listener(80, "HTTP", validating("", "c").listeners[0].virtual_hosts)
    quarantine = Quarantine(
        GATEWAY, lambda *_: (), lambda _: "spec", lambda _: True, ChangeLog(),
        lambda _: StatusHistory.SERVED,
    )  # fmt: skip
    rejected, gateway = True, ir.GatewayConfiguration("ns/gw")
    for number in range(40):
        compiled = validating("ca-bad", "a", "b")
        left_out = gateway_api.rejected_credential_key(GATEWAY, "ca-bad") in quarantine.inputs
        listeners = () if left_out else compiled.listeners
        compiled = msgspec.structs.replace(compiled, listeners=(*listeners, other))
        held = quarantine.inputs.get(held_back_key(GATEWAY))
        gateway = compiled if held is None else without_held_back(held, compiled)
        if quarantine.published(str(number), gateway, compiled):
            continue
        clients = [entry.client_validation for entry in gateway.listeners]
        rejected = any(entry is not None and entry.trust == bad for entry in clients)
        report = InstanceReport(
            "i",
            desired=str(number),
            confirmed="" if rejected else str(number),
            proxy="nginx/1",
            rejected_version=str(number) if rejected else "",
            takes_trials=trials,
        )
        if not process_report(quarantine, DataPlaneReport("ns/gw", str(number), (report,))):
            break
    assert not rejected
    expected = {Origin("ConfigMap", "ns", "clients")} if bad == "ca-bad" else set()
    assert set(quarantine.left_out) == expected
    ports = {entry.port: len(entry.virtual_hosts) for entry in gateway.listeners}
    assert ports == ({80: 1} if expected else {443: 2, 80: 1})
