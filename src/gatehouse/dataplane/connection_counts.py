"""Connection log for metrics: one short line per L4 connection or UDP session.

Like the request log (:mod:`gatehouse.dataplane.request_log`), a line has a head, ``|``, and
numbers. No client chooses any part of it.
"""

from __future__ import annotations

CONNECTIONS_FILE = "connections.log"
"""Name of the file in the agent's run directory."""

NGINX_CONNECTION_FORMAT = "gatehouse_connections"
"""Name of the log format of NGINX. The agent writes the directive that uses it."""

NGINX_CONNECTION_HEAD = ("host", "reason", "protocol")
"""``host``: route, backend and destination, separated by spaces."""

ENVOY_CONNECTION_HEAD = ("route", "backend", "reason", "protocol")

CONNECTION_NUMBERS = ("duration", "received", "sent")
"""``duration``: in seconds on NGINX, in milliseconds on Envoy."""
