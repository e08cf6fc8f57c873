"""`gatehouse config` for Envoy: readable resources, and nothing secret among them."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from fakes.authority import Authority
from gatehouse.agent.envoy.resource_cache import AcceptedChange
from gatehouse.agent.envoy.resource_store import ResourceStore
from gatehouse.cli import envoy_config
from gatehouse.cli.secret_digest import SecretDigest
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import kube_apiserver as ir_kubernetes
from gatehouse.compiler.ir.authentication import Jwt
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, XdsResource

DIGEST = SecretDigest("key")
KEYS = b'{"keys": [{"kty": "oct", "alg": "HS256", "k": "c3ltbWV0cmljLWtleQ"}]}'
MARK = re.compile(r"\[redacted\] \((?:\d+ bytes, )?digest [0-9a-f]{12}\)")


def everything_secret(tmp_path: Path) -> list[XdsResource]:
    """Return resources that hold a private key, a token, a symmetric key and a user's header."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("h.example")
    tls_certificate = ir_gateway.Certificate(
        "c", certificate.read_bytes(), ir_gateway.SecretBytes(key.read_bytes())
    )
    secrets = (
        ir_gateway.SecretFile("keys", ir_gateway.SecretBytes(KEYS)),
        ir_gateway.SecretFile("t", ir_gateway.SecretBytes(b"bearer-token")),
    )
    edit = ir.HeaderEdit(set=(ir.HeaderValue("Authorization", "Basic dXNlcjpwYXNz"),))
    route = ir.Route(
        "ns/r/0/0", ir.Match(ir.PathPrefix("/shop")), ir.Forward((ir.Backend("c-shop"),)), edit,
        authentication=Jwt("realm", "keys"),
    )  # fmt: skip
    server = ir_kubernetes.KubeApiServer("https://10.0.0.1", "10.0.0.1", 443)
    cluster = ir_kubernetes.ApiCluster("kube", ("k.example",), (server,), (), token="t")
    gateway = ir_gateway.GatewayConfiguration(
        "ns/gw",
        listeners=(
            ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("h.example", (route,)),)),
        ),
        api_listeners=(ir_kubernetes.ApiListener(6443, (cluster,), ("c",)),),
        clusters=(ir.Cluster("c-shop", (ir.Endpoint("10.0.0.7", 80),)),),
        certificates=(tls_certificate,), secrets=secrets,
    )  # fmt: skip
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway)
    result = [
        resource for named in generated.resources.by_type.values() for resource in named.values()
    ]
    return [
        *result,
        sidecar_configs.resource("authenticator", "realm", {"secrets/users": b"a:passwd"}),
    ]


def dump(resources: list[XdsResource]) -> str:
    return envoy_config.ResourceDump(DIGEST).text(resources)


Updates = Callable[..., list[tuple[str, bytes]]]

SECRETS = (
    "PRIVATE KEY", "bearer-token", "c3ltbWV0cmljLWtleQ", "dXNlcjpwYXNz", "a:passwd",
)  # fmt: skip


def test_resources_are_shown_by_type_and_name_without_secrets(tmp_path: Path) -> None:
    resources = everything_secret(tmp_path)
    bodies = b"".join(resource.body for resource in resources)
    assert all(hidden_text.encode() in bodies for hidden_text in SECRETS[:4])
    text = dump(resources)
    assert [hidden_text for hidden_text in SECRETS if hidden_text in text] == []
    document = yaml.safe_load(text)
    assert set(document) == {
        "Listener", "ScopedRouteConfiguration", "Cluster", "ClusterLoadAssignment", "Secret",
        "Companion",
    }  # fmt: skip
    assert sum(map(len, document.values())) == len(resources)
    assert document["Cluster"]["c-shop"]["name"] == "c-shop"
    secret = next(entry for entry in document["Secret"].values() if "tls_certificate" in entry)
    private_key = secret["tls_certificate"]["private_key"]
    assert private_key.keys() == {"inline_string"}
    assert MARK.fullmatch(private_key["inline_string"])
    assert "-----BEGIN CERTIFICATE-----\n" in text
    assert document["Companion"]["authenticator/realm"]["files"] == {
        "secrets/users": DIGEST.mark(b"a:passwd", 8)
    }
    scopes = yaml.dump(document["ScopedRouteConfiguration"])
    assert "path_separated_prefix: /shop" in scopes
    assert DIGEST.mark(b"Basic dXNlcjpwYXNz") in scopes


