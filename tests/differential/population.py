"""Random objects that the API would admit."""

from __future__ import annotations

import random
from typing import Any

Object = dict[str, Any]

SERVICES = {"one": 1, "two": 2, "three": 1, "idle": 0, "calls": 1}
"""Existing Services, with their number of endpoints; ``gone`` does not exist."""

LISTENERS = {8080: ("",), 8443: ("*.w.test", "*.one.w.test"), 8444: ("", "*.w.test")}
"""Hostnames of listeners, by port; all except the first terminate TLS."""

SEGMENTS = ("a", "b", "aa", "a.b", "é", "x y", "p+q", "~", "$host", "A", "{n}", "a;b", "it's")
HEADERS = ("x-a", "X-Team", "x-dup", "x-long")
PROXY_HEADERS = (
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
    "X-Forwarded-Client-Cert",
    "X-Real-IP",
    "Forwarded",
)
"""Headers that proxies change, and that routes may match as the client sent them."""
VALUES = ("v", "V", "a,b", "two words", "$host", '"', "\\", "a;}", "é", "x" * 300, "1")
POOL = (
    *VALUES,
    *(f"value-{n}" for n in range(12)),
    "Value-1",
    "~v",
    "default",
    "y" * 3500,
    "+",
    "%",
)
PARAMETERS = ("q", "Q", "long-name", "a[0]", "p.q", "é")
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
TIMES = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


def path_of(rng: random.Random) -> str:
    """Return a path as an object may have it: decoded, with single slashes."""
    depth = rng.choice((0, 1, 1, 2, 3))
    path = "/" + "/".join(rng.choice(SEGMENTS) for _ in range(depth))
    return path + "/" if depth and rng.random() < 0.15 else path


def base_of(number: int) -> str:
    """Return the common suffix of all hostnames of a set."""
    if number % 4 != 3:
        return f"s{number}.test"
    return f"s{number}.one.w.test" if number % 8 == 3 else f"s{number}.w.test"


def is_tls(number: int) -> bool:
    """Return whether a set is served on the ports that terminate TLS."""
    return number % 4 == 3


def calls_host(number: int) -> str:
    """Return the hostname of a set's GRPCRoutes: no HTTPRoute on their listener may have it too."""
    return f"{base_of(number)}.calls"


