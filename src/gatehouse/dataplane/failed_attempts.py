"""Marks in the logs of NGINX: requests whose failure at an endpoint only its error log explains.

NGINX has no variable with the cause of a failure. A mark follows the reason in an entry of the
access log or the request log, and identifies the request in the error log. The agent removes each
mark. It replaces the reason by the cause in the access log, and the mark by the cause in the
request log.
"""

from __future__ import annotations

MARK = "*"
"""Start of a mark. No reason contains it. Numbers of connections in the error log start with it."""

MARK_FORMAT = f"{MARK}$connection $upstream_addr $request"
"""Mark of a request, with NGINX variables."""
