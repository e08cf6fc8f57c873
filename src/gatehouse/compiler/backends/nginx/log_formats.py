"""Formats of users for the access log: text with NGINX variables.

A variable that does not exist makes NGINX reject all of its configuration. So only variables that
every supported NGINX has are accepted. They describe the request and the connection only.
"""

from __future__ import annotations

import re

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import quoting

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))?")

_PREFIXES = (
    "arg_", "cookie_", "http_", "sent_http_", "sent_trailer_", "upstream_cookie_",
    "upstream_http_", "upstream_trailer_",
)  # fmt: skip

PERMITTED_VARIABLES = {
    "args", "binary_remote_addr", "body_bytes_sent", "bytes_sent", "connection",
    "connection_requests", "connection_time", "content_length", "content_type", "date_gmt",
    "date_local", "document_uri", "gzip_ratio", "host", "hostname", "http2", "https", "is_args",
    "limit_rate", "limit_req_status", "limit_conn_status", "msec", "nginx_version", "pid", "pipe",
    "proxy_host", "proxy_port", "proxy_add_x_forwarded_for", "proxy_protocol_addr",
    "proxy_protocol_port", "proxy_protocol_server_addr", "proxy_protocol_server_port",
    "query_string", "realip_remote_addr", "realip_remote_port", "remote_addr", "remote_port",
    "remote_user", "request", "request_completion", "request_id", "request_length",
    "request_method", "request_time", "request_uri", "scheme", "server_addr", "server_name",
    "server_port", "server_protocol", "ssl_alpn_protocol", "ssl_cipher", "ssl_ciphers",
    "ssl_client_fingerprint", "ssl_client_i_dn", "ssl_client_s_dn", "ssl_client_serial",
    "ssl_client_v_end", "ssl_client_v_remain", "ssl_client_v_start", "ssl_client_verify",
    "ssl_curve", "ssl_curves", "ssl_early_data", "ssl_protocol", "ssl_server_name",
    "ssl_session_id", "ssl_session_reused", "status", "tcpinfo_rcv_space", "tcpinfo_rtt",
    "tcpinfo_rttvar", "tcpinfo_snd_cwnd", "time_iso8601", "time_local", "upstream_addr",
    "upstream_bytes_received", "upstream_bytes_sent", "upstream_cache_status",
    "upstream_connect_time", "upstream_header_time", "upstream_response_length",
    "upstream_response_time", "upstream_status", "uri",
}  # fmt: skip
"""Variables of NGINX 1.22 with the modules of all packages."""


def format_text(text: str) -> str:
    """Return the text of a user as a token. Raises InvalidValueError."""
    for match in _VARIABLE.finditer(text):
        name = match[1] or match[2]
        if not name:
            raise InvalidValueError("$ must be followed by the name of a variable")
        if name not in PERMITTED_VARIABLES and not _has_prefix(name):
            raise InvalidValueError(f"${name} is not a variable of every NGINX")
    return quoting.quote_literal(text)


def _has_prefix(name: str) -> bool:
    return any(name.startswith(prefix) and len(name) > len(prefix) for prefix in _PREFIXES)
