"""Result of the last handshake behind a socket, in a file that the agent of NGINX reads.

NGINX only sees a closed connection. The file exists while the endpoint's certificate or TLS is the
cause, and has its name in the access log.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from kube_base.runtime.private_files import replace_private_file


class UntrustedError(Exception):
    """The endpoint's certificate does not have an accepted name."""


class LastHandshake:
    """Result of the last handshake behind the socket `path`."""

    def __init__(self, path: Path) -> None:
        self._file = path.with_suffix(".cause")
        self._cause = ""
        self._file.unlink(missing_ok=True)

    def record(self, error: Exception | None) -> None:
        """Record the result of a handshake. Only a change costs I/O."""
        cause = _cause(error)
        if cause == self._cause:
            return
        with contextlib.suppress(OSError):
            if cause:
                replace_private_file(self._file, cause.encode())
            else:
                self._file.unlink(missing_ok=True)
            self._cause = cause


def _cause(error: Exception | None) -> str:
    if isinstance(error, UntrustedError | ssl.SSLCertVerificationError):
        return "backend_certificate"
    return "backend_tls" if isinstance(error, ssl.SSLError) else ""
