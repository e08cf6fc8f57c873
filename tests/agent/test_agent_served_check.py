"""Comparison of what Envoy confirmed with what its admin interface shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.route.v3 import scoped_route_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import json_format

from fakes import patience
from fakes.agent_control_plane import write_certificate
from fakes.envoy_agent import options, running
from fakes.envoy_model import make_resource
from fakes.envoy_running import (
    EnvoyControlPlane,
    backend,
    endpoints,
    get,
    listener,
    secret,
    website,
)
from fakes.loopback import free_port
from gatehouse.agent.envoy import served_check
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.envoy.served_check import ServedCheck
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds import delta
from gatehouse.dataplane.xds.ads_messages import Response
from gatehouse.dataplane.xds.distinct_scopes import DistinctScopes
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
    LISTENER_TYPE_URL,
    SCOPE_TYPE_URL,
    SECRET_TYPE_URL,
    ResourceSet,
    XdsResource,
)

Ask = discovery_pb2.DeltaDiscoveryRequest
Reply = discovery_pb2.DeltaDiscoveryResponse


def scope(name: str, text: str = "") -> XdsResource:
    proto = scoped_route_pb2.ScopedRouteConfiguration(name=name)
    proto.route_configuration.name = text
    return XdsResource.make(SCOPE_TYPE_URL, name, proto.SerializeToString())


class FakeEnvoy(AdminClient):
    """An Envoy that accepts what its relay sends, and shows it."""

    def __init__(self) -> None:
        self.relay = Relay(ResourceSet())
        self.clusters: dict[str, str] = {}
        """Versions by name."""
        self.scopes: dict[str, Any] = {}
        """Messages by name."""
        self.endpoints: dict[str, Any] = {}
        """Messages by name."""
        self.queries: list[str] = []
        self.reports: list[str] = []
        self.check = ServedCheck(
            self, self.relay, self.exchange, lambda: self.reports.append(self.check.problem)
        )
        self.relay.opened()
        for type_url in (CLUSTER_TYPE_URL, SCOPE_TYPE_URL, LISTENER_TYPE_URL):
            ask = Ask(type_url=type_url)
            ask.node.id = "fake"
            self.relay.receive(ask)
        names = [f"c{number}" for number in range(3)]
        self.relay.receive(Ask(type_url=ENDPOINTS_TYPE_URL, resource_names_subscribe=names))
        self.secrets: dict[str, str] = {}
        """Versions by name."""
        secrets = Ask(type_url=SECRET_TYPE_URL, resource_names_subscribe=["present", "absent"])
        self.relay.receive(secrets)

    def publish(self, *resources: XdsResource, gone: tuple[str, ...] = ()) -> None:
        """Send a response of the control plane."""
        type_url = resources[0].type_url
        response = Response(type_url, "n", resources, gone)
        self.relay.on_message(Reply.FromString(delta.encode_delta_response(response, "v")))
        self.exchange()

    def exchange(self, error: str = "") -> None:
        """Receive all that the relay sends, and accept it or reject one response for ``error``."""
        while (message := self.relay.next()) is not None:
            reply = Reply.FromString(message)
            answer = Ask(type_url=reply.type_url, response_nonce=reply.nonce)
            if error:
                answer.error_detail.message = error
                error = ""
            else:
                self._take(reply)
            self.relay.receive(answer)

    def _take(self, reply: Reply) -> None:
        for resource in reply.resources:
            if reply.type_url == CLUSTER_TYPE_URL:
                self.clusters[resource.name] = resource.version
            elif reply.type_url == SECRET_TYPE_URL:
                self.secrets[resource.name] = resource.version
            elif reply.type_url == SCOPE_TYPE_URL:
                message = scoped_route_pb2.ScopedRouteConfiguration()
                resource.resource.Unpack(message)
                self.scopes[resource.name] = _dumped(message)
            elif reply.type_url == ENDPOINTS_TYPE_URL:
                assignment = endpoint_pb2.ClusterLoadAssignment()
                resource.resource.Unpack(assignment)
                self.endpoints[resource.name] = _dumped(assignment)
        for name in reply.removed_resources:
            self.clusters.pop(name, None)
            self.scopes.pop(name, None)

    async def get(self, path: str, *, post: bool = False) -> tuple[int, str]:
        query = parse_qs(path.partition("?")[2])
        self.queries.append(path)
        configs: list[Any] = []
        (kind,), (pattern,) = query["resource"], query["name_regex"]
        if kind == "dynamic_scoped_route_configs":
            scopes = [value for name, value in self.scopes.items() if _names(pattern, name)]
            configs = [{"name": "scopes", "scoped_route_configs": scopes}]
        elif kind == "dynamic_endpoint_configs":
            assert "include_eds" in path
            configs = [
                {"endpoint_config": {"@type": "type.googleapis.com/any", "odd": 1, **value}}
                for name, value in self.endpoints.items()
                if _names(pattern, name)
            ]
        elif kind == "dynamic_active_secrets":
            configs = [
                {"name": name, "version_info": version}
                for name, version in self.secrets.items()
                if _names(pattern, name)
            ]
        elif kind == "dynamic_active_clusters":
            configs = [
                {"cluster": {"name": name}, "version_info": version}
                for name, version in self.clusters.items()
                if _names(pattern, name)
            ]
        return 200, json.dumps({"configs": configs})


def _dumped(message: Any) -> Any:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _names(pattern: str, name: str) -> bool:
    return name in pattern.strip("^()$").replace("\\", "").split("|")


@pytest.fixture
def envoy() -> FakeEnvoy:
    return FakeEnvoy()


CLUSTERS = tuple(make_resource(CLUSTER_TYPE_URL, f"c{number}", "one") for number in range(3))


async def test_all_resources_are_compared_once_and_others_only_at_random(envoy: FakeEnvoy) -> None:
    envoy.publish(*CLUSTERS)
    envoy.publish(scope("s"))
    for at_random, queries in ((False, 3), (False, 0), (True, 3)):
        envoy.queries.clear()
        await envoy.check.check(at_random=at_random)
        assert len(envoy.queries) == queries
    assert (envoy.reports, envoy.check.mismatches) == ([], 0)


async def test_lost_resource_is_reported_and_sent_again(envoy: FakeEnvoy) -> None:
    envoy.publish(*CLUSTERS)
    del envoy.clusters["c1"]
    await envoy.check.check(at_random=False)
    assert envoy.reports == ["it has other versions than confirmed: Cluster c1"]
    assert envoy.clusters["c1"] == CLUSTERS[1].version
    await envoy.check.check(at_random=False)
    assert envoy.reports[1:] == [""]
    assert envoy.check.mismatches == 1


async def test_resource_of_another_version_is_sent_again(envoy: FakeEnvoy) -> None:
    envoy.publish(*CLUSTERS)
    await envoy.check.check(at_random=False)
    envoy.clusters["c2"] = "other"
    await envoy.check.check(at_random=False)
    assert envoy.reports == []
    await envoy.check.check(at_random=True)
    assert envoy.reports == ["it has other versions than confirmed: Cluster c2"]
    assert envoy.clusters["c2"] == CLUSTERS[2].version


async def test_scope_of_a_rejected_response_is_sent_again(envoy: FakeEnvoy) -> None:
    """Its version is right, but Envoy's workers may lack it."""
    envoy.publish(scope("s", "one"))
    earlier = envoy.scopes["s"]
    state = envoy.relay.stream.conversation.subscription(SCOPE_TYPE_URL)  # type: ignore[union-attr]
    assert state is not None
    state.resend(["s"])
    envoy.exchange()
    accepted, envoy.scopes["s"] = envoy.scopes["s"], earlier
    assert accepted != earlier
    await envoy.check.check(at_random=False)
    assert envoy.reports == ["it has other versions than confirmed: ScopedRouteConfiguration s"]
    assert envoy.scopes["s"] not in (accepted, earlier)
    await envoy.check.check(at_random=False)
    assert envoy.reports[1:] == [""]


