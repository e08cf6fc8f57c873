"""Two clusters of three kube-apiservers behind a gateway, as their users meet them."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import subprocess
import sys
import threading
from typing import Any

import lightkube
import pytest
from cryptography.x509 import DNSName
from kr8s.asyncio.objects import ConfigMap as Kr8sConfigMap
from kubernetes import client as k8s
from kubernetes import watch
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap as LightConfigMap

from fakes import kube_estate, kube_node
from fakes.installation import Installation, apply
from fakes.kube_estate import Estate
from fakes.kubectls import MAP
from fakes.patience import SECONDS, limit, until
from fakes.python_clients import kr8s_client, official_client
from gatehouse.agent.envoy.admin import AdminClient
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import pki

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

A, B = "a.kube", "b.kube"


async def run(command: Any, *arguments: Any, **more: Any) -> Any:
    return await asyncio.to_thread(command, *arguments, **more)


async def test_client_certificate_grants_permissions_of_its_role(estate: Estate) -> None:
    for name in (A, B):
        alice = estate.kubectl(estate.by_certificate(name, "alice", "dev"))
        who = json.loads(await run(alice, "auth", "whoami", "-o", "json"))
        assert who["status"]["userInfo"] == {
            "username": "alice", "groups": ["dev", "system:authenticated"],
        }  # fmt: skip
        config_map = {**MAP, "data": {"cluster": name}}
        await run(alice, "apply", "-f", "-", stdin=config_map)
        result = await run(alice.json, "get", "configmap", "settings")
        assert result["data"] == {"cluster": name}
        refused = await run(alice.fails, "-n", "other", "get", "configmaps")
        assert 'User "alice" cannot list resource "configmaps"' in refused


async def test_service_account_token_is_valid_at_its_own_cluster_only(estate: Estate) -> None:
    token = (await run(estate.clusters[A].kubectl(), "create", "token", "bot")).strip()
    bot = estate.kubectl(estate.kubeconfig(A, {"token": token}, "bot"))
    who = json.loads(await run(bot, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
    assert who["username"] == "system:serviceaccount:team:bot"
    assert set(who["groups"]) == {
        "system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated",
    }  # fmt: skip
    await run(bot, "get", "configmaps")
    refused = await run(bot.fails, "create", "configmap", "no")
    assert 'User "system:serviceaccount:team:bot" cannot create resource' in refused
    elsewhere = estate.kubectl(estate.kubeconfig(B, {"token": token}, "bot"))
    assert "You must be logged in to the server" in await run(elsewhere.fails, "get", "configmaps")


async def test_request_without_credentials_is_anonymous(estate: Estate) -> None:
    with official_client(estate.kubeconfig(A, {}, "nobody")) as api:
        assert (await run(k8s.VersionApi(api).get_code)).major == "1"
        with pytest.raises(k8s.ApiException) as failure:
            await run(k8s.CoreV1Api(api).list_namespaced_config_map, "team")
    assert failure.value.status == 403
    message = json.loads(failure.value.body)["message"]
    assert 'User "system:anonymous" cannot list resource "configmaps"' in message


async def test_client_certificate_of_another_cluster_is_rejected(estate: Estate) -> None:
    stranger = estate.kubectl(estate.by_certificate(A, "alice", "dev", of=B))
    refused = await run(stranger.fails, "get", "configmaps")
    assert "You must be logged in to the server" in refused


async def test_impersonation_requires_permission(estate: Estate) -> None:
    helper = estate.kubectl(estate.by_certificate(A, "hannah", "helpdesk"))
    alice = estate.kubectl(estate.by_certificate(A, "alice", "dev"))
    other = ("--as", "alice", "--as-group", "ops")
    who = json.loads(await run(helper, *other, "auth", "whoami", "-o", "json"))
    assert who["status"]["userInfo"] == {
        "username": "alice", "groups": ["ops", "system:authenticated"],
    }  # fmt: skip
    await run(helper, "--as", "alice", "get", "configmaps")
    refused = await run(helper.fails, "get", "configmaps")
    assert 'User "hannah" cannot list' in refused
    refused = await run(alice.fails, "--as", "hannah", "get", "configmaps")
    assert 'User "alice" cannot impersonate resource "users"' in refused


async def test_tls_server_name_selects_cluster_when_url_has_an_address(
    estate: Estate,
) -> None:
    for name in (A, B):
        alice = estate.kubectl(estate.by_certificate(name, "alice", "dev", by_address=True))
        await run(alice, "apply", "-f", "-", stdin={**MAP, "data": {"there": name}})
        assert (await run(alice.json, "get", "configmap", "settings"))["data"]["there"] == name
    stranger = estate.by_certificate(A, "alice", "dev", of=B, by_address=True)
    refused = await run(estate.kubectl(stranger).fails, "get", "configmaps")
    assert "You must be logged in to the server" in refused


@pytest.mark.parametrize("by_address", [False, True])
async def test_kr8s_writes_and_watches_objects(estate: Estate, by_address: bool) -> None:
    path = estate.by_certificate(A, "alice", "dev", by_address=by_address)
    async with kr8s_client(path, namespace="team") as api:
        await with_kr8s(api, f"kr8s-{by_address}".lower())


async def with_kr8s(api: Any, name: str) -> None:
    config_map = await Kr8sConfigMap({"metadata": {"name": name}, "data": {"a": "b"}}, api=api)
    await config_map.create()
    await config_map.patch({"data": {"a": "c"}})
    await config_map.refresh()
    assert config_map.raw["data"] == {"a": "c"}
    events = []

    async def follow() -> None:
        async for kind, config_map in api.watch("configmaps", namespace="team"):
            if config_map.name == name:
                events.append((kind, config_map.raw["data"]["a"]))
                if kind == "DELETED":
                    return

    following = asyncio.create_task(follow())
    await until(lambda: _are(events, ("ADDED", "c")))
    await config_map.patch({"data": {"a": "d"}})
    await config_map.delete()
    async with limit():
        await following
    assert events == [("ADDED", "c"), ("MODIFIED", "d"), ("DELETED", "d")]


async def _are(events: list[tuple[str, str]], *expected: tuple[str, str]) -> bool:
    return events == [*expected]


async def test_lightkube_writes_and_watches_objects_and_reports_denials(
    estate: Estate, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It knows no proxy-url.
    monkeypatch.setenv("HTTPS_PROXY", estate.proxy)
    path = estate.by_certificate(A, "alice", "dev")
    await run(with_lightkube, KubeConfig.from_file(str(path)))


def with_lightkube(config: KubeConfig) -> None:
    with lightkube.Client(config=config, namespace="team") as client:
        meta = ObjectMeta(name="light", namespace="team")
        config_map = client.create(LightConfigMap(metadata=meta, data={"a": "b"}))
        assert config_map.metadata is not None
        version = config_map.metadata.resourceVersion
        client.patch(LightConfigMap, "light", {"data": {"a": "c"}})
        client.delete(LightConfigMap, "light")
        events = []
        for kind, change in client.watch(LightConfigMap, resource_version=version):
            if change.metadata is not None and change.metadata.name == "light":
                events.append((kind, change.data))
                if kind == "DELETED":
                    break
        assert events == [("MODIFIED", {"a": "c"}), ("DELETED", {"a": "c"})]
        with pytest.raises(ApiError) as failure:
            client.get(LightConfigMap, "light", namespace="other")
        assert (failure.value.status.code, failure.value.status.reason) == (403, "Forbidden")


def watched(core: k8s.CoreV1Api, count: int, begun: threading.Event) -> list[tuple[str, Any]]:
    """Return the first events of a watch on ConfigMaps."""
    version = core.list_namespaced_config_map("team").metadata.resource_version
    begun.set()
    events = watch.Watch().stream(core.list_namespaced_config_map, "team", resource_version=version)
    return [(event["type"], event["object"].data) for event in itertools.islice(events, count)]


async def test_official_python_client_writes_and_watches_objects(estate: Estate) -> None:
    with official_client(estate.by_certificate(A, "alice", "dev")) as api:
        await with_official_client(k8s.CoreV1Api(api))


async def with_official_client(core: k8s.CoreV1Api) -> None:
    begun = threading.Event()
    watching = asyncio.create_task(run(watched, core, 5, begun))
    await asyncio.to_thread(begun.wait, SECONDS)
    for number in range(3):
        body = {"metadata": {"name": f"m{number}"}, "data": {"n": str(number)}}
        await run(core.create_namespaced_config_map, "team", body)
    await run(core.patch_namespaced_config_map, "m1", "team", {"data": {"n": "x"}})
    await run(core.delete_namespaced_config_map, "m2", "team")
    assert await watching == [
        ("ADDED", {"n": "0"}), ("ADDED", {"n": "1"}), ("ADDED", {"n": "2"}),
        ("MODIFIED", {"n": "x"}), ("DELETED", {"n": "2"}),
    ]  # fmt: skip
    with pytest.raises(k8s.ApiException) as failure:
        await run(core.read_namespaced_config_map, "m2", "team")
    assert json.loads(failure.value.body)["reason"] == "NotFound"


async def test_logs_are_followed_and_commands_run(
    estate: Estate, client: kube.Client, installation: Installation
) -> None:
    cluster = estate.clusters[A]
    pair = cluster.state.pki.leaf(pki.APISERVER)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    context.load_verify_locations(cluster.state.pki.ca().cert)
    context.verify_mode = ssl.CERT_REQUIRED
    async with kube_node.serving(context) as (node, port):
        raw = estate.upstream_cluster(A, servers=[{"endpoint": f"https://127.0.0.1:{port}"}])
        cert, key = estate.front.issue("pods.kube", DNSName("pods.kube"))
        front = kube_estate.secret("pods-front", cert, key, cluster.authority)
        raw["metadata"]["name"] = "pods.kube"
        raw["spec"]["secureServing"]["secretRef"]["name"] = "pods-front"
        await apply(client, [front])
        await client.create(resources.UPSTREAM_CLUSTERS, raw)
        await kube_estate.wait_for_condition(client, "pods.kube", "Programmed")
        # After 15 s without a secret, Envoy serves without it.
        (admin,) = installation.state.glob("node/pods/*/volumes/run/envoy/admin.sock")
        status, text = await AdminClient(admin).get("/stats?filter=init_fetch_timeout")
        counts = {int(line.rpartition(" ")[2]) for line in text.splitlines()}
        assert (status, counts) == (200, {0}), text
        alice = estate.kubectl(estate.by_certificate("pods.kube", "alice", of=A))
        assert await run(alice, "exec", "-i", "p", "--", "tr", stdin="echo me") == "ECHO ME"
        node.lines.put_nowait("first")
        following = alice.start("logs", "-f", "p")
        assert following.stdout is not None
        assert await asyncio.to_thread(following.stdout.readline) == "first\n"
        node.lines.put_nowait("second")
        assert await asyncio.to_thread(following.stdout.readline) == "second\n"
        following.kill()
        following.communicate()
        assert set(node.users) == {"alice"}
    await client.delete(resources.UPSTREAM_CLUSTERS, "pods.kube")


async def test_status_reports_served_hostnames_and_gateways(
    estate: Estate, client: kube.Client
) -> None:
    upstream_cluster = await client.get(resources.UPSTREAM_CLUSTERS, A)
    assert upstream_cluster["status"]["hosts"] == [A]
    held = {
        condition["type"]: condition["status"]
        for condition in upstream_cluster["status"]["conditions"]
    }
    assert held == {"Accepted": "True", "ResolvedRefs": "True", "Programmed": "True"}
    (gateway,) = upstream_cluster["status"]["gateways"]
    assert gateway["gatewayRef"]["name"] == "apis"


async def test_explain_names_the_servers_of_a_request(
    estate: Estate, installation: Installation
) -> None:
    words = ("--cluster", A, "--as", "alice", "--verb", "list", "--resource", "pods", "-o", "json")
    command = (sys.executable, "-m", "gatehouse", "explain", *words)
    output = await asyncio.to_thread(
        subprocess.check_output, [*command, "--kubeconfig", str(installation.kubeconfig)]
    )
    assert set(json.loads(output)["servers"]) == {
        server.url for server in estate.clusters[A].servers
    }
