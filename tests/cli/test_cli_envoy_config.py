"""`gatehouse config` for Envoy: readable resources, and nothing secret among them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import yaml

from fakes.authority import Authority
from gatehouse.agent.envoy.resource_cache import AcceptedChange
from gatehouse.agent.envoy.resource_store import ResourceStore
from gatehouse.cli import envoy_config
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir import kube_apiserver as ir_kubernetes
from gatehouse.compiler.ir.authentication import Jwt
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import Resource

KEYS = b'{"keys": [{"kty": "oct", "alg": "HS256", "k": "c3ltbWV0cmljLWtleQ"}]}'


def everything_secret(tmp_path: Path) -> list[Resource]:
    """Return resources that hold a private key, a token, a symmetric key and a user's header."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("h.example")
    shown = ir_gateway.Certificate(
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
    server = ir_kubernetes.Server("https://10.0.0.1", "10.0.0.1", 443)
    cluster = ir_kubernetes.ApiCluster("kube", ("k.example",), (server,), (), token="t")
    gateway = ir_gateway.Gateway(
        "ns/gw",
        listeners=(
            ir_gateway.Listener(8080, "HTTP", (ir.VirtualHost("h.example", (route,)),)),
        ),
        api_listeners=(ir_kubernetes.ApiListener(6443, (cluster,), ("c",)),),
        clusters=(ir.Cluster("c-shop", (ir.Endpoint("10.0.0.7", 80),)),),
        certificates=(shown,), secrets=secrets,
    )  # fmt: skip
    generated = envoy.Generator(envoy.Capabilities()).generate(gateway)
    result = [each for named in generated.resources.by_type.values() for each in named.values()]
    return [
        *result,
        sidecar_configs.resource("authenticator", "realm", {"secrets/users": b"a:passwd"}),
    ]


SECRETS = (
    "PRIVATE KEY", "bearer-token", "c3ltbWV0cmljLWtleQ", "dXNlcjpwYXNz", "a:passwd",
)  # fmt: skip


def test_resources_are_shown_by_type_and_name_without_secrets(tmp_path: Path) -> None:
    resources = everything_secret(tmp_path)
    bodies = b"".join(each.body for each in resources)
    assert all(each.encode() in bodies for each in SECRETS[:4])
    text = envoy_config.dump(resources)
    assert [each for each in SECRETS if each in text] == []
    document = yaml.safe_load(text)
    assert set(document) == {
        "Listener", "ScopedRouteConfiguration", "Cluster", "ClusterLoadAssignment", "Secret",
        "Companion",
    }  # fmt: skip
    assert sum(map(len, document.values())) == len(resources)
    assert document["Cluster"]["c-shop"]["name"] == "c-shop"
    secret = next(each for each in document["Secret"].values() if "tls_certificate" in each)
    assert secret["tls_certificate"]["private_key"] == {"inline_string": "[redacted]"}
    assert "-----BEGIN CERTIFICATE-----\n" in text
    assert document["Companion"]["authenticator/realm"]["files"] == {
        "secrets/users": "[redacted] (8 bytes)"
    }
    scopes = yaml.dump(document["ScopedRouteConfiguration"])
    assert "path_separated_prefix: /shop" in scopes
    assert "[redacted]" in scopes


def test_resource_of_unknown_type_is_printed_without_bytes() -> None:
    unknown = Resource.make("type.googleapis.com/envoy.not.Known", "a", b"secret")
    assert yaml.safe_load(envoy_config.dump([unknown])) == {
        "Known": {"a": {"unreadable": "6 bytes of type.googleapis.com/envoy.not.Known"}}
    }


def test_envoy_config_reads_resource_store_while_agent_has_it_open(tmp_path: Path) -> None:
    disk = ResourceStore(tmp_path / "envoy.db")
    resources = [Resource.make("type.googleapis.com/t", name, b"x") for name in ("a", "b")]
    disk.write([AcceptedChange(tuple(resources), ())])
    before = {path.name for path in tmp_path.iterdir()}
    assert envoy_config.read(tmp_path / "envoy.db") == resources
    assert {path.name for path in tmp_path.iterdir()} == before
    disk.close()
    assert envoy_config.read(tmp_path / "envoy.db") == resources


def test_damaged_or_missing_file_is_an_error(tmp_path: Path) -> None:
    damaged = tmp_path / "envoy.db"
    damaged.write_bytes(b"no database" * 100)
    with pytest.raises(OSError, match="file is not a database"):
        envoy_config.read(damaged)
    with pytest.raises(OSError, match="unable to open database file"):
        envoy_config.read(tmp_path / "none.db")
    sqlite3.connect(tmp_path / "empty.db").close()
    with pytest.raises(OSError, match="no such table"):
        envoy_config.read(tmp_path / "empty.db")
