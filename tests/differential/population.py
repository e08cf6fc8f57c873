"""Random objects that the API would admit, and random requests that may or may not concern them."""

from __future__ import annotations

import random
import string
from typing import Any

from oracle import Request

Object = dict[str, Any]

SERVICES = {"one": 1, "two": 2, "three": 1, "idle": 0}
"""Services that exist, with their number of endpoints; ``gone`` does not exist."""

SEGMENTS = ("a", "b", "aa", "a.b", "é", "x y", "p+q", "~", "$host", "A", "{n}", "a;b", "it's")
HEADERS = ("x-a", "X-Team", "x-dup", "x-long")
VALUES = ("v", "V", "a,b", "two words", "$host", '"', "\\", "a;}", "é", "x" * 300, "1")
PARAMETERS = ("q", "Q", "long-name", "a[0]", "p.q", "é")
METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")
TIMES = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


def path_of(rng: random.Random) -> str:
    """Give a path as an object may hold it: decoded, with single slashes."""
    depth = rng.choice((0, 1, 1, 2, 3))
    path = "/" + "/".join(rng.choice(SEGMENTS) for _ in range(depth))
    return path + "/" if depth and rng.random() < 0.15 else path


def route_set(rng: random.Random, number: int) -> list[Object]:
    """Give some routes that share the hostnames of one set."""
    base = f"s{number}.test"
    hosts = (base, f"a.{base}", f"*.{base}", f"*.a.{base}", f"b.a.{base}")
    found = []
    for index in range(rng.randint(1, 4)):
        metadata = {
            "name": f"r{number}-{rng.choice('abc')}{index}",
            "namespace": "ns",
            "creationTimestamp": rng.choice(TIMES),
        }
        names = sorted(set(rng.choices(hosts, k=rng.randint(1, 2))))
        rules = [_rule(rng) for _ in range(rng.randint(1, 3))]
        spec = {"parentRefs": [{"name": "gw"}], "hostnames": names, "rules": rules}
        found.append({"metadata": metadata, "spec": spec})
    return found


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
    if filters:
        rule["filters"] = filters
    return rule


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
        match["headers"] = [_named(rng, HEADERS) for _ in range(rng.randint(1, 2))]
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
    found: Object = {"statusCode": rng.choice((301, 302, 303, 307, 308))}
    if rng.random() < 0.5:
        found["scheme"] = rng.choice(("http", "https"))
    if rng.random() < 0.5:
        found["hostname"] = "elsewhere.test"
    if rng.random() < 0.3:
        found["port"] = rng.choice((80, 443, 8443))
    return found


def _rewrite(rng: random.Random, prefix_only: bool) -> Object:
    found: Object = {}
    if rng.random() < 0.4:
        found["hostname"] = "inside.test"
    if not found or rng.random() < 0.8:
        found["path"] = _change(rng, prefix_only)
    return found


def request_for(rng: random.Random, number: int, routes: list[Object]) -> Request:
    """Give a request that is near to one of the routes."""
    base = f"s{number}.test"
    host = rng.choice((base, f"a.{base}", f"b.a.{base}", f"x.y.{base}", f"c.a.{base}"))
    route = rng.choice(routes)
    if rng.random() < 0.8:
        host = rng.choice(route["spec"]["hostnames"]).replace("*", rng.choice(("a", "x.y")))
    rule = rng.choice(route["spec"]["rules"])
    match = rng.choice(rule["matches"])
    path = (match.get("path") or {"value": "/"})["value"]
    if (match.get("path") or {}).get("type") == "RegularExpression" or rng.random() < 0.2:
        path = path_of(rng)
    elif rng.random() < 0.5:
        path = path.rstrip("/") + rng.choice(("", "/", path_of(rng), "x"))
    target = _spelled(rng, path or "/")
    query = []
    for wanted in match.get("queryParams") or ():
        if rng.random() < 0.85:
            query.append(_parameter(rng, wanted))
    if rng.random() < 0.3:
        query.append(f"{rng.choice('qQz')}={rng.choice(('v', 'V', '%76', ''))}")
    if query:
        target += "?" + "&".join(query)
    headers = []
    for wanted in match.get("headers") or ():
        if rng.random() < 0.85:
            value = (
                wanted["value"] if wanted["type"] == "Exact" else rng.choice(("v", "abc", "a,b"))
            )
            headers.append((rng.choice((wanted["name"], wanted["name"].upper())), value))
    if rng.random() < 0.2:
        headers.append((rng.choice(HEADERS), rng.choice(("v", "other"))))
    method = match.get("method") if rng.random() < 0.85 else None
    shown = host.upper() if rng.random() < 0.1 else host
    if rng.random() < 0.1:
        shown += ":8080"
    return Request(shown, method or rng.choice(METHODS), target, headers)


def _value(rng: random.Random, wanted: Object) -> str:
    return str(wanted["value"]) if wanted["type"] == "Exact" else rng.choice(("v", "abc", "a,b"))


def _parameter(rng: random.Random, wanted: Object) -> str:
    value = _value(rng, wanted)
    encode = rng.random() < 0.3
    return f"{_quoted(wanted['name'], always=False)}={_quoted(value, always=encode)}"


def _quoted(text: str, *, always: bool) -> str:
    safe = (
        "" if always else "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~,;$'"
    )
    return "".join(c if c in safe else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def _spelled(rng: random.Random, path: str) -> str:
    """Spell a path in one of the ways that mean the same, or nearly."""
    letters = f"{string.ascii_letters}{string.digits}-._~/,;$'+:@!*()="
    found = "/" + "".join(
        c if c in letters and rng.random() < 0.95 else "".join(f"%{b:02x}" for b in c.encode())
        for c in path[1:]
    )
    odd = rng.random()
    if odd < 0.05:
        found = found.replace("/", "//", 1)
    elif odd < 0.08:
        found = "/." + found
    elif odd < 0.11:
        found = "/zz/.." + found
    elif odd < 0.12:
        found = "/.." + found
    elif odd < 0.13:
        found += "%00"
    elif odd < 0.15:
        found = found.replace("/", "%2F", 2).replace("%2F", "/", 1)
    elif odd < 0.16:
        found += "/" + "l" * 4000
    return found
