"""Property of both back ends: what the compiler accepts of hostile objects, the proxies accept.

Each object has one hostile text in one field that may reach the configuration of a proxy. Many
tenants with such objects share a Gateway, so that one test of a proxy covers all of them.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fakes.hostile_gateway import compiled, rejected_by_envoy, rejected_by_nginx
from fakes.hostile_patterns import PATTERNS
from fakes.hostile_tenants import Tenant, tenant_of
from fakes.short_objects import (
    BACKEND,
    Object,
    backend_tls,
    basic,
    claims,
    client,
    cors,
    external,
    filtered,
    full_path,
    grpc,
    header,
    jwt,
    limit,
    listener,
    modified,
    named,
    path,
    prefix_path,
    proxy,
    query,
    route,
    session,
    slice_of,
    tls,
    traced,
    upstream,
)
from gatehouse.cli.check_proxies import NginxTest
from gatehouse.compiler.frontends import gateway_api


def _header_changes() -> dict[str, Callable[[str], list[Object]]]:
    result: dict[str, Callable[[str], list[Object]]] = {}
    for direction in ("request", "response"):
        for change in ("set", "add"):
            name = f"{direction} header {change}"
            result[f"{name}: name"] = lambda text, c=change, d=direction: modified(  # type: ignore[misc]
                c, named(text), direction=d
            )
            result[f"{name}: value"] = lambda text, c=change, d=direction: modified(  # type: ignore[misc]
                c, named("X-A", text), direction=d
            )
        result[f"{direction} header remove"] = lambda text, d=direction: modified(  # type: ignore[misc]
            "remove", text, direction=d
        )
    return result


def encoded(text: str) -> str:
    """Return a text as a value of a Secret."""
    return base64.b64encode(text.encode()).decode()


FIELDS: dict[str, Callable[[str], list[Object]]] = {
    "hostname": lambda text: route(hostnames=[text]),
    "path": lambda text: path("/" + text, "Exact"),
    "path prefix": lambda text: path("/" + text, "PathPrefix"),
    "path pattern": path,
    "path pattern below": lambda text: path("/" + text),
    "header name": lambda text: header(text, "v"),
    "header value": lambda text: header("x-a", text),
    "header pattern": lambda text: header("x-a", text, "RegularExpression"),
    "parameter name": lambda text: query(text, "v"),
    "parameter value": lambda text: query("q", text),
    "parameter pattern": lambda text: query("q", text, "RegularExpression"),
    **_header_changes(),
    "redirect hostname": lambda text: filtered("RequestRedirect", {"hostname": text}),
    "redirect path": lambda text: filtered("RequestRedirect", full_path("/" + text)),
    "redirect prefix": lambda text: filtered("RequestRedirect", prefix_path("/" + text)),
    "rewrite hostname": lambda text: filtered("URLRewrite", {"hostname": text}),
    "rewrite path": lambda text: filtered("URLRewrite", full_path("/" + text)),
    "rewrite path without slash": lambda text: filtered("URLRewrite", full_path(text)),
    "rewrite prefix": lambda text: filtered("URLRewrite", prefix_path("/" + text)),
    "cors origin": lambda text: cors(allowOrigins=[text]),
    "cors origin of a scheme": lambda text: cors(allowOrigins=["https://" + text]),
    "cors headers": lambda text: cors(allowHeaders=[text]),
    "cors exposed": lambda text: cors(exposeHeaders=[text]),
    "session header": session,
    "session cookie": lambda text: session(text, "Cookie"),
    "session time": lambda text: session("a", "Cookie", absoluteTimeout=text),
    "timeout": lambda text: route({"timeouts": {"request": text}}),
    "retry pause": lambda text: route({"retry": {"attempts": 1, "backoff": text}}),
    "grpc service": lambda text: grpc({"method": {"service": text}}),
    "grpc method": lambda text: grpc({"method": {"service": "a", "method": text}}),
    "grpc service pattern": lambda text: grpc(
        {"method": {"type": "RegularExpression", "service": text}}
    ),
    "grpc method pattern": lambda text: grpc(
        {"method": {"type": "RegularExpression", "service": "a", "method": text}}
    ),
    "grpc header": lambda text: grpc({"headers": [named("x-a", text)]}),
    "grpc header pattern": lambda text: grpc(
        {"headers": [named("x-a", text) | {"type": "RegularExpression"}]}
    ),
    "tls hostname": tls,
    "listener hostname": lambda text: listener(hostname=text),
    "backend TLS hostname": lambda text: backend_tls(hostname=text),
    "backend TLS URI": lambda text: backend_tls(
        subjectAltNames=[{"type": "URI", "uri": "spiffe://" + text}]
    ),
    "rate key": lambda text: limit(key=text),
    "rate key of a variable": lambda text: limit(key="$" + text),
    "rate key of a header": lambda text: limit(key="${http_" + text + "}"),
    "rate": lambda text: limit(rate=text),
    "rate zone": lambda text: limit(zoneSize=text),
    "client body": lambda text: client(body={"maxSize": text}),
    "client body buffer": lambda text: client(body={"bufferSize": text}),
    "client body timeout": lambda text: client(body={"timeout": text}),
    "client keep-alive": lambda text: client(keepAlive={"time": text}),
    "client keep-alive header": lambda text: client(
        keepAlive={"timeout": {"server": "10s", "header": text}}
    ),
    "client least keep-alive": lambda text: client(keepAlive={"minTimeout": text}),
    "proxy buffer": lambda text: proxy(buffering={"bufferSize": text}),
    "proxy buffers": lambda text: proxy(buffering={"buffers": {"number": 4, "size": text}}),
    "proxy busy buffers": lambda text: proxy(buffering={"busyBuffersSize": text}),
    "proxy timeout": lambda text: proxy(timeout={"connect": text, "send": text, "read": text}),
    "upstream zone": lambda text: upstream(zoneSize=text),
    "upstream keep-alive": lambda text: upstream(keepAlive={"time": text, "timeout": text}),
    "upstream method": lambda text: upstream(loadBalancingMethod=text),
    "upstream hash": lambda text: upstream(
        loadBalancingMethod="hash consistent", hashMethodKey="$" + text
    ),
    "span name": lambda text: traced(strategy="parent", spanName=text),
    "span attribute": lambda text: traced(
        strategy="ratio", spanAttributes=[{"key": text, "value": "v"}]
    ),
    "span attribute value": lambda text: traced(
        strategy="ratio", spanAttributes=[{"key": "k", "value": text}]
    ),
    "basic realm": basic,
    "basic users": lambda text: basic("a", encoded(text)),
    "basic user": lambda text: basic("a", encoded(f"{text}:$apr1$x$y")),
    "jwt realm": lambda text: jwt(realm=text),
    "jwt leeway": lambda text: jwt(leeway=text),
    "jwt keys": lambda text: jwt(keys=encoded(text)),
    "claim name": lambda text: jwt(authorization=claims({"name": text, "values": ["v"]})),
    "claim value": lambda text: jwt(authorization=claims({"name": "a", "values": [text]})),
    "claim pattern": lambda text: jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [text]})
    ),
    "claim header": lambda text: jwt(authorization=claims({"name": "a", "proxySetHeader": text})),
    "external name": external,
    "endpoint name": lambda text: slice_of("FQDN", text),
    "endpoint address": lambda text: slice_of("IPv4", text),
    "external auth path": lambda text: filtered(
        "ExternalAuth", {"protocol": "HTTP", "backendRef": BACKEND, "http": {"path": "/" + text}}
    ),
    "external auth header": lambda text: filtered(
        "ExternalAuth",
        {"protocol": "HTTP", "backendRef": BACKEND, "http": {"allowedHeaders": [text]}},
    ),
    "external auth response header": lambda text: filtered(
        "ExternalAuth",
        {"protocol": "HTTP", "backendRef": BACKEND, "http": {"allowedResponseHeaders": [text]}},
    ),
}
"""Objects with a text in one field, by the name of the field."""

CHARACTERS = [*"ab019-_.:/@=,&?!~*+^|()[]{}<>\"'\\;$ #%`", "\n", "\r", "\t", "\0", "\x01", "\x7f"]
UNICODE = ["é", "\u0430", "\u2028", "\ufeff", "\ufffd", "\uffff", "\U0001f600", "\U0010ffff"]
WORDS = [
    "$host", "${host}", "$gh_1", "default", "include", "a;}", "*.example", "%REQ(a)%", "%%", "%00",
    "%2f", "..", "//", "example.com", "A.example", "a:99999", "[::1]", "1s", "0", "1k", "9g", "1ms",
    "10r/s", "a:b", "http_", "arg_a", "cookie_", "remote_addr", "{1}", "{0,}", "{,5}", "(?i)",
    "(?:", "(?P<a>", "[^", "[[:alpha:]]", "\\d", "\\W", "\\x{e9}", "\\x41", "\\pL", "\\p{Lu}",
    "\\b", "\\B", "\\A", "\\z", "\\Z", "\\C", "\\Q", "\\E", "\\1", "\\n", "\\.", ".*", "a|b", "x+?",
]  # fmt: skip
"""Texts with a meaning somewhere: variables, words of maps, sizes, and parts of patterns."""

PARTS = st.sampled_from(CHARACTERS) | st.sampled_from(UNICODE) | st.sampled_from(WORDS)
REPEATED = st.tuples(PARTS, st.sampled_from([1, 1, 1, 1, 2, 7, 64, 255, 1000, 4000])).map(
    lambda part: part[0] * part[1]
)
TEXTS = (
    st.lists(REPEATED, min_size=1, max_size=4).map("".join)
    | st.lists(PARTS, min_size=1, max_size=12).map("".join)
    | st.sampled_from([*PATTERNS.values()])
    | st.lists(st.sampled_from([*PATTERNS.values()]), min_size=2, max_size=3).map("".join)
)
LENGTHS = (64, 128, 253, 255, 256, 1023, 4096)
"""Maximum lengths of fields: a longer text is not admitted, and so tests nothing."""
TENANTS = st.lists(
    st.tuples(st.sampled_from([*FIELDS]), TEXTS, st.sampled_from(LENGTHS)),
    min_size=150,
    max_size=400,
)
BATCHES = settings(
    max_examples=12 if settings.get_current_profile_name() == "random" else 2,
    deadline=None,
    phases=[Phase.generate],
)
"""Few examples without shrinking: each is a configuration of many objects."""


def attackers(drawn: list[tuple[str, str, int]]) -> list[Tenant]:
    """Return the tenants whose objects the API server admits."""
    result = []
    for number, (field, text, length) in enumerate(drawn):
        cut = text[:length]
        tenant = tenant_of(f"{field}: {cut!r}", f"t{number}", FIELDS[field](cut))
        if tenant is not None:
            result.append(tenant)
    return result


def test_every_field_takes_some_text() -> None:
    """A field whose object is never admitted would test nothing."""
    plain = ("a", "a.example", "1s", "10r/s", "100m", "least_conn", "10.0.0.1", "a/b", "https://a")
    refused = [
        field
        for field, make in FIELDS.items()
        if not any(tenant_of(field, "t", make(text)) for text in plain)
    ]
    assert refused == []


@pytest.mark.process
@pytest.mark.parametrize("binary", ["current", "oldest"])
@BATCHES
@given(drawn=TENANTS)
def test_nginx_accepts_what_the_compiler_accepts_of_hostile_objects(
    binary: str, drawn: list[tuple[str, str, int]]
) -> None:
    named_binary = os.environ.get("GATEHOUSE_TEST_NGINX") if binary == "oldest" else None
    if binary == "oldest" and named_binary is None:
        pytest.skip("GATEHOUSE_TEST_NGINX names no NGINX of Debian's unpacked packages")
    assert rejected_by_nginx(NginxTest(named_binary), attackers(drawn)) == {}


@pytest.mark.process
@BATCHES
@given(drawn=TENANTS)
def test_envoy_accepts_what_the_compiler_accepts_of_hostile_objects(
    drawn: list[tuple[str, str, int]],
) -> None:
    tenants = attackers(drawn)
    gateway = compiled(gateway_api.ENVOY, tenants)[1]
    assert asyncio.run(rejected_by_envoy(gateway, tenants)) == []
