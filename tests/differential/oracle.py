"""An oracle for the specification, in plain Python over the objects as users write them.

https://gateway-api.sigs.k8s.io/reference/spec/#httproutespec. Where it leaves something to the
implementation, the choice is a separate rule here, marked CHOICE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

from differential import sharing
from differential.exchange import REFUSED, Expected, Object, Request


def normalised(target: str) -> bytes | None:
    """CHOICE: paths are compared decoded, with single slashes, without dot segments.

    (RFC 3986, 6.2.2.) None: a path that leads above the root, or holds a NUL, is a bad request.
    """
    path = target.partition("?")[0]
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        return None
    decoded = unquote_to_bytes(path)
    return None if b"\0" in decoded else resolved(decoded)


def resolved(path: bytes) -> bytes | None:
    """Return a path without dot segments and empty ones; None if it leads above the root."""
    parts: list[bytes] = []
    segments = path.split(b"/")[1:]
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == b"..":
            if not parts:
                return None
            parts.pop()
        elif segment not in (b"", b"."):
            parts.append(segment)
            continue
        if last:
            parts.append(b"")
    return b"/" + b"/".join(parts)


def parameters(target: str) -> dict[str, str]:
    """Return the query's parameters as sent; of duplicate names the first counts."""
    result: dict[str, str] = {}
    for part in target.partition("?")[2].split("&"):
        name, equals, value = part.partition("=")
        if equals:
            result.setdefault(_plain(name), value)
    return result


def _plain(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode(errors="surrogateescape")


def answer(
    routes: list[Object], services: dict[str, int], listeners: dict[int, tuple[str, ...]],
    request: Request, *, patterns_see: Callable[[str], bytes | None] = normalised,
) -> Expected:  # fmt: skip
    """Return the expected response.

    ``patterns_see``: the part of a target that regular expressions match.

    ``services``: existing Services, with their number of endpoints. ``listeners``: hostnames of
    listeners by port.
    """
    names = listeners[request.port]
    tls = request.port != 8080
    sni_listener = listener_of(names, request.sni or "")
    if tls and sni_listener is None:
        return REFUSED
    path = normalised(request.target)
    # CHOICE: an invalid or missing Host is a bad request (RFC 9112, 3.2); an underscore is
    # permitted in Host only.
    hosts = (
        _is_host(request.host) and _is_host(request.asked) and "_" not in (request.authority or "")
    )
    if path is None or not hosts:
        return Expected(400)
    host = _name(request.asked)
    host_listener = listener_of(names, host)
    if tls and host_listener != sni_listener:
        return Expected(404 if host_listener is None else 421)
    result = []
    # CHOICE: the most specific hostname decides; routes of less specific ones are not tried after
    # it.
    most = max((best for route in routes if (best := _best(route, host))), default=None)
    for route in routes:
        if most is None or _best(route, host) != most:
            continue
        for index, rule in enumerate(route["spec"]["rules"]):
            for number, match in enumerate(rule.get("matches") or [{}]):
                held = _call_holds if route["kind"] == "GRPCRoute" else _holds
                if held(match, (path, patterns_see(request.target) or b""), request):
                    place = (*_rank(match, route), index, number)
                    result.append((place, rule, match))
    if not result:
        return Expected(404)
    _, rule, match = min(result, key=lambda entry: entry[0])
    return sharing.preflight(rule, request) or _act(rule, match, path, request, host, services)


def listener_of(names: Iterable[str], host: str) -> str | None:
    """Return the hostname of the most specific listener that matches a host."""
    result = [name for name in names if _covers(name, host.lower())]
    return max(result, key=_specificity, default=None)


def _is_host(host: str) -> bool:
    return re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]/]+)(:\d*)?", host) is not None and (
        ".." not in host
    )


def _name(host: str) -> str:
    # A final dot ends a complete name (RFC 1034, 3.1).
    return re.sub(r"\.?(:\d*)?$", "", host)


def _best(route: Object, host: str) -> tuple[int, int] | None:
    """Return how specific the matching hostname of a route is; None if none matches."""
    names = route["spec"].get("hostnames") or [""]
    return max((_specificity(n) for n in names if _covers(n, host.lower())), default=None)


