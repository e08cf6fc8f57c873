"""What a proxy says of a request."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class AuthRequest(msgspec.Struct, frozen=True):
    """What a proxy says of a request."""

    method: str
    query: Mapping[str, str]
    cookie: str = ""
    origin: str = ""
    """Scheme, host and port that the user came to."""
    uri: str = ""
    upgrade: str = ""
    authorization: str = ""
    mode: str = ""
    """Sec-Fetch-Mode, with which browsers tell navigations from what pages fetch."""

    @property
    def navigates(self) -> bool:
        """Whether somebody sees the answer, and can log in."""
        return (
            self.method in ("GET", "HEAD")
            and not self.upgrade
            and self.mode.lower() in ("", "navigate")
        )
