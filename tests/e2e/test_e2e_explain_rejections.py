"""`gatehouse explain` agrees with NGINX about what NGINX rejected, and about gRPC calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner, Result

from fakes.installation import (
    BAD_SNIPPETS_FILTER,
    HOST_NET,
    Installation,
    apply,
    hello,
    holds,
    route,
)
from fakes.installation_fixtures import shared_installation as installation
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.cli.explain import explain
from gatehouse.cli.status import status
from gatehouse.kube import client as kube

__all__ = ["installation"]

pytestmark = pytest.mark.process

DEEP = f"/deep{'(' * 300}x{')' * 300}"
"""An expression that RE2 accepts and PCRE does not."""

GRPC_BACKEND = (f"{HOST_NET}.249", 9090)


async def run(installation: Installation, *words: str) -> Result:
    arguments = [*words, "--kubeconfig", str(installation.kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, explain, arguments)


async def first_line(installation: Installation, cause: str, *words: str, sent: str = "") -> Result:
    """Wait until the first line of an explanation has a text.

    ``sent``: start of the line about the response, which follows when the proxy has the change.
    """
    last = ""

    async def has_cause() -> Result | None:
        nonlocal last
        result = await run(installation, *words)
        last = result.output
        first, _, others = result.output.partition("\n")
        return result if cause in first and others.startswith(sent) else None

    try:
        result: Result = await until(has_cause)
    except TimeoutError:
        pytest.fail(last)
    return result


async def test_rejected_snippet_is_not_explained_as_forwarded(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    await holds(client, "Gateway", "web", "Programmed")
    reference = {"group": "gateway.nginx.org", "kind": "SnippetsFilter", "name": "bad"}
    filters = [{"type": "ExtensionRef", "extensionRef": reference}]
    await apply(client, [BAD_SNIPPETS_FILTER, route("bad", "/bad", filters=filters)])
    url = "http://any.example:8080/bad"
    answer = "Sent:      500, as expected"
    result = await first_line(
        installation, "SnippetsFilter default/bad: rejected by", url, "--send", sent=answer
    )
    assert result.output.startswith("500: rules[0].filters[0]: SnippetsFilter default/bad")
    assert "not_a_directive" in result.output.partition("\n")[0]
    assert result.exit_code == 3

    async def recorded() -> bool:
        events = (await client.list(resources.EVENTS, "default")).items
        return any(
            event["involvedObject"]["kind"] == "HTTPRoute"
            and event["involvedObject"]["name"] == "bad"
            and event["reason"] == "InvalidFilter"
            and "ResolvedRefs is False: rules[0].filters[0]" in event["message"]
            for event in events
        )

    await until(recorded)


async def test_rejected_policy_with_snippets_is_named_by_status(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    """Requests go on without the policy, so that only the status shows the fault."""
    await apply(client, hello())
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    bad: dict[str, Any] = BAD_SNIPPETS_FILTER
    spec = {**bad["spec"], "targetRefs": [target]}
    policy = {**bad, "kind": "SnippetsPolicy", "spec": spec}
    await apply(client, [policy])
    words = ["--problems", "--kubeconfig", str(installation.kubeconfig)]
    output = ""

    async def is_named() -> bool:
        nonlocal output
        output = (await asyncio.to_thread(CliRunner().invoke, status, words)).output
        return any(
            line.startswith("SnippetsPolicy default/bad")
            and "rejected by nginx/" in line
            and "not_a_directive" in line
            for line in output.splitlines()
        )

    try:
        await until(is_named)
    except TimeoutError:
        pytest.fail(output)


async def test_match_that_nginx_lacks_is_not_explained_as_forwarded(
    installation: Installation, client: kube.Client, backends: None
) -> None:
    await apply(client, hello())
    item = route("pattern", "/x")
    item["spec"]["rules"][0]["matches"] = [{"path": {"type": "RegularExpression", "value": DEEP}}]
    item["spec"]["hostnames"] = ["pattern.example"]
    await apply(client, [item])
    url = "http://pattern.example:8080/deepx"
    answer = "Sent:      404, as expected"
    result = await first_line(installation, "not valid for NGINX", url, "--send", sent=answer)
    assert result.output.startswith("500, 404: rules[0]: path: regular expression is not valid")


@pytest.fixture
async def grpc_backend() -> AsyncIterator[None]:
    """Serve the gRPC method shop.Api/Get."""

    async def answer(request: bytes, _: Any) -> bytes:
        return request

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("shop.Api", {"Get": handler}),)
    )
    server.add_insecure_port(f"{GRPC_BACKEND[0]}:{GRPC_BACKEND[1]}")
    await server.start()
    yield
    with contextlib.suppress(asyncio.CancelledError):
        await server.stop(0)


async def test_grpc_call_is_sent_and_compared(
    installation: Installation, client: kube.Client, backends: None, grpc_backend: None
) -> None:
    await apply(client, hello())
    # Their hostnames conflict with every GRPCRoute.
    for item in (await client.list(resources.HTTP_ROUTES, "default")).items:
        await client.delete(resources.HTTP_ROUTES, item["metadata"]["name"], "default")
    ports = [{"name": "calls", "port": 90, "targetPort": GRPC_BACKEND[1]}]
    service = {
        "kind": "Service", "metadata": {"name": "calls", "namespace": "default"},
        "spec": {"ports": ports},
    }  # fmt: skip
    endpoints = {
        "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "calls-1", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "calls"},
        },
        "ports": [{"name": "calls", "port": GRPC_BACKEND[1], "protocol": "TCP"}],
        "endpoints": [{"addresses": [GRPC_BACKEND[0]], "conditions": {"ready": True}}],
    }  # fmt: skip
    calls = route("calls", "/", "calls")
    calls["kind"] = "GRPCRoute"
    calls["spec"] |= {
        "hostnames": ["calls.example"],
        "rules": [
            {"matches": [{"method": {"service": "shop.Api"}}],
             "backendRefs": [{"name": "calls", "port": 90}]}
        ],
    }  # fmt: skip
    await apply(client, [service, endpoints, calls])
    await holds(client, "GRPCRoute", "calls", "Accepted")
    await holds(client, "Gateway", "web", "Programmed")
    url = "http://calls.example:8080/shop.Api/Get"

    async def agrees() -> bool:
        result = await run(installation, "POST", url, "--send")
        forwarded = result.output.startswith("forwarded to Service default/calls:90")
        sent = "Sent:      gRPC status OK, as expected" in result.output
        return forwarded and sent and result.exit_code == 0

    await until(agrees)
    other = "http://calls.example:8080/shop.Api/Put"
    missing = await run(installation, "POST", other, "--send")
    assert "Sent:      gRPC status UNIMPLEMENTED, as expected" in missing.output
    call = ("-H", "content-type: application/grpc", "--send")
    unmatched = await run(installation, "POST", "http://calls.example:8080/other.Api/Get", *call)
    assert unmatched.output.startswith("404 (gRPC status UNIMPLEMENTED): ")
    assert "Sent:      gRPC status UNIMPLEMENTED, as expected" in unmatched.output
