"""Takeover of a name or address that another object owns.

Attackers may edit objects of their own: UpstreamClusters and HostedAPIServers that are older than
those of others. They have no access to the objects of others or to any status.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.inprocess import Server
from fakes.ownership_estate import APIS, INSIDE, NAMES, Estate, Object
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.incremental.query import Key

OTHER: Key = ("Gateway", "ns", "other")


@pytest.fixture
def estate() -> Estate:
    return Estate()


@pytest.mark.parametrize("restarts", [False, True])
def test_edit_of_older_cluster_takes_no_served_hostname(estate: Estate, restarts: bool) -> None:
    """Who: the owner of an older UpstreamCluster. Through: `serverNames` with names of another one.

    Must hold: clients of the other cluster keep reaching its servers, also after a restart.
    """
    new = estate.cluster("new.test", "api.new.test", created=9)
    old = estate.cluster("old.test", created=1)
    estate.write_statuses()
    if restarts:
        estate.restart()
    else:
        estate.run()
    estate.cluster("old.test", "new.test", "api.new.test", "free.test", created=1)
    expected = {"new.test": "new.test", "api.new.test": "new.test"}
    assert estate.clusters() == {**expected, "old.test": "old.test", "free.test": "old.test"}
    status, reason, message = estate.condition(old, "Conflicted")
    assert (status, reason) == ("True", "HostConflict")
    assert "api.new.test already used by UpstreamCluster new.test" in message
    assert estate.condition(new, "Conflicted") == ("", "", "")


@pytest.mark.parametrize("restarts", [False, True])
def test_edit_of_older_hosted_server_takes_no_served_name_or_address(
    estate: Estate, restarts: bool
) -> None:
    """Who: the owner of an older HostedAPIServer in another namespace. Through: `hosts` and
    `advertiseAddress` with those of another object.

    Must hold: the other cluster keeps both, and the attacker loses only what is in conflict.
    """
    estate.hosted("two", "api.two.test", "b.two.test", address="10.1.2.4", created=9)
    estate.hosted("one", "api.one.test", address="10.1.2.3")
    estate.write_statuses()
    before = estate.claims()
    assert set(before) == {"api.one.test", "api.two.test", "b.two.test", "10.1.2.3", "10.1.2.4"}
    if restarts:
        estate.restart()
    one = estate.hosted("one", "api.one.test", "api.two.test", address="10.1.2.4")
    after = estate.claims()
    assert after == {name: owner for name, owner in before.items() if name != "10.1.2.3"}
    status, reason, message = estate.condition(one, "Conflicted")
    assert (status, reason) == ("True", "HostConflict")
    assert "spec.hosts: api.two.test already used by HostedAPIServer of-two/two" in message
    assert "spec.advertiseAddress: 10.1.2.4 already used" in message
    assert estate.condition(one, "Accepted")[0] == "True"


def test_service_port_of_a_hosted_server_stays_with_its_owner(estate: Estate) -> None:
    """Who: the owner of an older HostedAPIServer without a source list in the same namespace.

    Through: `service` of another object. Must hold: the owner is served, the attacker is not.
    """
    spec = {"parentRefs": [{"name": "gw", "namespace": "ns"}], "service": {"name": "api"}}
    new = estate.put(("HostedAPIServer", "a", "new"), spec={**spec, "hosts": ["new.test"]})
    estate.run()
    old = ("HostedAPIServer", "a", "old")
    metadata = {"creationTimestamp": "2020-01-01T00:00:00Z"}
    estate.put(old, metadata=metadata, spec={**spec, "hosts": ["old.test"]})
    assert estate.claims() == {"new.test": "new"}
    assert estate.condition(old, "Accepted")[:2] == ("False", "Conflicted")
    estate.delete(new)
    assert estate.claims() == {"old.test": "old"}


def test_newcomer_gets_a_released_name_in_the_same_pass(estate: Estate) -> None:
    """Must hold: an owner that gives a name up or is deleted blocks it no longer."""
    estate.cluster("a.test", "x.test", created=9)
    estate.hosted("a", "x.hosted.test", "a.hosted.test", created=9)
    estate.run()
    estate.cluster("b.test", "x.test")
    estate.hosted("b", "x.hosted.test")
    assert (estate.clusters()["x.test"], estate.claims()["x.hosted.test"]) == ("a.test", "a")
    estate.cluster("a.test", created=9)
    estate.delete(("HostedAPIServer", "of-a", "a"))
    assert (estate.clusters()["x.test"], estate.claims()["x.hosted.test"]) == ("b.test", "b")


def test_recreated_object_does_not_get_its_former_names_back(estate: Estate) -> None:
    """Who: the owner of a deleted object. Through: an object of the same name, with a new UID,
    which the informer delivers as one change. Must hold: the present owner keeps the name.
    """
    key = estate.cluster("a.test", "x.test", created=1)
    estate.run()
    estate.cluster("b.test", "x.test", created=9)
    assert estate.clusters()["x.test"] == "a.test"
    estate.cluster("a.test", created=1)
    assert estate.clusters()["x.test"] == "b.test"
    estate.put(key, metadata={"uid": "another"})
    estate.cluster("a.test", "x.test", created=1)
    assert estate.clusters()["x.test"] == "b.test"


def test_forged_status_changes_nothing_while_the_controller_runs(estate: Estate) -> None:
    """Who: a tenant with permission to update statuses. Through: `ownedHosts` and `owned`.

    Must hold: the running controller ignores them, and writes its own record over them.
    """
    estate.cluster("new.test", created=9)
    estate.cluster("old.test", "new.test", created=1)
    estate.hosted("two", "api.two.test", created=9)
    estate.hosted("one", "api.two.test", "api.one.test")
    estate.delete(("HostedAPIServer", "of-one", "one"))
    estate.write_statuses()
    forged = {"ownedHosts": [{"gateway": "ns/gw", "hosts": ["new.test", "old.test"]}]}
    key: Key = ("UpstreamCluster", "", "old.test")
    estate.put(key, status=forged)
    one = estate.hosted("one", "api.two.test", "api.one.test")
    estate.run()
    estate.put(one, status={"owned": {"hosts": ["api.two.test"]}})
    assert estate.clusters()["new.test"] == "new.test"
    assert estate.claims()["api.two.test"] == "two"
    estate.write_statuses()
    recorded = estate.objects[key]["status"]["ownedHosts"]
    assert recorded == [{"gateway": "ns/gw", "hosts": ["old.test"]}]


@pytest.mark.parametrize("status", [{"ownedHosts": 5}, {"gateways": ["x"]}, {"owned": []}, 7])
def test_malformed_status_is_an_empty_record(estate: Estate, status: object) -> None:
    """Must hold: a status of the wrong type stops neither the object nor the controller."""
    estate.cluster("a.test")
    estate.hosted("a", "api.a.test")
    for key in (("UpstreamCluster", "", "a.test"), ("HostedAPIServer", "of-a", "a")):
        estate.put(key, status=status)
    estate.restart()
    assert (estate.clusters(), estate.claims()) == ({"a.test": "a.test"}, {"api.a.test": "a"})


def test_own_name_wins_over_server_names_without_an_owner(estate: Estate) -> None:
    estate.cluster("old.test", "new.test", created=1)
    estate.cluster("new.test", created=9)
    assert estate.clusters() == {"new.test": "new.test", "old.test": "old.test"}


def test_new_object_takes_no_name_from_the_server_names_of_another(estate: Estate) -> None:
    """Who: the creator of an UpstreamCluster whose name is a served alias of another one."""
    estate.cluster("a.test", "alias.test", created=9)
    estate.run()
    key = estate.cluster("alias.test", created=1)
    assert estate.clusters() == {"a.test": "a.test", "alias.test": "a.test"}
    assert estate.condition(key, "Accepted")[:2] == ("False", "NoHost")


def test_status_of_an_earlier_version_is_a_record(estate: Estate) -> None:
    """Must hold: an upgrade takes no name away. Earlier statuses have no record."""
    estate.cluster("new.test", "x.test", created=9)
    estate.hosted("new", "x.hosted.test", address="10.1.2.3", created=9)
    estate.write_statuses()
    for raw in estate.objects.values():
        for field in ("ownedHosts", "owned"):
            raw.get("status", {}).pop(field, None)
    estate.restart()
    estate.cluster("old.test", "x.test", created=1)
    estate.hosted("old", "x.hosted.test", "old.hosted.test", address="10.1.2.3", created=1)
    assert estate.clusters()["x.test"] == "new.test"
    assert estate.claims()["x.hosted.test"] == "new"


@pytest.mark.parametrize("restarts", [False, True])
def test_name_stays_owned_while_its_listener_is_broken(estate: Estate, restarts: bool) -> None:
    """Who: the owner of an older cluster that waits until the Gateway's listener is invalid."""
    estate.cluster("new.test", "x.test", created=9)
    estate.run()
    estate.cluster("old.test", "x.test", created=1)
    estate.gateway("gw", {**APIS, "hostname": "invalid"}, NAMES, INSIDE)
    estate.write_statuses()
    if restarts:
        estate.restart()
        estate.write_statuses()
    estate.gateway()
    assert estate.clusters()["x.test"] == "new.test"


