"""Search of a quarantine for objects that are no HTTP routes, and what it serves meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from fakes.quarantine_loop import GATEWAY, to_publish
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.proxy_settings import NginxSettings, NginxSnippet
from gatehouse.compiler.ir.settings import (
    Attribute,
    ClientSettings,
    DataPlaneSettings,
    Settings,
    UpstreamSettings,
)
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.change_log import ChangeLog
from gatehouse.controller.quarantine import Quarantine
from gatehouse.controller.quarantines import process_report
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport, Rejection
from gatehouse.dataplane.origin import Origin, object_of, port_origin
from gatehouse.incremental.query import Key

BAD = "BAD"
"""Text that the proxy rejects wherever it is."""


def origin(kind: str, name: str) -> Origin:
    return Origin(kind, "ns", name)


class World:
    """A compiler in small, with an instance that rejects what contains :data:`BAD`."""

    def __init__(self) -> None:
        self.specs: dict[Origin, str] = {}
        """Text of each policy, filter, parameters object, certificate and L4 route."""
        self.routes: dict[str, tuple[str, str]] = {}
        """By name, a text in the route, and the name of the filter that it uses; or empty."""
        self.serving = ir.GatewayConfiguration("ns/gw")
        self.accepted: list[ir.GatewayConfiguration] = []
        self.changes = ChangeLog()
        self.named: list[Suspect] = []
        """Suspects of each error."""
        self.endpoints: tuple[http.Endpoint, ...] = ()
        self.quarantine = Quarantine(
            GATEWAY,
            lambda *_: self.named,
            lambda key: self.specs.get(object_of(key)),
            self.reads,
            self.changes,
        )
        self.report: list[str] = []
        self.arriving: list[Callable[[], object]] = []
        """Changes that are made during a search, one after each publication."""

    def reads(self, key: Key) -> bool:
        """Return whether a key is that of the present certificate."""
        content = self.specs.get(origin("Secret", "tls"), "")
        name = f"cert-{content.lower()}"
        return key == gateway_api.rejected_credential_key(GATEWAY, name)

    def put(self, kind: str, name: str, text: str) -> Origin:
        """Store an object."""
        key = origin(kind, name)
        self.specs[key] = text
        if kind not in gateway_api.ROUTE_KINDS:
            self.changes.record(gateway_api.key_of(key))
        return key

    def text(self, kind: str, name: str) -> str:
        """Return the text of an object that is not rejected; empty if there is none."""
        key = origin(kind, name)
        rejected = gateway_api.rejected_object_key(GATEWAY, gateway_api.key_of(key))
        return "" if rejected in self.quarantine.inputs else self.specs.get(key, "")

    def compile(self) -> ir.GatewayConfiguration:
        """Compile as the front end does."""
        policy = self.text("SnippetsPolicy", "all")
        common = (NginxSnippet(origin("SnippetsPolicy", "all"), "http.server.location", policy),)
        limit = self.text("ClientSettingsPolicy", "limits")
        settings = Settings()
        if limit:
            sources = (("body_size", origin("ClientSettingsPolicy", "limits").field("body")),)
            size = -1 if BAD in limit else len(limit)
            settings = Settings(ClientSettings(body_size=size, sources=sources))
        routes, shared = [], []
        for name, (text, used) in self.routes.items():
            snippets: tuple[NginxSnippet, ...] = common if policy else ()
            if used and (snippet_text := self.text("SnippetsFilter", used)):
                shared.append(NginxSnippet(origin("SnippetsFilter", used), "http", snippet_text))
                snippets += (shared[-1],)
            part = Origin("HTTPRoute", "ns", name, "rules[0].matches[0]")
            action: http.Action = http.Forward((http.Backend("app"),))
            if used and not self.text("SnippetsFilter", used):
                action = http.Respond(500)
            match = http.Match(http.PathPrefix(f"/{name}/{text}"))
            compiled_route = http.Route(
                name, match, action, settings=settings, snippets=snippets, origin=part
            )
            replacement = self.quarantine.inputs.get(gateway_api.replacement_key(GATEWAY, part))
            replaced = dict(replacement.routes) if replacement is not None else {}
            served = replaced.get(compiled_route, compiled_route)
            routes += [served] if served is not None else []
        upstream = self.text("UpstreamSettingsPolicy", "balancing")
        cluster = http.Cluster("app", self.endpoints)
        if upstream:
            sources = (("key", origin("UpstreamSettingsPolicy", "balancing").field("key")),)
            values = UpstreamSettings(key=Attribute(upstream), sources=sources)
            cluster = msgspec.structs.replace(cluster, settings=values)
        proxy = origin("NginxProxy", "parameters")
        level = self.text(proxy.kind, proxy.name)
        l4_hosts = []
        for key, text in self.specs.items():
            if key.kind == "TCPRoute":
                left = self.text(key.kind, key.name)
                sources_of = (text,) if left else ()
                backends = (ir.L4Backend("app"),) if left else ()
                l4_hosts.append(ir.L4Host("", backends, sources=sources_of, origin=key))
        certificates = []
        if content := self.specs.get(origin("Secret", "tls"), ""):
            name = f"cert-{content.lower()}"
            rejected = gateway_api.rejected_credential_key(GATEWAY, name)
            if rejected not in self.quarantine.inputs:
                key_pair = ir.SecretBytes(b"")
                secret = origin("Secret", "tls")
                certificates.append(ir.Certificate(name, content.encode(), key_pair, secret))
        host = http.VirtualHost(
            "a.example",
            tuple(routes),
            tuple(entry.name for entry in certificates),
            settings=settings,
        )
        return ir.GatewayConfiguration(
            "ns/gw",
            listeners=(ir.Listener(80, "HTTP", (host,)),),
            l4_listeners=tuple(
                ir.L4Listener(90 + number, "TCP", (entry,)) for number, entry in enumerate(l4_hosts)
            ),
            clusters=(cluster,),
            certificates=tuple(certificates),
            settings=DataPlaneSettings(
                nginx=NginxSettings(error_level=level), origins=(proxy,) if level else ()
            ),
            snippets=tuple(dict.fromkeys(shared)),
        )

    def settle(self) -> str:
        """Publish until nothing changes. Return the last error."""
        for _ in range(200):
            if self.arriving and self.quarantine.searching:
                self.arriving.pop()()
            compiled = self.compile()
            gateway = to_publish(self.quarantine, compiled)
            version = repr(gateway)
            changed = self.quarantine.published(version, gateway, compiled)
            if changed:
                continue
            if BAD in version or "body_size=-1" in version:
                self.report = [version]
            elif self.serving != gateway or self.report:
                self.report, self.serving = [], gateway
                self.accepted.append(gateway)
            if self.report:
                changed = self.quarantine.rejected(self.report[0], "bad", "nginx/1")
            else:
                changed = self.quarantine.confirmed([version])
            if not changed:
                return "bad" if self.report else ""
        raise AssertionError("the quarantine does not settle")

    @property
    def left_out(self) -> set[str]:
        return {f"{entry.kind} {entry.name}" for entry in self.quarantine.left_out}


def served(gateway: ir.GatewayConfiguration) -> set[str]:
    """Return the names of the routes that forward requests."""
    return {
        route.name
        for listener in gateway.listeners
        for host in listener.virtual_hosts
        for route in host.routes
        if isinstance(route.action, http.Forward)
    }


SHARED = {
    "parameters": ("NginxProxy", "parameters"),
    "snippets of the Gateway": ("SnippetsPolicy", "all"),
    "client settings of the Gateway": ("ClientSettingsPolicy", "limits"),
    "settings of an upstream": ("UpstreamSettingsPolicy", "balancing"),
    "certificate": ("Secret", "tls"),
    "L4 route": ("TCPRoute", "l4"),
}


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("case", SHARED)
def test_search_leaves_out_only_shared_object(case: str, existing: bool) -> None:
    """A good object of each other kind and two good routes change at the same time."""
    world = World()
    world.routes = {"old": ("", ""), "filtered": ("", "shared")}
    world.put("SnippetsFilter", "shared", "good")
    if existing:
        for kind, name in SHARED.values():
            world.put(kind, name, "good")
    assert world.settle() == ""
    world.accepted.clear()
    for entry, (kind, name) in SHARED.items():
        world.put(kind, name, BAD if entry == case else "better")
    world.put("SnippetsFilter", "shared", "better")
    world.routes["new"] = ("", "")
    assert world.settle() == ""
    kind, name = SHARED[case]
    assert world.left_out == {f"{kind} {name}"}
    assert served(world.serving) == {"old", "filtered", "new"}
    for step in world.accepted:
        assert served(step) >= {"old", "filtered"}, "a step serves less than before"
    for entry, (changed, _) in SHARED.items():
        if entry != case and changed != "ClientSettingsPolicy":
            assert "better" in repr(world.serving), entry
    world.put(kind, name, "repaired")
    for kind, name in SHARED.values():
        world.put(kind, name, "repaired")
    assert world.settle() == ""
    assert world.left_out == set()
    assert world.quarantine.inputs == {}


def test_search_leaves_out_filter_and_fails_only_routes_that_use_it() -> None:
    world = World()
    world.routes = {f"r{number}": ("", "") for number in range(6)}
    world.settle()
    world.put("SnippetsFilter", "f", BAD)
    world.put("SnippetsFilter", "g", "good")
    world.routes |= {"uses": ("", "f"), "good": ("", "g"), "later": ("", "")}
    assert world.settle() == ""
    assert "SnippetsFilter f" in world.left_out
    assert "SnippetsFilter g" not in world.left_out
    assert served(world.serving) == {*world.routes} - {"uses"}


def test_search_names_changed_filter_and_not_its_unchanged_routes() -> None:
    world = World()
    world.routes = {f"r{number}": ("", "f") for number in range(8)}
    world.put("SnippetsFilter", "f", "good")
    world.settle()
    world.put("SnippetsFilter", "f", BAD)
    assert world.settle() == ""
    assert world.left_out == {"SnippetsFilter f"}


def test_search_finds_bad_objects_of_several_kinds() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    world.put("NginxProxy", "parameters", BAD)
    world.put("TCPRoute", "l4", BAD)
    world.put("TCPRoute", "other", "good")
    world.routes |= {"bad": (BAD, ""), "new": ("", "")}
    assert world.settle() == ""
    assert world.left_out == {"NginxProxy parameters", "TCPRoute l4", "HTTPRoute bad"}
    assert served(world.serving) == {"old", "new"}
    hosts = [host for listener in world.serving.l4_listeners for host in listener.hosts]
    assert [bool(host.backends) for host in hosts] == [False, True]


def test_object_that_an_error_names_wrongly_is_used_again_and_the_cause_is_searched() -> None:
    world = World()
    world.put("NginxProxy", "parameters", "good")
    world.routes = {"old": ("", "")}
    world.settle()
    world.named = [Suspect(origin("NginxProxy", "parameters"))]
    world.routes["bad"] = (BAD, "")
    assert world.settle() == ""
    assert world.left_out == {"HTTPRoute bad"}
    assert world.serving.settings.nginx.error_level == "good"


def test_rejected_policy_is_invalid_until_its_spec_changes() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.named = [Suspect(world.put("ClientSettingsPolicy", "limits", BAD))]
    assert world.settle() == ""
    assert world.left_out == {"ClientSettingsPolicy limits"}
    assert served(world.serving) == {"old"}
    world.put("ClientSettingsPolicy", "limits", "good")
    assert world.settle() == ""
    assert world.left_out == set()


def test_rejection_without_a_cause_ends_with_the_newest_configuration() -> None:
    """The proxy rejects everything, so that its error about the desired version is reported."""
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    published: list[str] = []
    quarantine, world.routes["new"] = world.quarantine, ("", "")
    rejection = ""
    for _ in range(20):
        compiled = world.compile()
        gateway = to_publish(quarantine, compiled)
        quarantine.published(repr(gateway), gateway, compiled)
        # An instance still reports the last rejection when the next version is published.
        changed = quarantine.rejected(rejection, "disk full", "nginx/1") if rejection else False
        if published[-1:] != [repr(gateway)]:
            published.append(repr(gateway))
        rejection = repr(gateway)
        changed |= quarantine.rejected(rejection, "disk full", "nginx/1")
        if not changed:
            break
    assert quarantine.inputs == {}
    assert published[-1] == repr(world.compile())
    assert len(published) == 3, "rejected, everything held back, rejected"


@pytest.mark.parametrize("arriving", SHARED)
@pytest.mark.parametrize("text", [BAD, "better"])
@pytest.mark.parametrize("case", SHARED)
def test_object_that_changes_during_a_search_is_found_if_it_is_bad(
    case: str, arriving: str, text: str
) -> None:
    world = World()
    world.routes = {"old": ("", "")}
    for kind, name in SHARED.values():
        world.put(kind, name, "good")
    assert world.settle() == ""
    world.accepted.clear()
    world.put(*SHARED[case], BAD)
    world.routes["new"] = ("", "")
    if arriving != case:
        world.arriving = [lambda: world.put(*SHARED[arriving], text)]
    assert world.settle() == ""
    assert not world.arriving
    changed = {case: BAD, **({arriving: text} if arriving != case else {})}
    assert world.left_out == {
        " ".join(SHARED[entry]) for entry, content in changed.items() if content == BAD
    }
    assert served(world.serving) == {"old", "new"}
    for step in world.accepted:
        assert served(step) >= {"old"}, "a step serves less than before"


def test_object_that_is_repaired_during_a_search_is_served() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    world.routes |= {"bad": (BAD, ""), "new": ("", "")}
    world.arriving = [lambda: world.routes.update(bad=("repaired", ""))]
    assert world.settle() == ""
    assert world.left_out == set()
    assert served(world.serving) == {"old", "bad", "new"}


def test_endpoints_change_during_a_search() -> None:
    world = World()
    world.routes = {"old": ("", "")}
    world.settle()
    world.routes["bad"] = (BAD, "")
    compiled = world.compile()
    world.quarantine.published(repr(compiled), compiled)
    assert world.quarantine.rejected(repr(compiled), "bad", "nginx/1")
    world.endpoints = (http.Endpoint("10.0.0.1", 80),)
    published = to_publish(world.quarantine, world.compile())
    assert served(published) == {"old"}
    assert next(iter(published.clusters)).endpoints == world.endpoints


class Instance:
    """An instance that answers each version on its own, as agents do."""

    def __init__(self, name: str, *, picky: bool) -> None:
        self.name, self.picky = name, picky
        self.confirmed = self.rejected = ""

    def apply(self, version: str) -> None:
        if self.picky and BAD in version:
            self.rejected = version
        else:
            self.confirmed, self.rejected = version, ""

    def report(self, desired: str) -> InstanceReport:
        return InstanceReport(
            self.name,
            desired=desired,
            confirmed=self.confirmed,
            proxy="nginx/1.31.3" if self.picky else "nginx/1.29.0",
            rejected_version=self.rejected,
            rejection="bad" if self.rejected else "",
            serving=bool(self.confirmed),
        )


@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
def test_object_that_one_of_three_instances_rejects_is_left_out_everywhere(order: str) -> None:
    """The instances answer in any order, each while the others still report the last version."""
    world = World()
    instances = {name: Instance(name, picky=name == "b") for name in order}
    versions: list[str] = []

    def settle() -> None:
        for _ in range(50):
            compiled = world.compile()
            world.serving = to_publish(world.quarantine, compiled)
            version = repr(world.serving)
            versions.append(version)
            changed = world.quarantine.published(version, world.serving, compiled)
            for instance in instances.values() if not changed else ():
                instance.apply(version)
                reports = tuple(answer.report(version) for answer in instances.values())
                changed |= process_report(
                    world.quarantine, DataPlaneReport("ns/gw", version, reports)
                )
            if not changed:
                return
        raise AssertionError("the quarantine does not settle")

    world.routes = {"old": ("", "")}
    settle()
    world.routes |= {"bad": (BAD, ""), "new": ("", "")}
    settle()
    assert world.left_out == {"HTTPRoute bad"}
    assert served(world.serving) == {"old", "new"}
    assert {instance.confirmed for instance in instances.values()} == {versions[-1]}
    (finding,) = world.quarantine.findings
    assert finding.reason == "match rejected by nginx/1.31.3: bad"


class Envoy:
    """An instance that rejects resources and serves the rest of each version."""

    def __init__(self, world: World) -> None:
        self.world = world

    def settle(self, rejects: Callable[[ir.GatewayConfiguration], list[Rejection]]) -> None:
        """Publish until nothing changes."""
        world = self.world
        for _ in range(50):
            compiled = world.compile()
            world.serving = to_publish(world.quarantine, compiled)
            version = repr(world.serving)
            changed = world.quarantine.published(version, world.serving, compiled)
            if not changed:
                rejected = tuple(rejects(world.serving))
                report = InstanceReport("e", version, version, proxy="envoy/1", rejected=rejected)
                changed = process_report(
                    world.quarantine, DataPlaneReport("ns/gw", version, (report,))
                )
            if not changed:
                return
        raise AssertionError("the quarantine does not settle")


def test_certificate_is_left_out_again_if_only_its_listener_is_rejected() -> None:
    """Envoy names a Secret once. Later it rejects listeners that use the Secret."""
    secret, listener = origin("Secret", "tls"), port_origin("ns/gw", 80)
    world = World()
    envoy = Envoy(world)
    world.routes = {"old": ("", "")}
    envoy.settle(lambda _: [])
    world.put("Secret", "tls", BAD)
    reported: list[Origin] = []

    def rejects(gateway: ir.GatewayConfiguration) -> list[Rejection]:
        if not gateway.certificates:
            return []
        reported.append(listener if reported else secret)
        return [Rejection((reported[-1],), "Failed to load certificate chain")]

    envoy.settle(rejects)
    world.quarantine.verdicts.hurry(0.0)
    assert world.quarantine.retry()
    envoy.settle(rejects)
    assert set(reported) == {secret, listener}
    assert world.left_out == {"Secret tls"}
    assert not world.quarantine.searching


def test_policy_is_left_out_if_a_listener_is_rejected_because_of_it() -> None:
    world = World()
    envoy = Envoy(world)
    world.routes = {"old": ("", "")}
    envoy.settle(lambda _: [])
    world.put("ClientSettingsPolicy", "limits", BAD)
    world.routes["new"] = ("", "")
    rejection = Rejection((port_origin("ns/gw", 80),), "body_size is negative")
    envoy.settle(lambda gateway: [rejection] if "body_size=-1" in repr(gateway) else [])
    assert world.left_out == {"ClientSettingsPolicy limits"}
    assert served(world.serving) == {"old", "new"}


def test_policy_is_left_out_if_a_new_controller_meets_a_listener_rejected_because_of_it() -> None:
    world = World()
    envoy = Envoy(world)
    world.put("ClientSettingsPolicy", "limits", BAD)
    world.put("NginxProxy", "parameters", "good")
    world.routes = {"old": ("", ""), "new": ("", "")}
    rejection = Rejection((port_origin("ns/gw", 80),), "body_size is negative")
    envoy.settle(lambda gateway: [rejection] if "body_size=-1" in repr(gateway) else [])
    assert world.left_out == {"ClientSettingsPolicy limits"}
    assert served(world.serving) == {"old", "new"}
    assert world.serving.settings.nginx.error_level == "good"


def test_rejected_object_is_tried_again_while_a_port_is_taken() -> None:
    """A port that another program has tells nothing about objects."""
    world = World()
    envoy = Envoy(world)
    taken = Rejection((port_origin("ns/gw", 80),), "cannot bind", transient=True)
    bad = Rejection((origin("Secret", "tls"),), "Failed to load certificate chain")
    world.routes = {"old": ("", "")}
    envoy.settle(lambda _: [taken])
    world.put("Secret", "tls", BAD)
    envoy.settle(lambda gateway: [bad, taken] if gateway.certificates else [taken])
    assert world.left_out == {"Secret tls"}
    world.quarantine.verdicts.hurry(0.0)
    assert world.quarantine.retry()
    envoy.settle(lambda _: [taken])
    assert world.left_out == set()
    assert not world.quarantine.searching
