"""Random requests that match a set of routes, or nearly do."""

from __future__ import annotations

import random
import string

from differential.echoes import PADDING
from differential.exchange import Request
from differential.population import (
    HEADERS,
    METHODS,
    PROXY_HEADERS,
    Object,
    base_of,
    calls_host,
    is_tls,
    path_of,
)

ORIGINS = (
    "https://page.test", "http://page.test", "http://page.test:8080", "https://a.b.page.test",
    "https://other.test", "https://page.test.evil", "null", "https://PAGE.test",
    "http://page.test:80", "https://page.test:8443",
)  # fmt: skip
OUTSIDE = ("nobody.test", "[::1]", "[2001:db8::1]:8080", "10.0.0.1", "", "a..b", "under_score.test")


def request_for(rng: random.Random, number: int, routes: list[Object]) -> Request:
    """Return a request that nearly matches one of the routes."""
    route = rng.choice(routes)
    if route["kind"] == "GRPCRoute":
        return _call(rng, number, route)
    host = _host(rng, number, route)
    match = rng.choice(rng.choice(route["spec"]["rules"])["matches"])
    target = _target(rng, match)
    headers = _headers(rng, match)
    method = match.get("method") if rng.random() < 0.85 else None
    request = Request(host, method or rng.choice(METHODS), target, headers)
    if is_tls(number):
        request.port = rng.choice((8443, 8444))
        request.sni = _sni(rng, number, host)
    _vary(rng, request)
    return request


