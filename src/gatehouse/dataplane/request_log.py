"""Request log for metrics: one short line per request, from the proxy to its agent.

The compiler configures the proxy to write it, and the agent counts the lines. A line consists of a
head, which has few different values, ``|``, and numbers. Both consist of fields, separated by a
tab. ``-`` or nothing is a missing value. The fields of the proxies differ, because neither should
spend time on a value that the agent can compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FILE = "requests.log"
"""Name of the file in the agent's run directory."""

NGINX_FORMAT = "gatehouse_requests"
"""Name of the log format of NGINX. The agent writes the directive that uses it."""

SEPARATOR = "|"
"""Separator of head and numbers. Numbers never contain it."""

NGINX_HEAD = ("route", "backend", "reason", "status", "method")
"""``reason``: set if the location answers itself. A mark may follow
(:mod:`gatehouse.dataplane.failed_attempts`)."""

NGINX_NUMBERS = ("duration", "header_times", "response_times", "received", "sent")
"""Durations are in seconds; those of all attempts are in ``header_times`` and ``response_times``,
until the header of the response and until its end."""

ENVOY_HEAD = ("route", "backend", "status", "method")
"""``status`` has the response code details after a space, which earlier versions do not write. The
method is last: it may contain a tab."""

ENVOY_NUMBERS = ("duration", "upstream", "attempts", "received", "sent")
"""``duration`` and ``upstream``, until the header of the response: in milliseconds."""


def format_line(
    head: Sequence[str], numbers: Sequence[str], values: Mapping[str, str], tab: str = "\t"
) -> str:
    """Return the format of a line with the values of its fields. `tab`: the separator, escaped."""
    return SEPARATOR.join(tab.join(values[name] for name in names) for names in (head, numbers))
