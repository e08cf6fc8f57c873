"""Source trees of this repository's packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATEHOUSE = ROOT / "src" / "gatehouse"
KUBE_API_SERVER = ROOT / "packages" / "kube-api-server" / "src" / "kube_api_server"
KUBE_BASE = ROOT / "packages" / "kube-base" / "src" / "kube_base"
PACKAGES = (GATEHOUSE, KUBE_API_SERVER, KUBE_BASE)
SEARCH_PATH = os.pathsep.join(str(package.parent) for package in PACKAGES)
"""`PYTHONPATH` of a process that runs this checkout, whichever is installed."""


def modules() -> Iterator[Path]:
    """Yield the modules of all packages that are not generated."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            if "wire" not in path.relative_to(package).parts:
                yield path


def short_name(path: Path) -> str:
    """Return the path of a module below `gatehouse`, or with the name of another package."""
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    return str(path.relative_to(package if package == GATEHOUSE else package.parent))


def module_name(path: Path) -> str:
    """Return the dotted name of a module."""
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
