"""`gatehouse support` beside running data planes: everything useful, and nothing secret."""

from __future__ import annotations

import asyncio
import base64
import json
import tarfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from fakes.installation import PORT, Installation, address, apply, hello, holds, route
from fakes.installation_fixtures import shared_installation as installation
from gatehouse.apis import resources
from gatehouse.cli.support import support
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process

PLANTED = {
    "secret": "s3cr3t-in-a-secret", "annotation": "s3cr3t-in-annotation",
    "snippet": "s3cr3t-in-snippet", "header": "s3cr3t-in-header",
    "url": "s3cr3t-in-url", "token": "s3cr3t-bearer-token", "config map": "s3cr3t-in-config-map",
    "jwt": "s3cr3tInJwtKeyMaterial", "oidc": "s3cr3t-of-oidc-client",
}  # fmt: skip
"""A value for each place. Events quote that of the Secret."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def held(name: str, key: str, text: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"}, "data": {key: encoded(text)}, **fields,
    }  # fmt: skip


def nginx_object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "gateway.nginx.org/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }  # fmt: skip


def planted_objects() -> list[dict[str, Any]]:
    secret = held("app", "password", PLANTED["secret"])
    secret["metadata"]["annotations"] = {LAST_APPLIED: PLANTED["annotation"]}
    keys = json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "kid": "k", "k": PLANTED["jwt"]}]})
    config = {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"}, "data": {"a": PLANTED["config map"]},
    }  # fmt: skip
    snippet = {
        "context": "http.server.location",
        "value": f'proxy_set_header X-Extra "{PLANTED["snippet"]}";',
    }
    jwt = {"type": "JWT", "jwt": {"realm": "r", "source": "File",
           "file": {"secretRef": {"name": "jwt"}}}}  # fmt: skip
    oidc = {"type": "OIDC", "oidc": {
        "issuer": f"https://idp.example/x?token={PLANTED['url']}", "clientID": "c",
        "clientSecretRef": {"name": "oidc"},
    }}  # fmt: skip

    def filtered(name: str, kind: str) -> dict[str, Any]:
        reference = {"group": "gateway.nginx.org", "kind": kind, "name": name}
        return route(
            name, f"/{name}", filters=[{"type": "ExtensionRef", "extensionRef": reference}]
        )

    header = {"name": "Authorization", "value": f"Bearer {PLANTED['token']}"}
    other = {"name": "X-Api-Key", "value": PLANTED["header"]}
    modifier = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [header, other]}}
    return [
        secret, held("jwt", "auth", keys), held("oidc", "client-secret", PLANTED["oidc"]), config,
        nginx_object("SnippetsFilter", "raw", {"snippets": [snippet]}),
        nginx_object("AuthenticationFilter", "jwt", jwt),
        nginx_object("AuthenticationFilter", "oidc", oidc),
        filtered("raw", "SnippetsFilter"), filtered("jwt", "AuthenticationFilter"),
        filtered("oidc", "AuthenticationFilter"),
        route("headers", "/headers", filters=[modifier]),
    ]  # fmt: skip


async def plant(client: kube.Client, gateway_class: str) -> None:
    await apply(client, hello(gateway_class))
    for item in planted_objects():
        try:
            await apply(client, [item])
        except kube.Invalid as error:
            pytest.fail(f"{item['kind']} {item['metadata']['name']}: {error}")
    event = {
        "metadata": {"name": f"web.{gateway_class}", "namespace": "default"},
        "type": "Warning", "reason": "Odd",
        "involvedObject": {"kind": "Gateway", "namespace": "default", "name": "web"},
        "message": f"connection with {PLANTED['secret']} to https://u:{PLANTED['url']}@h.example",
    }  # fmt: skip
    await client.create(resources.EVENTS, event)


@pytest.fixture(scope="module", params=["gatehouse-nginx", "gatehouse-envoy"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_support_bundle_has_everything_but_secrets(
    installation: Installation,
    client: kube.Client,
    backends: None,
    gateway_class: str,
    tmp_path: Path,
) -> None:
    await plant(client, gateway_class)
    await holds(client, "Gateway", "web", "Programmed")
    await holds(client, "HTTPRoute", "headers", "Accepted")
    where = await address(client)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{where}:{PORT}/headers?token={PLANTED['url']}"),
    ):
        pass
    target = tmp_path / "bundle.tar.gz"
    words = ["-o", str(target), "--state-dir", str(installation.state)]
    result = await asyncio.to_thread(CliRunner().invoke, support, words)
    assert result.exit_code == 0, (result.output, result.exception)
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        files = {
            member.name.removeprefix("gatehouse-support/"): archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    for place, value in PLANTED.items():
        for form in (value, encoded(value), encoded(value).rstrip("=")):
            holders = [path for path, content in files.items() if form.encode() in content]
            assert holders == [], (place, holders)
    assert {"README.txt", "versions.json", "status.txt", "events.yaml", "missing.txt"} <= set(files)
    assert b"name: headers" in files["objects/HTTPRoute.yaml"]
    assert b"password: '[redacted] (24 characters)'" in files["objects/Secret.yaml"]
    assert b"reason: Odd" in files["events.yaml"]
    plane = next(path for path in files if path.startswith("data-planes/")).rpartition("/")[0]
    directory = "/".join(plane.split("/")[:3])
    assert files[f"{directory}/log.txt"]
    assert b"gatehouse_agent" in files[f"{directory}/metrics.txt"]
    config = b"".join(content for path, content in files.items() if "/config/" in path)
    assert b"/headers" in config
    again = await asyncio.to_thread(CliRunner().invoke, support, words)
    assert f"{target}: file exists" in str(again.exception)
