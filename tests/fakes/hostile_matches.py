"""Hostile values of matches: patterns, paths, methods, headers, query parameters, gRPC methods."""

from __future__ import annotations

from fakes.hostile_patterns import PATTERNS
from fakes.short_objects import (
    Object,
    grpc,
    header,
    modifier,
    named,
    path,
    query,
    route,
)

ROUTE_MATCHES: dict[str, list[Object]] = {
    **{f"pattern: {name}": path(value) for name, value in PATTERNS.items() if len(value) <= 1024},
    # Too large for RE2 if it matches code points; proxies match bytes.
    "pattern of a header: properties": header("x-a", r"(?:\pL\pN){450}", "RegularExpression"),
    "pattern of a parameter: properties": query("q", r"(?:\pL\pN){450}", "RegularExpression"),
    "pattern of a header: long": header("x-a", "a" * 4096, "RegularExpression"),
    "pattern of a header: quotes": header("x-a", '"' * 1024, "RegularExpression"),
    "pattern of a header: code point": header("x-a", r"\x{10FFFF}", "RegularExpression"),
    "pattern of a parameter: script": query("q", r"\p{Kawi}", "RegularExpression"),
    "pattern of a parameter: quotes": query("q", '"' * 1024, "RegularExpression"),
    "path: dollar signs": path("/" + "$" * 1023, "Exact"),
    "path: longest": path("/" + "a" * 1023, "PathPrefix"),
    "path: null": path("/a\x00b", "Exact"),
    "path: encoded null": path("/%00", "Exact"),
    "path: internal": path("/.gh-refused", "Exact"),
    "path: semicolon": path("/a;b", "PathPrefix"),
    "header match: dots": header("x-a", "." * 1500),
    "header match: longest dots": header("x-a", "." * 4096),
    "header match: quotes": header("x-a", '"' * 4096),
    "header match: backslashes": header("x-a", "\\" * 4096),
    "header match: dollar signs": header("x-a", "$" * 4096),
    "header match: longest name": header("x" * 256, "v"),
    "header match: name with dot": header("x.a", "v"),
    "header match: name with underscore": header("x_a", "v"),
    "header match: name of signs": header("!#$%&'*+.^_`|~-", "v"),
    "header match: tab": header("x-a", "a\tb"),
    "parameter: longest value": query("q", "é" * 1024),
    "parameter: dots": query("q", "." * 1024),
    "parameter: quotes": query("q", '"' * 1024),
    "parameter: percent": query("%", "%%%"),
    "parameter: pattern of spaces": query("q", "a b", "RegularExpression"),
    "method: CONNECT": route({"matches": [{"method": "CONNECT"}]}),
    "method: TRACE": route({"matches": [{"method": "TRACE"}]}),
    "matches: many": route(
        {
            "matches": [
                {
                    "path": {"value": f"/{n}"},
                    "headers": [{"name": f"x-{m}", "value": "." * 400} for m in range(16)],
                }
                for n in range(8)
            ]
        }
    ),
    "matches: sixteen headers of dots": route(
        {"matches": [{"headers": [{"name": f"x-{m}", "value": "." * 4000} for m in range(16)]}]}
    ),
    "matches: sixteen headers of quotes": route(
        {"matches": [{"headers": [{"name": f"x-{m}", "value": '"' * 300} for m in range(16)]}]}
    ),
    "matches: many values of one header": route(
        {
            "matches": [
                {"headers": [{"name": "x-v", "value": f"{n}" + '"' * 2000}]} for n in range(16)
            ]
        }
    ),
    "matches: many values with dollar signs": route(
        {
            "matches": [
                {"headers": [{"name": "x-v", "value": f"{n}" + "$" * 200}]} for n in range(16)
            ]
        }
    ),
    "matches: many keys": route(
        {
            "matches": [
                {"headers": [{"name": "x-v", "value": f"{n}" + '"' * 240}]} for n in range(16)
            ]
        }
    ),
    "matches: many keys with backslashes": route(
        {
            "matches": [
                {"headers": [{"name": "x-v", "value": "\\" * 250 + f"{n}"}]} for n in range(16)
            ]
        }
    ),
    "matches: sixteen long names": route(
        {"matches": [{"headers": [named(f"{'x' * 250}{n}") for n in range(16)]}]}
    ),
    "matches: sixteen headers of dollar signs": route(
        {"matches": [{"headers": [named(f"x-{n}", "$" * 100) for n in range(16)]}]}
    ),
    "matches: long values beside patterns": route(
        {
            "matches": [
                {
                    "headers": [
                        named("x-v", f"{n}" + "." * 1300),
                        named("x-w", r"[0-9]+") | {"type": "RegularExpression"},
                    ]
                }
                for n in range(16)
            ]
        }
    ),
    "matches: parameters": route(
        {
            "matches": [
                {"queryParams": [named(f"{'$' * 250}{m}", "." * 1000) for m in range(16)]}
                for n in range(8)
            ]
        }
    ),
    "matches: many parameters of one name": route(
        {"matches": [{"queryParams": [named("q", f"{n}" + '"' * 300)]} for n in range(16)]}
    ),
    "matches: words of maps": route(
        {
            "matches": [
                {"headers": [{"name": "x-v", "value": v}]}
                for v in (
                    "default",
                    "include",
                    "hostnames",
                    "volatile",
                    "~a",
                    "~",
                    "\\default",
                    "*.a",
                    "",
                    "a.*",
                )
                if v
            ]
        }
    ),
    "grpc: long service": grpc({"method": {"service": "a" * 1024, "method": "b" * 1024}}),
    "grpc: pattern": grpc(
        {"method": {"type": "RegularExpression", "service": r"\x{10FFFF}", "method": "b"}}
    ),
    "grpc: pattern of script": grpc(
        {"method": {"type": "RegularExpression", "service": r"a", "method": r"\p{Kawi}"}}
    ),
    "grpc: pattern of groups": grpc(
        {"method": {"type": "RegularExpression", "service": "a)(?:b", "method": "c"}}
    ),
    "grpc: pattern of alternatives": grpc(
        {"method": {"type": "RegularExpression", "service": "a|b", "method": "c|d"}}
    ),
    "grpc: header of dots": grpc({"headers": [{"name": "x-a", "value": "." * 4096}]}),
    "grpc: header set": route(
        {"filters": [modifier("request", "set", [named("x" * 256)])]}, kind="GRPCRoute"
    ),
    "grpc: header of 46 characters": route(
        {"filters": [modifier("request", "set", [named("x" * 46)])]}, kind="GRPCRoute"
    ),
    "grpc: many headers": route(
        {
            "filters": [
                modifier(
                    "request", "set", [named(f"x-{n}-{'y' * 40}", "v" * 4000) for n in range(16)]
                )
            ]
        },
        kind="GRPCRoute",
    ),
    "grpc: header removed": route(
        {"filters": [modifier("response", "remove", ["x" * 256])]}, kind="GRPCRoute"
    ),
    "grpc: session": route(
        {"sessionPersistence": {"type": "Header", "header": {"name": "a.b"}}}, kind="GRPCRoute"
    ),
}
