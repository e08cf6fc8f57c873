"""Authenticated users."""

from __future__ import annotations

import msgspec

ADMINS = "system:masters"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ANONYMOUS = "system:anonymous"


class User(msgspec.Struct, frozen=True):
    """A user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def user_info(self) -> dict[str, object]:
        """Return the user in the form of reviews and audit records."""
        info: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = self.extra
        return info


SYSTEM = User("system:apiserver", groups=(ADMINS, AUTHENTICATED))
"""The server itself."""