async def test_resource_left_after_a_rejection_is_removed(envoy: FakeEnvoy) -> None:
    envoy.publish(*CLUSTERS)
    await envoy.check.check(at_random=False)
    bad = make_resource(CLUSTER_TYPE_URL, "bad", "bad")
    envoy.relay.on_message(
        Reply.FromString(delta.encode_delta_response(Response(CLUSTER_TYPE_URL, "n", (bad,)), "v"))
    )
    envoy.exchange("no reason")
    envoy.publish(CLUSTERS[0], gone=("bad",))
    envoy.clusters["bad"] = "left"
    await envoy.check.check(at_random=False)
    assert envoy.reports == ["it has other versions than confirmed: Cluster bad"]
    assert "bad" not in envoy.clusters
    await envoy.check.check(at_random=False)
    assert envoy.reports[1:] == [""]
    assert not any(envoy.relay.cache.open.values())


async def test_rejected_secret_that_a_draining_listener_keeps_is_no_difference(
    envoy: FakeEnvoy,
) -> None:
    present, absent = (
        make_resource(SECRET_TYPE_URL, name, "one") for name in ("present", "absent")
    )
    envoy.publish(present)
    await envoy.check.check(at_random=False)
    response = Response(SECRET_TYPE_URL, "n", (absent,), ())
    envoy.relay.on_message(Reply.FromString(delta.encode_delta_response(response, "v")))
    envoy.exchange("Failed to load certificate chain")
    envoy.secrets["absent"] = absent.version
    envoy.publish(present, gone=("absent",))
    await envoy.check.check(at_random=True)
    assert any("absent" in query for query in envoy.queries), "it is compared"
    assert envoy.reports == []
    envoy.secrets["present"] = "another"
    await envoy.check.check(at_random=True)
    assert envoy.reports == ["it has other versions than confirmed: Secret present"]


