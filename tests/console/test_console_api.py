"""The console's API: what a user may read, as the commands report it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakes.console import (
    apply_estates,
    configuration_of,
    logged_in,
    read,
    reader_of,
    running_console,
)
from fakes.inprocess import Server
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.cli.explain import explain
from gatehouse.cli.status import status
from gatehouse.console import object_feed
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

Object = dict[str, Any]
APP = {"kind": "HTTPRoute", "namespace": "shop", "name": "app"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    result = Server(State(tmp_path / "state"))
    async with result.running():
        async with result.client() as client:
            await apply_estates(client, "shop", "bank")
        yield result


def names(topology: Object) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["namespace"], item["name"]) for item in topology["objects"]}


async def test_topology_and_problems_are_the_json_of_the_commands(server: Server) -> None:
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        topology = await read(session, "topology")
        problems = await read(session, "problems")
    assert topology["complete"]
    assert topology["notPermitted"] == topology["interruptions"] == []
    arguments = ["--kubeconfig", str(server.state.kubeconfig), "objects", "-o", "json"]

    def printed(*more: str) -> list[Object]:
        result: list[Object] = json.loads(CliRunner().invoke(status, [*arguments, *more]).stdout)
        return sorted(result, key=str)

    # Commands run an event loop of their own.
    assert sorted(topology["objects"], key=str) == await asyncio.to_thread(printed)
    assert sorted(problems, key=str) == await asyncio.to_thread(printed, "--problems")
    (lost,) = (item for item in problems if (item["namespace"], item["name"]) == ("shop", "lost"))
    (detail, *_) = lost["details"]
    assert "nowhere not found" in detail["text"]
    assert detail["remedy"].startswith("Correct parentRefs")


async def test_only_changed_objects_follow_a_revision(server: Server) -> None:
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        first = await read(session, "topology")
        async with session.get("/console/api/v1/events") as events:
            assert json.loads((await events.content.readline())[6:]) == {
                "revision": first["revision"]
            }
            await events.content.readline()
            await client.delete(resources.HTTP_ROUTES, "lost", "shop")
            line = await events.content.readline()
        revision = json.loads(line[6:])["revision"]
        changes = await read(session, "topology", since=first["revision"])
        assert changes["revision"] == revision
        assert not changes["complete"]
        assert changes["removed"] == [["HTTPRoute", "shop", "lost"]]
        assert changes["objects"] == []
        unknown = await read(session, "topology", since="00000000-7")
        assert unknown["complete"]
        assert names(unknown) == names(first) - {("HTTPRoute", "shop", "lost")}


async def test_explanation_is_the_json_of_the_command(server: Server) -> None:
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        explanation = await read(session, "explain", method="POST", url="http://shop.example/")
        async with session.get("/console/api/v1/explain", params={"url": "shop"}) as response:
            assert response.status == 400
            assert "must be a URL" in (await response.json())["error"]
    arguments = ["--kubeconfig", str(server.state.kubeconfig), "-o", "json"]
    words = ["POST", "http://shop.example/", *arguments]
    result = await asyncio.to_thread(CliRunner().invoke, explain, words)
    assert explanation == json.loads(result.stdout)
    assert explanation["match"] == "HTTPRoute shop/app: spec.rules[0].matches[0]"


async def test_route_has_matches_rules_and_backends(server: Server) -> None:
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        report = (await read(session, "route", **APP))["report"]
        unknown = {"kind": "HTTPRoute", "namespace": "shop", "name": "none"}
        async with session.get("/console/api/v1/route", params=unknown) as response:
            assert response.status == 400
            assert (await response.json())["error"] == "HTTPRoute shop/none not found"
    (host,) = report["hostnames"]
    assert (host["gateway"], host["hostname"]) == ("shop/web", "shop.example")
    assert [match["action"] for match in host["matches"]] == ["Service shop/app:80"]
    (rule,) = report["rules"]
    assert rule["label"] == "shop/app/0"
    assert rule["backends"][0]["problem"] == "Service shop/app has 0 of 0 ready endpoints"


async def test_route_is_reported_again_only_after_a_change(server: Server) -> None:
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        first = await read(session, "route", **APP)
        same = await read(session, "route", **APP, since=first["revision"])
        assert same == {"revision": first["revision"], "report": None}
        route = await client.get(resources.HTTP_ROUTES, "app", "shop")
        # The status, and with it the topology, stays as it is.
        route["spec"]["rules"][0]["matches"] = [{"path": {"value": "/new"}}]
        await client.update(resources.HTTP_ROUTES, route)

        async def changed() -> Any:
            return (await read(session, "route", **APP, since=first["revision"]))["report"]

        report = await until(changed)
        assert report["hostnames"][0]["matches"][0]["needs"] == "/new/*"


async def test_route_of_another_namespace_does_not_exist_for_its_user(server: Server) -> None:
    async with (
        await reader_of(server, "shop") as client,
        running_console(client, fallback="shop") as console,
        logged_in(console) as session,
    ):
        own = (await read(session, "route", **APP))["report"]
        other = {"kind": "HTTPRoute", "namespace": "bank", "name": "app"}
        async with session.get("/console/api/v1/route", params=other) as response:
            assert response.status == 400
            assert "not found" in (await response.json())["error"]
    assert own["hostnames"]
    assert any("no permission to list GatewayClass" in note for note in own["notes"])


async def test_kube_apiservers_have_no_credentials_and_need_permission(server: Server) -> None:
    server_spec = {"endpoint": "https://10.0.0.1:6443"}
    credentials = {"bearerToken": "aGlkZGVu", "insecure": True}
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    policies = [{"rules": [rule]}]
    spec = {"servers": [server_spec], "clientConfig": credentials, "dispatchPolicies": policies}
    async with server.client() as client:
        cluster = {"metadata": {"name": "prod.example"}, "spec": spec}
        await client.create(resources.UPSTREAM_CLUSTERS, cluster)
        async with running_console(client) as console, logged_in(console) as session:
            (report,) = await read(session, "kube-apiservers")
            traffic = await read(session, "kube-apiserver-traffic")
    assert [entry["address"] for entry in report["servers"]] == ["10.0.0.1:6443"]
    assert "aGlkZGVu" not in json.dumps(report)
    assert traffic["dataPlanes"] == 0
    async with (
        await reader_of(server, "shop") as client,
        running_console(client, fallback="shop") as console,
        logged_in(console) as session,
    ):
        assert await read(session, "kube-apiservers") == []
        not_permitted = (await read(session, "topology"))["notPermitted"]
    assert {"kind": "UpstreamCluster", "namespace": ""} in not_permitted


async def test_load_balancers_are_those_of_the_namespaces_of_the_user(server: Server) -> None:
    async with server.client() as client:
        for namespace in ("shop", "bank"):
            metadata = {"name": "edge", "namespace": namespace}
            spec = {"hosts": [{"url": "https://192.0.2.1/api"}]}
            balancer = {"metadata": metadata, "spec": spec}
            await client.create(resources.EXTERNAL_LOAD_BALANCERS, balancer)
        async with running_console(client) as console, logged_in(console) as session:
            reports = await read(session, "load-balancers")
    names = [(report["name"], report["message"]) for report in reports]
    assert names == [("bank/edge", "no status yet"), ("shop/edge", "no status yet")]
    async with (
        await reader_of(server, "shop") as client,
        running_console(client, fallback="shop") as console,
        logged_in(console) as session,
    ):
        assert await read(session, "load-balancers") == []
        not_permitted = (await read(session, "topology"))["notPermitted"]
    assert {"kind": "ExternalLoadBalancer", "namespace": "shop"} in not_permitted


async def test_user_of_one_namespace_sees_nothing_of_others(server: Server) -> None:
    async with (
        await reader_of(server, "shop") as client,
        running_console(client, fallback="shop") as console,
        logged_in(console) as session,
    ):
        topology = await read(session, "topology")
        texts = json.dumps([topology, await read(session, "problems")])
        explanation = await read(session, "explain", url="http://shop.example/")
        elsewhere = await read(session, "explain", url="http://bank.example/")
    assert {namespace for _, namespace, _ in names(topology)} == {"shop"}
    assert ("HTTPRoute", "shop", "app") in names(topology)
    assert "bank" not in texts
    assert {"kind": "GatewayClass", "namespace": ""} in topology["notPermitted"]
    assert {"kind": "UpstreamCluster", "namespace": "shop"} not in topology["notPermitted"]
    assert any("no permission to list GatewayClass" in note for note in explanation["notes"])
    assert explanation["match"] == "HTTPRoute shop/app: spec.rules[0].matches[0]"
    (web,) = (item for item in topology["objects"] if item["kind"] == "Gateway")
    (app,) = (item for item in topology["objects"] if item["name"] == "app")
    assert not any("does not manage" in problem for problem in app["problems"])
    assert web["className"] == "gatehouse-nginx"
    assert "app" not in elsewhere["match"]


async def test_namespace_without_permission_is_named_and_the_rest_is_shown(server: Server) -> None:
    async with (
        await reader_of(server, "shop") as client,
        running_console(client, "shop", "bank") as console,
        logged_in(console) as session,
    ):
        topology = await read(session, "topology")
    assert ("HTTPRoute", "shop", "app") in names(topology)
    assert {"kind": "HTTPRoute", "namespace": "bank"} in topology["notPermitted"]
    assert {"kind": "HTTPRoute", "namespace": "shop"} not in topology["notPermitted"]


async def test_user_without_permission_gets_no_objects_and_the_kinds(server: Server) -> None:
    async with (
        await reader_of(server, "shop", role="") as client,
        running_console(client, fallback="shop") as console,
        logged_in(console) as session,
    ):
        topology = await read(session, "topology")
        async with session.get("/console/api/v1/route", params={**APP, "since": ""}) as response:
            assert (await response.json())["error"] == "HTTPRoute shop/app not found"
    assert topology["objects"] == []
    assert {"kind": "Gateway", "namespace": "shop"} in topology["notPermitted"]


async def test_unknown_credentials_are_reported(server: Server) -> None:
    async with (
        kube.Client(configuration_of(server, "unknown")) as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        topology = await read(session, "topology")
    assert topology["objects"] == []
    assert any("Unauthorized" in text or "401" in text for text in topology["interruptions"])


async def test_no_response_contains_a_secret(server: Server) -> None:
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):
        texts = [
            json.dumps(await read(session, "topology")),
            json.dumps(await read(session, "problems")),
            json.dumps(await read(session, "explain", url="http://shop.example/")),
            json.dumps(await read(session, "route", **APP)),
        ]
    assert all("hidden-shop" not in text and "aGlkZGVu" not in text for text in texts)


async def test_watches_run_only_while_the_console_is_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_feed, "WATCH_IDLE_SECONDS", 0.2)
    async with (
        server.client() as client,
        running_console(client) as console,
        logged_in(console) as session,
    ):

        async def idle() -> bool:
            return not console.objects.watching

        assert await idle()
        async with session.get("/console/api/v1/events") as events:
            await events.content.readline()
            assert not await idle()
        await until(idle)
        assert names(await read(session, "topology"))