def test_owner_of_a_name_gets_it_at_a_new_gateway(estate: Estate) -> None:
    """Who: the owner of an older cluster, in conflict at one Gateway, when another one is added."""
    estate.cluster("new.test", "x.test", created=9)
    estate.run()
    estate.cluster("old.test", "x.test", created=1)
    estate.run()
    estate.gateway("other", APIS)
    assert estate.clusters(OTHER)["x.test"] == estate.clusters()["x.test"] == "new.test"


CLUSTERS, ALIASES = ("a.test", "b.test", "c.test"), ("a.test", "b.test", "x.test", "y.test")
SELECTIONS = st.sampled_from([{}, {}, {"gatehouse.dev/gateways": "ns/gw"}])
EDIT = st.one_of(
    st.tuples(
        st.just("cluster"),
        st.sampled_from(CLUSTERS),
        st.lists(st.sampled_from(ALIASES), max_size=3, unique=True),
        st.integers(1, 9),
        SELECTIONS,
    ),
    st.tuples(
        st.just("hosted"),
        st.sampled_from("pqr"),
        st.lists(st.sampled_from(["x.h.test", "y.h.test", "z.h.test"]), min_size=1, unique=True),
        st.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
        st.integers(1, 9),
    ),
    st.tuples(st.just("delete"), st.sampled_from([*CLUSTERS, *"pqr"])),
    st.tuples(st.just("gateway"), st.sampled_from([APIS, {**APIS, "hostname": "invalid"}])),
)
STEP = st.tuples(st.lists(EDIT, min_size=1, max_size=3), st.booleans())


