"""Reasons for which an attempt of Envoy at an endpoint fails, by the response code details."""

from __future__ import annotations

from typing import NamedTuple


class BackendFailure(NamedTuple):
    """A reason, and the details that mean it."""

    reason: str
    """Reason of the access log and of metrics."""
    words: tuple[str, ...] = ()
    """Texts that the details contain."""
    reset: bool = True
    """True if the details start with :data:`RESET`."""


RESET = "upstream_reset"
"""Start of the details if the connection to the endpoint failed or ended."""

TLS_ERROR = "TLS_error"
"""Word of the details about a TLS handshake."""

BACKEND_FAILURES = (
    # Before other words: the details may quote names of the endpoint's certificate.
    BackendFailure("backend_certificate", (TLS_ERROR, "CERTIFICATE_VERIFY_FAILED")),
    BackendFailure("connection_failure", (TLS_ERROR, "Connection", "reset")),
    BackendFailure("backend_tls", (TLS_ERROR,)),
    BackendFailure("backend_protocol", ("{protocol_error",)),
    BackendFailure("timeout", ("timeout",), reset=False),
    BackendFailure("connection_failure"),
)
"""The first failure whose details match counts."""