def _covers(pattern: str, host: str) -> bool:
    if not pattern or pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and host != pattern[2:]


def _specificity(name: str) -> tuple[int, int]:
    return (0 if name.startswith("*") else len(name), len(name))


def _rank(match: Object, route: Object) -> tuple[Any, ...]:
    if route["kind"] == "GRPCRoute":
        method, metadata = match.get("method") or {}, route["metadata"]
        return (
            -len(method.get("service", "")),
            -len(method.get("method", "")),
            -len(match.get("headers") or ()),
            metadata["creationTimestamp"],
            metadata["namespace"],
            metadata["name"],
        )
    path = match.get("path") or {"type": "PathPrefix", "value": "/"}
    # CHOICE: regular expressions come between exact paths and prefixes, the longest first.
    kind = ("Exact", "RegularExpression", "PathPrefix").index(path["type"])
    value = path["value"].rstrip("/") if path["type"] == "PathPrefix" else path["value"]
    metadata = route["metadata"]
    return (
        kind,
        -len(value),
        not match.get("method"),
        -len({h["name"].lower() for h in match.get("headers") or ()}),
        -len({q["name"] for q in match.get("queryParams") or ()}),
        metadata["creationTimestamp"],
        metadata["namespace"],
        metadata["name"],
    )


def _holds(match: Object, path: tuple[bytes, bytes], request: Request) -> bool:
    if match.get("method") not in (None, request.method):
        return False
    return (
        _path_holds(match.get("path") or {"type": "PathPrefix", "value": "/"}, path)
        and all(_header_holds(h, request) for h in _first(match.get("headers"), lower=True))
        and all(_query_holds(q, request) for q in _first(match.get("queryParams"), lower=False))
    )


def _call_holds(match: Object, path: tuple[bytes, bytes], request: Request) -> bool:
    service, name = path[0].decode().split("/")[1:]
    method = match.get("method") or {}
    return (
        method.get("service") in (None, service)
        and method.get("method") in (None, name)
        and all(_header_holds(h, request) for h in _first(match.get("headers"), lower=True))
    )


def _first(items: list[Object] | None, *, lower: bool) -> list[Object]:
    result: dict[str, Object] = {}
    for item in items or ():
        result.setdefault(item["name"].lower() if lower else item["name"], item)
    return list(result.values())


def _path_holds(criterion: Object, both: tuple[bytes, bytes]) -> bool:
    path, request_path = both
    value = criterion["value"].encode()
    if criterion["type"] == "Exact":
        return bool(path == value)
    if criterion["type"] == "PathPrefix":
        prefix = value.rstrip(b"/")
        return bool(path == prefix or path.startswith(prefix + b"/"))
    # CHOICE: a regular expression matches the whole path.
    return re.fullmatch(value, request_path, re.DOTALL) is not None


def _header_holds(criterion: Object, request: Request) -> bool:
    value = request.header(criterion["name"].lower())
    # CHOICE: an empty header equals an absent one.
    if not value:
        return False
    if criterion.get("type") == "RegularExpression":
        return re.fullmatch(criterion["value"], value) is not None
    return bool(value == criterion["value"])


def _query_holds(criterion: Object, request: Request) -> bool:
    value = parameters(request.target).get(criterion["name"])
    if not value:
        return False
    if criterion.get("type") == "RegularExpression":
        # CHOICE: regular expressions match the value as it was sent.
        return re.fullmatch(criterion["value"], value) is not None
    return bool(_plain(value) == criterion["value"])