def _vary(rng: random.Random, request: Request) -> None:
    """Vary a request: another origin, HTTP/2, another protocol."""
    chance = rng.random()
    if chance < 0.15:
        request.headers.append(("Origin", rng.choice(ORIGINS)))
    if chance < 0.08:
        request.method = "OPTIONS"
        request.headers.append(("Access-Control-Request-Method", rng.choice(("GET", "PATCH"))))
        if rng.random() < 0.5:
            request.headers.append(("Access-Control-Request-Headers", "x-a"))
    if 0.2 < chance < 0.25:
        request.headers += [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    elif 0.25 < chance < 0.35 and _plain(request):
        request.version = 2
    elif 0.45 < chance < 0.5:
        # Long headers of responses, or many.
        size = rng.choice(((1, 20_000), (1, 50_000), (300, 100), (900, 20)))
        request.headers.append((PADDING, "x".join(map(str, size))))
    elif 0.35 < chance < 0.4:
        request.authority = rng.choice((request.host, f"{request.host}:8080", "other.test"))


def _plain(request: Request) -> bool:
    """Return whether a client of HTTP/2 can send the request."""
    return bool(request.host) and request.target.isascii()


def _host(rng: random.Random, number: int, route: Object) -> str:
    base = base_of(number)
    host = rng.choice((base, f"a.{base}", f"b.a.{base}", f"x.y.{base}", f"c.a.{base}"))
    if rng.random() < 0.8:
        host = rng.choice(route["spec"]["hostnames"]).replace("*", rng.choice(("a", "x.y", "b")))
    if rng.random() < 0.03:
        host = rng.choice(OUTSIDE)
    if rng.random() < 0.1:
        host = host.upper()
    if rng.random() < 0.05 and host.lower().endswith(".test"):
        host += "."
    if rng.random() < 0.1 and host and not host.endswith("8080"):
        host += rng.choice((":8080", ":80", ":8443"))
    return host


def _sni(rng: random.Random, number: int, host: str) -> str | None:
    """Return an SNI, usually that of the host."""
    name = host.partition(":")[0].lower().rstrip(".")
    if rng.random() < 0.85 and name.endswith(".test"):
        return name
    return rng.choice((f"a.{base_of(number)}", "z.one.w.test", "z.w.test", "nobody.test", None))


def _target(rng: random.Random, match: Object) -> str:
    path = (match.get("path") or {"value": "/"})["value"]
    if (match.get("path") or {}).get("type") == "RegularExpression" or rng.random() < 0.2:
        path = path_of(rng)
    elif rng.random() < 0.5:
        path = path.rstrip("/") + rng.choice(("", "/", path_of(rng), "x"))
    target = _spelled(rng, path or "/")
    query = []
    for criterion in match.get("queryParams") or ():
        if rng.random() < 0.85:
            query.append(_parameter(rng, criterion))
        if rng.random() < 0.1:
            query.insert(rng.randint(0, len(query)), _parameter(rng, criterion))
    if rng.random() < 0.3:
        query.append(f"{rng.choice('qQz')}={rng.choice(('v', 'V', '%76', '', 'v=v', '%'))}")
    if rng.random() < 0.05:
        query.insert(rng.randint(0, len(query)), rng.choice(("q", "", "=v", "&", "q=&q=v")))
    return f"{target}?{'&'.join(query)}" if query else target


def _headers(rng: random.Random, match: Object) -> list[tuple[str, str]]:
    headers = []
    for criterion in match.get("headers") or ():
        if rng.random() < 0.85:
            name = rng.choice((criterion["name"], criterion["name"].upper()))
            headers.append((name, _value(rng, criterion)))
        if rng.random() < 0.05:
            headers.append((criterion["name"], _value(rng, criterion)))
    if rng.random() < 0.2:
        headers.append((rng.choice(HEADERS), rng.choice(("v", "other", "x" * 9000))))
    if rng.random() < 0.05:
        headers.append((rng.choice(PROXY_HEADERS), rng.choice(("v", "https", "10.0.0.1"))))
    return headers


def _call(rng: random.Random, number: int, route: Object) -> Request:
    """Return a gRPC call."""
    service, method = rng.choice(("p.One", "p.Two", "p")), rng.choice(("Get", "Put", "Other"))
    headers = [("content-type", "application/grpc"), ("te", "trailers")]
    if rng.random() < 0.4:
        headers.append(("x-a", rng.choice("vV")))
    target = f"/{service}/{method}"
    return Request(calls_host(number), "POST", target, headers, version=2, body=b"\0\0\0\0\0")


def _value(rng: random.Random, criterion: Object) -> str:
    if criterion["type"] != "Exact":
        return rng.choice(("v", "abc", "a,b"))
    value = str(criterion["value"])
    return value.swapcase() if rng.random() < 0.1 else value


def _parameter(rng: random.Random, criterion: Object) -> str:
    value = _value(rng, criterion)
    encode = rng.random() < 0.3
    return f"{_quoted(criterion['name'], always=False)}={_quoted(value, always=encode)}"


def _quoted(text: str, *, always: bool) -> str:
    safe = (
        "" if always else "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~,;$'"
    )
    return "".join(c if c in safe else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def _spelled(rng: random.Random, path: str) -> str:
    """Return one of the spellings of a path that are equal, or nearly."""
    letters = f"{string.ascii_letters}{string.digits}-._~/,;$'+:@!*()="
    if rng.random() < 0.1:
        letters += "é"
    result = "/" + "".join(
        c if c in letters and rng.random() < 0.95 else "".join(f"%{b:02x}" for b in c.encode())
        for c in path[1:]
    )
    odd = rng.random()
    if odd < 0.05:
        result = result.replace("/", "//", 1)
    elif odd < 0.08:
        result = "/." + result
    elif odd < 0.11:
        result = "/zz/.." + result
    elif odd < 0.12:
        result = "/.." + result
    elif odd < 0.13:
        result += "%00"
    elif odd < 0.15:
        result = result.replace("/", "%2F", 2).replace("%2F", "/", 1)
    elif odd < 0.16:
        result += "/" + "l" * 4000
    elif odd < 0.2:
        result += rng.choice(
            ("%zz", "%", "%4", "/%2e%2E/", "/.", "/..", "/%2e", "//", "%2f", "%5C")
        )
    return result