def route_set(rng: random.Random, number: int) -> list[Object]:
    """Return some routes that share the hostnames of one set."""
    base = base_of(number)
    hosts = (base, f"a.{base}", f"*.{base}", f"*.a.{base}", f"b.a.{base}", f"*.b.a.{base}")
    result = []
    for index in range(rng.randint(1, 4)):
        names = sorted(set(rng.choices(hosts, k=rng.randint(1, 2))))
        rules = [_rule(rng) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.15:
            rules.append(_similar_matches(rng))
        result.append(_route(rng, number, index, "HTTPRoute", names, rules))
    if not is_tls(number) and rng.random() < 0.3:
        for index in range(rng.randint(1, 3)):
            rules = [_calls(rng) for _ in range(rng.randint(1, 2))]
            result.append(_route(rng, number, index, "GRPCRoute", [calls_host(number)], rules))
    return result


def _route(
    rng: random.Random, number: int, index: int, kind: str, names: list[str], rules: list[Object]
) -> Object:
    metadata = {
        "name": f"r{number}-{rng.choice('abc')}{index}",
        "namespace": "ns",
        "creationTimestamp": rng.choice(TIMES),
    }
    ports = [port for port in LISTENERS if (port != 8080) == is_tls(number)]
    parents = [{"name": "gw", "port": port} for port in ports]
    spec = {"parentRefs": parents, "hostnames": names, "rules": rules}
    return {"kind": kind, "metadata": metadata, "spec": spec}


def _similar_matches(rng: random.Random) -> Object:
    """Return a rule of many matches on one path that differ in one value."""
    where, name = rng.choice((("headers", "x-a"), ("headers", "X-Team"), ("queryParams", "q")))
    path = {"type": "PathPrefix", "value": rng.choice(("/", "/a"))}
    matches = []
    for value in rng.sample(POOL, k=rng.randint(5, 16)):
        match: Object = {"path": path, where: [{"name": name, "type": "Exact", "value": value}]}
        if rng.random() < 0.2:
            match["method"] = rng.choice(("GET", "POST"))
        matches.append(match)
    return {"matches": matches, "backendRefs": [{"name": "three", "port": 80, "weight": 1}]}


def _calls(rng: random.Random) -> Object:
    matches = []
    for _ in range(rng.randint(1, 2)):
        match: Object = {}
        method: Object = {}
        if rng.random() < 0.8:
            method["service"] = rng.choice(("p.One", "p.Two", "p"))
        if rng.random() < 0.6:
            method["method"] = rng.choice(("Get", "Put"))
        if method:
            match["method"] = {"type": "Exact", **method}
        if rng.random() < 0.3:
            match["headers"] = [{"name": "x-a", "type": "Exact", "value": rng.choice("vV")}]
        matches.append(match)
    rule: Object = {"backendRefs": [{"name": "calls", "port": 80, "weight": 1}]}
    if rng.random() < 0.3:
        edit = {"type": "RequestHeaderModifier", "requestHeaderModifier": _edit(rng)}
        rule["filters"] = [edit]
    if rng.random() < 0.9:
        rule["matches"] = matches
    return rule


def _rule(rng: random.Random) -> Object:
    rule: Object = {"matches": [_match(rng) for _ in range(rng.randint(1, 3))]}
    backends = rng.sample(["one", "two", "three"], k=rng.randint(1, 2))
    if rng.random() < 0.08:
        backends = [rng.choice(["gone", "idle"])]
    rule["backendRefs"] = [
        {"name": b, "port": 80, "weight": rng.choice((1, 1, 3))} for b in backends
    ]
    if rng.random() < 0.05:
        rule["backendRefs"] = []
    if rng.random() < 0.05:
        rule["backendRefs"].append({"name": "gone", "port": 80, "weight": 0})
    prefix_only = len(rule["matches"]) == 1 and (
        rule["matches"][0].get("path", {"type": "PathPrefix"})["type"] == "PathPrefix"
    )
    filters = []
    if rng.random() < 0.3:
        filters.append({"type": "RequestHeaderModifier", "requestHeaderModifier": _edit(rng)})
    if rng.random() < 0.3:
        filters.append({"type": "ResponseHeaderModifier", "responseHeaderModifier": _edit(rng)})
    kind = rng.random()
    if kind < 0.15:
        filters.append({"type": "RequestRedirect", "requestRedirect": _redirect(rng, prefix_only)})
        rule["backendRefs"] = []
    elif kind < 0.4:
        filters.append({"type": "URLRewrite", "urlRewrite": _rewrite(rng, prefix_only)})
    if rng.random() < 0.15:
        filters.append({"type": "CORS", "cors": _cors(rng)})
    if filters:
        rule["filters"] = filters
    for backend in rule["backendRefs"]:
        if backend["name"] in ("one", "two") and rng.random() < 0.2:
            backend["filters"] = _backend_filters(rng)
    return rule


def _backend_filters(rng: random.Random) -> list[Object]:
    request = {"type": "RequestHeaderModifier", "requestHeaderModifier": _edit(rng)}
    response = {"type": "ResponseHeaderModifier", "responseHeaderModifier": _edit(rng)}
    return rng.choice(([request], [response], [request, response]))


def _cors(rng: random.Random) -> Object:
    origins = rng.choice(
        (
            ["*"],
            ["https://page.test"],
            ["https://page.test:443", "http://page.test:8080"],
            ["https://*.page.test", "http://page.test"],
            ["http://page.test:80", "https://*"],
        )
    )
    result: Object = {"allowOrigins": origins, "maxAge": rng.choice((5, 600))}
    if rng.random() < 0.5:
        result["allowCredentials"] = rng.random() < 0.7
    if rng.random() < 0.7:
        result["allowMethods"] = rng.choice((["*"], ["GET", "PUT"], ["PATCH"]))
    if rng.random() < 0.7:
        result["allowHeaders"] = rng.choice((["*"], ["x-a", "X-Team"]))
    if rng.random() < 0.5:
        result["exposeHeaders"] = rng.choice((["*"], ["x-one", "x-two"]))
    return result


def _match(rng: random.Random) -> Object:
    match: Object = {}
    if rng.random() < 0.9:
        kind = rng.choice(("Exact", "PathPrefix", "PathPrefix", "RegularExpression"))
        value = path_of(rng)
        if kind == "RegularExpression":
            value = rng.choice(("/a/.*", "/[ab]+", "/(a|b)/.+", "/.{2,3}", "/a[.]b"))
        match["path"] = {"type": kind, "value": value}
    if rng.random() < 0.25:
        match["method"] = rng.choice(METHODS)
    if rng.random() < 0.3:
        names = HEADERS if rng.random() < 0.75 else PROXY_HEADERS
        match["headers"] = [_named(rng, names) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        match["queryParams"] = [_named(rng, PARAMETERS) for _ in range(rng.randint(1, 2))]
    return match


def _named(rng: random.Random, names: tuple[str, ...]) -> Object:
    name = rng.choice(names)
    if rng.random() < 0.2:
        value = rng.choice(("v|V", "[a-z]+", ".+", "a,b.*"))
        return {"name": name, "type": "RegularExpression", "value": value}
    return {"name": name, "type": "Exact", "value": rng.choice(VALUES)}


def _edit(rng: random.Random) -> Object:
    names = rng.sample(["x-a", "X-Set", "x-new", "x-dup", "x-gone"], k=3)
    return {
        "set": [{"name": names[0], "value": rng.choice(VALUES)}],
        "add": [{"name": names[1], "value": rng.choice(VALUES)}],
        "remove": [names[2]],
    }


def _change(rng: random.Random, prefix_only: bool) -> Object:
    if prefix_only and rng.random() < 0.6:
        value = rng.choice(("/", "/new", "/new/", "/n/é", "/a b", ""))
        return {"type": "ReplacePrefixMatch", "replacePrefixMatch": value or "/"}
    return {"type": "ReplaceFullPath", "replaceFullPath": rng.choice(("/", "/full", "/f u", "/$x"))}


def _redirect(rng: random.Random, prefix_only: bool) -> Object:
    result: Object = {"statusCode": rng.choice((301, 302, 303, 307, 308))}
    if rng.random() < 0.5:
        result["scheme"] = rng.choice(("http", "https"))
    if rng.random() < 0.5:
        result["hostname"] = "elsewhere.test"
    if rng.random() < 0.3:
        result["port"] = rng.choice((80, 443, 8443))
    if rng.random() < 0.5:
        result["path"] = _change(rng, prefix_only)
    return result


def _rewrite(rng: random.Random, prefix_only: bool) -> Object:
    result: Object = {}
    if rng.random() < 0.4:
        result["hostname"] = "inside.test"
    if not result or rng.random() < 0.8:
        result["path"] = _change(rng, prefix_only)
    return result
