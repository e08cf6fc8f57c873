"""Annotation with KubeGateway's feature gates."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api

_TRUE = ("1", "t", "T", "true", "True", "TRUE")
_FALSE = ("0", "f", "F", "false", "False", "FALSE")
_WITHOUT_EFFECT = {
    "CloseConnectionWhenIdle": "only clients and drains close connections",
    "Tracing": "use the access log for tracing",
}
_KNOWN = ("CloseConnectionWhenIdle", "DenyAllRequests", "GlobalRateLimiter", "Tracing")


class Gates(msgspec.Struct, frozen=True):
    """Parsed feature gates."""

    deny: bool = False
    """Reject every request."""
    spanning: bool = False
    """Allow limits that are shared by data planes."""
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def read(annotations: dict[str, str]) -> Gates:
    """Parse the annotation. Missing gates are off."""
    problems: list[str] = []
    gates: dict[str, bool] = {}
    for part in annotations.get(api.FEATURE_GATES, "").split(","):
        if not part.strip():
            continue
        name, _, value = (each.strip() for each in part.partition("="))
        if name not in _KNOWN:
            problems.append(f"{name!r} must be one of {', '.join(_KNOWN)}")
        elif value not in (*_TRUE, *_FALSE):
            problems.append(f"{name}={value!r} must be true or false")
        else:
            gates[name] = value in _TRUE
    return Gates(
        deny=gates.get("DenyAllRequests", False),
        spanning=gates.get("GlobalRateLimiter", False),
        problems=tuple(problems),
        differences=tuple(
            f"{name} has no effect: {why}"
            for name, why in _WITHOUT_EFFECT.items()
            if gates.get(name)
        ),
    )
