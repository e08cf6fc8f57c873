"""InferencePools of an installation of each class: requests, endpoint pickers and Pods."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import yaml
from envoy.config.core.v3 import base_pb2

from fakes.authority import Authority
from fakes.endpoint_pickers import DESTINATION, Picker, picking
from fakes.http2_models import Http2Models
from fakes.installation import HOST_NET, PORT, address, apply, hello, holds
from fakes.installation_fixtures import backends, client
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import SECONDS, until
from fakes.served_pools import (
    MODEL_PORT,
    OTHER,
    PICKER_HOST,
    PODS,
    POOLS,
    answers,
    ask,
    endpoint,
    models,
    picker_service,
    pool,
    route,
    run_pod,
    services,
)
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["backends", "client", "installation", "models"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=["gatehouse-envoy", "gatehouse-nginx"])
def gateway_class(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[bytes, bytes]:
    certificate, key = Authority(tmp_path).issue("picker")
    return key.read_bytes(), certificate.read_bytes()


async def test_picker_chooses_the_pod_of_each_request(
    client: kube.Client,
    gateway_class: str,
    backends: None,
    models: None,
    pair: tuple[bytes, bytes],
) -> None:
    picker = Picker(endpoint("a"))
    await apply(client, hello(gateway_class))
    for name in ("a", "b"):
        await run_pod(client, name, PODS[name], "one")
    await run_pod(client, "other", OTHER, "other")
    async with picking(picker, PICKER_HOST, pair) as port:
        await apply(client, picker_service("picker", port))
        await apply(client, [pool("one", "one", {"name": "picker"}), route("r", "/r", ("one", 1))])
        where = await address(client)
        await answers(where, "/r", (200, "a"))
        await answers(where, "/r", (200, "b"), {"X-Pick": endpoint("b")})
        # A body of several chunks.
        body = json.dumps({"model": "m", "prompt": "x" * 300_000}).encode()
        for name in ("a", "b"):
            assert await ask(where, "/r", {"X-Pick": endpoint(name)}, body) == (200, name)
            assert picker.exchanges[-1].body == body
        async with aiohttp.ClientSession() as session:
            url = f"http://{where}:{PORT}/r"
            async with session.get(url, headers={"X-Pick": endpoint("b")}) as response:
                assert response.headers["X-Backend"] == "b"
                sent = await response.read()
            await until(lambda: picker.exchanges[-1].response == sent)
            assert picker.exchanges[-1].status == "200"
            assert picker.exchanges[-1].served == endpoint("b")
            assert not [name for name in response.headers if name.lower().startswith("x-gh-")]

        # The second of a list is for retries; others than Pods of the pool are never used.
        foreign = f"{OTHER}:{MODEL_PORT}"
        assert await ask(where, "/r", {"X-Pick": f"{foreign},{endpoint('b')}"}) == (200, "b")
        for _ in range(10):
            status, server = await ask(where, "/r", {"X-Pick": foreign})
            assert (status, server) in [(200, "a"), (200, "b")]

        # A client does not choose, whatever the picker does.
        for _ in range(10):
            await ask(where, "/r", {DESTINATION: endpoint("b")})
            assert DESTINATION not in picker.exchanges[-1].headers
        got = Counter(
            [
                await ask(where, "/r", {"X-Pick": "none", DESTINATION: endpoint("b")})
                for _ in range(20)
            ]
        )
        assert got.keys() == {(200, "a"), (200, "b")}
        assert await ask(where, "/r", {"X-Pick": "429"}) == (429, "")
        picker.in_header_only = True
        for name in "abab":
            assert await ask(where, "/r", {"X-Pick": endpoint(name)}) == (200, name)
        # Requests of other routes are not sent to the picker.
        before = len(picker.exchanges)
        assert await ask(where, "/") == (200, "app")
        assert len(picker.exchanges) == before

        await client.delete(resources.PODS, "b", "default")
        await answers(where, "/r", (200, "a"), {"X-Pick": endpoint("b")})
    await answers(where, "/r", (503, ""))


async def test_picker_changes_header_fields_by_the_same_rules(
    client: kube.Client,
    gateway_class: str,
    backends: None,
    models: None,
    pair: tuple[bytes, bytes],
) -> None:
    picker = Picker(endpoint("a"))
    await apply(client, hello(gateway_class))
    await run_pod(client, "a", PODS["a"], "one")
    async with picking(picker, PICKER_HOST, pair) as port:
        await apply(client, picker_service("picker", port))
        await apply(client, [pool("one", "one", {"name": "picker"}), route("r", "/r", ("one", 1))])
        where = await address(client)
        await answers(where, "/r", (200, "a"))
        own = base_pb2.HeaderValueOption
        picker.options = [
            own(header=base_pb2.HeaderValue(key="x-set", raw_value=b"new")),
            own(
                header=base_pb2.HeaderValue(key="x-over", raw_value=b"new"),
                append_action=own.OVERWRITE_IF_EXISTS_OR_ADD,
            ),
            own(
                header=base_pb2.HeaderValue(key="x-absent", raw_value=b"new"),
                append_action=own.ADD_IF_ABSENT,
            ),
            own(header=base_pb2.HeaderValue(key="host", raw_value=b"evil.example")),
            own(header=base_pb2.HeaderValue(key=":path", raw_value=b"/changed?a=b")),
        ]
        sent = {"X-Set": "old", "X-Over": "old", "X-Absent": "old"}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{where}:{PORT}/r", headers=sent) as response,
        ):
            assert response.status == 200
            received = await response.json()
        headers = {key.lower(): value for key, value in received["headers"].items()}
        assert {headers[name] for name in ("x-set", "x-over", "x-absent")} == {"new"}
        assert "evil" not in headers["host"]
        assert received["path"] == "/changed?a=b"


async def test_pools_share_requests_by_weight_and_fail_as_they_say(
    client: kube.Client,
    gateway_class: str,
    backends: None,
    models: None,
    pair: tuple[bytes, bytes],
) -> None:
    await apply(client, hello(gateway_class))
    for name, app in (("a", "one"), ("b", "two"), ("c", "three")):
        await run_pod(client, name, PODS[name], app)
    await run_pod(client, "starting", OTHER, "three", ready=False)
    one, two = Picker(endpoint("a")), Picker(endpoint("b"))
    plain = {"appProtocol": "kubernetes.io/h2c"}
    async with picking(one, PICKER_HOST, pair) as first, picking(two, PICKER_HOST, None) as second:
        await apply(client, picker_service("one", first))
        await apply(client, picker_service("two", second, **plain))
        await apply(
            client,
            [
                pool("one", "one", {"name": "one"}),
                pool("two", "two", {"name": "two", "failureMode": "FailOpen"}),
                pool("three", "three", None),
                route("both", "/both", ("one", 70), ("two", 30)),
                route("open", "/open", ("two", 1)),
                route("closed", "/closed", ("one", 1)),
                route("none", "/none", ("three", 1)),
            ],
        )
        where = await address(client)
        for path, name in (("/both", "a"), ("/both", "b"), ("/open", "b"), ("/none", "c")):
            await answers(where, path, (200, name))
        one.exchanges.clear()
        two.exchanges.clear()
        got = Counter([await ask(where, "/both") for _ in range(100)])
        assert got.keys() == {(200, "a"), (200, "b")}
        assert 50 <= got[200, "a"] <= 90
        # Each pool has its own picker.
        assert (len(one.exchanges), len(two.exchanges)) == (got[200, "a"], got[200, "b"])
        assert {await ask(where, "/none") for _ in range(10)} == {(200, "c")}
    await answers(where, "/open", (200, "b"))
    for _ in range(5):
        assert await ask(where, "/closed") == (503, "")
        assert await ask(where, "/open", {DESTINATION: endpoint("a")}) == (200, "b")


async def test_picker_that_is_no_longer_ready_gets_no_request(
    client: kube.Client, backends: None, models: None
) -> None:
    await apply(client, hello("gatehouse-envoy"))
    for name in ("a", "b"):
        await run_pod(client, name, PODS[name], "moved")
    old, new = Picker(endpoint("a")), Picker(endpoint("b"))
    plain = {"appProtocol": "kubernetes.io/h2c"}
    async with picking(old, PICKER_HOST, None) as first, picking(new, PICKER_HOST, None) as second:
        await apply(client, picker_service("moved", first, **plain))
        moved = pool("moved", "moved", {"name": "moved"})
        await apply(client, [moved, route("moved", "/moved", ("moved", 1))])
        where = await address(client)
        await answers(where, "/moved", (200, "a"))
        # It accepts connections, as a Pod does that ends.
        await apply(client, picker_service("moved", second, **plain))
        failed = 0
        while (answer := await ask(where, "/moved")) != (200, "b"):
            failed += answer == (503, "")
        # Envoy uses the new one as soon as it accepts a connection: a second has hundreds.
        assert failed < 20
        assert {await ask(where, "/moved") for _ in range(20)} == {(200, "b")}


class Model(grpc.GenericRpcHandler):
    """A model server that speaks gRPC: it repeats the messages of a call."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(self.repeat)

    async def repeat(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request


@pytest.mark.parametrize("gateway_class", ["gatehouse-envoy"], scope="module", indirect=True)
async def test_calls_of_grpc_reach_the_picked_pod(
    client: kube.Client, gateway_class: str, backends: None, pair: tuple[bytes, bytes]
) -> None:
    picker, port = Picker(f"{PODS['b']}:{MODEL_PORT}"), MODEL_PORT
    # A GRPCRoute and an HTTPRoute of a Gateway cannot have a hostname in common.
    own = {**hello(gateway_class)[0], "metadata": {"name": "calls", "namespace": "default"}}
    await apply(client, [own])
    for name in ("a", "b"):
        await run_pod(client, name, PODS[name], "grpc")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Model(),))
    # Only one of the two serves.
    server.add_insecure_port(f"{PODS['b']}:{port}")
    await server.start()
    async with picking(picker, PICKER_HOST, pair) as picker_port:
        await apply(client, picker_service("picker", picker_port))
        reference = {"group": POOLS.group, "kind": POOLS.kind, "name": "grpc"}
        method = {"method": {"service": "m.Model", "method": "Ask"}}
        calls = {
            **resources.GRPC_ROUTES.type_meta,
            "metadata": {"name": "calls", "namespace": "default"},
            "spec": {
                "parentRefs": [{"name": "calls"}],
                "hostnames": ["models.example"],
                "rules": [{"matches": [method], "backendRefs": [reference]}],
            },
        }
        await apply(client, [pool("grpc", "grpc", {"name": "picker"}), calls])
        programmed = await holds(client, "Gateway", "calls", "Programmed")
        where = programmed["addresses"][0]["value"]
        options = [("grpc.default_authority", "models.example")]
        async with grpc.aio.insecure_channel(f"{where}:{PORT}", options=options) as channel:
            repeat: Any = channel.stream_stream("/m.Model/Ask")

            async def is_repeated() -> bool:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    answer = [part async for part in repeat(iter([b"one", b"two"]))]
                    return answer == [b"one", b"two"]
                return False

            await until(is_repeated)
            for _ in range(5):
                assert await is_repeated()
    await server.stop(0)
    assert picker.exchanges[-1].headers["content-type"] == "application/grpc"
    assert picker.exchanges[-1].served == f"{PODS['b']}:{port}"


