"""State files: what NGINX Plus writes at each change of an upstream, and begins with.

An upstream that NGINX Plus never had begins with what stands there; so that no request meets an
empty one, its servers are written before NGINX looks.
"""

from __future__ import annotations

from pathlib import Path

from gatehouse.dataplane.endpoints import Endpoints

DIRECTORY = "state"
"""As bundles name it: beside NGINX's main file, and in its prefix."""


def write(directory: Path, name: str, endpoints: Endpoints) -> None:
    """Write the file of an upstream, all at once; raises OSError."""
    text = "".join(_line(each.encoded, each.weight) for each in endpoints)
    new = directory / f".{name}"
    new.write_text(text, encoding="ascii")
    new.replace(directory / f"{name}.conf")


def _line(address: str, weight: int) -> str:
    share = f" weight={weight}" if weight != 1 else ""
    return f"server {address}{share} max_fails=0;\n"


def exists(directory: Path, name: str) -> bool:
    """Whether an upstream has a file."""
    return (directory / f"{name}.conf").exists()


def remove_unused(directory: Path, kept: set[str]) -> None:
    """Remove the files of upstreams that are no more; raises OSError."""
    for path in directory.glob("*.conf"):
        if path.stem not in kept:
            path.unlink()
