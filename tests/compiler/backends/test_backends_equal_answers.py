"""Both proxies give the same answer where HTTP or Gateway API leave a choice."""

from __future__ import annotations

import asyncio
import functools
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from differential import proxies
from differential.proxies import PORT, Runner
from fakes import patience
from fakes.authorized_traffic import served, values
from fakes.one_route import BACKEND
from fakes.served_objects import HOSTNAMES

pytestmark = pytest.mark.process

RUNNERS = [
    pytest.param(
        functools.partial(proxies.with_nginx, modules=("http_auth_request_module",)), id="nginx"
    ),
    pytest.param(proxies.with_envoy, id="envoy"),
]
RULE = {"backendRefs": [BACKEND]}
RETRY_HEADER = "x-envoy-retry-on"


async def exchange(address: str, lines: str, method: str = "GET") -> tuple[int, Any]:
    """Send a request with these header lines. Return the status, and what the backend received."""
    reader, writer = await asyncio.open_connection(address, PORT)
    text = f"{method} /a HTTP/1.1\r\n{lines}Connection: close\r\n\r\n"
    writer.write(text.encode())
    async with patience.limit():
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    first, last = body.find(b'{"service"'), body.rfind(b"}")
    echo = msgspec.json.decode(body[first : last + 1]) if first >= 0 else None
    return int(head.split()[1]), echo