async def test_pool_with_http_2_gets_it_from_both_classes(
    client: kube.Client, gateway_class: str, backends: None, pair: tuple[bytes, bytes]
) -> None:
    servers = Http2Models()
    await apply(client, hello(gateway_class))
    for name in ("a", "b"):
        await run_pod(client, name, PODS[name], "two")
    async with (
        servers.serve_at({name: (PODS[name], MODEL_PORT) for name in ("a", "b")}),
        picking(Picker(endpoint("a")), PICKER_HOST, pair) as port,
    ):
        await apply(client, picker_service("picker", port))
        two = pool("two", "two", {"name": "picker"})
        two["spec"]["appProtocol"] = "kubernetes.io/h2c"
        await apply(client, [two, route("two", "/two", ("two", 1))])
        where = await address(client)

        async def is_repeated(name: str) -> bool:
            url, sent = f"http://{where}:{PORT}/two", b"x" * 200_000
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, data=sent, headers={"X-Pick": endpoint(name)}) as response,
            ):
                return (response.headers.get("x-model"), await response.read()) == (name, sent)

        for name in ("a", "b"):
            await until(functools.partial(is_repeated, name))


EXAMPLE = Path(__file__).parents[2] / "examples" / "inference"


@contextlib.contextmanager
def program(name: str, *arguments: str) -> Iterator[None]:
    """Run a program of the example."""
    process = subprocess.Popen([sys.executable, str(EXAMPLE / name), *arguments])
    try:
        yield
    finally:
        process.kill()
        process.wait(SECONDS)