def test_digests_show_which_secrets_differ(tmp_path: Path) -> None:
    def keys(directory: str) -> list[str]:
        (tmp_path / directory).mkdir()
        text = dump(everything_secret(tmp_path / directory))
        return MARK.findall(text)

    # Each has a private key of its own, and the same token, key and header.
    first, second = keys("a"), keys("b")
    assert len({*first} ^ {*second}) == 2
    assert len({*first} & {*second}) == len({*first}) - 1 > 3


def test_resource_of_unknown_type_is_printed_without_bytes() -> None:
    unknown = XdsResource.make("type.googleapis.com/envoy.not.Known", "a", b"secret")
    assert yaml.safe_load(dump([unknown])) == {
        "Known": {"a": {"unreadable": "6 bytes of type.googleapis.com/envoy.not.Known"}}
    }


def test_envoy_config_reads_resource_store_while_agent_has_it_open(tmp_path: Path) -> None:
    disk = ResourceStore(tmp_path / "envoy.db")
    resources = [XdsResource.make("type.googleapis.com/t", name, b"x") for name in ("a", "b")]
    disk.write([AcceptedChange(tuple(resources), ())])
    before = {path.name for path in tmp_path.iterdir()}
    assert envoy_config.read_resources(tmp_path / "envoy.db").accepted == resources
    assert {path.name for path in tmp_path.iterdir()} == before
    disk.close()
    assert envoy_config.read_resources(tmp_path / "envoy.db").accepted == resources


def test_damaged_or_missing_file_is_an_error(tmp_path: Path) -> None:
    damaged = tmp_path / "envoy.db"
    damaged.write_bytes(b"no database" * 100)
    with pytest.raises(OSError, match="file is not a database"):
        envoy_config.read_resources(damaged)
    with pytest.raises(OSError, match="unable to open database file"):
        envoy_config.read_resources(tmp_path / "none.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(OSError, match="no such table"):
        envoy_config.read_resources(tmp_path / "empty.db")


@pytest.fixture
def updates(tmp_path: Path) -> Iterator[Updates]:
    now = 100.0
    store = ResourceStore(tmp_path / "envoy.db", clock=lambda: now)

    def update(
        seconds: float, new: str = "", gone: str = "", type_url: str = CLUSTER_TYPE_URL
    ) -> list[tuple[str, bytes]]:
        """Accept resources such as ``a1 b2`` after a time. Return those before the last update."""
        nonlocal now
        now += seconds
        bodies = [XdsResource.make(type_url, one[0], one[1:].encode()) for one in new.split()]
        store.write([AcceptedChange(tuple(bodies), tuple((type_url, name) for name in gone))])
        previous = envoy_config.read_resources(tmp_path / "envoy.db").previous
        return sorted((resource.name, resource.body) for resource in previous)

    yield update
    store.close()


def test_resources_before_the_last_update_are_kept(updates: Updates) -> None:
    assert updates(0, "a1 b1 c1") == []
    assert updates(1, "d1") == []
    before = [(name, b"1") for name in "abcd"]
    assert updates(2, "a2", gone="b") == before
    assert updates(1, "a3 e1") == before
    assert updates(2, "f1") == [("a", b"3"), ("c", b"1"), ("d", b"1"), ("e", b"1")]


def test_changes_of_endpoints_are_no_update(updates: Updates) -> None:
    updates(0, "a1")
    before = updates(10, "a2")
    assert before == [("a", b"1")]
    endpoints = ENDPOINTS_TYPE_URL
    assert [pair for pair in updates(20, "x1", type_url=endpoints) if pair[0] == "a"] == before
    assert updates(20, gone="x", type_url=endpoints) == before


def test_file_of_an_earlier_version_has_no_previous_resources(tmp_path: Path) -> None:
    store = ResourceStore(tmp_path / "envoy.db")
    store.write([AcceptedChange((XdsResource.make(CLUSTER_TYPE_URL, "a", b"1"),), ())])
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "envoy.db")) as connection:
        connection.execute("DROP TABLE replaced")
    stored = envoy_config.read_resources(tmp_path / "envoy.db")
    assert [resource.name for resource in stored.accepted] == ["a"]
    assert stored.previous == []
