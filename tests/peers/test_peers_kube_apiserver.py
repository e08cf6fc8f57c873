"""Impersonation through Gatehouse to a real kube-apiserver, compared with a direct request."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes.kube_apiserver import KubeApiserver
from fakes.kube_serving import Connection, World, world
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir

pytestmark = [pytest.mark.long, pytest.mark.process, pytest.mark.peers]

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
BODY = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()


def administrator(server: KubeApiserver) -> tuple[bytes, bytes]:
    """Return the client certificate and key of the kubeconfig."""
    (user,) = yaml.safe_load(server.kubeconfig.read_text())["users"]
    fields = user["user"]
    if "client-certificate" in fields:
        files = fields["client-certificate"], fields["client-key"]
        return Path(files[0]).read_bytes(), Path(files[1]).read_bytes()
    data = fields["client-certificate-data"], fields["client-key-data"]
    return base64.b64decode(data[0]), base64.b64decode(data[1])


async def serve(one: World, server: KubeApiserver) -> None:
    """Serve the real server. Every impersonation is allowed."""
    chain, key = administrator(server)
    own = ir_gateway.Certificate("gateway", chain, ir_gateway.SecretBytes(key))
    cluster = one.cluster(
        servers=(ir.KubeApiServer("https://one", "127.0.0.1", server.port),),
        tls=ir.UpstreamTls("127.0.0.1", trust="servers", certificate="gateway"),
    )
    names = ("default.test", "unknown.test", *cluster.hosts)
    await one.serve(
        cluster,
        certificates=(own, one.server_certificate(*names)),
        trust_bundles=(
            ir_gateway.TrustBundle("clients", one.clients.pem),
            ir_gateway.TrustBundle("servers", server.authority.read_bytes()),
        ),
    )
    one.reviewer.allowed = lambda _: True


async def direct(server: KubeApiserver, *headers: tuple[str, str]) -> tuple[int, Any]:
    """Return status and document of the server's own response."""
    context = ssl.create_default_context(cafile=str(server.authority))
    with tempfile.TemporaryDirectory() as directory:
        files = Path(directory) / "cert", Path(directory) / "key"
        for file, content in zip(files, administrator(server), strict=True):
            file.write_bytes(content)
        context.load_cert_chain(*files)
    connection = Connection(
        *await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="127.0.0.1"
        )
    )
    try:
        answer = await connection.ask(REVIEW, "POST", *headers, host="127.0.0.1", body=BODY)
    finally:
        connection.close()
    return answer.status, answer.document


@pytest.mark.parametrize("key", ["Scopes", "a%2fb", "a%zz", "a%2", "%", "a%25"])
async def test_keys_of_extras_are_read_like_a_kube_apiserver_reads_them(
    kube_apiserver: KubeApiserver, key: str
) -> None:
    content = ("Content-Type", "application/json")
    headers = (content, ("Impersonate-User", "bob"), (f"Impersonate-Extra-{key}", "v"))
    async with world() as one:
        await serve(one, kube_apiserver)
        status, document = await direct(kube_apiserver, *headers)
        assert status == 201, document
        answer = await one.ask(one.client("alice"), REVIEW, "POST", *headers, body=BODY)
        assert answer.status == 201, answer.body
        assert answer.document["status"]["userInfo"] == document["status"]["userInfo"]
        assert document["status"]["userInfo"]["username"] == "bob"
