"""Kinds of objects that the API server admits and whose values a proxy may refuse.

Each kind is one mistake or attack: a value of one field, alone in a namespace, on a Gateway that
all of them share.
"""

from __future__ import annotations

import base64

from fakes.hostile_patterns import PATTERNS
from fakes.short_objects import (
    AUTHORITY,
    BACKEND,
    Object,
    authenticated,
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
    l4,
    limit,
    listener,
    modified,
    modifier,
    named,
    path,
    policy,
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

KINDS: dict[str, list[Object]] = {
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
    "session header: dot": session("a.b"),
    "session header: dollar sign": session("$"),
    "session header: tilde": session("~"),
    "session header: underscore": session("a_b"),
    "session header: hyphens": session("---"),
    "session header: longest": session("x" * 128),
    "session header: host": session("Host"),
    "session header: cookie": session("Cookie"),
    "session header beside a match": route(
        {
            "sessionPersistence": {"type": "Header", "header": {"name": "a.b"}},
            "matches": [{"headers": [{"name": "x_y", "value": "v"}]}],
        }
    ),
    "session cookie: dot": session("a.b", "Cookie"),
    "session cookie: dollar signs": session("$" * 128, "Cookie"),
    "session cookie: signs": session("!#$%&'*+.^_`|~-", "Cookie"),
    "session cookie: longest time": session("a", "Cookie", "Permanent", absoluteTimeout="99999h"),
    "session cookie: no time": session("a", "Cookie", "Permanent", absoluteTimeout="0s"),
    "session cookie: several backends": route(
        {
            "sessionPersistence": {"type": "Cookie", "cookie": {"name": "$a"}},
            "backendRefs": [BACKEND | {"weight": 1}, {"name": "t", "port": 80, "weight": 2}],
        }
    ),
    "session header: several backends": route(
        {
            "sessionPersistence": {"type": "Header", "header": {"name": "a.b"}},
            "backendRefs": [BACKEND | {"weight": 1}, {"name": "t", "port": 80, "weight": 2}],
        }
    ),
    "timeouts: longest": route({"timeouts": {"request": "99999h", "backendRequest": "99999h"}}),
    "timeouts: longest sum": route({"timeouts": {"request": "99999h99999h99999h99999h"}}),
    "timeouts: zero": route({"timeouts": {"request": "0s"}}),
    "timeouts: milliseconds": route({"timeouts": {"request": "1ms", "backendRequest": "1ms"}}),
    "retry: codes": route(
        {"retry": {"codes": [400, 500, 502, 503, 504, 599], "attempts": 3, "backoff": "99999h"}}
    ),
    "retry: no backoff": route({"retry": {"attempts": 2, "backoff": "0s"}}),
    "retry: small backoff": route({"retry": {"attempts": 2, "backoff": "1ms"}}),
    "retry: sum of backoffs": route(
        {"retry": {"attempts": 2, "backoff": "99999h99999h99999h99999h"}}
    ),
    "retry: many": route({"retry": {"attempts": 2**31 - 1}}),
    "retry: many codes": route({"retry": {"codes": list(range(400, 600))}}),
    "weights: largest": route(
        {"backendRefs": [BACKEND | {"weight": 1_000_000}, {"name": "t", "port": 80, "weight": 1}]}
    ),
    "weights: sum": route(
        {"backendRefs": [{"name": n, "port": 80, "weight": 1_000_000} for n in ("s", "t")] * 8}
    ),
    "weights: sixteen and a missing Service": route(
        {
            "backendRefs": [
                *[BACKEND | {"weight": 1_000_000}] * 15,
                {"name": "missing", "port": 80, "weight": 1_000_000},
            ]
        }
    ),
    "weights: zero": route({"backendRefs": [BACKEND | {"weight": 0}]}),
    "weights: with filters": route(
        {
            "backendRefs": [
                {
                    "name": n,
                    "port": 80,
                    "weight": 1_000_000,
                    "filters": [modifier("response", "set", [named("X-A", '"' * 2040)])],
                }
                for n in ("s", "t")
            ]
        }
    ),
    "hostname: longest": route(hostnames=[".".join(["a" * 62] * 4)]),
    "hostname: longest wildcard": route(hostnames=["*." + ".".join(["a" * 61] * 4)]),
    "hostname: many": route(
        hostnames=[f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{n}.example" for n in range(16)]
    ),
    "hostname: punycode": route(hostnames=["xn--a.example"]),
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
    "tls: longest hostname": tls(".".join(["a" * 62] * 4)),
    "tls: wildcard": tls("*." + ".".join(["a" * 61] * 4)),
    "tls: many": tls(*(f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{n}.example" for n in range(16))),
    "tcp: weight": l4("TCPRoute", 9000, weight=1_000_000),
    "udp: weight": l4("UDPRoute", 9001, weight=0),
    "listener: longest hostname": listener(hostname=".".join(["a" * 62] * 4)),
    "listener: port": listener(port=65535),
    "listener: internal port": listener(port=1),
    "listener: unknown protocol": listener(protocol="example.com/foo"),
    "listener: certificate": listener(
        port=8443, protocol="HTTPS", tls={"certificateRefs": [{"name": "missing"}]}
    ),
    "listener: options": listener(
        port=8444,
        protocol="HTTPS",
        tls={"certificateRefs": [{"name": "missing"}], "options": {"nginx.org/ssl-ciphers": "a;b"}},
    ),
    "backend TLS: longest hostname": backend_tls(hostname=".".join(["a" * 62] * 4)),
    "backend TLS: names": backend_tls(
        subjectAltNames=[{"type": "Hostname", "hostname": ".".join(["a" * 62] * 4)}]
    ),
    "backend TLS: long URI": backend_tls(
        subjectAltNames=[{"type": "URI", "uri": "spiffe://a.example/" + "b" * 200}]
    ),
    "backend TLS: URI with quotes": backend_tls(
        subjectAltNames=[{"type": "URI", "uri": 'spiffe://a.example/"$;'}]
    ),
    "backend TLS: certificates of text": [
        *backend_tls(wellKnownCACertificates=None, caCertificateRefs=[AUTHORITY]),
        {"kind": "ConfigMap", "data": {"ca.crt": "a"}},
    ],
    "backend TLS: certificates of no bytes": [
        *backend_tls(wellKnownCACertificates=None, caCertificateRefs=[AUTHORITY]),
        {
            "kind": "ConfigMap",
            "data": {"ca.crt": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        },
    ],
    "backend TLS: missing certificates": backend_tls(
        wellKnownCACertificates=None,
        caCertificateRefs=[{"group": "", "kind": "ConfigMap", "name": "missing"}],
    ),
    "rate: key of quotes": limit(key='"' * 2100),
    "rate: key of many quotes": limit(key='"' * 4000),
    "rate: key of quotes below the limit": limit(key='"' * 1990),
    "rate: long key": limit(key="a" * 4090),
    "rate: very long key": limit(key="a" * 9000),
    "rate: key of variables": limit(key="$http_a" * 500),
    "rate: key of many variables": limit(key="$binary_remote_addr" * 400),
    "rate: key of a long variable": limit(key="$http_" + "a" * 3000),
    "rate: key of a long argument": limit(key="$arg_" + "a" * 3000),
    "rate: key of a long cookie": limit(key="$cookie_" + "a" * 3000),
    "rate: key of a very long variable": limit(key="$http_" + "a" * 17_000),
    "rate: key of an unknown header": limit(key="$http_" + "_" * 10),
    "rate: long name": [*limit(key="a")[:-1], limit(key="a")[-1] | {"name": "n" * 253}],
    "rate: key of a header": limit(key="$http_a_b"),
    "rate: key of an argument": limit(key="$arg_"),
    "rate: key of a bare header": limit(key="$http_"),
    "rate: key of a bare cookie": limit(key="$cookie_"),
    "rate: key in braces": limit(key="${http_a}b"),
    "rate: key with upper case": limit(key="$http_AB$arg_X$cookie_Y"),
    "rate: key of TLS": limit(key="$ssl_client_s_dn$ssl_session_id"),
    "rate: key with control": limit(key="a\x01"),
    "rate: key with line feed": limit(key="a\nb"),
    "rate: key with percent": limit(key="%REQ(a)%"),
    "rate: key outside of ASCII": limit(key="é"),
    "rate: key of four bytes": limit(key="\U0001f600" * 1100),
    "rate: unknown variable": limit(key="$foo"),
    "rate: large": limit(rate="999999999r/s"),
    "rate: above one million": limit(rate="5000000r/s"),
    "rate: per minute": limit(rate="999999999r/m"),
    "rate: slow": limit(rate="1r/m"),
    "rate: zone": limit(zoneSize="9999g"),
    "rate: zone of bytes": limit(zoneSize="9999"),
    "rate: zone of 32k": limit(zoneSize="32k"),
    "rate: zone of megabytes": limit(zoneSize="9999m"),
    "rate: burst": limit(burst=2**31 - 1),
    "rate: burst of a million": limit(burst=1_000_000, delay=1_000_000),
    "rate: delay above burst": limit(burst=1, delay=1000),
    "rate: code 599": policy(
        "RateLimitPolicy",
        {"rateLimit": {"rejectCode": 599, "local": {"rules": [{"key": "a", "rate": "1r/s"}]}}},
    ),
    "rate: code 418": policy(
        "RateLimitPolicy",
        {"rateLimit": {"rejectCode": 418, "local": {"rules": [{"key": "a", "rate": "1r/s"}]}}},
    ),
    "rate: same rule twice": policy(
        "RateLimitPolicy", {"rateLimit": {"local": {"rules": [{"key": "a", "rate": "1r/s"}] * 2}}}
    ),
    "client: body size": client(body={"maxSize": "9999g"}),
    "client: no body": client(body={"maxSize": "0"}),
    "client: odd body": client(body={"maxSize": "1"}),
    "client: body buffer": client(body={"bufferSize": "9999g"}),
    "client: no body buffer": client(body={"bufferSize": "0"}),
    "client: body buffer of one byte": client(body={"bufferSize": "1"}),
    "client: body timeout": client(body={"timeout": "9999h"}),
    "client: no body timeout": client(body={"timeout": "0s"}),
    "client: body timeout in milliseconds": client(body={"timeout": "1ms"}),
    "client: requests": client(keepAlive={"requests": 2**31 - 1}),
    "client: no requests": client(keepAlive={"requests": 0}),
    "client: keep-alive time": client(keepAlive={"time": "9999h"}),
    "client: no keep-alive time": client(keepAlive={"time": "0ms"}),
    "client: keep-alive timeout": client(
        keepAlive={"timeout": {"server": "9999h", "header": "9999h"}}
    ),
    "client: keep-alive timeout of milliseconds": client(
        keepAlive={"timeout": {"server": "1ms", "header": "1ms"}}
    ),
    "client: no keep-alive timeout": client(
        keepAlive={"timeout": {"server": "0s", "header": "0s"}}
    ),
    "client: least keep-alive": client(keepAlive={"minTimeout": "9999h"}),
    "proxy: buffer size": proxy(buffering={"bufferSize": "9999g"}),
    "proxy: buffer size of bytes": proxy(buffering={"bufferSize": "1"}),
    "proxy: no buffer size": proxy(buffering={"bufferSize": "0"}),
    "proxy: buffer size of megabytes": proxy(buffering={"bufferSize": "1m"}),
    "proxy: buffers": proxy(buffering={"buffers": {"number": 2, "size": "1"}}),
    "proxy: many large buffers": proxy(buffering={"buffers": {"number": 256, "size": "9999g"}}),
    "proxy: no buffers": proxy(buffering={"buffers": {"number": 2, "size": "0"}}),
    "proxy: busy buffers": proxy(buffering={"busyBuffersSize": "9999g"}),
    "proxy: small busy buffers": proxy(buffering={"busyBuffersSize": "1"}),
    "proxy: busy buffers of megabytes": proxy(buffering={"busyBuffersSize": "1m"}),
    "proxy: small buffers and large head": proxy(
        buffering={"bufferSize": "1m", "buffers": {"number": 2, "size": "1k"}}
    ),
    "proxy: not buffered": proxy(buffering={"disable": True, "bufferSize": "1"}),
    "proxy: timeouts": proxy(timeout={"connect": "9999h", "send": "9999h", "read": "9999h"}),
    "proxy: no timeouts": proxy(timeout={"connect": "0", "send": "0", "read": "0"}),
    "proxy: timeouts of milliseconds": proxy(
        timeout={"connect": "1ms", "send": "1ms", "read": "1ms"}
    ),
    "upstream: zone": upstream(zoneSize="9999g"),
    "upstream: small zone": upstream(zoneSize="1"),
    "upstream: zone of kilobytes": upstream(zoneSize="32k"),
    "upstream: keep-alive": upstream(
        keepAlive={
            "connections": 2**31 - 1,
            "requests": 2**31 - 1,
            "time": "9999h",
            "timeout": "9999h",
        }
    ),
    "upstream: no keep-alive": upstream(
        keepAlive={"connections": 0, "requests": 0, "time": "0s", "timeout": "0s"}
    ),
    "upstream: many connections": upstream(keepAlive={"connections": 1_000_000}),
    "upstream: hash": upstream(loadBalancingMethod="hash", hashMethodKey="$http_" + "a" * 3000),
    "upstream: hash of a host": upstream(
        loadBalancingMethod="hash consistent", hashMethodKey="$host"
    ),
    "upstream: least time": upstream(loadBalancingMethod="least_time header"),
    "upstream: random": upstream(loadBalancingMethod="random two least_conn"),
    "observability: ratio": traced(strategy="ratio", ratio=0),
    "observability: attributes": traced(
        strategy="ratio",
        spanAttributes=[{"key": f"{n}" + "a" * 250, "value": "b" * 255} for n in range(60)],
    ),
    "observability: dollar signs": traced(
        strategy="ratio", spanAttributes=[{"key": "a$b%", "value": "$host%REQ(a)%"}]
    ),
    "observability: span name": traced(strategy="parent", spanName="a" * 255),
    "basic: realm of quotes": basic("'" * 2000),
    "basic: realm of dollar signs": basic("$" * 400),
    "basic: long realm": basic("a" * 5000),
    "basic: line feed": basic("a\nb"),
    "basic: outside of ASCII": basic("é" * 2000),
    "basic: long name": [
        {**raw, "name": "n" * 253} if raw["kind"] == "Secret" else raw
        for raw in authenticated(
            {"type": "Basic", "basic": {"realm": "a", "secretRef": {"name": "n" * 253}}},
            {"kind": "Secret", "data": {"auth": "dXNlcjokYXByMSR4JDE="}},
        )
    ],
    "basic: long line": basic("a", base64.b64encode(b"u:" + b"x" * 100_000).decode()),
    "jwt: realm of dollar signs": jwt(realm="$" * 400),
    "jwt: leeway": jwt(leeway="9999h"),
    "jwt: claim of quotes": jwt(authorization=claims({"name": '"' * 120})),
    "jwt: claim values": jwt(authorization=claims({"name": "a", "values": ['"$;{}\\' * 40]})),
    "jwt: pattern of claim": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [r"\x{10FFFF}"]})
    ),
    "jwt: pattern of script": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [r"\p{Kawi}"]})
    ),
    "jwt: pattern of byte": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": [r"[\x{80}-\x{ff}]"]})
    ),
    "jwt: pattern of alternatives": jwt(
        authorization=claims({"name": "a", "match": "Regex", "values": ["a|b", "(?i)c"]})
    ),
    "jwt: header of a claim": jwt(authorization=claims({"name": "a", "proxySetHeader": "x" * 256})),
    "jwt: keys of text": jwt(keys="e30="),
    "jwt: keys of bytes": jwt(keys="AAECAwQF/w=="),
    "basic: empty file": basic("a", ""),
    "basic: binary file": basic("a", "AAECAwQF/w=="),
    "external name: longest": external(".".join(["a" * 62] * 4)),
    "external name: address": external("10.0.0.1"),
    "external name: local": external("localhost"),
    "endpoints: IPv6": slice_of("IPv6", "2001:db8::1", "2001:DB8:0::2", "::2"),
    "endpoints: IPv4": slice_of("IPv4", "255.255.255.255", "240.0.0.1"),
    "endpoints: names": slice_of("FQDN", ".".join(["a" * 62] * 4)),
    "external auth: headers": filtered(
        "ExternalAuth",
        {
            "protocol": "HTTP",
            "backendRef": BACKEND,
            "http": {
                "allowedHeaders": ["x" * 256, "x.a", "x_a"],
                "allowedResponseHeaders": ["y" * 256, "y.a", "y_a"],
            },
        },
    ),
    "external auth: gRPC": filtered(
        "ExternalAuth",
        {"protocol": "GRPC", "backendRef": BACKEND, "grpc": {"allowedHeaders": ["x" * 256]}},
    ),
    "external auth: body": filtered(
        "ExternalAuth",
        {"protocol": "HTTP", "backendRef": BACKEND, "http": {}, "forwardBody": {"maxSize": 65535}},
    ),
    "external auth: no body": filtered(
        "ExternalAuth",
        {"protocol": "HTTP", "backendRef": BACKEND, "http": {}, "forwardBody": {"maxSize": 0}},
    ),
}
