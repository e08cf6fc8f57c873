"""The annotation with KubeGateway's feature gates."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api

_TRUE = ("1", "t", "T", "true", "True", "TRUE")
_FALSE = ("0", "f", "F", "false", "False", "FALSE")
_NOT_SERVED = {
    "CloseConnectionWhenIdle": "connections are closed by their clients and by drains",
    "Tracing": "requests are traced by what reads the access log",
}
_KNOWN = ("CloseConnectionWhenIdle", "DenyAllRequests", "GlobalRateLimiter", "Tracing")


class Gates(msgspec.Struct, frozen=True):
    """What the gates of an object say."""

    deny: bool = False
    """Every request is refused."""
    spanning: bool = False
    """Limits may span data planes."""
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def read(annotations: dict[str, str]) -> Gates:
    """Read the annotation; a gate that is not named is closed."""
    problems: list[str] = []
    gates: dict[str, bool] = {}
    for part in annotations.get(api.FEATURE_GATES, "").split(","):
        if not part.strip():
            continue
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in _KNOWN:
            problems.append(f"{name!r} is not one of {', '.join(_KNOWN)}")
        elif value not in (*_TRUE, *_FALSE):
            problems.append(f"{name}={value!r} is neither true nor false")
        else:
            gates[name] = value in _TRUE
    return Gates(
        deny=gates.get("DenyAllRequests", False),
        spanning=gates.get("GlobalRateLimiter", False),
        problems=tuple(problems),
        differences=tuple(
            f"{name} has no effect: {why}" for name, why in _NOT_SERVED.items() if gates.get(name)
        ),
    )