def _edit(estate: Estate, edit: tuple) -> str:  # type: ignore[type-arg]
    """Make an edit; return the name of the edited object."""
    match edit:
        case ("cluster", name, names, created, annotations):
            estate.cluster(name, *names, created=created, annotations=annotations)
        case ("hosted", name, hosts, address, created):
            estate.hosted(name, *hosts, address=address, created=created)
        case ("delete", name):
            estate.delete(("UpstreamCluster", "", name))
            estate.delete(("HostedAPIServer", f"of-{name}", name))
        case ("gateway", listener):
            estate.gateway("gw", listener, NAMES, INSIDE)
            return "gw"
    return str(edit[1])


def _gateways(estate: Estate) -> dict[Key, GatewayConfiguration | None]:
    return {key: compiled.gateway for key, compiled in estate.run().gateways.items()}


@settings(max_examples=120, deadline=None)
@given(st.lists(STEP, min_size=1, max_size=8))
def test_no_edit_of_other_objects_takes_a_served_name(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """Over any history: who serves a name keeps it until its own object or the Gateway changes, and
    the results equal those of a controller that starts with the written statuses.
    """
    estate = Estate()
    for edits, restarts in steps:
        before = {**estate.clusters(), **estate.claims()}
        edited = {_edit(estate, edit) for edit in edits}
        after = {**estate.clusters(), **estate.claims()}
        for name, owner in before.items():
            if not {owner, "gw"} & edited:
                assert after.get(name) == owner, (name, edits)
        estate.write_statuses()
        fresh = Estate()
        fresh.objects = dict(estate.objects)
        fresh.restart()
        assert _gateways(fresh) == _gateways(estate)
        assert dict(fresh.run().statuses.items()) == dict(estate.run().statuses.items())
        if restarts:
            estate.restart()


KUBE, HOSTED = "proxy.kubegateway.io/v1alpha1", "gatehouse.dev/v1alpha1"
UPSTREAM_CLUSTERS = f"/apis/{KUBE}/upstreamclusters"
RBAC = "rbac.authorization.k8s.io"
PATCH = {"Content-Type": "application/merge-patch+json"}


def upstream_cluster(name: str, *names: str, gateways: str = "") -> Object:
    rule = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    spec = {"servers": [{"endpoint": "http://a"}], "dispatchPolicies": [{"rules": [rule]}]}
    annotations = {"gatehouse.dev/gateways": gateways} if gateways else {}
    metadata = {"name": name, "annotations": annotations}
    spec |= {"secureServing": {"serverNames": list(names)}}
    return {"apiVersion": KUBE, "kind": "UpstreamCluster", "metadata": metadata, "spec": spec}


def hosted_server(name: str, *hosts: str, **spec: Any) -> Object:
    whole = {"parentRefs": [{"name": "gw"}], "hosts": list(hosts), "service": {"name": name}}
    metadata = {"name": name}
    return {
        "apiVersion": HOSTED,
        "kind": "HostedAPIServer",
        "metadata": metadata,
        "spec": {**whole, **spec},
    }


def hosted_path(namespace: str) -> str:
    return f"/apis/{HOSTED}/namespaces/{namespace}/hostedapiservers"


async def causes(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    answer = await response.json()
    assert (response.status, answer["reason"]) == (422, "Invalid"), answer
    return [
        (cause["field"], cause["message"].partition(": ")[2])
        for cause in answer["details"]["causes"]
    ]


async def create(http: aiohttp.ClientSession, path: str, body: Object) -> None:
    async with http.post(path, json=body) as response:
        assert response.status == 201, await response.text()


async def test_admission_rejects_hostnames_of_another_cluster(server: Server) -> None:
    """Who: the author of an older UpstreamCluster. Through: create, patch and apply.

    Must hold: the write fails with the field and the owner. Other edits of the object succeed.
    """
    async with server.raw() as http:
        await create(http, UPSTREAM_CLUSTERS, upstream_cluster("old.test"))
        await create(http, UPSTREAM_CLUSTERS, upstream_cluster("new.test", "x.test"))
        body = {"spec": {"secureServing": {"serverNames": ["free.test", "X.Test", "new.test"]}}}
        path = f"{UPSTREAM_CLUSTERS}/old.test"
        async with http.patch(path, json=body, headers=PATCH) as response:
            assert await causes(response) == [
                (
                    "spec.secureServing.serverNames[1]",
                    '"X.Test": already used by UpstreamCluster new.test',
                ),
                (
                    "spec.secureServing.serverNames[2]",
                    '"new.test": already used by UpstreamCluster new.test',
                ),
            ]
        async with http.post(UPSTREAM_CLUSTERS, json=upstream_cluster("x.test")) as response:
            assert (await causes(response))[0][0] == "metadata.name"
        elsewhere = upstream_cluster("third.test", "x.test", gateways="ns/other")
        async with http.post(UPSTREAM_CLUSTERS, json=elsewhere) as response:
            assert (await causes(response))[0][0] == "spec.secureServing.serverNames[0]"
        # A released name is free at once.
        async with http.delete(f"{UPSTREAM_CLUSTERS}/new.test") as response:
            assert response.status == 200
        async with http.patch(path, json=body, headers=PATCH) as response:
            assert response.status == 200


async def test_admission_allows_a_hostname_at_different_gateways(server: Server) -> None:
    async with server.raw() as http:
        one = upstream_cluster("one.test", "x.test", gateways="ns/a, ns/b")
        await create(http, UPSTREAM_CLUSTERS, one)
        two = upstream_cluster("two.test", "x.test", gateways="ns/c")
        await create(http, UPSTREAM_CLUSTERS, two)
        body = {"metadata": {"annotations": {"gatehouse.dev/gateways": "ns/c,ns/b"}}}
        path = f"{UPSTREAM_CLUSTERS}/two.test"
        async with http.patch(path, json=body, headers=PATCH) as response:
            assert len(await causes(response)) == 1


async def test_admission_rejects_names_of_hosted_servers_of_other_namespaces(
    server: Server,
) -> None:
    """Who: the owner of a HostedAPIServer in another namespace. Through: any exclusive field."""
    async with server.raw() as http:
        await create(http, "/api/v1/namespaces", {"metadata": {"name": "b"}})
        victim = hosted_server("two", "api.two.test", advertiseAddress="fd00::5")
        await create(http, hosted_path("default"), victim)
        await create(http, hosted_path("b"), hosted_server("one", "api.one.test"))
        body = {"spec": {"hosts": ["API.two.test."], "advertiseAddress": "FD00:0::05"}}
        async with http.patch(f"{hosted_path('b')}/one", json=body, headers=PATCH) as response:
            owner = "already used by HostedAPIServer default/two"
            assert await causes(response) == [
                ("spec.hosts[0]", f'"API.two.test.": {owner}'),
                ("spec.advertiseAddress", f'"FD00:0::05": {owner}'),
            ]
        elsewhere = hosted_server("three", "api.three.test", service={"name": "two"})
        await create(http, hosted_path("b"), elsewhere)
        same = hosted_server("three", "api.four.test", service={"name": "two"})
        async with http.post(hosted_path("default"), json=same) as response:
            assert await causes(response) == [("spec.service", f'"two:443": {owner}')]


async def test_namespace_admin_cannot_write_a_recorded_status(server: Server) -> None:
    """Who: an `admin` of a namespace, whose role covers `hostedapiservers/status`.

    Through: `status.owned`. Must hold: 403, and the record stays.
    """
    admin = {"roleRef": {"kind": "ClusterRole", "name": "admin", "apiGroup": RBAC}}
    admin |= {"metadata": {"name": "t"}, "subjects": [{"kind": "User", "name": "tenant"}]}  # type: ignore[dict-item]
    forged = {"status": {"owned": {"hosts": ["api.two.test"]}}}
    path = f"{hosted_path('default')}/one"
    async with server.raw() as http:
        await create(http, f"/apis/{RBAC}/v1/namespaces/default/rolebindings", admin)
        await create(http, hosted_path("default"), hosted_server("one", "api.one.test"))
        as_tenant = {**PATCH, "Impersonate-User": "tenant"}
        body = {"spec": {"hosts": ["b.one.test"]}}
        async with http.patch(path, json=body, headers=as_tenant) as response:
            assert response.status == 200
        async with http.patch(f"{path}/status", json=forged, headers=as_tenant) as response:
            answer = await response.json()
        assert (response.status, "names the object owns" in answer["message"]) == (403, True)
        async with http.patch(f"{path}/status", json=forged, headers=PATCH) as response:
            assert response.status == 200