@pytest.mark.parametrize("runner", RUNNERS)
async def test_hostname_of_rewrite_precedes_host_of_header_modifier(
    runner: Runner, tmp_path: Path
) -> None:
    """HTTPURLRewriteFilter.hostname replaces the Host header "during forwarding"."""
    filters = [
        {"type": "URLRewrite", "urlRewrite": {"hostname": "rewrite.example"}},
        {
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {"set": [{"name": "Host", "value": "modifier.example"}]},
        },
    ]
    async with served(runner, tmp_path, 0, {**RULE, "filters": filters}) as proxy:
        _, _, echo = await proxy.send("/a")
        assert values(echo, "host") == ["rewrite.example"]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_request_with_two_hosts_is_rejected(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """RFC 9112, 3.2: a server "MUST respond with a 400" to more than one Host line."""
    async with served(runner, tmp_path, 0, RULE, hostnames=hostnames) as proxy:
        firsts = ("a.example", f"a.example:{PORT}", "A.example", "a.example.", f"A.example:{PORT}")
        pairs = itertools.product(firsts, ("b.example", f"b.example:{PORT}", "a.example"))
        two = [f"Host: {first}\r\nHost: {second}\r\n" for first, second in pairs]
        answers = await asyncio.gather(*(exchange(proxy.address, lines) for lines in two))
        assert dict(zip(two, answers, strict=True)) == dict.fromkeys(two, (400, None))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("host", ["a.example.", f"a.example.:{PORT}"])
async def test_host_with_final_dot_is_the_same_name(
    runner: Runner, tmp_path: Path, host: str
) -> None:
    """RFC 1034, 3.1: the final dot ends a complete name."""
    async with served(runner, tmp_path, 0, RULE, hostnames=("a.example",)) as proxy:
        assert (await exchange(proxy.address, f"Host: {host}\r\n"))[0] == 200
        assert (await exchange(proxy.address, "Host: b.example.\r\n"))[0] == 404


@pytest.mark.parametrize("runner", RUNNERS)
async def test_header_of_40_kilobytes_is_passed_on(runner: Runner, tmp_path: Path) -> None:
    value = "a" * 40_000
    async with served(runner, tmp_path, 0, RULE) as proxy:
        status, echo = await exchange(proxy.address, f"Host: a.example\r\nX-Long: {value}\r\n")
        assert (status, values(echo, "x-long")) == (200, [value])


class ClosingBackend:
    """A backend that answers the first request of a connection, and closes it on the second."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.heads: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for first in (True, False):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head.lower())
            self.methods.append(head.split()[0].decode())
            if first:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_safe_request_survives_the_end_of_an_idle_connection(
    runner: Runner, tmp_path: Path, method: str, hostnames: tuple[str, ...]
) -> None:
    """RFC 9110, 9.2.2: a proxy may repeat idempotent requests if the connection ends."""
    backend = ClosingBackend()
    async with served(
        runner, tmp_path, 0, RULE, hostnames=hostnames, answer=backend.answer
    ) as proxy:
        statuses = [(await proxy.send("/a", method))[0] for _ in range(6)]
    assert statuses == [200] * 6
    assert backend.methods.count(method) > 6, "no connection was closed"
    assert not any(RETRY_HEADER.encode() in head for head in backend.heads)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_post_is_not_repeated_after_the_end_of_its_connection(
    runner: Runner, tmp_path: Path, hostnames: tuple[str, ...]
) -> None:
    """RFC 9110, 9.2.2: "A proxy MUST NOT automatically retry non-idempotent requests."."""
    backend = ClosingBackend()
    async with served(
        runner, tmp_path, 0, RULE, hostnames=hostnames, answer=backend.answer
    ) as proxy:
        statuses = [(await proxy.send("/a", "POST", b"body"))[0] for _ in range(6)]
    assert len(backend.methods) == 6
    assert {200} < set(statuses) <= {200, 502, 503}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_client_cannot_ask_for_retries(
    runner: Runner, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    backend = ClosingBackend()
    async with served(
        runner, tmp_path, 0, RULE, hostnames=hostnames, answer=backend.answer
    ) as proxy:
        for _ in range(6):
            await proxy.send("/a", "POST", b"body", X_Envoy_Retry_On="reset")
    assert len(backend.methods) == 6


@pytest.mark.parametrize("runner", RUNNERS)
async def test_encoded_line_end_is_part_of_the_path(runner: Runner, tmp_path: Path) -> None:
    """A pattern for a whole path does not hold for one that continues behind a line end."""
    expression = {"path": {"type": "RegularExpression", "value": "/[a-z]+"}}
    async with served(runner, tmp_path, 0, {**RULE, "matches": [expression]}) as proxy:
        assert [(await proxy.send(path))[0] for path in ("/a", "/a%0A", "/a%0Ab")] == [
            200,
            404,
            404,
        ]


@pytest.mark.parametrize("runner", RUNNERS)
async def test_regular_expression_precedes_prefixes(runner: Runner, tmp_path: Path) -> None:
    """Also if the prefix is longer, or all paths have it. An exact path precedes both."""

    def rule(kind: str, value: str) -> dict[str, Any]:
        edit = {"set": [{"name": "X-Rule", "value": f"{kind} {value}"}]}
        filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": edit}]
        return {**RULE, "matches": [{"path": {"type": kind, "value": value}}], "filters": filters}

    rules = {
        "/": rule("PathPrefix", "/"),
        "/items/long/name": rule("PathPrefix", "/items/long"),
        "/items/7": rule("RegularExpression", "/items/[0-9]+"),
        "/items/long/7": rule("RegularExpression", "/i.*[0-9]"),
        "/items/8": rule("Exact", "/items/8"),
    }
    async with served(runner, tmp_path, 0, *rules.values()) as proxy:
        for path, expected in rules.items():
            _, _, echo = await proxy.send(path)
            (edit,) = expected["filters"]
            (header,) = edit["requestHeaderModifier"]["set"]
            assert values(echo, "x-rule") == [header["value"]], path


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("backoff", [{}, {"backoff": "1ms"}], ids=["at once", "with pause"])
async def test_every_attempt_has_the_path_rewritten_once(
    runner: Runner, backoff: dict[str, str], tmp_path: Path
) -> None:
    paths: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            paths.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    change = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/p/x"}
    rule = {
        **RULE,
        "matches": [{"path": {"value": "/p"}}],
        "retry": {"attempts": 2, "codes": [503], **backoff},
        "filters": [{"type": "URLRewrite", "urlRewrite": {"path": change}}],
    }
    async with served(runner, tmp_path, 0, rule, answer=answer) as proxy:
        assert (await proxy.send("/p/a?q"))[0] == 503
    assert paths == [b"/p/x/a?q"] * 3