def _act(
    rule: Object, match: Object, path: bytes, request: Request, host: str, services: dict[str, int]
) -> Expected:
    filters = {route_filter["type"]: route_filter for route_filter in rule.get("filters") or ()}
    response = _edited({}, filters.get("ResponseHeaderModifier", {}).get("responseHeaderModifier"))
    response |= sharing.labels(rule, request)
    if "RequestRedirect" in filters:
        request_redirect = filters["RequestRedirect"]["requestRedirect"]
        location = _location(request_redirect, match, path, request, host)
        return Expected(
            request_redirect.get("statusCode", 302), location=location, response=response
        )
    backends = [b for b in rule.get("backendRefs") or () if b.get("weight", 1) > 0]
    names = frozenset(b["name"] for b in backends)
    if not names or not names <= services.keys():
        return Expected(500, response=response)
    if not all(services[name] for name in names):
        return Expected(503, response=response)
    expected = Expected(200, names, query=request.target.partition("?")[2], host=request.asked)
    expected.response = response
    before = {name.lower(): request.header(name.lower()) for name, _ in request.headers}
    edit = filters.get("RequestHeaderModifier", {}).get("requestHeaderModifier")
    expected.headers = _edited(before, edit)
    if request.header("upgrade"):
        expected.headers |= {"upgrade": request.header("upgrade"), "connection": "upgrade"}
    for backend in backends:
        own = {
            backend_filter["type"]: backend_filter
            for backend_filter in backend.get("filters") or ()
        }
        if own:
            # CHOICE: a backend's filters apply to the result of the rule's.
            edit = own.get("RequestHeaderModifier", {}).get("requestHeaderModifier")
            changed = {**before, **expected.headers}
            headers = {**expected.headers, **_edited(changed, edit)}
            edit = own.get("ResponseHeaderModifier", {}).get("responseHeaderModifier")
            answered = {**response, **_edited(dict(response), edit)}
            expected.by_backend[backend["name"]] = (headers, answered)
    rewrite = filters.get("URLRewrite", {}).get("urlRewrite")
    if rewrite is not None:
        expected.host = rewrite.get("hostname") or expected.host
        expected.path = _replaced(rewrite.get("path"), match, path)
    return expected


def _edited(before: Mapping[str, str | None], edit: Object | None) -> dict[str, str | None]:
    """Return the headers that an edit changes, after it."""
    result: dict[str, str | None] = {}
    for name in (edit or {}).get("remove") or ():
        result[name.lower()] = None
    for item in (edit or {}).get("set") or ():
        result[item["name"].lower()] = item["value"]
    for item in (edit or {}).get("add") or ():
        name = item["name"].lower()
        known = result.get(name, before.get(name))
        result[name] = f"{known},{item['value']}" if known else item["value"]
    return result


def _replaced(change: Object | None, match: Object, path: bytes) -> bytes | None:
    if change is None:
        return None
    if change["type"] == "ReplaceFullPath":
        return bytes(change["replaceFullPath"].encode())
    prefix = (match.get("path") or {"value": "/"})["value"].rstrip("/").encode()
    base = change["replacePrefixMatch"].rstrip("/").encode()
    rest = path[len(prefix) :]
    return base + rest if base + rest else b"/"


def _location(criterion: Object, match: Object, path: bytes, request: Request, host: str) -> str:
    scheme = criterion.get("scheme") or ("http" if request.port == 8080 else "https")
    port = criterion.get("port") or (
        {"http": 80, "https": 443}[scheme] if "scheme" in criterion else 0
    )
    name = criterion.get("hostname") or host.lower()
    known = {"http": 80, "https": 443}[scheme]
    port_text = f":{port}" if port and port != known else "" if port else f":{request.port}"
    query = request.target.partition("?")[2]
    if "path" not in criterion:
        return f"{scheme}://{name}{port_text}{request.target}"
    replaced = _replaced(criterion["path"], match, path) or b"/"
    if criterion["path"]["type"] == "ReplacePrefixMatch" and _dotted(request.target):
        # CHOICE: of a path with dot segments only what needs no encoding is kept.
        rest = path[len((match.get("path") or {"value": "/"})["value"].rstrip("/").encode()) :]
        if not re.fullmatch(rb"[A-Za-z0-9._~!$&'()*+,;=:@/-]*", rest):
            replaced = criterion["path"]["replacePrefixMatch"].rstrip("/").encode() or b"/"
    text = replaced.decode(errors="surrogateescape")
    return f"{scheme}://{name}{port_text}{text}{'?' + query if query else ''}"


def _dotted(target: str) -> bool:
    segments = re.sub("%2e", ".", target.partition("?")[0], flags=re.IGNORECASE).split("/")
    return "." in segments or ".." in segments
