"""Main NGINX configuration file for agents that have none of their own."""

from __future__ import annotations

import re
from collections.abc import Collection

_MAIN_ENTRY = "gatehouse/main.conf"
_HTTP_ENTRY = "gatehouse/http.conf"
_STREAM_ENTRY = "gatehouse/stream.conf"
_EVENTS_ENTRY = "gatehouse/events.conf"
"""Files that are included if the file set contains them."""

_KEEPALIVE_MIN_TIMEOUT_VERSION = (1, 27, 4)


_STREAM_MODULE = "ngx_stream_module"
"""Module of the ``stream`` block, which Debian and others build as a dynamic one."""


def render_main_file(
    proxy: str, paths: Collection[str], loadable_modules: Collection[str] = ()
) -> str:
    """Return the file for the NGINX ``proxy`` and a file set with the files ``paths``.

    ``loadable_modules``: dynamic modules of this NGINX. The file loads those that it needs.
    """
    # User, pid, logs and temporary files keep the defaults of that NGINX build: only its image
    # determines which of them are writable.
    replaced = _EVENTS_ENTRY in paths
    events = f"include {_EVENTS_ENTRY};" if replaced else "worker_connections 4096;"
    dynamic_stream = _STREAM_ENTRY in paths and _STREAM_MODULE in loadable_modules
    lines = [
        # Packages of NGINX link "modules" in its prefix to the directory of modules.
        *([f"load_module modules/{_STREAM_MODULE}.so;"] if dynamic_stream else []),
        "worker_processes auto;",
        # Limits how long websockets and L4 connections keep an old worker, and so how many
        # accumulate.
        "worker_shutdown_timeout 60s;",
        *([f"include {_MAIN_ENTRY};"] if _MAIN_ENTRY in paths else []),
        f"events {{ {events} }}",
        "http {",
        "    access_log off;",
        # Keeps idle connections of an old worker open for requests that are already on their way.
        *(
            ["    keepalive_min_timeout 3s;"]
            if _version(proxy) >= _KEEPALIVE_MIN_TIMEOUT_VERSION
            else []
        ),
        *([f"    include {_HTTP_ENTRY};"] if _HTTP_ENTRY in paths else []),
        "}",
    ]
    if _STREAM_ENTRY in paths:
        lines += ["stream {", f"    include {_STREAM_ENTRY};", "}"]
    return "\n".join(lines) + "\n"


def _version(proxy: str) -> tuple[int, ...]:
    match = re.search(r"(?<!\d)(\d{1,9})\.(\d{1,9})\.(\d{1,9})", proxy)
    return tuple(int(part) for part in match.groups()) if match else ()
