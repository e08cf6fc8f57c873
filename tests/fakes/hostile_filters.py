"""Hostile values of filters: changed headers, redirects, rewrites, CORS, mirrors."""

from __future__ import annotations

from fakes.short_objects import (
    BACKEND,
    Object,
    cors,
    filtered,
    full_path,
    modified,
    modifier,
    named,
    prefix_path,
    route,
)

ROUTE_FILTERS: dict[str, list[Object]] = {
    **{
        f"{direction} header set: {name}": modified("set", item, direction=direction)
        for direction in ("request", "response")
        for name, item in {
            "longest name": named("x" * 256),
            "name of 241 characters": named("x" * 241),
            "quotes": named("X-A", '"' * 4096),
            "quotes below the limit": named("X-A", '"' * 2040),
            "backslashes": named("X-A", "\\" * 2100),
            "dollar signs": named("X-A", "$" * 4096),
            "few dollar signs": named("X-A", "$" * 400),
            "percent": named("X-A", "%" * 4096),
            "command of Envoy": named("X-A", "%REQ(authorization)%"),
            "longest": named("X-A", "a" * 4096),
            "tab": named("X-A", "a\tb"),
            "name with dot": named("x.a"),
            "name with dollar sign": named("x$a"),
            "name with signs": named("!#$%&'*+.^`|~-"),
            "Content-Type": named("Content-Type", "a"),
            "Content-Length": named("Content-Length", "1"),
            "Transfer-Encoding": named("Transfer-Encoding", "chunked"),
            "Server": named("Server", "a"),
            "Date": named("Date", "a"),
            "Location": named("Location", "$host"),
            "Last-Modified": named("Last-Modified", "x"),
            "ETag": named("ETag", "x"),
            "Cache-Control": named("Cache-Control", "x"),
            "Link": named("Link", "x"),
            "Status": named("Status", "200"),
            "Cookie": named("Cookie", "a=b"),
            "X-Forwarded-For": named("X-Forwarded-For", "1.2.3.4"),
            "X-Real-IP": named("X-Real-IP", "1.2.3.4"),
            "Connection": named("Connection", "close"),
            "Host of a port": named("Host", "a.example:99999"),
            "underscore": named("x_a"),
            "Via": named("Via", "a"),
        }.items()
    },
    **{
        f"{direction} header add: {name}": modified("add", item, direction=direction)
        for direction in ("request", "response")
        for name, item in {
            "longest name": named("x" * 256),
            "quotes": named("X-A", '"' * 2100),
            "quotes below the limit": named("X-A", '"' * 2040),
            "dollar signs": named("X-A", "$" * 4096),
            "to X-Forwarded-For": named("X-Forwarded-For", "a" * 3990),
            "dot": named("x.a"),
            "Set-Cookie": named("Set-Cookie", "a=b"),
            "Host": named("Host", "a"),
        }.items()
    },
    **{
        f"{direction} header remove: {name}": modified("remove", item, direction=direction)
        for direction in ("request", "response")
        for name, item in {
            "longest name": "x" * 256,
            "name of 494 characters": "-" * 494,
            "name of 495 characters": "-" * 495,
            "name of 250 characters": "X-" + "y" * 248,
            "dot": "x.a",
            "underscore": "x_a",
            "signs": "!#$%&'*+.^_`|~-",
            "space": "a b",
            "Host": "Host",
            "pseudo header": ":path",
            "Server": "Server",
            "Content-Length": "Content-Length",
        }.items()
    },
    "request header set: many": modified(
        "set", *(named(f"x-{n}-{'y' * 240}", "v" * 2000) for n in range(16))
    ),
    "response header remove: many": modified(
        "remove", *(f"x-{n}-{'y' * 240}" for n in range(16)), direction="response"
    ),
    "request headers of a backend: longest name": route(
        {"backendRefs": [BACKEND | {"filters": [modifier("request", "set", [named("x" * 256)])]}]}
    ),
    "request headers of a backend: quotes": route(
        {
            "backendRefs": [
                BACKEND | {"filters": [modifier("request", "set", [named("X-A", '"' * 2100)])]}
            ]
        }
    ),
    "redirect: path of quotes": filtered("RequestRedirect", full_path("/" + '"' * 1023)),
    "redirect: path of dollar signs": filtered("RequestRedirect", full_path("/" + "$" * 1023)),
    "redirect: path of four bytes": filtered(
        "RequestRedirect", full_path("/" + "\U0001f600" * 1023)
    ),
    "redirect: path with query": filtered("RequestRedirect", full_path("/a?b#c")),
    "redirect: path with line feed": filtered("RequestRedirect", full_path("/a\nb")),
    "redirect: prefix of quotes": filtered("RequestRedirect", prefix_path("/" + '"' * 1023)),
    "redirect: prefix with group": filtered("RequestRedirect", prefix_path("/\\1$1")),
    "redirect: longest hostname": filtered(
        "RequestRedirect", {"hostname": ".".join(["a" * 62] * 4)}
    ),
    "redirect: port": filtered("RequestRedirect", {"port": 65535, "scheme": "https"}),
    "redirect: status 308": filtered("RequestRedirect", {"statusCode": 308}),
    "redirect: status 303": filtered("RequestRedirect", {"statusCode": 303}),
    "rewrite: path of quotes": filtered("URLRewrite", full_path("/" + '"' * 1023)),
    "rewrite: path of dollar signs": filtered("URLRewrite", full_path("/" + "$" * 1023)),
    "rewrite: path of backslashes": filtered("URLRewrite", prefix_path("/" + "\\" * 1023)),
    "rewrite: path of question marks": filtered("URLRewrite", full_path("/???")),
    "rewrite: path with null": filtered("URLRewrite", full_path("/\x00")),
    "rewrite: prefix of four bytes": filtered("URLRewrite", prefix_path("/" + "\U0001f600" * 1023)),
    "rewrite: hostname": filtered("URLRewrite", {"hostname": ".".join(["a" * 62] * 4)}),
    "cors: origins": cors(
        allowOrigins=[f"https://{'a' * 60}.{'b' * 60}.{'c' * 60}.{n}.example" for n in range(64)]
    ),
    "cors: long origin": cors(allowOrigins=["https://" + "a." * 115 + "example"]),
    "cors: origin of any host": cors(allowOrigins=["https://*.example"]),
    "cors: long headers": cors(allowHeaders=["x" * 256] + [f"y{n}-{'z' * 240}" for n in range(63)]),
    "cors: exposed headers": cors(exposeHeaders=[f"y{n}-{'z' * 240}" for n in range(64)]),
    "cors: largest age": cors(maxAge=2**31 - 1),
    "cors: signs": cors(allowHeaders=["$", "a$host", "%"]),
    "cors: signs exposed": cors(
        exposeHeaders=["$" * 250] * 1 + [f"${n}" + "$" * 250 for n in range(30)]
    ),
    "mirror: fraction": filtered(
        "RequestMirror",
        {"backendRef": BACKEND, "fraction": {"numerator": 2**31 - 2, "denominator": 2**31 - 1}},
    ),
    "mirror: none": filtered("RequestMirror", {"backendRef": BACKEND, "percent": 0}),
    "mirrors: many": route(
        {"filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": BACKEND}}] * 16}
    ),
}
