"""Answers that are late, wrong or missing."""

from __future__ import annotations

from fnmatch import fnmatchcase

import msgspec


class Fault(msgspec.Struct):
    """Fault of requests of one kind."""

    method: str = "*"
    path: str = "*"
    """A pattern for the path behind the version, such as ``/http/upstreams/*/servers/*``."""
    times: int = 1
    """Number of affected requests; -1 for all."""
    status: int = 0
    """Answered instead of what would have been; 0: that."""
    code: str = "InternalError"
    text: str = "internal error"
    after: bool = False
    """The request is carried out first, so that only its answer is wrong or lost."""
    delay: float = 0.0
    """Seconds before anything is done."""
    cut: bool = False
    """The connection is closed without an answer."""
    garbage: str = ""
    """An answer that is no JSON, such as a proxy's; needs ``status``."""

    def takes(self, method: str, path: str) -> bool:
        """Return whether the fault affects this request, and count it."""
        matches = self.method in ("*", method) and fnmatchcase(path.rstrip("/"), self.path)
        if not matches or self.times == 0:
            return False
        self.times -= 1 if self.times > 0 else 0
        return True
