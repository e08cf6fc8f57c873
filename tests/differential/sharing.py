"""The oracle's part for cross-origin requests (HTTPCORSFilter)."""

from __future__ import annotations

import re

from differential.exchange import Expected, Object, Request

_PORTS = {"http": "80", "https": "443"}


def preflight(rule: Object, request: Request) -> Expected | None:
    """Return the response to a preflight request; None for other requests."""
    cors = _filter(rule)
    requested_method = request.header("access-control-request-method")
    if (
        cors is None
        or request.method != "OPTIONS"
        or not request.header("origin")
        or not requested_method
    ):
        return None
    # CHOICE: whatever else the rule does, it is answered here, with 204 also where not permitted.
    result = labels(rule, request)
    names = {"methods": ("allowMethods", requested_method)}
    names["headers"] = ("allowHeaders", request.header("access-control-request-headers"))
    allowed = result["access-control-allow-origin"] is not None
    for name, (field, echo) in names.items():
        listed = cors.get(field)
        value = (echo if "*" in listed else ", ".join(listed)) if listed and allowed else None
        result[f"access-control-allow-{name}"] = value or None
    result["access-control-max-age"] = str(cors["maxAge"]) if allowed else None
    return Expected(204, response=result)


def labels(rule: Object, request: Request) -> dict[str, str | None]:
    """Return the CORS headers of a response; None: must be absent."""
    cors = _filter(rule)
    if cors is None:
        return {}
    origin, credentials = request.header("origin"), cors.get("allowCredentials", False)
    allowed = origin if any(_matches(pattern, origin) for pattern in cors["allowOrigins"]) else None
    if allowed and "*" in cors["allowOrigins"] and not credentials:
        # CHOICE: ``*``, where the origin would be permitted as well.
        allowed = (
            "*"
            if not any(_matches(o, origin) for o in cors["allowOrigins"] if o != "*")
            else allowed
        )
    exposed = [name for name in cors.get("exposeHeaders") or () if name != "*" or not credentials]
    return {
        "access-control-allow-origin": allowed,
        "access-control-allow-credentials": "true" if allowed and credentials else None,
        "access-control-expose-headers": ", ".join(exposed) if allowed and exposed else None,
    }


def _filter(rule: Object) -> Object | None:
    return next(
        (
            route_filter["cors"]
            for route_filter in rule.get("filters") or ()
            if route_filter["type"] == "CORS"
        ),
        None,
    )


def _matches(pattern: str, origin: str) -> bool:
    if not origin:
        return False
    if pattern == "*":
        return True
    origin_parts, allowed = _parts(origin.lower()), _parts(pattern)
    if (
        origin_parts is None
        or allowed is None
        or (origin_parts[0], origin_parts[2]) != (allowed[0], allowed[2])
    ):
        return False
    # "A greedy match to the left, including any number of DNS labels."
    return re.fullmatch(re.escape(allowed[1]).replace(r"\*", ".+"), origin_parts[1]) is not None


def _parts(origin: str) -> tuple[str, str, str] | None:
    match = re.fullmatch(r"(https?)://([^:/]+)(?::(\d+))?", origin)
    return match and (match[1], match[2], match[3] or _PORTS[match[1]])
