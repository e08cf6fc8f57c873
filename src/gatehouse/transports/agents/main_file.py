"""The text of the file that NGINX begins with, for agents that have none of their own."""

from __future__ import annotations

import re
from collections.abc import Collection

MAIN_ENTRY = "gatehouse/main.conf"
HTTP_ENTRY = "gatehouse/http.conf"
STREAM_ENTRY = "gatehouse/stream.conf"
"""The bundle's files that are included, if it has them."""

_KEEPALIVE_MIN_TIMEOUT = (1, 27, 4)


def render(proxy: str, paths: Collection[str]) -> str:
    """Write the file for the NGINX ``proxy`` and a bundle with the files ``paths``."""
    # User, pid, logs and temporary files stay where that NGINX was built to have them: only its
    # image knows which of them may be written.
    lines = [
        "worker_processes auto;",
        # Bounds how long websockets and streams keep an old worker, and so how many pile up.
        "worker_shutdown_timeout 60s;",
        *([f"include {MAIN_ENTRY};"] if MAIN_ENTRY in paths else []),
        "events { worker_connections 4096; }",
        "http {",
        "    access_log off;",
        # Keeps idle connections of an old worker open for a request that is on its way already.
        *(["    keepalive_min_timeout 3s;"] if _version(proxy) >= _KEEPALIVE_MIN_TIMEOUT else []),
        *([f"    include {HTTP_ENTRY};"] if HTTP_ENTRY in paths else []),
        "}",
    ]
    if STREAM_ENTRY in paths:
        lines += ["stream {", f"    include {STREAM_ENTRY};", "}"]
    return "\n".join(lines) + "\n"


def _version(proxy: str) -> tuple[int, ...]:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", proxy)
    return tuple(int(part) for part in found.groups()) if found else ()
