"""Sessions that ended before their cookies expire, in bounded memory. No I/O.

Anyone may send a front-channel logout with any session ID of the provider. Requests with unknown
IDs are stored apart, so that they cannot displace sessions that really ended.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

from gatehouse.sidecars.authenticator.sessions import LoginSession

MAX_SESSIONS = 100_000
"""Maximum number of sessions of each kind. The oldest one is displaced."""

MAX_UNKNOWN = 10_000
"""Maximum number of ended session IDs that belong to no known session."""


class EndedSessions:
    """Ended sessions of one relying party. Entries have a fixed size, whatever a client sends."""

    def __init__(self) -> None:
        self._known: dict[bytes, float] = {}
        """IDs of the provider in valid cookies that this process received."""
        self._logged_out: dict[bytes, float] = {}
        self._ended: dict[bytes, float] = {}
        self._unknown: dict[bytes, float] = {}

    def is_ended(self, session: LoginSession, now: float) -> bool:
        """Return whether a session has ended. A valid one becomes known."""
        if session.id and _digest(session.id) in self._logged_out:
            return True
        if not session.sid:
            return False
        digest = _digest(session.sid)
        times = (memory.get(digest, -math.inf) for memory in (self._ended, self._unknown))
        if session.begun <= max(times):
            return True
        _store(self._known, digest, now, MAX_SESSIONS)
        return False

    def log_out(self, session: LoginSession, now: float) -> None:
        """End a session whose user logged out."""
        if session.id:
            _store(self._logged_out, _digest(session.id), now, MAX_SESSIONS)

    def end(self, sid: str, now: float) -> None:
        """End the sessions with an ID of the provider that began before ``now``."""
        digest = _digest(sid)
        if digest in self._known:
            _store(self._ended, digest, now, MAX_SESSIONS)
        else:
            _store(self._unknown, digest, now, MAX_UNKNOWN)

    def expire(self, before: float) -> None:
        """Forget sessions that ended before a time: their cookies have expired."""
        for entries in (self._known, self._logged_out, self._ended, self._unknown):
            for digest in _older(entries, before):
                del entries[digest]

    def __len__(self) -> int:
        tables = (self._known, self._logged_out, self._ended, self._unknown)
        return sum(map(len, tables))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _store(entries: dict[bytes, float], digest: bytes, now: float, maximum: int) -> None:
    """Store a time as the newest entry. The order of the entries is that of their times."""
    entries.pop(digest, None)
    entries[digest] = now
    if len(entries) > maximum:
        del entries[next(iter(entries))]


def _older(entries: dict[bytes, float], before: float) -> list[bytes]:
    def found() -> Iterator[bytes]:
        for digest, stored in entries.items():
            if stored >= before:
                return
            yield digest

    return list(found())