async def conversation(where: str, *contents: str) -> tuple[str, str, int]:
    """Return the server of a streamed answer, its text, and the number of parts that came."""
    messages = [{"role": "user", "content": content} for content in contents]
    text, parts = "", 0
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"http://{where}:{PORT}/v1/chat/completions",
            json={"model": "chat", "messages": messages, "stream": True},
        ) as response,
    ):
        assert response.status == 200
        async for part in response.content.iter_any():
            text += part.decode()
            parts += 1
        return response.headers["X-Model-Server"], text, parts


async def test_example_streams_answers_of_one_server_for_each_conversation(
    client: kube.Client, gateway_class: str
) -> None:
    servers = {"127.0.0.11": f"{HOST_NET}.236", "127.0.0.12": f"{HOST_NET}.237"}
    text = (EXAMPLE / "pool.yaml").read_text().replace("gatehouse-envoy", gateway_class)
    for written, host in {**servers, "127.0.0.1\n": f"{PICKER_HOST}\n"}.items():
        text = text.replace(written, host)
    manifests = list(yaml.safe_load_all(text))
    endpoints = [f"{host}:8000" for host in servers.values()]
    with (
        program("models.py", *endpoints),
        program("picker.py", f"{PICKER_HOST}:9002", *endpoints),
    ):
        await apply(client, manifests)
        for manifest in manifests:
            if manifest["kind"] == "Pod":
                name, status = manifest["metadata"]["name"], {"status": manifest["status"]}
                await client.patch(resources.PODS, name, status, "default", subresource="status")
        programmed = await holds(client, "Gateway", "models", "Programmed")
        where = programmed["addresses"][0]["value"]

        async def is_served() -> bool:
            """Return whether both servers answer: the Pods may be known one after the other."""
            with contextlib.suppress(AssertionError, aiohttp.ClientError):
                talks = [await conversation(where, f"talk {number}") for number in range(8)]
                return {talk[0] for talk in talks} == {*endpoints}
            return False

        await until(is_served)
        chosen = set()
        for number in range(8):
            answers = [
                await conversation(where, f"talk {number}"),
                await conversation(where, f"talk {number}", "one two three four five"),
            ]
            assert answers[0][0] == answers[1][0]
            assert answers[1][1].count("data: ") == 6
            # The words come one by one, and not at the end.
            assert answers[1][2] >= 3
            chosen.add(answers[0][0])
        assert chosen == {*endpoints}


