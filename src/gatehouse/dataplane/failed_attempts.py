"""Marks in the logs of NGINX: failures at an endpoint that only its error log explains.

NGINX has no variable with the cause of a failure. A mark follows the reason of a request or
connection in the access log and in the logs for metrics, and identifies it in the error log. The
agent removes each mark. It replaces the reason by the cause in the access log, and the mark by the
cause in the logs for metrics.
"""

from __future__ import annotations

MARK_START = "*"
"""Start of a mark. No reason contains it. Numbers of connections in the error log start with it."""

CONNECTION_MARK = f"{MARK_START}$connection $upstream_addr"
"""Mark of an L4 connection, with NGINX variables."""

REQUEST_MARK = f"{CONNECTION_MARK} $request"
"""Mark of a request."""
