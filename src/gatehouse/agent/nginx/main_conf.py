"""The main file of a generation, which is the agent's own: processes, paths, version."""

from __future__ import annotations

import re
from collections.abc import Collection

from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.nameserver import HOST
from gatehouse.agent.nginx.paths import TEMP_KINDS, Places
from gatehouse.agent.nginx.plus.client import LOCATION

MAIN_ENTRY = "gatehouse/main.conf"
HTTP_ENTRY = "gatehouse/http.conf"
STREAM_ENTRY = "gatehouse/stream.conf"
"""The bundle's files that are included, if it has them."""

STATUS = "http_stub_status_module"
"""What NGINX must have been built with to tell its figures."""

_VERSION = re.compile(r"[A-Za-z0-9+/=_.:-]{0,128}")


def render(
    binary: NginxBinary,
    places: Places,
    version: str,
    paths: Collection[str],
    *,
    shutdown: int,
    workers: str = "auto",
    user: str = "",
    nameserver: int = 0,
) -> str:
    """Give the text of ``nginx.conf``; ``paths`` are the generation's files.

    ``shutdown``: seconds that connections may keep a worker that was told to finish;
    ``user`` is who the workers run as, set only when the master is root; ``nameserver`` is the
    port of the agent's own, 0 for none. Raises ValueError for a version that could be read as
    something else than text.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"version {version!r} has characters that are not allowed")
    resolver = [f"    resolver {HOST}:{nameserver};"] if nameserver else []
    lines = [
        *([f"user {user};"] if user else []),
        f"worker_processes {workers};",
        f'pid "{places.pid}";',
        f'error_log "{places.error_log}" warn;',
        # Bounds how long websockets and streams keep an old worker, and so how many pile up.
        f"worker_shutdown_timeout {shutdown}s;",
        # What the sockets that a bundle names are relative to.
        f'working_directory "{places.run}";',
        *([f"include {MAIN_ENTRY};"] if MAIN_ENTRY in paths else []),
        "events { worker_connections 4096; }",
        "http {",
        *resolver,
        *(f"    {line}" for line in _http(binary, places, version, paths)),
        "}",
    ]
    if STREAM_ENTRY in paths:
        lines += ["stream {", *resolver, f"    include {STREAM_ENTRY};", "}"]
    return "\n".join(lines) + "\n"


def _http(binary: NginxBinary, places: Places, version: str, paths: Collection[str]) -> list[str]:
    lines = [f'{kind}_temp_path "{places.temp(kind)}";' for kind in TEMP_KINDS]
    lines += ["access_log off;"]
    if binary.numbers >= (1, 27, 4):
        # Keeps idle connections of an old worker open long enough for a request already on its
        # way; 0 of 10 reloads under load failed a request with it, 87 requests did without.
        lines += ["keepalive_min_timeout 3s;"]
    lines += [
        "server {",
        f'    listen "unix:{places.version_socket}";',
        f'    location = /version {{ return 200 "{version} $pid\\n"; }}',
        *(["    location = /status { stub_status; }"] if STATUS in binary.modules else []),
        "}",
    ]
    if binary.plus:
        lines += [
            "server {",
            f'    listen "unix:{places.api_socket}";',
            f"    location {LOCATION} {{ api write=on; }}",
            "}",
        ]
    if HTTP_ENTRY in paths:
        lines += [f"include {HTTP_ENTRY};"]
    return lines
