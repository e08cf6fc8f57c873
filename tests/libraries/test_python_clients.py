"""Python programs as people write them, with the clients that they use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import kr8s.asyncio
import kubernetes
import lightkube
import pytest
from kr8s.asyncio.objects import ConfigMap as Kr8sConfigMap
from kubernetes import client as k8s
from kubernetes import dynamic, watch
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import PatchType

from fakes import patience
from fakes.process import ApiServer
from fakes.python_clients import kr8s_client, official_client

pytestmark = [
    pytest.mark.process,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROUTE = {"rules": [{"backendRefs": [{"name": "s", "port": 80}]}]}


@pytest.fixture
def official(apiserver: ApiServer, namespace: str) -> Iterator[Any]:
    with official_client(apiserver.kubeconfig) as api:
        k8s.CoreV1Api(api).create_namespace({"metadata": {"name": namespace}})
        yield api


def test_kubernetes_client_manages_typed_objects(official: Any, namespace: str) -> None:
    core = k8s.CoreV1Api(official)
    body = k8s.V1ConfigMap(metadata=k8s.V1ObjectMeta(name="a", labels={"x": "y"}), data={"k": "v"})
    created = core.create_namespaced_config_map(namespace, body)
    core.patch_namespaced_config_map("a", namespace, {"data": {"k": "w"}})
    assert core.read_namespaced_config_map("a", namespace).data == {"k": "w"}
    events = []
    for event in watch.Watch().stream(
        core.list_namespaced_config_map,
        namespace,
        resource_version=created.metadata.resource_version,
        timeout_seconds=1,
    ):
        events.append((event["type"], event["object"].data))
    assert events == [("MODIFIED", {"k": "w"})]
    secret = k8s.V1Secret(metadata=k8s.V1ObjectMeta(name="s"), string_data={"p": "tea"})
    assert core.create_namespaced_secret(namespace, secret).data == {"p": "dGVh"}
    with pytest.raises(kubernetes.client.ApiException) as failure:
        core.create_namespaced_config_map(namespace, body)
    assert (failure.value.status, failure.value.reason) == (409, "Conflict")
    core.delete_namespaced_config_map("a", namespace)


def test_kubernetes_client_pages_are_consistent(official: Any, namespace: str) -> None:
    core = k8s.CoreV1Api(official)
    for number in range(5):
        core.create_namespaced_config_map(namespace, {"metadata": {"name": f"m{number}"}})
    page = core.list_namespaced_config_map(namespace, limit=2)
    assert page.metadata.remaining_item_count == 3
    core.delete_namespaced_config_map("m3", namespace)
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "m5"}})
    names = [item.metadata.name for item in page.items]
    token = page.metadata._continue
    while token:
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
    assert names == ["m0", "m1", "m2", "m3", "m4"]


def test_kubernetes_dynamic_client_applies(official: Any, namespace: str) -> None:
    client = dynamic.DynamicClient(official)
    routes = client.resources.get(api_version="gateway.networking.k8s.io/v1", kind="HTTPRoute")
    body = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "r", "namespace": namespace},
        "spec": ROUTE,
    }
    applied = routes.server_side_apply(body=body, namespace=namespace, name="r", field_manager="me")
    assert applied.metadata.managedFields[0].manager == "me"
    assert applied.spec.rules[0].matches[0].path.value == "/"


def test_kubernetes_client_creates_access_reviews_and_tokens(official: Any, namespace: str) -> None:
    core = k8s.CoreV1Api(official)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": "robot"}})
    spec = k8s.V1TokenRequestSpec(audiences=[], expiration_seconds=600)
    request = k8s.AuthenticationV1TokenRequest(spec=spec)
    token = core.create_namespaced_service_account_token("robot", namespace, request).status.token
    review = k8s.AuthenticationV1Api(official).create_token_review(
        k8s.V1TokenReview(spec=k8s.V1TokenReviewSpec(token=token))
    )
    assert review.status.user.username == f"system:serviceaccount:{namespace}:robot"
    attributes = k8s.V1ResourceAttributes(verb="get", resource="pods", namespace=namespace)
    access = k8s.AuthorizationV1Api(official).create_self_subject_access_review(
        k8s.V1SelfSubjectAccessReview(
            spec=k8s.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
    )
    assert access.status.allowed


def test_lightkube_manages_objects(apiserver: ApiServer, namespace: str) -> None:
    configuration = lightkube.KubeConfig.from_file(str(apiserver.kubeconfig))
    with lightkube.Client(configuration, field_manager="light") as client:
        with_lightkube(client, namespace)


def with_lightkube(client: lightkube.Client, namespace: str) -> None:
    client.create(Namespace(metadata=ObjectMeta(name=namespace)))
    created = client.create(
        ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace), data={"k": "v"})
    )
    merged = {"data": {"k": "w"}}
    client.patch(ConfigMap, "a", merged, namespace=namespace, patch_type=PatchType.MERGE)
    strategic = {"metadata": {"labels": {"a": "b"}}}
    client.patch(ConfigMap, "a", strategic, namespace=namespace)
    operations = [{"op": "add", "path": "/data/n", "value": "1"}]
    client.patch(ConfigMap, "a", operations, namespace=namespace, patch_type=PatchType.JSON)
    assert client.get(ConfigMap, "a", namespace=namespace).data == {"k": "w", "n": "1"}
    assert created.metadata is not None
    events = client.watch(
        ConfigMap,
        namespace=namespace,
        resource_version=created.metadata.resourceVersion,
        server_timeout=1,
    )
    assert next(iter(events))[0] == "MODIFIED"
    gateways = create_namespaced_resource("gateway.networking.k8s.io", "v1", "Gateway", "gateways")
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    body = gateways(
        metadata=ObjectMeta(name="g", namespace=namespace),
        spec={"gatewayClassName": "c", "listeners": [listener]},
    )
    applied = client.apply(body)
    assert applied.spec["listeners"][0]["allowedRoutes"] == {"namespaces": {"from": "Same"}}
    client.delete(ConfigMap, "a", namespace=namespace)
    with pytest.raises(ApiError, match="not found"):
        client.get(ConfigMap, "a", namespace=namespace)


async def test_kr8s_manages_objects(apiserver: ApiServer, namespace: str) -> None:
    async with kr8s_client(apiserver.kubeconfig) as api:
        await with_kr8s(api, namespace)


async def with_kr8s(api: Any, namespace: str) -> None:
    created_namespace = await kr8s.asyncio.objects.Namespace(
        {"metadata": {"name": namespace}}, api=api
    )
    await created_namespace.create()
    raw = {"metadata": {"name": "a", "namespace": namespace}, "data": {"k": "v"}}
    config_map = await Kr8sConfigMap(raw, api=api)
    await config_map.create()
    await config_map.label(app="kr8s")
    await config_map.patch({"data": {"k": "w"}})
    result = [
        c async for c in api.get("configmaps", namespace=namespace, label_selector="app=kr8s")
    ]
    assert [c.raw["data"] for c in result] == [{"k": "w"}]
    routes = [r async for r in api.get("httproutes", namespace=namespace)]
    assert routes == []
    waiting = asyncio.create_task(config_map.wait("delete", timeout=int(patience.SECONDS)))
    await config_map.delete()
    await waiting
    assert not await config_map.exists()
