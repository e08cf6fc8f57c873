"""Main NGINX configuration file for agents that have none of their own."""

from __future__ import annotations

import re
from collections.abc import Collection

MAIN_ENTRY = "gatehouse/main.conf"
HTTP_ENTRY = "gatehouse/http.conf"
STREAM_ENTRY = "gatehouse/stream.conf"
"""Files that are included if the file set contains them."""

_KEEPALIVE_MIN_TIMEOUT = (1, 27, 4)


def render(proxy: str, paths: Collection[str]) -> str:
    """Return the file for the NGINX ``proxy`` and a file set with the files ``paths``."""
    # User, pid, logs and temporary files keep the defaults of that NGINX build: only its image
    # determines which of them are writable.
    lines = [
        "worker_processes auto;",
        # Limits how long websockets and L4 connections keep an old worker, and so how many
        # accumulate.
        "worker_shutdown_timeout 60s;",
        *([f"include {MAIN_ENTRY};"] if MAIN_ENTRY in paths else []),
        "events { worker_connections 4096; }",
        "http {",
        "    access_log off;",
        # Keeps idle connections of an old worker open for requests that are already on their way.
        *(["    keepalive_min_timeout 3s;"] if _version(proxy) >= _KEEPALIVE_MIN_TIMEOUT else []),
        *([f"    include {HTTP_ENTRY};"] if HTTP_ENTRY in paths else []),
        "}",
    ]
    if STREAM_ENTRY in paths:
        lines += ["stream {", f"    include {STREAM_ENTRY};", "}"]
    return "\n".join(lines) + "\n"


def _version(proxy: str) -> tuple[int, ...]:
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", proxy)
    return tuple(int(part) for part in match.groups()) if match else ()
