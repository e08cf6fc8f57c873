"""Main configuration file of a revision, which the agent generates: processes, paths, version."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.nameserver import HOST
from gatehouse.agent.nginx.paths import TEMP_KINDS, NginxPaths
from gatehouse.agent.nginx.plus.client import LOCATION
from gatehouse.dataplane import connection_counts, request_log

_MAIN_ENTRY = "gatehouse/main.conf"
_HTTP_ENTRY = "gatehouse/http.conf"
_STREAM_ENTRY = "gatehouse/stream.conf"
_EVENTS_ENTRY = "gatehouse/events.conf"
_ACCESS_LOG_ENTRY = "gatehouse/access_log.conf"
_REQUEST_LOG_ENTRY = "gatehouse/request_log.conf"
_CONNECTION_LOG_ENTRY = "gatehouse/connection_log.conf"
_TRACES_ENTRY = "gatehouse/traces.conf"
"""Files of the file set that are included, if it has them."""

STATUS = "http_stub_status_module"
"""NGINX module that serves the connection metrics."""

_VERSION = re.compile(r"[A-Za-z0-9+/=_.:-]{0,128}")


def render_main_conf(
    binary: NginxBinary,
    paths: NginxPaths,
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
    resolver = [f"    resolver {HOST}:{nameserver};"] if nameserver else []
    replaced = _EVENTS_ENTRY in files
    events = f"include {_EVENTS_ENTRY};" if replaced else "worker_connections 4096;"
    module = binary.trace_module if _TRACES_ENTRY in files else None
    lines = [
        *([f'load_module "{module}";'] if module is not None else []),
        *process_lines(paths, shutdown=shutdown, workers=workers, user=user),
        *([f"include {_MAIN_ENTRY};"] if _MAIN_ENTRY in files else []),
        f"events {{ {events} }}",
        "http {",
        *resolver,
        *(f"    {line}" for line in _http(binary, paths, version, files)),
        "}",
    ]
    if _STREAM_ENTRY in files:
        counts = _CONNECTION_LOG_ENTRY in files
        log = [f"    {connection_log_directive(paths.connection_log)}"] if counts else []
        lines += ["stream {", *resolver, f"    include {_STREAM_ENTRY};", *log, "}"]
    return "\n".join(lines) + "\n"


def process_lines(
    paths: NginxPaths, *, shutdown: int, workers: str = "auto", user: str = ""
) -> list[str]:
    """Return the directives of the main context that set up the processes."""
    return [
        *([f"user {user};"] if user else []),
        f"worker_processes {workers};",
        f'pid "{paths.pid}";',
        f'error_log "{paths.error_log}" warn;',
        # Limits how long websockets and streams keep old workers, and so their number.
        f"worker_shutdown_timeout {shutdown}s;",
        # Socket paths in file sets are relative to this directory.
        f'working_directory "{paths.run}";',
    ]


def _http(
    binary: NginxBinary, paths: NginxPaths, version: str, files: Collection[str]
) -> list[str]:
    lines = []
    if binary.numbers >= (1, 27, 4):
        # Keeps idle connections of an old worker open long enough for a request in flight. In 10
        # reloads under load no request failed with it; 87 requests failed without it.
        lines += ["keepalive_min_timeout 3s;"]
    lines += agent_http_lines(binary, paths, version)
    if _HTTP_ENTRY in files:
        lines += [f"include {_HTTP_ENTRY};"]
    logs = [f"include {_ACCESS_LOG_ENTRY};"] if _ACCESS_LOG_ENTRY in files else []
    if _REQUEST_LOG_ENTRY in files:
        logs += [f"include {_REQUEST_LOG_ENTRY};", request_log_directive(paths.request_log)]
    return [*lines, *(logs or ["access_log off;"])]


def request_log_directive(path: Path) -> str:
    """Return the directive that logs requests for metrics."""
    return f'access_log "{path}" {request_log.NGINX_FORMAT} buffer=64k flush=1s;'


def connection_log_directive(path: Path) -> str:
    """Return the directive that logs L4 connections for metrics."""
    return f'access_log "{path}" {connection_counts.NGINX_CONNECTION_FORMAT} buffer=64k flush=1s;'


def agent_http_lines(binary: NginxBinary, paths: NginxPaths, version: str) -> list[str]:
    """Return the lines of the `http` context that the agent needs: directories and own servers.

    Raises ValueError if the version has characters that are not plain text.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f"version {version!r} has characters that are not allowed")
    lines = [
        *(f'{kind}_temp_path "{paths.temp(kind)}";' for kind in TEMP_KINDS),
        "server {",
        f'    listen "unix:{paths.version_socket}";',
        "    access_log off;",
        f'    location = /version {{ return 200 "{version} $pid\\n"; }}',
        # The agent's probes keep one connection to each worker.
        "    keepalive_timeout 1h;",
        "    keepalive_requests 1000000;",
        *(["    keepalive_min_timeout 0;"] if binary.numbers >= (1, 27, 4) else []),
        *(["    location = /status { stub_status; }"] if STATUS in binary.modules else []),
        "}",
    ]
    if binary.plus:
        lines += [
            "server {",
            f'    listen "unix:{paths.api_socket}";',
            "    access_log off;",
            f"    location {LOCATION} {{ api write=on; }}",
            "}",
        ]
    return lines
