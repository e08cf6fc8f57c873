"""Comparison of listeners by content, where the version that Envoy shows proves nothing.

Envoy keeps the version of a listener when only its filter chains change. The content is read once
after each such change, because Envoy's main thread takes some 3 ms for a chain of a kube-apiserver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from gatehouse.agent.envoy.admin import AdminClient, exact_names
from gatehouse.agent.envoy.listener_digests import DIGEST_PATTERN, digests
from gatehouse.dataplane.xds.resources import XdsResource

log = structlog.get_logger("gatehouse.agent")

MAX_READ_BYTES = 1 << 20
"""Maximum size of the listeners read in one comparison, unless there is one listener only."""


class ServedListeners:
    """Comparison of the listeners of one Envoy."""

    def __init__(self, admin: AdminClient, accepted: Callable[[str], XdsResource | None]) -> None:
        """``accepted`` returns the listener of a name that Envoy accepted last."""
        self._admin, self._accepted = admin, accepted
        self._known: dict[str, tuple[str, frozenset[str]]] = {}
        """By name, the confirmed version and what Envoy showed when it had that version."""

    def forget(self) -> None:
        """Forget all earlier comparisons."""
        self._known.clear()

    async def compare(
        self, expected: Mapping[str, str], versions: Mapping[str, set[str]]
    ) -> set[str]:
        """Add to `versions` the expected one of each listener whose content is right, and remove it
        if the content is wrong. Return the listeners that were not compared.

        `versions`: what Envoy shows of each: versions, and versions with the time of the update.
        """
        left: set[str] = set()
        size = 0
        for name, version in expected.items():
            present, accepted = frozenset(versions.get(name, ())), self._accepted(name)
            if not version or not present or accepted is None or accepted.version != version:
                continue
            if self._is_known(name, version, present):
                versions[name].add(version)
                continue
            if size and size + len(accepted.body) > MAX_READ_BYTES:
                left.add(name)
                continue
            size += len(accepted.body)
            try:
                right = await self._has(accepted)
            except OSError as error:
                log.warning("listener of envoy not compared", name=name, error=str(error))
                left.add(name)
                continue
            if right:
                versions[name].add(version)
                self._known[name] = (version, present)
            else:
                versions[name].discard(version)
        return left

    def _is_known(self, name: str, version: str, present: frozenset[str]) -> bool:
        """Return whether Envoy certainly has a version."""
        known = self._known.get(name)
        if known == (version, present):
            return True
        if version not in present or (known is not None and version in known[1]):
            # Envoy may show the same version with other chains.
            return False
        self._known[name] = (version, present)
        return True

    async def _has(self, listener: XdsResource) -> bool:
        """Return whether Envoy has this content, or gets it warm. Raises OSError."""
        expected = digests(listener.body)
        if not expected:
            # An earlier version of the agent sent it.
            return True
        # A warm listener may become active between two queries.
        for state in ("active_state", "warming_state", "active_state"):
            query = f"resource=dynamic_listeners&mask=name,{state}.listener"
            path = f"/config_dump?{query}&name_regex={exact_names([listener.name])}"
            if sorted(await self._admin.find(path, DIGEST_PATTERN)) == expected:
                return True
        return False
