"""Lines of the error log of NGINX about failed attempts at endpoints."""

from __future__ import annotations

VICTIM = (
    'x while connecting to upstream, client: 10.0.0.9, server: , request: "GET / HTTP/1.1", '
    'upstream: "http://10.0.0.66:80/"'
)
"""End of a line that clients or backends send to have it taken for one of NGINX."""


def error_line(text: str, endpoint: str = "10.0.0.1:8443", request: str = "GET / HTTP/1.1") -> str:
    return (
        f"2026/11/24 09:15:07 [error] 7#7: *1 {text} upstream, client: 10.0.0.9, server: , "
        f'request: "{request}", upstream: "https://{endpoint}/", host: "a.example"'
    )