async def test_query_names_a_limited_number_of_resources(envoy: FakeEnvoy) -> None:
    envoy.publish(*(make_resource(CLUSTER_TYPE_URL, f"c{number}", "one") for number in range(250)))
    envoy.clusters.clear()
    for _ in range(10):
        await envoy.check.check(at_random=False)
    assert all(query.count("%7C") < 100 for query in envoy.queries)
    assert len(envoy.clusters) == 250
    assert envoy.check.mismatches == 250


async def test_large_scopes_are_compared_one_by_one(envoy: FakeEnvoy) -> None:
    envoy.publish(scope("a", "x" * 700_000))
    envoy.publish(scope("b", "x" * 700_000))
    for _ in range(2):
        envoy.queries.clear()
        await envoy.check.check(at_random=False)
        (query,) = envoy.queries
        assert len(query.partition("name_regex=")[2]) == len("%5E%28a%29%24")


def assigned(name: str, *hosts: str, priority: int = 0) -> XdsResource:
    """Return an assignment of addresses."""
    proto = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    locality = proto.endpoints.add(priority=priority)
    for host in hosts:
        socket = locality.lb_endpoints.add().endpoint.address.socket_address
        socket.address, socket.port_value = host, 80
    return XdsResource.make(ENDPOINTS_TYPE_URL, name, proto.SerializeToString())


@pytest.mark.parametrize(
    "different",
    [assigned("c0"), assigned("c0", "10.0.0.2"), assigned("c0", "10.0.0.1", priority=1)],
)
async def test_other_endpoints_than_confirmed_are_reported_and_sent_again(
    envoy: FakeEnvoy, different: XdsResource
) -> None:
    envoy.publish(CLUSTERS[0])
    envoy.publish(assigned("c0", "10.0.0.1"))
    accepted = envoy.endpoints["c0"]
    envoy.endpoints["c0"] = _dumped(endpoint_pb2.ClusterLoadAssignment.FromString(different.body))
    await envoy.check.check(at_random=False)
    assert envoy.reports == ["it has other versions than confirmed: ClusterLoadAssignment c0"]
    assert envoy.endpoints["c0"] == accepted
    await envoy.check.check(at_random=False)
    assert envoy.reports[1:] == [""]


async def test_endpoints_in_another_form_or_of_no_active_cluster_are_no_difference(
    envoy: FakeEnvoy,
) -> None:
    """Envoy shows addresses in its own form and order, and only those of active clusters."""
    envoy.publish(*CLUSTERS[:2])
    envoy.publish(assigned("c0", "2001:DB8:0::1", "10.0.0.1"), assigned("c1", "10.0.0.1"))
    resource = assigned("c0", "10.0.0.1", "2001:db8::1")
    envoy.endpoints = {"c0": _dumped(endpoint_pb2.ClusterLoadAssignment.FromString(resource.body))}
    envoy.queries.clear()
    await envoy.check.check(at_random=False)
    assert any("include_eds" in query and "c1" in query for query in envoy.queries)
    assert (envoy.reports, envoy.check.mismatches) == ([], 0)


async def test_large_assignments_are_compared_one_by_one(envoy: FakeEnvoy) -> None:
    """Envoy shows a host in 300 bytes of text."""
    hosts = [f"10.0.{number // 250}.{number % 250}" for number in range(2500)]
    envoy.publish(*CLUSTERS)
    envoy.publish(*(assigned(f"c{number}", *hosts) for number in range(3)))
    named = []
    for _ in range(3):
        envoy.queries.clear()
        await envoy.check.check(at_random=False)
        named += [query for query in envoy.queries if "include_eds" in query]
    assert len(named) == 3
    assert envoy.check.mismatches == 0


