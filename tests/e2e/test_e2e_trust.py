"""Agent identities verified by the real API server, and changes of these."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import jwt
import pytest

from fakes import installation
from fakes.agent_command import agent
from fakes.agent_v3 import Claimant, claimant
from fakes.authority import Authority
from fakes.cluster_without_pods import SUFFIX, Cluster, client, cluster, give_address, token
from fakes.durations import last
from fakes.installation import apply, get, hello, holds, route, traffic
from fakes.loopback import free_port
from fakes.patience import SECONDS, until
from gatehouse.apis import resources
from gatehouse.apiserver_extension.extension import OWN_NAMES
from gatehouse.controller import main as controller
from gatehouse.controller import options as controller_options
from gatehouse.dataplane.file_set import base64_sha256
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from gatehouse.transports.agents import token_auth
from kube_api_server.identity import signing_keys

__all__ = ["client", "cluster"]

pytestmark = pytest.mark.process


async def expired(client: kube.Client, good: str) -> str:
    """Return an expired token like ``good``, signed by the same key."""
    secret = await client.get(resources.SECRETS, OWN_NAMES.signing_keys, signing_keys.NAMESPACE)
    ring = signing_keys.Keys()
    ring.load(dict(secret))
    claims = jwt.decode(good, options={"verify_signature": False})
    moment = int(time.time()) - 600
    claims |= {"exp": moment, "iat": moment - 60, "nbf": moment - 60}
    headers = {"kid": ring.signing.id}
    return jwt.encode(claims, ring.signing.private, algorithm="ES256", headers=headers)


def on_port(port: int) -> list[dict[str, Any]]:
    objects = hello()
    objects[0]["spec"]["listeners"][0]["port"] = port
    return objects


async def test_agent_request_for_foreign_gateway_is_denied_and_reported_once_on_both(
    cluster: Cluster, client: kube.Client, tmp_path: Path, backends: None
) -> None:
    port = free_port()
    other = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {
            "gatewayClassName": "gatehouse-nginx",
            "listeners": [{"name": "http", "port": free_port(), "protocol": "HTTP"}],
        },
    }
    async with cluster.controller():
        await apply(client, [*on_port(port), other])
        await give_address(client, "web")
        theirs = cluster.environment(tmp_path, "pod-web", await token(client, "web", "pod-web"))
        async with agent(theirs, tmp_path / "agent.log"):
            await holds(client, "Gateway", "web", "Programmed")
            key = tmp_path / "root" / "current" / "gatehouse" / "http.conf"
            digest = base64_sha256(key.read_bytes())
            mine = await token(client, "other", "pod-other")
            async with claimant(
                cluster.port, cluster.state.pki.ca().cert, controller_options.SERVER_NAME, mine
            ) as stranger:
                await stranger.connect(owner_name=f"default_other-{SUFFIX}")
                for _ in range(50):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await stranger.file(digest)
                    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stranger.connect(owner_name=f"default_web-{SUFFIX}")
                assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED

            async def told() -> list[dict[str, Any]]:
                result = (await client.list(resources.EVENTS, "default")).items
                events = [dict(event) for event in result if event["reason"] == "UnauthorizedAgent"]
                counts = [event["count"] for event in events]
                return events if sorted(counts) == [1, 50] else []

            events = await until(told)
            assert {event["type"] for event in events} == {"Warning"}
            assert {
                (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["message"])
                for event in events
            } == {
                (
                    "Gateway",
                    "web",
                    "Pod default/pod-other of Gateway default/other asked for a file of this one, "
                    "and was refused.",
                ),
                (
                    "Gateway",
                    "other",
                    "Pod default/pod-other claimed to be a Pod of another Gateway, "
                    "and was refused.",
                ),
            }


@pytest.mark.long
async def test_traffic_continues_with_invalid_token_and_changes_wait_for_a_valid_one(
    cluster: Cluster,
    client: kube.Client,
    tmp_path: Path,
    backends: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_auth, "REVIEW_TTL_SECONDS", 0.2)
    port = free_port()
    monkeypatch.setattr(installation, "PORT", port)
    log = tmp_path / "agent.log"
    async with cluster.controller():
        await apply(client, on_port(port))
        await give_address(client, "web")
        # Long-lived, and bound to no Pod.
        good = await token(client, "web")
        bound = await token(client, "web", "pod-gone")
        await client.delete(resources.PODS, "pod-gone", "default")
        bad = {
            "expired": await expired(client, good),
            "of-another-audience": await token(client, "web", audience="another"),
            "revoked": bound,
        }
        async with agent(cluster.environment(tmp_path, "web-1", good), log):
            await holds(client, "Gateway", "web", "Programmed")
            async with traffic("127.0.0.1") as answers:
                for name, text in bad.items():
                    log_size = log.stat().st_size
                    (tmp_path / "token").write_text(text)
                    await last(0.3)
                    await client.create(resources.HTTP_ROUTES, route(name, f"/{name}"))

                    async def refused(name: str = name) -> bool:
                        gateway = await client.get(resources.GATEWAYS, "web", "default")
                        conditions = str(gateway.get("status", {}).get("conditions"))
                        return "could not be fetched: UNAUTHENTICATED" in conditions

                    await until(refused)
                    assert (await get("127.0.0.1", "/")) == (200, "app"), log.read_text()[log_size:]
                    (tmp_path / "token").write_text(good)
                    await holds(client, "HTTPRoute", name, "Accepted")

                    async def served(name: str = name) -> bool:
                        return await get("127.0.0.1", f"/{name}") == (200, "app")

                    await until(served)
                    await holds(client, "Gateway", "web", "Programmed")
            assert answers.keys() == {"200"}


async def test_changed_ca_file_is_distributed_to_data_planes(
    cluster: Cluster, client: kube.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "CA_POLL_SECONDS", 0.05)
    original, reads = controller_options.read_ca_certificates, list[Path]()

    def read(file: Path) -> str:
        reads.append(file)
        return original(file)

    monkeypatch.setattr(controller, "read_ca_certificates", read)

    async def handed() -> str:
        with contextlib.suppress(kube.NotFound):
            name = f"web-{SUFFIX}-agent"
            config_map = await client.get(resources.CONFIG_MAPS, name, "default")
            return str(config_map["data"]["ca.crt"])
        return ""

    first = cluster.ca.read_text()
    second = Authority(cluster.state.directory).pem.decode()
    async with cluster.controller():
        await apply(client, hello())
        assert await until(handed) == first
        # Half-written, which is nothing to be handed on.
        cluster.ca.write_text(second[:100])
        # It would be distributed meanwhile.
        target = len(reads) + 4
        await until(lambda: len(reads) >= target)
        assert await handed() == first
        cluster.ca.write_text(first + second)

        async def both() -> bool:
            return await handed() == first + second

        await until(both)


@contextlib.contextmanager
def _controller_process(cluster: Cluster, *more: str) -> Iterator[None]:
    pair = cluster.state.pki.leaf(pki.CHANNEL)
    address = f"127.0.0.1:{cluster.port}"
    command = (
        *(sys.executable, "-m", "gatehouse", "controller"),
        *(
            "--kubeconfig",
            str(cluster.state.controller_kubeconfig),
            "--agent-ca-file",
            str(cluster.ca),
        ),
        *("--agent-bind-address", address, "--agent-advertise-address", address),
        *("--tls-cert-file", str(pair.cert), "--tls-private-key-file", str(pair.key)),
        *more,
    )
    process = subprocess.Popen(command, env=dict(os.environ))
    try:
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


async def test_agent_channel_requires_tls_1_3(cluster: Cluster) -> None:
    async def shake(version: ssl.TLSVersion) -> str:
        context = ssl.create_default_context(cafile=str(cluster.state.pki.ca().cert))
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2"])
        _, writer = await asyncio.open_connection(
            "127.0.0.1", cluster.port, ssl=context, server_hostname=controller_options.SERVER_NAME
        )
        result: str = writer.get_extra_info("ssl_object").version()
        writer.close()
        return result

    with _controller_process(cluster):

        async def listening() -> bool:
            with contextlib.suppress(ConnectionRefusedError):
                return await shake(ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
            return False

        await until(listening)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await shake(ssl.TLSVersion.TLSv1_2)
        assert await listening()


async def test_controller_with_client_ca_rejects_agents_without_certificate(
    cluster: Cluster,
) -> None:
    trusted = cluster.state.pki.ca().cert
    mine = cluster.state.pki.leaf(pki.NODE_CERTIFICATE)
    names = (("grpc.ssl_target_name_override", controller_options.SERVER_NAME),)

    async def verdict(*client_certificate: bytes) -> grpc.StatusCode:
        credentials = grpc.ssl_channel_credentials(trusted.read_bytes(), *client_certificate)
        target = f"127.0.0.1:{cluster.port}"
        async with grpc.aio.secure_channel(target, credentials, names) as channel:
            agent = Claimant(channel, "not a token", {})
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await agent.overview()
            return refused.value.code()

    with _controller_process(cluster, "--client-ca-file", str(trusted)):

        async def heard() -> bool:
            # With a certificate, the controller rejects the token instead.
            result = await verdict(mine.key.read_bytes(), mine.cert.read_bytes())
            return result == grpc.StatusCode.UNAUTHENTICATED

        await until(heard)
        assert await verdict() == grpc.StatusCode.UNAVAILABLE
