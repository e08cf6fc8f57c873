"""First configuration of an Envoy: what is missing in it before Envoy may start. No I/O."""

from __future__ import annotations

from gatehouse.agent.envoy.rejection_reasons import has_certain_state, is_answering_scopes
from gatehouse.dataplane.xds.ads_session import AdsSession

REJECTION_SECONDS = 10.0
"""Maximum time in seconds that a resource which Envoy rejects delays the start. The
control plane leaves out the object that causes it, or finds none."""


class FirstConfiguration:
    """The first configuration of an Envoy, possibly without a part that Envoy rejects."""

    def __init__(self) -> None:
        self._rejecting_since: float | None = None

    def missing(self, envoy: AdsSession, now: float, *, trial: bool) -> str:
        """Return what Envoy lacks of its good part; empty if it has that.

        ``trial``: what Envoy has is a trial of the control plane. Envoy answers scopes that it
        rejected together one by one. So it has all that it does not reject when it has answered.
        """
        if trial:
            # The result is another configuration, which Envoy may reject in part, too.
            self._rejecting_since = None
            return "the control plane searches for rejected objects"
        if has_certain_state(envoy):
            self._rejecting_since = None
            return ""
        if self._rejecting_since is None:
            self._rejecting_since = now
        if is_answering_scopes(envoy):
            return "Envoy has not answered all of its first configuration"
        waits = now - self._rejecting_since < REJECTION_SECONDS
        return "Envoy rejects a part of its first configuration" if waits else ""
