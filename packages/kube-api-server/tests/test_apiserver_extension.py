"""The API server by itself, which knows Kubernetes only, and with an extension."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import re
import sqlite3
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_api_server.errors import StatusError
from kube_api_server.extension import ExtendedServer, Extension, OwnNames
from kube_api_server.fairness import schemas
from kube_api_server.fairness.schemas import SystemUsers
from kube_api_server.identity.users import AUTHENTICATED, User
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.rbac.role_objects import cluster_role, resource_rule
from kube_api_server.rbac.rules import Attributes
from kube_api_server.storage.names import DEFAULT_NAMES, StorageNames
from kube_api_server.testing.local_server import LocalApiServer
from kube_base.types.objects import Object

RBAC = "/apis/rbac.authorization.k8s.io/v1"
FOREIGN = re.compile("gatehouse|gateway|nginx|inference")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def connect(server: LocalApiServer) -> http.client.HTTPSConnection:
    """Connect as the administrator."""
    context = ssl.create_default_context(cafile=str(server.admin.ca))
    context.load_cert_chain(server.admin.cert, server.admin.key)
    host = server.url.removeprefix("https://")
    return http.client.HTTPSConnection(host, context=context)


def call(
    server: LocalApiServer, path: str, body: Object | None = None, user: str = ""
) -> tuple[int, Any]:
    """Get a path, or create an object there, as the administrator or another user."""
    headers = {"Content-Type": "application/json"} | ({"Impersonate-User": user} if user else {})
    method, data = ("POST", json.dumps(body)) if body is not None else ("GET", None)
    with contextlib.closing(connect(server)) as connection:
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def names(server: LocalApiServer, path: str) -> set[str]:
    status, result = call(server, path)
    assert status == 200
    return {item["metadata"]["name"] for item in result["items"]}


def definition(group: str = "shop.example") -> Object:
    """Build a CRD of carts, which have at most 3 items."""
    items = {"type": "array", "maxItems": 9, "items": {"type": "string"}}
    spec = {
        "type": "object",
        "properties": {"items": items, "currency": {"type": "string", "default": "EUR"}},
        "x-kubernetes-validations": [{"rule": "size(self.items) <= 3", "message": "too many"}],
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"carts.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "carts", "singular": "cart", "kind": "Cart"},
            "versions": [version],
        },
    }


def cart(count: int) -> Object:
    items = [f"item-{number}" for number in range(count)]
    metadata = {"name": f"cart-{count}"}
    return {
        "apiVersion": "shop.example/v1",
        "kind": "Cart",
        "metadata": metadata,
        "spec": {"items": items},
    }


def test_server_by_itself_stores_nothing_of_gatehouse(tmp_path: Path) -> None:
    with LocalApiServer(tmp_path) as server:
        assert call(server, CRDS, definition())[0] == 201
    rows = sqlite3.connect(tmp_path / "storage" / DEFAULT_NAMES.database).iterdump()
    stored = [row for row in rows if row.startswith("INSERT")]
    assert any("service-account-token-keys" in row for row in stored)
    assert [row for row in stored if FOREIGN.search(row)] == []


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalApiServer]:
    with LocalApiServer(tmp_path_factory.mktemp("alone")) as server:
        yield server


def test_server_alone_serves_groups_of_kubernetes_only(alone: LocalApiServer) -> None:
    groups = {group["name"] for group in call(alone, "/apis")[1]["groups"]}
    assert {"apps", "batch", "networking.k8s.io", "rbac.authorization.k8s.io"} <= groups
    assert not [name for name in groups if FOREIGN.search(name)]


def test_server_alone_has_no_objects_of_gatehouse(alone: LocalApiServer) -> None:
    assert names(alone, CRDS) == set()
    assert names(alone, "/api/v1/namespaces") == {
        *("default", "kube-system", "kube-public", "kube-node-lease"),
    }
    roles = call(alone, f"{RBAC}/clusterroles")[1]["items"]
    assert {"cluster-admin", "view"} <= {role["metadata"]["name"] for role in roles}
    texts = [json.dumps((role["metadata"]["name"], role["rules"])) for role in roles]
    assert not [text for text in texts if FOREIGN.search(text)]
    bindings = names(alone, f"{RBAC}/clusterrolebindings")
    assert not [name for name in bindings if FOREIGN.search(name)]


def test_server_alone_has_the_version_of_kubernetes(alone: LocalApiServer) -> None:
    assert call(alone, "/version")[1]["gitVersion"] == "v1.34.0"


def test_server_alone_serves_any_crd(alone: LocalApiServer) -> None:
    assert call(alone, CRDS, definition())[0] == 201
    carts = "/apis/shop.example/v1/namespaces/default/carts"
    status, created = call(alone, carts, cart(2))
    assert (status, created["spec"]["currency"]) == (201, "EUR")
    status, rejection = call(alone, carts, cart(4))
    assert (status, rejection["reason"]) == (422, "Invalid")
    assert rejection["message"].endswith("too many")


def test_server_stops_with_its_context(tmp_path: Path) -> None:
    with LocalApiServer(tmp_path) as server:
        assert call(server, "/version")[0] == 200
    with pytest.raises(ConnectionRefusedError):
        call(server, "/version")


def test_missing_directory_of_a_server_is_created_for_its_user_alone(tmp_path: Path) -> None:
    with LocalApiServer(tmp_path / "of" / "mine") as server:
        assert server.kubeconfig == tmp_path / "of" / "mine" / "kubeconfig"
    assert (tmp_path / "of" / "mine").stat().st_mode & 0o777 == 0o700


def test_server_that_stops_closes_idle_connections(tmp_path: Path) -> None:
    with LocalApiServer(tmp_path) as server:
        connection = connect(server)
        connection.request("GET", "/version")
        connection.getresponse().read()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    connection.close()


def test_server_that_cannot_start_raises_the_reason(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file, and no directory")
    server = LocalApiServer(tmp_path)
    with pytest.raises(OSError, match="storage"):
        server.__enter__()


def reject_red(_: WriteRequest, obj: Object, __: Object | None) -> None:
    if obj["metadata"]["name"].startswith("red"):
        raise StatusError(403, "Forbidden", f"{obj['metadata']['name']} is red")


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalApiServer]:
    directory = tmp_path_factory.mktemp("extended")
    definitions = directory / "definitions"
    definitions.mkdir()
    (definitions / "carts.json").write_text(json.dumps(definition()))
    rule = resource_rule("get list", "shop.example", "carts")

    def register(server: ExtendedServer) -> None:
        server.check_writes("configmaps", reject_red)

    extension = Extension(
        build="shop.7",
        names=OwnNames(storage=StorageNames(database="shop.db"), metrics="shop"),
        definitions=definitions,
        namespaces=("shop",),
        roles=lambda: [cluster_role("shop:view", [rule], aggregate_to="view")],
        register_checks=(register,),
    )
    with LocalApiServer(directory, extension) as server:
        yield server


def test_extension_adds_kinds_namespaces_and_the_build(extended: LocalApiServer) -> None:
    assert names(extended, CRDS) == {"carts.shop.example"}
    assert "shop" in names(extended, "/api/v1/namespaces")
    assert call(extended, "/version")[1]["gitVersion"] == "v1.34.0+shop.7"
    assert call(extended, "/apis/shop.example/v1/namespaces/shop/carts", cart(1))[0] == 201


def test_extension_names_the_database_and_metrics(extended: LocalApiServer) -> None:
    storage = extended.kubeconfig.parent / "storage"
    assert {path.name for path in storage.glob("*.db")} == {"shop.db"}
    with contextlib.closing(connect(extended)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    values = dict(line.split() for line in text.splitlines() if line.startswith("shop_"))
    assert values.keys() == {"shop_storage_revision", "shop_storage_full"}
    assert float(values["shop_storage_revision"]) > 0


def test_extension_adds_rules_to_the_roles_of_users(extended: LocalApiServer) -> None:
    assert call(extended, f"{RBAC}/clusterroles/shop:view")[0] == 200
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "reader"}],
    }
    assert call(extended, f"{RBAC}/namespaces/shop/rolebindings", binding)[0] == 201
    carts = "/apis/shop.example/v1/namespaces/{}/carts"
    assert call(extended, carts.format("shop"), user="reader")[0] == 200
    assert call(extended, carts.format("default"), user="reader")[0] == 403
    assert call(extended, carts.format("shop"), cart(3), user="reader")[0] == 403


def test_check_of_an_extension_rejects_writes(extended: LocalApiServer) -> None:
    path = "/api/v1/namespaces/shop/configmaps"
    blue, red = ({"metadata": {"name": name}} for name in ("blue", "red"))
    assert call(extended, path, blue)[0] == 201
    status, rejection = call(extended, path, red)
    assert (status, rejection["message"]) == (403, "red is red")


def test_users_of_an_extension_have_the_priority_of_kubernetes_components() -> None:
    others = SystemUsers(frozenset({"shop:controller"}), frozenset({"shop:node"}))
    lease = Attributes("update", "coordination.k8s.io", "leases")
    users = [User(f"shop:{name}", groups=(AUTHENTICATED,)) for name in ("controller", "node")]
    assert [schemas.classify(user, lease, others).level for user in users] == [
        *("leader-election", "node-high"),
    ]
    assert {schemas.classify(user, lease, SystemUsers()).level for user in users} == {
        "global-default"
    }
