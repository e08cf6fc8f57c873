"""A proxy's description of a request."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class AuthRequest(msgspec.Struct, frozen=True):
    """A proxy's description of a request."""

    method: str
    query: Mapping[str, str]
    cookie: str = ""
    origin: str = ""
    """Scheme, host and port of the user's request."""
    uri: str = ""
    upgrade: str = ""
    authorization: str = ""
    mode: str = ""
    """Sec-Fetch-Mode, by which browsers distinguish navigations from requests of pages."""

    @property
    def navigates(self) -> bool:
        """True if the response is shown to a user, who can log in."""
        return (
            self.method in ("GET", "HEAD")
            and not self.upgrade
            and self.mode.lower() in ("", "navigate")
        )
