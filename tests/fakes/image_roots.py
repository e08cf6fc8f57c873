"""Root file systems of Gatehouse's images, without a container engine.

The same Debian and the same script as in `images/Dockerfile`, run in a chroot. Needs root and
debootstrap.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from fakes import patience

ROOT = Path(__file__).parents[2]
POSSIBLE = os.geteuid() == 0 and shutil.which("debootstrap") is not None
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE")
TREES = ("requirements", "proto", "docs", "examples", "packages/kube-base", "src", "images")
DIRECTORIES = {
    "controller": "/opt/gatehouse",
    "agent-nginx": "/opt/nginx",
    "agent-envoy": "/opt/envoy",
    "node-proxy": "/opt/node-proxy",
    "node-proxy-envoy": "/opt/node-proxy-envoy",
}
"""Extras to their directory in the image."""
TRUST = Path("/etc/ssl/certs/ca-certificates.crt")
PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")
"""Environment variables for access to registries."""
SECONDS = 10 * patience.SECONDS


class ImageRoot(NamedTuple):
    """A root file system with one extra of Gatehouse."""

    root: Path
    extra: str

    @property
    def directory(self) -> str:
        return DIRECTORIES[self.extra]

    def run(
        self, *words: str, user: str = "101:101", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it, as the image's user, with an environment of its own."""
        command = ["chroot", f"--userspec={user}", str(self.root), "/usr/bin/env", "-i"]
        path = f"PATH={self.directory}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            [*command, path, "PYTHONDONTWRITEBYTECODE=1", *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done


def create_debian(root: Path) -> None:
    """Install the Debian of the Dockerfile's stage ``build``."""
    words = ("--include=python3,python3-venv,ca-certificates", "bookworm", str(root))
    command = ["debootstrap", "--variant=minbase", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    # Registries are reached, and trusted, as from this machine.
    for path in (Path("/etc/resolv.conf"), Path("/etc/pip.conf"), TRUST):
        if path.exists():
            shutil.copy(path, root / path.relative_to("/"))


def copy_sources(root: Path, sources: Path = ROOT) -> None:
    """Copy what the Dockerfile copies to /src, in place of an earlier copy."""
    shutil.rmtree(root / "src", ignore_errors=True)
    (root / "src").mkdir()
    for name in SOURCES:
        shutil.copy(sources / name, root / "src" / name)
    for name in TREES:
        ignored = shutil.ignore_patterns("__pycache__", "wire")
        shutil.copytree(sources / name, root / "src" / name, ignore=ignored)


def install(root: Path, extra: str) -> ImageRoot:
    """Install an extra of the copied sources, in place of an earlier installation."""
    result = ImageRoot(root, extra)
    shutil.rmtree(root / result.directory[1:], ignore_errors=True)
    script = f"cd /src && sh images/install.sh {result.directory} {extra}"
    environment = [f"{key}={os.environ[key]}" for key in PASSED if key in os.environ]
    result.run("env", *environment, "sh", "-c", script, user="0:0")
    return result
