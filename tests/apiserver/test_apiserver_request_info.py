"""Request attributes: the API server authorizes the request that it serves, as Kubernetes does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from fakes import patience
from fakes.inprocess import Server
from gatehouse.standalone.state_directory import State
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.errors import StatusError
from kube_api_server.http import requests, selectors
from kube_api_server.objects.registry import Registry
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import Attributes
from kube_base.types import request_info

GROUP = "rbac.authorization.k8s.io"
NS = "/api/v1/namespaces/ns"
SLICES = "/apis/discovery.k8s.io/v1"


def row(
    verb: str,
    resource: str = "",
    namespace: str = "",
    name: str = "",
    sub: str = "",
    group: str = "",
) -> Attributes:
    return Attributes(verb, group, resource, sub, namespace, name)


TABLE: dict[tuple[str, str], Attributes] = {
    ("GET", f"{NS}/pods"): row("list", "pods", "ns"),
    ("HEAD", f"{NS}/pods"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods/p"): row("get", "pods", "ns", "p"),
    ("HEAD", f"{NS}/pods/p"): row("get", "pods", "ns", "p"),
    ("GET", f"{NS}/pods/p/"): row("get", "pods", "ns", "p"),
    ("GET", "//api/v1/namespaces/ns/pods/p"): row("get", "pods", "ns", "p"),
    ("GET", "/api/v1/pods"): row("list", "pods"),
    ("GET", "/api/v1/pods/p"): row("get", "pods", "", "p"),
    ("GET", "/api/v1/namespaces//pods"): row("list", "pods"),
    ("POST", f"{NS}/pods"): row("create", "pods", "ns"),
    ("PUT", f"{NS}/pods/p"): row("update", "pods", "ns", "p"),
    ("PATCH", f"{NS}/pods/p"): row("patch", "pods", "ns", "p"),
    ("DELETE", f"{NS}/pods/p"): row("delete", "pods", "ns", "p"),
    ("DELETE", f"{NS}/pods"): row("deletecollection", "pods", "ns"),
    ("OPTIONS", f"{NS}/pods"): row("", "pods", "ns"),
    ("GET", f"{NS}/pods/p/log"): row("get", "pods", "ns", "p", "log"),
    ("POST", f"{NS}/pods/p/exec"): row("create", "pods", "ns", "p", "exec"),
    ("GET", f"{NS}/pods/p/proxy/a/b"): row("get", "pods", "ns", "p", "proxy"),
    ("PUT", f"{NS}/pods/p/status"): row("update", "pods", "ns", "p", "status"),
    ("POST", f"{NS}/serviceaccounts/s/token"): row("create", "serviceaccounts", "ns", "s", "token"),
    ("GET", f"{SLICES}/endpointslices"): row("list", "endpointslices", group="discovery.k8s.io"),
    ("POST", f"{SLICES}/namespaces/ns/endpointslices"): row(
        "create", "endpointslices", "ns", group="discovery.k8s.io"
    ),
    # Namespaces, which are a resource and a prefix.
    ("GET", "/api/v1/namespaces"): row("list", "namespaces"),
    ("POST", "/api/v1/namespaces"): row("create", "namespaces"),
    ("GET", NS): row("get", "namespaces", "ns", "ns"),
    ("DELETE", NS): row("delete", "namespaces", "ns", "ns"),
    ("PUT", f"{NS}/finalize"): row("update", "namespaces", "ns", "ns", "finalize"),
    ("PATCH", f"{NS}/status"): row("patch", "namespaces", "ns", "ns", "status"),
    ("GET", f"{NS}/nodes"): row("list", "nodes", "ns"),
    ("GET", f"{NS}/nodes/n"): row("get", "nodes", "ns", "n"),
    ("GET", f"{NS}/unheard"): row("list", "unheard", "ns"),
    # Resources that are not served.
    ("GET", "/apis/unheard.io/v1/things/a"): row("get", "things", "", "a", group="unheard.io"),
    # Watches.
    ("GET", f"{NS}/pods?watch=1"): row("watch", "pods", "ns"),
    ("GET", f"{NS}/pods?watch=true"): row("watch", "pods", "ns"),
    ("GET", f"{NS}/pods?watch=yes"): row("watch", "pods", "ns"),
    ("GET", f"{NS}/pods?watch="): row("watch", "pods", "ns"),
    ("GET", f"{NS}/pods?watch"): row("watch", "pods", "ns"),
    ("GET", f"{NS}/pods?watch=false"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?watch=False"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?watch=0"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?watch=0&watch=1"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods/p?watch=1"): row("get", "pods", "ns", "p"),
    ("POST", f"{NS}/pods?watch=1"): row("create", "pods", "ns"),
    ("GET", "/api/v1/watch/pods"): row("watch", "pods"),
    ("GET", "/api/v1/watch/pods?watch=0"): row("watch", "pods"),
    ("DELETE", "/api/v1/watch/pods"): row("watch", "pods"),
    ("GET", "/api/v1/watch/namespaces/ns/pods/p"): row("watch", "pods", "ns", "p"),
    ("GET", "/api/v1/proxy/namespaces/ns/services/s/x"): row("proxy", "services", "ns", "s"),
    # Field selectors.
    ("GET", f"{NS}/pods?fieldSelector=metadata.name%3Dp"): row("list", "pods", "ns", "p"),
    ("GET", f"{NS}/pods?fieldSelector=metadata.name%3D%3Dp&watch=1"): row(
        "watch", "pods", "ns", "p"
    ),
    ("GET", f"{NS}/pods?fieldSelector=metadata.name!%3Dp"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?fieldSelector=metadata.name%3Dp,broken"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?fieldSelector=metadata.name%3D..%2Fp"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?fieldSelector=metadata.name%3Dp&limit=x"): row("list", "pods", "ns"),
    ("GET", f"{NS}/pods?fieldSelector=a%3Db&fieldSelector=metadata.name%3Dp"): row(
        "list", "pods", "ns"
    ),
    ("POST", f"{NS}/pods?fieldSelector=metadata.name%3Dp"): row("create", "pods", "ns"),
    ("DELETE", f"{NS}/pods?fieldSelector=metadata.name%3Dp"): row(
        "deletecollection", "pods", "ns"
    ),
    ("PUT", f"{NS}/pods/q?fieldSelector=metadata.name%3Dp"): row("update", "pods", "ns", "q"),
    ("PATCH", f"{NS}/pods?fieldSelector=metadata.name%3Dp"): row("patch", "pods", "ns"),
    # Non-resource URLs, by their method.
    ("GET", "/metrics"): Attributes("get", path="/metrics"),
    ("POST", "/metrics"): Attributes("post", path="/metrics"),
    ("GET", "/api"): Attributes("get", path="/api"),
    ("GET", "/api/v1"): Attributes("get", path="/api/v1"),
    ("GET", "/apis/apps/v1"): Attributes("get", path="/apis/apps/v1"),
    ("GET", "/openapi/v3/apis/apps/v1"): Attributes("get", path="/openapi/v3/apis/apps/v1"),
    ("GET", "/unheard/of/path"): Attributes("get", path="/unheard/of/path"),
}  # fmt: skip
"""Method and URL, with the attributes that k8s.io/apiserver gives them."""


async def test_authorizer_attributes_equal_those_of_kubernetes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes_seen: list[Attributes] = []

    def refuse(self: Authorizer, user: Any, attributes: Attributes) -> tuple[bool, str]:
        if user.name == "stranger":
            attributes_seen.append(attributes)
        return False, ""

    tokens = tmp_path / "tokens.csv"
    tokens.write_text("token,stranger,1,strangers\n")
    server = Server(State(tmp_path / "s"), token_file=tokens)
    async with server.running(), server.raw(Authorization="Bearer token") as http:
        monkeypatch.setattr(Authorizer, "authorize", refuse)
        base = http._base_url
        assert base is not None
        for (method, path), expected in TABLE.items():
            attributes_seen.clear()
            url = URL(f"{str(base).rstrip('/')}{path}", encoded=True)
            async with (
                aiohttp.ClientSession(
                    connector=http.connector, connector_owner=False, headers=http.headers
                ) as session,
                session.request(method, url) as response,
            ):
                assert (method, path, response.status) == (method, path, 403)
            assert (method, path, attributes_seen) == (method, path, [expected])


async def test_malformed_urls_are_rejected_before_authorization(server: Server) -> None:
    """A selector must not mean one thing to the authorizer and another to the list."""
    async with server.raw(Authorization="Basic x") as http:
        base = str(http._base_url).rstrip("/")
    queries = (
        "fieldSelector=metadata.name!%3D;&fieldSelector=metadata.name%3Dp",
        "fieldSelector=metadata.name!%3D%zz&fieldSelector=metadata.name%3Dp",
        "fieldSelector=%ff", "watch=%",
    )  # fmt: skip
    async with server.raw() as http:
        for path in (*(f"{NS}/pods?{query}" for query in queries), f"{NS}/pods/%ff", f"{NS}/%"):
            async with http.get(URL(base + path, encoded=True)) as response:
                assert (path, response.status) == (path, 400)


QUERY_TEXT = st.text(st.characters(codec="utf-8"))


@given(st.lists(st.tuples(st.sampled_from(["fieldSelector", "watch", "limit"]), QUERY_TEXT)))
def test_authorizer_and_handler_read_the_same_query(pairs: list[tuple[str, str]]) -> None:
    query = "&".join(f"{key}={quote(value, safe='')}" for key, value in pairs)
    url = URL(f"/api/v1/pods?{query}", encoded=True)
    first = request_info._values(query)
    assert first == {key: url.query[key] for key in url.query}


SELECTORS = st.text(st.sampled_from("metadata.name=!\\,x y"), max_size=40) | st.lists(
    st.sampled_from(
        ["metadata.name", "metadata.namespace", "=", "==", "!=", "\\", ",", "a", "b", " "]
    )
).map("".join)


@given(SELECTORS, st.sampled_from(["a", "b", "x", ""]), st.sampled_from(["a", "b"]))
def test_authorized_name_equals_the_selected_name(selector: str, name: str, namespace: str) -> None:

    served = Registry(BUILTIN_KINDS).find("", "v1", "pods")
    assert served is not None
    info = request_info.parse_request(
        "GET", f"/api/v1/pods?fieldSelector={quote(selector, safe='')}"
    )
    try:
        chosen = selectors.fields(selector, served)
    except StatusError:
        return  # Nothing is listed.
    obj = {"metadata": {"name": name, "namespace": namespace}}
    if info.name and chosen is not None and chosen(obj):
        assert name == info.name
    assert not info.name or chosen is not None


def test_request_target_matches_authorizer_attributes() -> None:

    registry = Registry(BUILTIN_KINDS)
    result = {}
    for method, path in TABLE:
        info = request_info.parse_request(method, path)
        target = requests.target(registry, info) if info.is_resource else None
        if target is not None:
            result[path] = target
            resource = target.requested.resource
            assert (resource.group, resource.plural) == (info.group, info.resource)
            assert (target.namespace, target.subresource) == (info.namespace, info.subresource)
            assert target.name == (info.parts[1] if len(info.parts) > 1 else "")
    for path in (
        "/api/v1/pods/p", f"{NS}/nodes", f"{NS}/nodes/n", f"{NS}/pods/p/proxy/a/b",
        "/api/v1/watch/pods", "/api/v1/proxy/namespaces/ns/services/s/x",
        "/apis/unheard.io/v1/things/a",
    ):  # fmt: skip
        assert path not in result
    assert result[f"{NS}/pods?fieldSelector=metadata.name%3Dp"].name == ""


async def allowed_soon(http: aiohttp.ClientSession, path: str) -> None:
    async with patience.limit():
        while True:
            async with http.get(path) as response:
                if response.status != 403:
                    return
            await patience.pause()


async def test_permission_for_one_name_does_not_permit_creating_others(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("token,owner,1,owners\n")
    server = Server(State(tmp_path / "s"), token_file=tokens)
    role = {
        "metadata": {"name": "one"},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["*"]}
        ],
    }
    bound = {
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "one"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "owner"}],
    }
    rbac, secrets = f"/apis/{GROUP}/v1/namespaces/default", "/api/v1/namespaces/default/secrets"
    mine = "fieldSelector=metadata.name%3Dmine"
    async with server.running(), server.raw() as admin:
        for plural, obj in (("roles", role), ("rolebindings", bound)):
            async with admin.post(f"{rbac}/{plural}", json=obj) as response:
                assert response.status == 201
        for name in ("mine", "other"):
            async with admin.post(secrets, json={"metadata": {"name": name}}) as response:
                assert response.status == 201
        async with server.raw(Authorization="Bearer token") as http:
            await allowed_soon(http, f"{secrets}/mine")
            for query in ("", f"?{mine}", "?fieldSelector=metadata.name%3D%3Dmine"):
                new = {"metadata": {"name": "new"}}
                async with http.post(secrets + query, json=new) as response:
                    assert response.status == 403
                # Kubernetes gives a deletecollection no name either.
                async with http.delete(secrets + query) as response:
                    assert response.status == 403
            async with http.get(f"{secrets}?{mine}") as response:
                assert response.status == 200
                items = (await response.json())["items"]
                assert [item["metadata"]["name"] for item in items] == ["mine"]
            async with http.get(f"{secrets}?{mine}&watch=1&timeoutSeconds=1") as response:
                assert response.status == 200
                first = json.loads(await response.content.readline())
                assert first["object"]["metadata"]["name"] == "mine"
            for path in (secrets, f"{secrets}?watch=1", f"{secrets}?{mine}%2Cbroken"):
                async with http.get(path) as response:
                    assert response.status == 403
        async with admin.get(f"{secrets}/new") as response:
            assert response.status == 404
