"""Tests of a trial's route scopes by an Envoy that serves. No I/O.

Envoy validates a scope with everything in it when it gets it. So a copy under a key that no request
has is accepted or rejected like the original, and serves nothing. Scopes are tested one after the
other under the same name, so that Envoy has at most one copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from envoy.config.route.v3 import scoped_route_pb2

from gatehouse.dataplane.xds.nacks import RejectedResource
from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL, XdsResource
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.dataplane.xds.subscription import Subscription

TRIAL_SCOPE = "gh-trial"
"""Name of the copy."""

_KEY = "gh-trial\n"
"""Key of the copy. It is compared with a header, which contains no line break."""


class ScopeTests:
    """Tests of trials by one client."""

    def __init__(self) -> None:
        self.version = ""
        """Version of the present trial; empty if there is none."""
        self._scopes: tuple[XdsResource, ...] = ()
        self._untested: deque[XdsResource] = deque()
        self._results: dict[str, str] = {}
        """Reasons of rejections by the version of a scope; empty if it was accepted."""
        self._nonce = ""
        """Nonce of the last response with a copy."""
        self._tested = ""
        """Version of the scope that the client tests now; empty: none."""

    @property
    def finished(self) -> bool:
        """True if the client has tested all scopes of a trial."""
        return bool(self.version) and not self._untested and not self._tested

    def rejected(self) -> Iterator[RejectedResource]:
        """Yield the scopes of the trial that the client rejects."""
        for scope in self._scopes:
            if reason := self._results.get(scope.version):
                yield RejectedResource(scope, reason)

    def next(self, publication: SnapshotCache, state: Subscription | None) -> XdsResource | None:
        """Return the copy to send next, or None if there is none or an answer is awaited.

        ``publication``: with the present trial. ``state``: the client's subscription to scopes.
        """
        if self.version != publication.current.version:
            self._start(publication, state)
        if state is None or state.in_flight is not None or not self._untested:
            return None
        scope = self._untested.popleft()
        self._tested = scope.version
        return _copy(scope)

    def sent(self, nonce: str) -> None:
        """Record that the copy was sent."""
        self._nonce = nonce

    def answered(self, nonce: str, state: Subscription) -> None:
        """Process the answer to a response with scopes, which is in ``state``."""
        if nonce == self._nonce:
            rejection = state.rejected.pop(TRIAL_SCOPE, None)
            self._results[self._tested] = _reason(rejection) if rejection is not None else ""
            self._tested = ""

    def end(self, state: Subscription | None) -> None:
        """Forget the results, and have the copy removed that the client may have."""
        if self.version:
            self.version, self._scopes, self._results = "", (), {}
            self._untested.clear()
        if state is not None and state.client_versions.get(TRIAL_SCOPE):
            state.mark((TRIAL_SCOPE,))

    def _start(self, publication: SnapshotCache, state: Subscription | None) -> None:
        """Test the scopes of the present trial of which the client lacks the newest version."""
        self.version = publication.current.version
        has = state.client_versions if state is not None else {}
        rejected = state.rejected.values() if state is not None else ()
        self._results |= {one.resource.version: _reason(one) for one in rejected}
        scopes = publication.current.by_type.get(SCOPE_TYPE_URL, {})
        newest = publication.newest_served.by_type.get(SCOPE_TYPE_URL, {})
        lacking = (name for name, scope in newest.items() if has.get(name) != scope.version)
        self._scopes = tuple(
            scope
            for name in lacking
            if (scope := scopes.get(name)) is not None and has.get(name) != scope.version
        )
        self._untested = deque(one for one in self._scopes if one.version not in self._results)


def _reason(rejection: RejectedResource) -> str:
    return rejection.reason or "no reason given"


def _copy(scope: XdsResource) -> XdsResource:
    """Return a copy of a scope that no request selects."""
    proto = scoped_route_pb2.ScopedRouteConfiguration.FromString(scope.body)
    proto.name = TRIAL_SCOPE
    proto.ClearField("key")
    proto.key.fragments.add(string_key=_KEY)
    body = proto.SerializeToString(deterministic=True)
    return XdsResource.make(
        SCOPE_TYPE_URL, TRIAL_SCOPE, body, origins=scope.origins, secret=scope.secret
    )
