"""The file that NGINX begins with. Agent v2 has none of its own, so it is sent this one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection

import msgspec

from gatehouse.bundle import Bundle, File
from gatehouse.transports.agents.session import Register

MAIN_ENTRY = "gatehouse/main.conf"
HTTP_ENTRY = "gatehouse/http.conf"
STREAM_ENTRY = "gatehouse/stream.conf"
"""The bundle's files that are included, if it has them."""

_KEEPALIVE_MIN_TIMEOUT = (1, 27, 4)

_MARK = "# gatehouse: "
_MARKED = re.compile(rf"{_MARK}(.*)$", re.MULTILINE)


def make(about: Register, bundle: Bundle) -> File:
    """Give the file for the NGINX that ``about`` describes; paths are relative to its directory.

    Its first line holds that description, since agent v2 gives it only once: a control plane that
    has not heard it reads it back from the configuration, with :func:`described`.
    """
    description = msgspec.json.encode(about).decode()
    text = f"{_MARK}{description}\n{_render(about.proxy, bundle.files.keys())}"
    return File.make(posixpath.basename(about.main_file), text)


def described(configuration: str) -> Register | None:
    """Give what a configuration of ours, in one text, says of the NGINX that it was made for."""
    found = _MARKED.search(configuration)
    try:
        about = msgspec.json.decode(found[1], type=Register) if found else None
    except msgspec.MsgspecError:
        return None
    return about if about is not None and posixpath.basename(about.main_file) else None


def _render(proxy: str, paths: Collection[str]) -> str:
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
