"""Create or update: own fields are set, fields and objects of others stay unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from fakes.kube_fake_api import FakeApi, Handler, serving, status
from gatehouse.apis.resources import SERVICES
from gatehouse.kube import client as kube
from gatehouse.kube.apply import (
    NotOwnedError,
    create_or_update,
    field_shape,
    is_applied,
    merge_desired,
    with_applied_fields,
    without_stale,
)


def service(**spec: Any) -> dict[str, Any]:
    owner = {"kind": "Gateway", "name": "g", "uid": "u", "controller": True}
    return {
        "metadata": {
            "name": "s",
            "namespace": "ns",
            "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def at_rest(**spec: Any) -> dict[str, Any]:
    """Return the object in an API server after this manifest was applied."""
    return msgspec.to_builtins(with_applied_fields(service(**spec)))  # type: ignore[no-any-return]


def at_server(obj: dict[str, Any]) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        body = {**obj, "metadata": {**obj["metadata"], "resourceVersion": "7"}}
        return web.json_response(body)

    return answer


def written(api: FakeApi) -> list[tuple[str, Any]]:
    pairs = zip(api.requests, api.bodies, strict=True)
    return [(request[0], body) for request, body in pairs if request[0] != "GET"]


async def test_apply_creates_missing_object() -> None:
    async with serving() as (api, client):
        api.others.extend([status(404, "NotFound"), at_server(service())])
        assert (await create_or_update(client, SERVICES, service())).action == "created"
        head = {"apiVersion": "v1", "kind": "Service"}
        assert written(api) == [("POST", {**head, **with_applied_fields(service())})]


async def test_apply_leaves_object_unchanged_when_it_has_all_fields() -> None:
    current = at_rest(type="LoadBalancer")
    current["spec"]["clusterIP"] = "10.0.0.1"
    current["metadata"]["labels"]["theirs"] = "x"
    async with serving() as (api, client):
        api.others.append(at_server(current))
        outcome = await create_or_update(client, SERVICES, service(type="LoadBalancer"))
        assert str(outcome) == "Service ns/s unchanged"
        assert written(api) == []


async def test_apply_updates_only_fields_that_differ() -> None:
    current = service(type="ClusterIP", clusterIP="10.0.0.1")
    current["status"] = {"loadBalancer": {}}
    async with serving() as (api, client):
        api.others.extend([at_server(current)] * 2)
        assert (
            await create_or_update(client, SERVICES, service(type="LoadBalancer"))
        ).action == "updated"
        [(method, body)] = written(api)
        assert method == "PUT"
        assert body["spec"] == {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}
        assert body["status"] == {"loadBalancer": {}}
        assert body["metadata"]["resourceVersion"] == "7"


async def test_apply_retries_after_conflict() -> None:
    async with serving() as (api, client):
        api.others.extend([at_server(service(a="1")), status(409, "Conflict")])
        api.others.extend([at_server(service(a="2"))] * 2)
        assert (await create_or_update(client, SERVICES, service(a="3"))).action == "updated"


async def test_apply_raises_when_namespace_is_missing() -> None:
    async with serving() as (api, client):
        api.others.extend([status(404, "NotFound", "no namespace")] * 10)
        with pytest.raises(kube.NotFound, match="no namespace"):
            await create_or_update(client, SERVICES, service())
        assert len(api.requests) == 4


@pytest.mark.parametrize("labels", [None, {}, {"app.kubernetes.io/managed-by": "helm"}])
async def test_apply_raises_when_object_is_not_managed(labels: dict[str, str] | None) -> None:
    current = service()
    current["metadata"]["labels"] = labels
    async with serving() as (api, client):
        api.others.append(at_server(current))
        with pytest.raises(NotOwnedError, match="Service ns/s exists and is not managed"):
            await create_or_update(client, SERVICES, service(a="b"))
        assert written(api) == []


async def test_apply_raises_when_object_has_another_owner() -> None:
    current = service()
    current["metadata"]["ownerReferences"][0]["name"] = "other"
    async with serving() as (api, client):
        api.others.append(at_server(current))
        with pytest.raises(NotOwnedError, match=r"is owned by Gateway 'other'.*Gateway 'g'"):
            await create_or_update(client, SERVICES, service())


async def test_apply_replaces_owner_reference_when_owner_is_recreated() -> None:
    current = service()
    current["metadata"]["ownerReferences"][0]["uid"] = "before"
    async with serving() as (api, client):
        api.others.extend([at_server(current)] * 2)
        assert (await create_or_update(client, SERVICES, service())).action == "updated"
        assert written(api)[0][1]["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_covers_ignores_defaults_inside_list_items() -> None:
    current = {"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30001}]}
    assert is_applied(current, {"ports": [{"port": 80}]})
    assert not is_applied(current, {"ports": []})
    assert not is_applied(current, {"ports": [{"port": 80}, {"port": 81}]})


def test_covers_distinguishes_true_from_one_and_null_from_absent() -> None:
    assert not is_applied({"a": 1}, {"a": True})
    assert not is_applied({}, {"a": None})


def test_merged_keeps_server_fields_of_unchanged_list_items() -> None:
    current = [{"name": "port-80", "port": 80, "nodePort": 30001}]
    desired = [{"name": "port-443", "port": 443}, {"name": "port-80", "port": 80}]
    assert merge_desired(current, desired) == [{"name": "port-443", "port": 443}, current[0]]


def test_merged_replaces_changed_list_items() -> None:
    current = [{"name": "v", "emptyDir": {}}]
    assert merge_desired(current, [{"name": "v", "configMap": {}}]) == [
        {"name": "v", "configMap": {}}
    ]


async def test_apply_removes_own_stale_fields_and_keeps_fields_of_others() -> None:
    current = at_rest(
        type="LoadBalancer",
        selector={"app": "a", "tier": "b"},
        ports=[{"name": "http", "port": 80, "appProtocol": "x"}, {"name": "old", "port": 81}],
    )
    current["metadata"]["labels"]["theirs"] = "c"
    current["spec"]["clusterIP"] = "10.0.0.1"
    current["spec"]["ports"][0]["nodePort"] = 30001
    async with serving() as (api, client):
        api.others.extend([at_server(current)] * 2)
        desired = service(selector={"app": "a"}, ports=[{"name": "http", "port": 80}])
        assert (await create_or_update(client, SERVICES, desired)).action == "updated"
        [(_, body)] = written(api)
    assert body["spec"] == {
        "selector": {"app": "a"},
        "clusterIP": "10.0.0.1",
        "ports": [{"name": "http", "port": 80, "nodePort": 30001}],
    }
    assert body["metadata"]["labels"]["theirs"] == "c"


async def test_apply_recreates_object_when_immutable_field_changes() -> None:
    current = at_rest(loadBalancerClass="a")
    current["metadata"]["uid"] = "u-1"

    def other_class(now: Any, desired: Any) -> bool:
        return bool(now["spec"]["loadBalancerClass"] != desired["spec"]["loadBalancerClass"])

    async with serving() as (api, client):
        api.others.extend([at_server(current)] * 3)
        desired = service(loadBalancerClass="b")
        done = await create_or_update(client, SERVICES, desired, must_recreate=other_class)
        assert done.action == "updated"
        assert [method for method, _ in written(api)] == ["DELETE", "POST"]


async def test_apply_adjusts_manifest_to_current_object() -> None:
    current = at_rest(replicas=5)

    def keep(now: Any, desired: Any) -> Any:
        return {**desired, "spec": {"replicas": now["spec"]["replicas"]}}

    async with serving() as (api, client):
        api.others.append(at_server(current))
        done = await create_or_update(client, SERVICES, service(replicas=1), adjust=keep)
        assert done.action == "unchanged"


values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from("ab"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner),
    max_leaves=8,
)


@given(values, values)
def test_merged_covers_desired(current: Any, desired: Any) -> None:
    result = merge_desired(current, desired)
    assert is_applied(result, desired)
    assert merge_desired(result, desired) == result


@given(values, values, values)
def test_without_stale_keeps_fields_not_applied_before(
    current: Any, desired: Any, before: Any
) -> None:
    assert without_stale(current, desired, {}) == current
    assert without_stale(current, current, field_shape(before)) == current


async def test_apply_sends_no_read_when_last_seen_is_given() -> None:
    desired = service(type="ClusterIP")
    async with serving() as (api, client):
        known = {**dict(with_applied_fields(desired)), "added": "by the server"}
        outcome = await create_or_update(client, SERVICES, desired, last_seen=known)
        assert outcome.action == "unchanged"
        assert api.requests == []


async def test_apply_reads_object_when_last_seen_is_stale() -> None:
    desired = service(type="ClusterIP")
    there = {**dict(with_applied_fields(desired)), "theirs": "1"}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(there)

    async with serving() as (api, client):
        api.others.extend([status(409, "AlreadyExists"), answer])
        outcome = await create_or_update(client, SERVICES, desired, last_seen=None)
        assert outcome.action == "unchanged"
        assert [method for method, _, _ in api.requests] == ["POST", "GET"]
