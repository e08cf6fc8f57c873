"""Request log for metrics (:mod:`gatehouse.dataplane.request_log`): its format in NGINX.

The log does not depend on the settings of the access log. Variables that few locations set, or that
NGINX has anyway, keep its cost low: it has no map and no pattern.
"""

from __future__ import annotations

from gatehouse.compiler.backends.fragments import Fragment
from gatehouse.compiler.backends.nginx import access_log, names
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import format_directives, simple_directive
from gatehouse.dataplane import request_log
from gatehouse.dataplane.file_set import File

_VALUES = {
    "route": access_log.ROUTE_VARIABLE,
    "backend": access_log.BACKEND_VARIABLE,
    "reason": access_log.REASON_VARIABLE,
    "status": "$status",
    "method": "$request_method",
    "duration": "$request_time",
    "header_times": "$upstream_header_time",
    "response_times": "$upstream_response_time",
    "received": "$request_length",
    "sent": "$bytes_sent",
}


def format_file(capabilities: NginxCapabilities) -> Fragment[File]:
    """Return the file with the log format; none if the agent counts no requests."""
    if not capabilities.access_log:
        return Fragment()
    # Escaping would cost 1 µs per request. No value has control characters: the IR replaces them in
    # names, and NGINX rejects methods that have any.
    line = request_log.format_line(
        request_log.NGINX_HEAD, request_log.NGINX_NUMBERS, _VALUES, tab=r"\t"
    )
    directive = simple_directive("log_format", request_log.NGINX_FORMAT, "escape=none", f"'{line}'")
    return Fragment((File.make(names.REQUEST_LOG, format_directives([directive])),))
