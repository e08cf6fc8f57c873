"""State files, which NGINX Plus writes at each change of an upstream and reads at start.

A new upstream starts with the servers in its state file. The agent writes that file before NGINX
reads it, so that no request meets an empty upstream.
"""

from __future__ import annotations

from pathlib import Path

from gatehouse.dataplane.endpoints import Endpoints
from kube_base.runtime import private_files

DIRECTORY = "state"
"""Directory name in file sets, beside NGINX's main file and in its prefix."""


def write_state(directory: Path, name: str, endpoints: Endpoints) -> None:
    """Write the file of an upstream atomically. Raises OSError."""
    text = "".join(_line(endpoint.encoded, endpoint.weight) for endpoint in endpoints)
    private_files.replace_private_file(directory / f"{name}.conf", text.encode())


def _line(address: str, weight: int) -> str:
    share = f" weight={weight}" if weight != 1 else ""
    return f"server {address}{share} max_fails=0;\n"


def exists(directory: Path, name: str) -> bool:
    """Return whether an upstream has a state file."""
    return (directory / f"{name}.conf").exists()


def remove_unused(directory: Path, used: set[str]) -> None:
    """Remove the files of upstreams not in `used`. Raises OSError."""
    for path in directory.glob("*.conf"):
        if path.stem not in used:
            path.unlink()
