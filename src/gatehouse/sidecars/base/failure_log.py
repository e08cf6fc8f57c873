"""Rate-limited error log: each message at most once a minute."""

from __future__ import annotations

import os
import ssl
import sys
import time
from collections.abc import Callable

REPEAT_SECONDS = 60.0

MAX_MESSAGES = 1000
"""Maximum number of remembered messages, because peers influence their texts."""


def _write(line: str) -> None:
    """Write a line to stderr in NGINX's log format, which the agent parses."""
    now = time.strftime("%Y/%m/%d %H:%M:%S")
    sys.stderr.write(f"{now} [error] {os.getpid()}#0: {line}\n")
    sys.stderr.flush()


class FailureLog:
    """Log of failures, without repetitions."""

    def __init__(
        self,
        write_line: Callable[[str], None] = _write,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write_line
        self._clock = clock
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}

    def record(self, subject: str, reason: str) -> None:
        """Log a failure if it is new or was not logged for a minute; otherwise count it."""
        key, now = (subject, reason), self._clock()
        last, suppressed = self._logged.get(key, (0.0, 0))
        if key in self._logged and now - last < REPEAT_SECONDS:
            self._logged[key] = (last, suppressed + 1)
            return
        if len(self._logged) >= MAX_MESSAGES:
            self._logged.clear()
        self._logged[key] = (now, 0)
        more = f" ({suppressed} more since the last message)" if suppressed else ""
        self._write(f"{subject}: {reason}{more}")


def error_text(error: Exception) -> str:
    """Return the error message without the address, which the log entry contains already."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)