async def _has_services(client: kube.Client, number: int) -> bool:
    return len(await services(client)) == number


async def test_service_of_a_pool_exists_while_a_route_refers_to_it(
    client: kube.Client, gateway_class: str, backends: None, models: None
) -> None:
    await apply(client, hello(gateway_class))
    await run_pod(client, "a", PODS["a"], "alone")
    await apply(client, [pool("alone", "alone", None)])
    await apply(client, [route("alone", "/alone", ("alone", 1))])
    where = await address(client)
    await answers(where, "/alone", (200, "a"))
    (service,) = [
        one for one in await services(client) if one["spec"]["selector"] == {"app": "alone"}
    ]
    assert service["spec"]["clusterIP"] == "None"
    (port,) = service["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (MODEL_PORT, MODEL_PORT)

    number = len(await services(client))
    await client.delete(resources.SERVICES, service["metadata"]["name"], "default")
    await until(lambda: _has_services(client, number))
    await answers(where, "/alone", (200, "a"))

    ports = {"targetPorts": [{"number": MODEL_PORT}, {"number": MODEL_PORT + 1}]}
    await client.patch(POOLS, "alone", {"spec": ports}, "default")

    async def has_ports() -> bool:
        read = await client.get(resources.SERVICES, service["metadata"]["name"], "default")
        return [one["port"] for one in read["spec"]["ports"]] == [MODEL_PORT, MODEL_PORT + 1]

    await until(has_ports)
    await client.patch(
        POOLS, "alone", {"spec": {"targetPorts": [{"number": MODEL_PORT}]}}, "default"
    )
    await answers(where, "/alone", (200, "a"))

    labels = {"selector": {"matchLabels": {"app": "alone", "tier": "none"}}}
    await client.patch(POOLS, "alone", {"spec": labels}, "default")
    await answers(where, "/alone", (503, ""))
    await client.delete(resources.HTTP_ROUTES, "alone", "default")
    await until(lambda: _has_services(client, number - 1))
