"""`gatehouse explain` and `gatehouse status` name why requests failed, without sending any."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from click import Command
from click.testing import CliRunner

from fakes.installation import PORT, Installation, address, apply, get, hello
from fakes.installation_fixtures import shared_installation as installation
from fakes.kinds import resource_of
from fakes.loopback import free_port
from fakes.patience import until
from fakes.request_causes import endpoints, http_route, service, to
from gatehouse.apis import resources
from gatehouse.cli.explain import explain
from gatehouse.cli.status import status
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process


CLASSES = ["gatehouse-nginx", "gatehouse-envoy"]

TLS_ALERT = bytes.fromhex("15030100020246")


@pytest.fixture
async def speaking() -> AsyncIterator[dict[str, int]]:
    """Ports of endpoints with the answer of each to a client of the other protocol."""
    answers = {"plain": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "tls": TLS_ALERT}

    def answering(data: bytes) -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                await reader.read(1 << 16)
                writer.write(data)
                await writer.drain()
            writer.close()

        return answer

    async with contextlib.AsyncExitStack() as stack:
        ports = {"refused": free_port()}
        for name, data in answers.items():
            server = await asyncio.start_server(answering(data), "127.0.0.1", 0)
            await stack.enter_async_context(server)
            ports[name] = server.sockets[0].getsockname()[1]
        yield ports


def tls_policy(service_name: str) -> dict[str, Any]:
    target = {"group": "", "kind": "Service", "name": service_name}
    validation = {"hostname": "a.example", "wellKnownCACertificates": "System"}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
        "metadata": {"name": service_name, "namespace": "default"},
        "spec": {"targetRefs": [target], "validation": validation},
    }  # fmt: skip


REFUSED = "reason connection_failure: the endpoint refused or closed the connection"
HANDSHAKE = ": the TLS handshake failed. Check that the port of the endpoint speaks TLS"
PROTOCOL = "reason backend_protocol: the endpoint speaks another protocol"


@pytest.mark.parametrize("class_name", CLASSES)
async def test_reasons_of_failed_requests_are_in_the_output(
    installation: Installation, client: kube.Client, class_name: str, speaking: dict[str, int]
) -> None:
    """A refused connection, TLS to a plain port and plain HTTP to a port with TLS."""
    expected = {"refused": REFUSED, "plain": HANDSHAKE, "tls": PROTOCOL}
    objects = [tls_policy("plain")]
    for name, port in speaking.items():
        backend = endpoints(name, "127.0.0.1", port)
        objects += [service(name), backend, http_route(name, to(name))]
    await apply(client, [*hello(class_name), *objects])
    where = await address(client)
    words = ("--kubeconfig", str(installation.kubeconfig))

    async def fails(name: str) -> bool:
        try:
            return (await get(where, Host=f"{name}.example"))[0] in (502, 503)
        except aiohttp.ClientResponseError:
            # NGINX forwards a response that is no HTTP as it is.
            return True
        except OSError:
            return False

    async def output(command: Command, *more: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, command, [*more, *words])
        return result.output

    async def is_named(name: str) -> bool:
        url = f"http://{name}.example:{PORT}/"
        explained = await output(explain, url, "--gateway", "default/web")
        report = await output(status, "default/web")
        lines = [
            [line for line in text.splitlines() if f"Service default/{name}: " in line]
            for text in (explained, report)
        ]
        return all(any(expected[name] in line for line in own) for own in lines)

    for name in expected:
        await until(functools.partial(fails, name))
        await until(functools.partial(is_named, name))
    for item in (*objects, *hello(class_name)[:1]):
        await client.delete(resource_of(item["kind"]), item["metadata"]["name"], "default")


@pytest.mark.parametrize("class_name", CLASSES)
async def test_port_in_use_is_named_until_it_is_free(
    installation: Installation, client: kube.Client, class_name: str
) -> None:
    """The data plane tries the port again without any action of an operator."""
    await apply(client, hello(class_name))
    where = await address(client)
    words = ("--kubeconfig", str(installation.kubeconfig))

    async def output(command: Command, *more: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, command, [*more, *words])
        return result.output

    gateway = await client.get(resources.GATEWAYS, "web", "default")
    listeners = [*gateway["spec"]["listeners"], {"name": "more", "port": 8099, "protocol": "HTTP"}]
    taken = await asyncio.start_server(lambda _, writer: writer.close(), where, 8099)
    async with taken:
        await client.patch(resources.GATEWAYS, "web", {"spec": {"listeners": listeners}}, "default")

        printed: list[str] = []

        async def is_named() -> bool:
            url = "http://any.example:8099/"
            printed[:] = await output(status, "--problems"), await output(explain, url)
            problems, explained = printed
            lines = [line for line in problems.splitlines() if " listener more: " in line]
            lines.append(explained.partition("\n")[0].removeprefix("no answer: "))
            return len(lines) == 2 and all(
                line.startswith("Gateway default/web")
                and " listener more: " in line
                and f"{where}:8099" in line
                and re.search("Address (already )?in use", line) is not None
                for line in lines
            )

        await until(is_named, lambda: "\n".join(printed))

    async def is_served() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{where}:8099/") as response,
            ):
                return response.status in (200, 502, 503)
        return False

    await until(is_served)

    async def is_healed() -> bool:
        return "8099" not in await output(status, "--problems")

    await until(is_healed)
    for item in hello(class_name)[:1]:
        await client.delete(resource_of(item["kind"]), item["metadata"]["name"], "default")