async def test_odd_replies_change_nothing(
    envoy: FakeEnvoy, monkeypatch: pytest.MonkeyPatch
) -> None:
    envoy.publish(*CLUSTERS)
    for reply in ((503, "busy"), (200, "no JSON"), (200, "[]"), (200, '{"configs": [1]}')):

        async def answer(_path: str, reply: tuple[int, str] = reply) -> tuple[int, str]:
            return reply

        monkeypatch.setattr(envoy, "get", answer)
        await envoy.check.check(at_random=False)
    assert (envoy.reports, envoy.check.mismatches) == ([], 0)


@pytest.mark.process
async def test_listener_that_a_real_envoy_lacks_is_reported_and_served(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_check, "DOUBT_SECONDS", 1.0)
    monkeypatch.setattr(served_check, "RANDOM_SECONDS", (0.0, 0.0))
    copies, lost = DistinctScopes.copies, {"lost"}

    def lose(self: DistinctScopes, resources: tuple[XdsResource, ...]) -> tuple[XdsResource, ...]:
        sent = tuple(resource for resource in resources if resource.name not in lost)
        if sent != resources:
            lost.clear()
        return copies(self, sent)

    monkeypatch.setattr(DistinctScopes, "copies", lose)
    port, more, secure = free_port(), free_port(), free_port()
    pair = secret("pair", plane.cert.read_bytes(), plane.key.read_bytes())
    others = listener("secure", secure, "http", "pair"), pair
    async with running(options(plane, tmp_path)), backend("one") as one:
        await plane.served(website(port, one, *others))
        plane.publish(website(port, one, *others, listener("lost", more, "http")))
        report = await plane.until(lambda report: bool(report.unhealthy))
        assert report.unhealthy.endswith("other versions than confirmed: Listener lost")
        await plane.until(lambda report: report.programmed and not report.unhealthy)
        assert await get(port) == (200, "one")
        assert await get(more) == (200, "one")


@pytest.mark.process
async def test_rejected_secret_that_a_real_envoy_keeps_while_draining_is_no_difference(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_check, "DOUBT_SECONDS", 0.1)
    monkeypatch.setattr(served_check, "RANDOM_SECONDS", (0.0, 0.0))
    secrets, query = [set[str]()], ServedCheck._query

    async def recorded(self: ServedCheck, kind: str, names: list[str]) -> dict[str, set[str]]:
        result = await query(self, kind, names)
        secrets.append(set(result) if kind == SECRET_TYPE_URL else set())
        return result

    monkeypatch.setattr(ServedCheck, "_query", recorded)
    port, secure = free_port(), free_port()
    _, foreign = write_certificate(tmp_path)
    cert, key = plane.cert.read_bytes(), plane.key.read_bytes()
    bad = secret("bad", cert, foreign.read_bytes(), origins=(Origin("Secret", "shop", "bad"),))
    async with running(options(plane, tmp_path)), backend("one") as one:
        tls = listener("secure", secure, "http", "bad")
        report = await plane.served(website(port, one, tls, bad))
        assert report.instances[0].rejected
        good = listener("secure", secure, "http", "pair"), secret("pair", cert, key)
        await plane.served(website(port, one, *good))
        secrets.clear()
        await patience.until(lambda: sum(names >= {"bad", "pair"} for names in secrets) >= 3)
        report = plane.report()
    assert (report.programmed, report.unhealthy, plane.incidents) == (True, "", [])


@pytest.mark.process
async def test_endpoints_that_differ_in_a_real_envoy_are_reported_and_corrected(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Envoy gets another assignment than the one that it confirms."""
    monkeypatch.setattr(served_check, "DOUBT_SECONDS", 1.0)
    monkeypatch.setattr(served_check, "RANDOM_SECONDS", (0.0, 0.0))
    copies = DistinctScopes.copies
    port = free_port()
    async with running(options(plane, tmp_path)), backend("one") as one, backend("two") as two:
        await plane.served(website(port, one))
        wrong = [endpoints("web", one)]

        def exchange(
            self: DistinctScopes, resources: tuple[XdsResource, ...]
        ) -> tuple[XdsResource, ...]:
            if wrong and any(resource.key == wrong[0].key for resource in resources):
                resources = (wrong.pop(),)
            return copies(self, resources)

        monkeypatch.setattr(DistinctScopes, "copies", exchange)
        plane.publish(website(port, two))
        report = await plane.until(lambda report: bool(report.unhealthy))
        assert report.unhealthy.endswith("other versions than confirmed: ClusterLoadAssignment web")
        await plane.until(lambda report: report.programmed and not report.unhealthy)
        assert not wrong
        assert await get(port) == (200, "two")
