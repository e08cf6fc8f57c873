"""Annotation with KubeGateway's feature gates.

`DenyAllRequests` is an emergency brake, so that errors are safe: as long as the annotation has an
error, a gate without a valid value in it keeps its previous value.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.apis.feature_gates import parse

_WITHOUT_EFFECT = {
    "CloseConnectionWhenIdle": "only clients and drains close connections",
    "Tracing": "use the access log for tracing",
}
_DENY = "DenyAllRequests"


class Gates(msgspec.Struct, frozen=True):
    """Parsed feature gates."""

    enabled: tuple[str, ...] = ()
    """Names of the gates that are on, sorted."""
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()

    @property
    def deny(self) -> bool:
        """Reject every request."""
        return _DENY in self.enabled

    @property
    def spanning(self) -> bool:
        """Allow limits that are shared by data planes."""
        return "GlobalRateLimiter" in self.enabled


def parse_feature_gates(annotations: dict[str, str], previous: Collection[str] = ()) -> Gates:
    """Parse the annotation. ``previous``: the gates that were on before.

    Missing gates are off. In an annotation with an error they keep their previous value.
    """
    gates = parse(annotations.get(api.FEATURE_GATES, ""))
    retained = set(previous) - gates.values.keys() if gates.problems else set[str]()
    enabled = {name for name, value in gates.values.items() if value} | retained
    stays = (
        f"{name} stays on: the annotation has no valid value for it" for name in sorted(retained)
    )
    return Gates(
        enabled=tuple(sorted(enabled)),
        problems=(*gates.problems, *stays),
        differences=tuple(
            f"{name} has no effect: {why}"
            for name, why in _WITHOUT_EFFECT.items()
            if name in enabled
        ),
    )
