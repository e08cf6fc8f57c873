"""Semantics of the API server, over TLS, on which clients depend."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from contextlib import aclosing
from typing import Any

import lightkube
import pytest
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Service

from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from kube_api_server.objects.metadata import MAX_ANNOTATIONS_BYTES
from kube_base.types.resource import Resource

JSON = {"Content-Type": "application/json"}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def gateway(**listener: Any) -> dict[str, Any]:
    listeners = [{"name": "l", "port": 80, "protocol": "HTTP", **listener}]
    spec = {"gatewayClassName": "c", "listeners": listeners}
    return {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}


def route(**rule: Any) -> dict[str, Any]:
    return {"metadata": {"name": "r", "namespace": "default"}, "spec": {"rules": [rule]}}


async def test_writes_set_defaults_resource_version_and_generation(client: kube.Client) -> None:
    created = await client.create(resources.GATEWAYS, gateway())
    assert created["metadata"]["generation"] == 1
    listener = created["spec"]["listeners"][0]
    assert listener["allowedRoutes"] == {"namespaces": {"from": "Same"}}
    same = await client.update(resources.GATEWAYS, created)
    assert same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    created["spec"]["listeners"][0]["port"] = 81
    created["status"] = {"conditions": []}
    changed = await client.update(resources.GATEWAYS, created)
    assert changed["metadata"]["generation"] == 2
    assert "conditions" in changed["status"]


async def test_create_keeps_status_of_node_but_not_of_service(client: kube.Client) -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]
    node = {"metadata": {"name": "n"}, "status": {"addresses": addresses}}
    created = await client.create(resources.NODES, node)
    assert created["status"]["addresses"] == addresses
    changed = await client.update(resources.NODES, {**created, "status": {}})
    assert changed["status"]["addresses"] == addresses
    ingress = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    spec = {"ports": [{"port": 80}]}
    metadata = {"name": "s", "namespace": "default"}
    service = {"metadata": metadata, "spec": spec, "status": ingress}
    assert "ingress" not in (await client.create(resources.SERVICES, service))["status"].get(
        "loadBalancer", {}
    )


async def test_status_update_changes_neither_spec_nor_generation(
    client: kube.Client,
) -> None:
    created = await client.create(resources.GATEWAYS, gateway())
    created["spec"]["listeners"] = []
    created["status"] = {"addresses": [{"value": "127.0.0.1"}]}
    written = await client.update_status(resources.GATEWAYS, created)
    assert written["status"]["addresses"] == [{"type": "IPAddress", "value": "127.0.0.1"}]
    assert written["spec"]["listeners"][0]["port"] == 80
    assert written["metadata"]["generation"] == 1


async def test_outdated_writes_return_conflict(client: kube.Client) -> None:
    created = await client.create(resources.CONFIG_MAPS, config_map("c", a="1"))
    await client.update(resources.CONFIG_MAPS, {**created, "data": {"a": "2"}})
    with pytest.raises(kube.Conflict, match="modified"):
        await client.update(resources.CONFIG_MAPS, {**created, "data": {"a": "3"}})
    with pytest.raises(kube.AlreadyExists):
        await client.create(resources.CONFIG_MAPS, config_map("c"))
    with pytest.raises(kube.Conflict, match="UID"):
        await client.delete(resources.CONFIG_MAPS, "c", "default", uid="another")


async def test_concurrent_writers_lose_no_update(client: kube.Client) -> None:
    await client.create(resources.CONFIG_MAPS, config_map("c", n="0"))

    async def increment() -> None:
        while True:
            current = await client.get(resources.CONFIG_MAPS, "c", "default")
            current["data"]["n"] = str(int(current["data"]["n"]) + 1)
            with contextlib.suppress(kube.Conflict):
                await client.update(resources.CONFIG_MAPS, current)
                return

    await asyncio.gather(*(increment() for _ in range(30)))
    assert (await client.get(resources.CONFIG_MAPS, "c", "default"))["data"]["n"] == "30"


async def test_watch_resumes_at_its_resource_version(client: kube.Client, server: Server) -> None:
    start = (await client.list(resources.CONFIG_MAPS)).resource_version
    expected = []
    for number in range(20):
        created = await client.create(resources.CONFIG_MAPS, config_map(f"c{number}"))
        expected.append(("ADDED", created["metadata"]["resourceVersion"]))
    await client.delete(resources.CONFIG_MAPS, "c3", "default")
    received: list[tuple[str, str]] = []
    version = start
    while len(received) < 21:
        # Cut the watch at random and resume from the last version seen.
        remaining = random.randint(1, 5)
        watch = client.watch(resources.CONFIG_MAPS, resource_version=version)
        async with aclosing(watch) as events:
            async for event in events:
                version = event.object["metadata"]["resourceVersion"]
                received.append((event.type, version))
                remaining -= 1
                if not remaining or len(received) == 21:
                    break
    assert received[:20] == expected
    assert received[20][0] == "DELETED"


async def test_selectors_filter_lists_and_watches(
    client: kube.Client,
) -> None:
    for name, tier in (("a", "front"), ("b", "back")):
        manifest = config_map(name)
        manifest["metadata"]["labels"] = {"tier": tier}
        await client.create(resources.CONFIG_MAPS, manifest)

    async def names(selector: str, fields: str = "") -> list[str]:
        config_maps = await client.list(
            resources.CONFIG_MAPS, "default", label_selector=selector, field_selector=fields
        )
        return [item["metadata"]["name"] for item in config_maps.items]

    assert await names("tier=front") == ["a"]
    assert await names("tier!=front") == ["b"]
    assert await names("tier in (front, back),!x") == ["a", "b"]
    assert await names("tier notin (front)") == ["b"]
    assert await names("", "metadata.name=b") == ["b"]
    start = (await client.list(resources.CONFIG_MAPS)).resource_version
    patch = {"metadata": {"labels": {"tier": "back"}}}
    await client.patch(resources.CONFIG_MAPS, "a", patch, "default")
    watch = client.watch(resources.CONFIG_MAPS, resource_version=start, label_selector="tier=front")
    async with aclosing(watch) as events:
        async for event in events:
            assert (event.type, event.object["metadata"]["name"]) == ("DELETED", "a")
            break


async def test_pages_contain_every_object_once(client: kube.Client, server: Server) -> None:
    for number in range(7):
        await client.create(resources.CONFIG_MAPS, config_map(f"c{number}"))
    config_maps = await client.list(resources.CONFIG_MAPS, "default", limit=3)
    assert [item["metadata"]["name"] for item in config_maps.items] == [f"c{n}" for n in range(7)]
    async with server.raw() as raw:
        page = await (await raw.get("/api/v1/namespaces/default/configmaps?limit=3")).json()
    assert page["metadata"]["remainingItemCount"] == 4


REFUSED: list[tuple[Resource, dict[str, Any], str]] = [
    (resources.GATEWAYS, gateway(port=0), "spec.listeners[0].port"),
    (resources.GATEWAYS, gateway(hostname="Not A Host"), "spec.listeners[0].hostname"),
    (resources.GATEWAYS, gateway(tls={}), "tls must not be specified"),
    (
        resources.GATEWAYS,
        gateway(protocol="HTTPS", tls={"mode": "Terminate"}),
        "certificateRefs or options must be specified",
    ),
    (resources.GATEWAYS, {"metadata": {"name": "g", "namespace": "default"}}, "Required value"),
    (resources.HTTP_ROUTES, route(matches=[{"path": {"value": "nope"}}]), "must be an absolute"),
    (resources.HTTP_ROUTES, route(matches=[{"path": {"value": "/a//b"}}]), "must not contain"),
    (resources.HTTP_ROUTES, route(backendRefs=[{"name": "s"}]), "Must have port"),
    (
        resources.HTTP_ROUTES,
        route(backendRefs=[{"name": "s", "port": 70000}]),
        "spec.rules[0].backendRefs[0].port",
    ),
    (
        resources.HTTP_ROUTES,
        route(filters=[{"type": "URLRewrite"}]),
        "filter.urlRewrite must be specified",
    ),
    (
        resources.HTTP_ROUTES,
        route(
            filters=[{"type": "RequestRedirect", "requestRedirect": {}}],
            backendRefs=[{"name": "s", "port": 1}],
        ),
        "must not be used together with backendRefs",
    ),
    (
        resources.HTTP_ROUTES,
        route(
            matches=[{"headers": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}],
        ),
        "Duplicate value",
    ),
    (resources.HTTP_ROUTES, route(timeouts={"request": "fast"}), "spec.rules[0].timeouts.request"),
    (resources.HTTP_ROUTES, route(matches="all"), "must be of type array"),
    (
        resources.SECRETS,
        {**config_map("s"), "type": "kubernetes.io/tls"},
        "data[tls.crt]",
    ),
    (
        resources.SERVICES,
        {"metadata": {"name": "s", "namespace": "default"}, "spec": {"ports": [{"port": 0}]}},
        "spec.ports[0].port",
    ),
    (resources.CONFIG_MAPS, config_map("Not_A_Name"), "metadata.name"),
]


@pytest.mark.parametrize(("resource", "obj", "message"), REFUSED)
async def test_invalid_object_is_rejected_with_field(
    client: kube.Client, resource: Resource, obj: dict[str, Any], message: str
) -> None:
    with pytest.raises(kube.Invalid) as failure:
        await client.create(resource, obj)
    assert message in str(failure.value)
    assert failure.value.status == 422
    assert failure.value.details["causes"]


def deployment(limits: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i:1", "resources": {"limits": limits}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    return {
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }


async def test_numeric_quantities_are_accepted_and_returned_in_canonical_form(
    client: kube.Client,
) -> None:
    limits = {"cpu": 0.5, "memory": "1024Mi", "acme.com/gpu": 2}
    created = await client.create(resources.DEPLOYMENTS, deployment(limits))
    (container,) = created["spec"]["template"]["spec"]["containers"]
    answer = {"cpu": "500m", "memory": "1Gi", "acme.com/gpu": "2"}
    assert container["resources"]["limits"] == answer
    operation = {"op": "replace", "path": "/spec/template/spec/containers/0/resources/limits/cpu"}
    json_patch = "application/json-patch+json"
    for value, generation in [(0.5, 1), ("0.50", 1), (1, 2), ("1000m", 2)]:
        patched = await client.patch(
            resources.DEPLOYMENTS,
            "d",
            [{**operation, "value": value}],
            "default",
            content_type=json_patch,
        )
        assert patched["metadata"]["generation"] == generation


@pytest.mark.parametrize("value", [True, "5x", "1.2.3", [1], {"a": 1}])
async def test_invalid_quantity_is_rejected_with_field(client: kube.Client, value: Any) -> None:
    place = r"spec\.template\.spec\.containers\[0\]\.resources\.limits\.cpu"
    with pytest.raises((kube.Invalid, kube.BadRequest), match=place):
        await client.create(resources.DEPLOYMENTS, deployment({"cpu": value}))


async def test_unknown_fields_are_rejected_when_strict_and_else_cause_warnings(
    server: Server,
) -> None:
    head = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway"}
    body = {**head, **gateway(colour="red")}
    path = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
    async with server.raw(**JSON) as raw:
        async with raw.post(f"{path}?fieldValidation=Strict", json=body) as response:
            assert response.status == 400
            refusal = (await response.json())["message"]
            assert 'unknown field "spec.listeners[0].colour"' in refusal
        async with raw.post(path, json=body) as response:
            assert response.status == 201
            assert 'unknown field \\"spec.listeners[0].colour\\"' in response.headers["Warning"]
            assert "colour" not in (await response.json())["spec"]["listeners"][0]
        async with raw.post(path, data=b"{not json") as response:
            assert (response.status, (await response.json())["reason"]) == (400, "BadRequest")
        async with raw.post(path, data=io.BytesIO(b"x" * 4_000_000)) as response:
            assert response.status == 413
        twice = (
            b'{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway",'
            b'"metadata":{"name":"t","name":"u"},"spec":{}}'
        )
        async with raw.post(f"{path}?fieldValidation=Strict", data=twice) as response:
            assert 'duplicate field "metadata.name"' in (await response.json())["message"]


async def test_dry_run_stores_nothing(client: kube.Client, server: Server) -> None:
    async with server.raw() as raw:
        path = "/api/v1/namespaces/default/configmaps"
        async with raw.post(f"{path}?dryRun=All", json=config_map("c")) as response:
            assert response.status == 201
    with pytest.raises(kube.NotFound):
        await client.get(resources.CONFIG_MAPS, "c", "default")


async def test_all_patch_types_are_applied(client: kube.Client) -> None:
    await client.create(resources.CONFIG_MAPS, config_map("c", a="1", b="2"))
    await client.patch(resources.CONFIG_MAPS, "c", {"data": {"a": None, "c": "3"}}, "default")
    operations = [{"op": "replace", "path": "/data/b", "value": "4"}]
    patched = await client.patch(
        resources.CONFIG_MAPS,
        "c",
        operations,
        "default",
        content_type="application/json-patch+json",
    )
    assert patched["data"] == {"b": "4", "c": "3"}
    service = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]},
    }
    await client.create(resources.SERVICES, service)
    merged = await client.patch(
        resources.SERVICES,
        "s",
        {"spec": {"ports": [{"port": 2, "name": "c"}, {"port": 1, "$patch": "delete"}]}},
        "default",
        content_type="application/strategic-merge-patch+json",
    )
    assert [(port["name"], port["port"]) for port in merged["spec"]["ports"]] == [("c", 2)]


async def test_bound_token_is_reviewed_and_grants_no_permission(
    server: Server, client: kube.Client
) -> None:
    account = {"metadata": {"name": "agent", "namespace": "default"}}
    await client.create(resources.SERVICE_ACCOUNTS, account)
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    created = await client.create(resources.PODS, pod)
    token, _ = await client.create_token(
        "default", "agent", ["channel"], 600, "p", created["metadata"]["uid"]
    )
    review = await client.review_token(token, ["channel"])
    assert review.authenticated
    assert review.username == "system:serviceaccount:default:agent"
    assert review.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert not (await client.review_token(token, ["another"])).authenticated
    assert not (await client.review_token(token + "x", ["channel"])).authenticated
    own, _ = await client.create_token("default", "agent", [], 600, "p", created["metadata"]["uid"])
    async with server.raw(Authorization=f"Bearer {own}") as raw:
        async with raw.get("/api/v1/namespaces/default/secrets") as response:
            assert response.status == 403
            message = (await response.json())["message"]
            assert 'User "system:serviceaccount:default:agent" cannot list' in message
        async with raw.post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}
        ) as response:
            info = (await response.json())["status"]["userInfo"]
            assert info["username"] == "system:serviceaccount:default:agent"
    async with server.raw(Authorization="Bearer nonsense") as raw:
        async with raw.get("/api/v1/pods") as response:
            assert (response.status, (await response.json())["reason"]) == (401, "Unauthorized")
        async with raw.get("/livez") as response:
            assert response.status == 200
    await client.delete(resources.PODS, "p", "default")
    assert not (await client.review_token(token, ["channel"])).authenticated


@pytest.mark.parametrize(
    ("who", "allowed", "refused"),
    [
        ("controller", resources.SECRETS, resources.EVENTS),
        ("node", resources.PODS, resources.HTTP_ROUTES),
    ],
)
async def test_components_have_only_the_permissions_they_need(
    server: Server, who: str, allowed: Resource, refused: Resource
) -> None:
    async with server.client(server.state.directory / f"{who}.kubeconfig") as client:
        await client.list(allowed)
        with pytest.raises(kube.Forbidden, match=f"system:gatehouse:{who}"):
            await client.list(refused)


async def test_discovery_has_hashes_of_storage_versions(server: Server) -> None:
    # The hashes are those of a kube-apiserver 1.34.3.
    async with server.raw() as session:
        for path, plural, expected in (
            ("/api/v1", "pods", "xPOwRZ+Yhw8="),
            ("/apis/apps/v1", "deployments", "8aSe+NMegvE="),
            ("/apis/authorization.k8s.io/v1", "subjectaccessreviews", None),
        ):
            async with session.get(path) as response:
                listed = {entry["name"]: entry for entry in (await response.json())["resources"]}
            assert listed[plural].get("storageVersionHash") == expected


async def test_table_and_both_discovery_formats_are_served(server: Server) -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    result = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    async with server.raw() as raw:
        async with raw.get("/api/v1/namespaces/", headers={"Accept": table}) as response:
            document = await response.json()
        assert [column["name"] for column in document["columnDefinitions"]] == [
            "Name",
            "Status",
            "Age",
        ]
        assert document["rows"][0]["cells"][:2] == ["default", "Active"]
        async with raw.get("/apis", headers={"Accept": result}) as response:
            assert response.headers["Content-Type"] == result
            names = [item["metadata"]["name"] for item in (await response.json())["items"]]
        assert "gateway.networking.k8s.io" in names
        async with raw.get("/apis/gateway.networking.k8s.io/v1/") as response:
            listed = {item["name"] for item in (await response.json())["resources"]}
        assert {"gateways", "gateways/status", "httproutes"} <= listed


async def test_lightkube_manages_objects(server: Server) -> None:
    def story() -> list[str]:
        config = lightkube.KubeConfig.from_file(str(server.state.kubeconfig))
        with lightkube.Client(config=config) as client:
            return with_lightkube(client)

    def with_lightkube(client: lightkube.Client) -> list[str]:
        spec = ServiceSpec(ports=[ServicePort(port=80)])
        metadata = ObjectMeta(name="s", namespace="default")
        client.create(Service(metadata=metadata, spec=spec))
        client.patch(Service, "s", {"metadata": {"labels": {"a": "b"}}}, namespace="default")
        client.create(
            ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data={"a": "b"})
        )
        listed = [
            item.metadata.name
            for item in client.list(Service, labels={"a": "b"})
            if item.metadata is not None
        ]
        client.delete(Service, "s", namespace="default")
        return [str(name) for name in listed]

    assert await asyncio.to_thread(story) == ["s"]


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"ownerReferences": ["x"]}, "metadata.ownerReferences"),
        ({"finalizers": "x"}, "metadata.finalizers"),
        ({"labels": {"bad key": "v"}}, "metadata.labels"),
        ({"labels": {"key": "bad value"}}, "metadata.labels"),
        ({"annotations": {"key": 1}}, "metadata.annotations"),
        ({"name": "c\n"}, "metadata.name"),
    ],
)
async def test_invalid_metadata_is_rejected_with_field(
    client: kube.Client, metadata: dict[str, Any], field: str
) -> None:
    manifest = config_map("c")
    manifest["metadata"] |= metadata
    with pytest.raises((kube.Invalid, kube.BadRequest)) as failure:
        await client.create(resources.CONFIG_MAPS, manifest)
    assert field in str(failure.value)


@pytest.mark.parametrize("text", ["a", "\u00e9", "\U0001f600"])
async def test_annotations_are_limited_by_bytes_of_keys_and_values(
    client: kube.Client, text: str
) -> None:
    largest = MAX_ANNOTATIONS_BYTES - len("first") - len("second")
    size = len(text.encode())
    value = text * (largest // size) + "x" * (largest % size)
    manifest = config_map("largest")
    manifest["metadata"]["annotations"] = {"first": value, "second": ""}
    await client.create(resources.CONFIG_MAPS, manifest)
    manifest = config_map("larger")
    manifest["metadata"]["annotations"] = {"first": value, "second": "x"}
    with pytest.raises(kube.Invalid, match=r"metadata\.annotations: Too long: .* 262144 bytes"):
        await client.create(resources.CONFIG_MAPS, manifest)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'"\xff"', b"[1]"])
async def test_body_that_is_not_an_object_is_a_bad_request(server: Server, body: bytes) -> None:
    async with server.raw(**JSON) as raw:
        for path in (
            "/api/v1/namespaces/default/configmaps",
            "/apis/authentication.k8s.io/v1/tokenreviews",
        ):
            async with raw.post(path, data=io.BytesIO(body)) as response:
                assert response.status == 400, path
