"""Rejected credentials of some of several tenants, without a confirmed version and with one."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.credential_world import KINDS, CredentialWorld, credential
from fakes.instance_reports import data_plane_report, instance_report
from fakes.quarantine_loop import GATEWAY
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.kube_apiserver import ApiCluster, ApiListener
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.compiler.ir.tracing import TraceExport
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.assumed_good import MAX_FEW
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.held_back import (
    HeldBack,
    changed_parts,
    held_back_key,
    without_held_back,
)
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.controller.reduced_gateways import gateway_without_credentials
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.controller.verdicts import RETRY
from gatehouse.dataplane.delivery import Rejection
from gatehouse.dataplane.origin import Origin, port_origin

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
@pytest.mark.parametrize("kind", KINDS)
def test_rejected_credentials_cost_only_what_needs_them(
    kind: str, messages: str, bad: str, serving: bool, trials: bool
) -> None:
    """No version was ever confirmed: of a new controller, or of a new Gateway."""
    world = CredentialWorld("a", "b", "c", "d", bad=bad, kinds=dict.fromkeys("abcd", kind))
    world.serving, world.trials = serving, trials
    world.named = lambda tenants: MESSAGES[messages](tenants, world.bad)
    assert world.settle()
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert world.served[-1] == world.good
    if trials:
        assert all(served >= world.good for served in world.served), "good ones are taken away"


TENANTS = tuple("abcdefgh")


@given(
    st.lists(st.sampled_from(KINDS), min_size=8, max_size=8),
    st.sets(st.sampled_from(TENANTS), min_size=1, max_size=3),
    st.sets(st.sampled_from(TENANTS), max_size=2),
    st.booleans(),
)
def test_rejected_credentials_of_any_use_are_found_whatever_messages_name(
    kinds: list[str], bad: set[str], named: set[str], serving: bool
) -> None:
    world = CredentialWorld(*TENANTS, bad=bad, kinds=dict(zip(TENANTS, kinds, strict=True)))
    world.serving, world.trials = serving, True
    world.named = lambda tenants: [credential(one) for one in sorted(named & tenants)]
    assert world.settle()
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert all(served >= world.good for served in world.served)
    assert world.served[-1] == world.good


@given(
    st.sampled_from(KINDS),
    st.sets(st.sampled_from(TENANTS), min_size=1, max_size=3),
    st.sets(st.sampled_from(TENANTS), max_size=2),
)
def test_message_about_a_good_credential_costs_it_nothing(
    kind: str, bad: set[str], named: set[str]
) -> None:
    """No instance takes trials, and none has another version."""
    world = CredentialWorld(*TENANTS, bad=bad, kinds=dict.fromkeys(TENANTS, kind))
    world.serving = True
    world.named = lambda tenants: [credential(one) for one in sorted(named & tenants)]
    settled = world.settle()
    assert settled is (bad <= named)
    assert all(served >= world.good - bad for served in world.served)
    assert world.left_out == ({f"Secret {tenant}" for tenant in bad} if settled else set())


@pytest.mark.parametrize("place", range(MAX_FEW + 1))
@pytest.mark.parametrize("kind", KINDS)
def test_credential_that_changed_last_is_found_without_trials(kind: str, place: int) -> None:
    """No message names it. Instances keep what they serve if they reject a step."""
    tenants = [f"t{number}" for number in range(MAX_FEW + 4)]
    bad = tenants[-1 - place]
    world = CredentialWorld(*tenants, bad=[bad], kinds=dict.fromkeys(tenants, kind))
    world.serving = True
    for number, tenant in enumerate(tenants):
        world.times["Secret", tenant, "tls"] = f"2026-01-{number + 1:02}T00:00:00Z"
    settled = world.settle()
    assert settled is (place < MAX_FEW)
    assert world.left_out == ({f"Secret {bad}"} if settled else set())
    assert set(world.served) <= {world.good, world.good - {bad}}


@pytest.mark.parametrize("bad", ["ab", "bd", "cd"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_of_several_named_credentials_cost_the_others_nothing_without_trials(
    kind: str, bad: str
) -> None:
    """Instances serve an accepted step, so that all named ones must not be away at once."""
    world = CredentialWorld(*"abcdef", bad=bad, kinds=dict.fromkeys("abcdef", kind))
    world.serving = True
    world.named = lambda tenants: [credential(tenant) for tenant in "abcd" if tenant in tenants]
    assert world.settle()
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert all(served >= world.good - set(bad) for served in world.served)
    assert world.served[-1] == world.good


@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_renewed_credential_that_is_rejected_takes_nothing_away_while_it_is_searched(
    kind: str, messages: str
) -> None:
    """A new tenant, whose credential is rejected, too, is not served meanwhile."""
    world = CredentialWorld("a", "b", "c", "d", kinds=dict.fromkeys("abcdef", kind))
    assert world.settle()
    world.served.clear()
    world.tenants += ["e", "f"]
    world.bad = frozenset("be")
    for tenant in "ab":
        world.renew(tenant, "-new")
    world.named = lambda tenants: [
        credential(named.origin.namespace, world.contents.get(named.origin.namespace, ""))
        for named in MESSAGES[messages](tenants, world.bad)
    ]
    assert world.settle()
    assert world.left_out == {"Secret b", "Secret e"}
    assert world.served[-1] == world.good
    before = frozenset("abcd")
    assert world.served[0] >= before, "the old credentials are served"
    assert all(served >= before & world.good for served in world.served)


@pytest.mark.parametrize("trials", [True, False])
def test_rejected_certificate_and_route_of_two_tenants_cost_nothing_else(trials: bool) -> None:
    world = CredentialWorld("a", "b", "c", "d", bad="b")
    world.bad_routes, world.trials = frozenset("c"), trials
    assert world.settle()
    assert world.left_out == {"Secret b", "HTTPRoute c"}
    assert world.served[-1] == frozenset("ad")


@pytest.mark.parametrize("cause", ["HTTPRoute", "Secret"])
@pytest.mark.parametrize("messages", MESSAGES)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "backend CA of TCP"])
def test_new_route_is_left_out_and_not_the_credential_that_other_new_routes_need(
    kind: str, known: bool, messages: str, cause: str
) -> None:
    """No test has the route without its credential."""
    world = CredentialWorld("old", kinds=dict.fromkeys(("old", *"abcde"), kind))
    if known:
        assert world.settle()
    world.tenants += "abcde"
    world.owners = dict.fromkeys("abcde", "a")
    if cause == "HTTPRoute":
        world.bad_routes = frozenset("c")
    else:
        world.bad = frozenset("a")
    world.named = lambda tenants: MESSAGES[messages](tenants, frozenset("a"))
    assert world.settle()
    if cause == "HTTPRoute":
        # Its filter is tried after it, and no other route has this filter.
        assert world.left_out in ({"HTTPRoute c"}, {"AuthenticationFilter c"})
        assert world.served[-1] == {"old", *"abde"}
    else:
        assert world.left_out == {"Secret a"}
        assert world.served[-1] == world.good


@pytest.mark.parametrize("bad", ["b", "bg", "bdg"])
@pytest.mark.parametrize("kind", ["certificate", "backend CA", "client certificate"])
def test_several_bad_routes_of_one_credential_cost_its_other_routes_nothing(
    kind: str, bad: str
) -> None:
    world = CredentialWorld("old", kinds=dict.fromkeys(("old", *TENANTS), kind))
    assert world.settle()
    world.tenants += TENANTS
    world.owners, world.bad_routes = dict.fromkeys(TENANTS, "a"), frozenset(bad)
    assert world.settle()
    assert world.left_out == {f"HTTPRoute {tenant}" for tenant in bad}
    assert world.served[-1] == {"old", *TENANTS} - frozenset(bad)


def test_route_is_left_out_and_its_credential_is_not_once_another_route_needs_it() -> None:
    """Before, the only route that needs it answers 500 in both cases."""
    world = CredentialWorld("old", "a", kinds=dict.fromkeys(("old", "a", "b"), "backend CA"))
    world.bad_routes = frozenset("a")
    assert world.settle()
    assert world.left_out == {"Secret a"}
    world.tenants.append("b")
    world.owners["b"] = "a"
    assert world.settle()
    world.now += RETRY.maximum
    assert world.quarantine.retry()
    assert world.settle()
    assert world.left_out == {"HTTPRoute a"}
    assert world.served[-1] == {"old", "b"}


def test_rejected_certificate_among_many_is_found_with_few_tests() -> None:
    world = CredentialWorld(*(f"t{number}" for number in range(256)), bad=["t77"])
    world.serving = world.trials = True
    assert world.settle()
    assert world.left_out == {"Secret t77"}
    assert world.tests <= math.log2(256) + 8


@pytest.mark.parametrize("bad", ["b", "bc"])
def test_certificates_that_envoy_rejects_cost_only_their_hostnames(bad: str) -> None:
    world = CredentialWorld("a", "b", "c", "d", bad=bad, envoy=True)
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
    world = CredentialWorld("a", "b", "c", "d", bad=bad, envoy=True)
    world.rejected_listener, world.trials = LISTENER, trials
    assert world.settle()
    assert world.left_out == {f"Secret {tenant}" for tenant in bad}
    assert world.served[-1] == frozenset("abcd") - world.bad


@pytest.mark.parametrize("transient", [True, False])
def test_new_controller_takes_nothing_away_from_an_envoy_that_rejects_a_listener(
    transient: bool,
) -> None:
    """It serves other listeners, and tests only scopes. A port in use starts no search at all."""
    world = CredentialWorld("a", "b", "c", "d", bad="b", envoy=True)
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
        report = instance_report(str(number), rejected=rejected, trials=trials)
        if not process_report(quarantine, data_plane_report(report)):
            break
    assert not rejected
    expected = {Origin("ConfigMap", "ns", "clients")} if bad == "ca-bad" else set()
    assert set(quarantine.left_out) == expected
    ports = {entry.port: len(entry.virtual_hosts) for entry in gateway.listeners}
    assert ports == ({80: 1} if expected else {443: 2, 80: 1})


def with_api_cluster(token: str) -> ir.GatewayConfiguration:
    """Return a port of kube-apiservers with a cluster; without one for an empty name."""
    cluster = ApiCluster("c", ("c.example",), (), (), token=token)
    files = (ir.SecretFile(token, ir.SecretBytes(b""), Origin("UpstreamCluster", "", "c")),)
    return ir.GatewayConfiguration(
        "ns/gw",
        api_listeners=(ApiListener(6443, (cluster,) if token else ()),),
        secrets=files if token else (),
    )


def with_exporter(trust: str) -> ir.GatewayConfiguration:
    """Return a configuration that exports traces; without traces for an empty name."""
    export = TraceExport("collector", 4317, "web", tls=True, trust=trust)
    bundles = (ir.TrustBundle(trust, b"", (Origin("ConfigMap", "ns", "collector"),)),)
    return ir.GatewayConfiguration(
        "ns/gw",
        settings=DataPlaneSettings(http2=False, traces=export if trust else None),
        trust_bundles=bundles if trust else (),
    )


@pytest.mark.parametrize("before", ["old", ""])
@pytest.mark.parametrize("build", [with_api_cluster, with_exporter])
def test_user_of_a_held_back_credential_stays_as_it_was(
    build: Callable[[str], ir.GatewayConfiguration], before: str
) -> None:
    good, new = build(before), build("new")
    (part,) = (one for one in changed_parts(good, new, lambda _: False) if one.credential)
    assert without_held_back(HeldBack(good, frozenset({part})), new) == good
    assert gateway_without_credentials(new, (part,), lambda _: False) == build("")
