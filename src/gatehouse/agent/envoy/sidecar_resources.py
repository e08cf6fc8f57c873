"""State of the sidecar configuration resource type: received and accepted versions. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.dataplane.xds.resources import (
    SIDECAR_CONFIG_TYPE_URL,
    TRIAL_NAME,
    ResourceKey,
    XdsResource,
)
from gatehouse.dataplane.xds.subscription import UNKNOWN_VERSION


class SidecarResult(msgspec.Struct, frozen=True):
    """Result of the newest sidecar configurations."""

    nonce: str
    """Nonce of the response to answer. Empty: none."""
    accepted: tuple[XdsResource, ...]
    removed: tuple[ResourceKey, ...]
    rejected: Mapping[str, str]
    """Reasons by name, for resources of that response."""


class SidecarResources:
    """The newest sidecar configurations, and those that sidecars accepted last."""

    def __init__(self, stored: Iterable[XdsResource]) -> None:
        self.desired: Mapping[str, XdsResource] = {resource.name: resource for resource in stored}
        """Desired configurations by name. Replaced by a new object at each change."""
        self._accepted = self.desired
        self._nonce = ""
        self._names: frozenset[str] = frozenset()

    def versions(self, *, starting: bool = False) -> dict[str, str]:
        """Return the versions to report to the control plane, by name.

        ``starting``: Envoy serves nothing, like one that has a trial.
        """
        known = {
            name: resource.version
            for name, resource in self._accepted.items()
            if self.desired.get(name) == resource
        }
        names = (*self._accepted, *self.desired, *([TRIAL_NAME] if starting else []))
        return dict.fromkeys(names, UNKNOWN_VERSION) | known

    def forget_stream(self) -> None:
        """Forget the pending response, because its stream has ended."""
        self._nonce = ""

    def on_response(self, nonce: str, new: Iterable[XdsResource], removed: Iterable[str]) -> None:
        """Apply a response of the control plane."""
        updated = {resource.name: resource for resource in new}
        dropped = {*removed}
        remaining = {
            name: resource for name, resource in self.desired.items() if name not in dropped
        }
        self.desired = remaining | updated
        self._nonce, self._names = nonce, frozenset(updated) | dropped

    def on_result(
        self, applied: Mapping[str, XdsResource], rejected: Mapping[str, str]
    ) -> SidecarResult | None:
        """Record what sidecars did with `applied`. Return None if newer configurations arrived."""
        if applied is not self.desired:
            return None
        accepted = {
            name: resource
            for name, resource in {
                **applied,
                **{name: self._accepted.get(name) for name in rejected},
            }.items()
            if resource is not None
        }
        changed = tuple(
            resource for name, resource in accepted.items() if self._accepted.get(name) != resource
        )
        removed = tuple(
            (SIDECAR_CONFIG_TYPE_URL, name) for name in self._accepted.keys() - accepted.keys()
        )
        nonce, self._nonce = self._nonce, ""
        self.desired = self._accepted = accepted
        reasons = {name: reason for name, reason in rejected.items() if name in self._names}
        return SidecarResult(nonce, changed, removed, reasons)
