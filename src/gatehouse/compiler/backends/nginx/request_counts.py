"""Request log for metrics (:mod:`gatehouse.dataplane.request_log`): its format in NGINX.

The log does not depend on the settings of the access log. Variables that few locations set, or that
NGINX has anyway, keep its cost low: it has no pattern, and one map, which NGINX looks up by a hash.
"""

from __future__ import annotations

from gatehouse.compiler.backends.fragments import Fragment
from gatehouse.compiler.backends.nginx import access_log, names
from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    format_directives,
    map_block,
    simple_directive,
)
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.dataplane import request_log
from gatehouse.dataplane.failed_attempts import REQUEST_MARK
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
    values, definitions = _VALUES, list[Directive]()
    if capabilities.failure_causes:
        values = _VALUES | {"reason": access_log.REASON_VARIABLE + access_log.MARK_VARIABLE}
        definitions = [_mark_map()]
    # Escaping would cost 1 µs per request. No value has control characters: the IR replaces them in
    # names, and NGINX rejects methods that have any.
    line = request_log.format_line(
        request_log.NGINX_HEAD, request_log.NGINX_NUMBERS, values, tab=r"\t"
    )
    log_format = simple_directive(
        "log_format", request_log.NGINX_FORMAT, "escape=none", f"'{line}'"
    )
    text = format_directives([*definitions, log_format])
    return Fragment((File.make(names.REQUEST_LOG, text),))


def _mark_map() -> Directive:
    """Return the map that marks requests without a response of an endpoint."""
    own = f"{access_log.REASON_VARIABLE}$status"
    failure = LocalReason.CONNECTION_FAILURE
    # A gRPC call has the status 200.
    rows = dict.fromkeys(("502", f"{failure}502", f"{failure}200"), f'"{REQUEST_MARK}"')
    return map_block(f'"{own}"', access_log.MARK_VARIABLE, rows, None)
