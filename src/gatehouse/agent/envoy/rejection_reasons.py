"""Resources that Envoy rejects, and reasons for one NACK to the control plane. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.nacks import Nack, is_bind_error
from gatehouse.dataplane.xds.resources import (
    ADD_ORDER,
    ROUTES_TYPE_URL,
    SCOPE_TYPE_URL,
    XdsResource,
)
from gatehouse.dataplane.xds.subscription import Subscription

MAX_NACK_REASONS = 100
"""Maximum number of rejected resources whose reasons are listed in a NACK."""


class UnansweredResponse(msgspec.Struct):
    """A response of the control plane that Envoy has not completely accepted or rejected."""

    nonce: str
    names: set[str]
    rejected: dict[str, str] = {}
    """Reasons of Envoy's rejections so far, by name."""


def rejection_reason(state: Subscription, held: XdsResource | None) -> str:
    """Return why Envoy rejects a held resource. Empty if it did not reject it."""
    rejection = state.rejected.get(held.name) if held else None
    if held is None or rejection is None or rejection.resource.version != held.version:
        return ""
    return rejection.reason or "no reason given"


def has_certain_state(envoy: AdsSession) -> bool:
    """Return whether Envoy has all that was sent, none in part, and has answered all scopes.

    A port in use is no reason to wait: others may release it at any time.
    """
    if is_answering_scopes(envoy):
        return False
    states = [state for kind in ADD_ORDER if (state := envoy.subscription(kind)) is not None]
    return not any(
        state.uncertain or any(not is_bind_error(one.reason) for one in state.rejected.values())
        for state in states
    )


def is_answering_scopes(envoy: AdsSession) -> bool:
    """Return whether Envoy waits for scopes, or has some that it has not answered.

    The same for route configurations.
    """
    states = (envoy.subscription(kind) for kind in (SCOPE_TYPE_URL, ROUTES_TYPE_URL))
    return any(
        # An Envoy of an earlier agent has versions.
        not (state.idle and (state.sent_once or state.client_versions))
        for state in states
        if state is not None
    )


def combined_nack(reasons: Mapping[str, str]) -> Nack:
    """Return one NACK with the reasons of several resources, by name."""
    texts = [f"{name}: {reason}" for name, reason in sorted(reasons.items())]
    return Nack("\n".join(texts[:MAX_NACK_REASONS]), reasons)
