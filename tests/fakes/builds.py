"""Builds of Gatehouse with versions of their own, each installed where only it is found."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
_SOURCES = ("pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE")
_TREES = ("proto", "docs", "examples", "packages", "src")
_VERSION = re.compile(r'^(__version__|version) = "[^"]+"$', re.MULTILINE)


class Build(msgspec.Struct, frozen=True):
    """An installed build."""

    version: str
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that runs ``gatehouse`` of this build only."""
        path = f"{self.directory / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin"
        return {"PATH": path, "PYTHONPATH": "", "VIRTUAL_ENV": str(self.directory)}

    def reported_version(self) -> str:
        """Return the version that the build reports."""
        command = [str(self.directory / "bin" / "gatehouse"), "--version"]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()


def build(version: str, directory: Path, tree: Path = ROOT) -> Build:
    """Build wheels of a tree, Gatehouse under another version, and install them without network.

    What is not of this repository is shared with the interpreter that runs this.
    """
    sources = directory / "sources"
    sources.mkdir(parents=True)
    for name in _SOURCES:
        shutil.copy(tree / name, sources / name)
    for name in _TREES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(tree / name, sources / name, ignore=ignored)
    for path in (sources / "pyproject.toml", sources / "src" / "gatehouse" / "__init__.py"):
        text, count = _VERSION.subn(rf'\1 = "{version}"', path.read_text())
        assert count == 1, path
        path.write_text(text)
    wheels = sources / "dist"
    for project in (sources, *(sources / "packages").iterdir()):
        _run("-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels), cwd=project)
    environment = directory / "installed"
    _run("-m", "venv", "--without-pip", str(environment))
    (packages,) = environment.glob("lib/python3*/site-packages")
    # Named later than anything of its own: what it has goes before.
    (packages / "zz-shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = str(environment / "bin" / "python")
    offline = ("install", "--no-index", "--no-deps", *map(str, wheels.glob("*.whl")))
    _run("-m", "pip", "-q", "--python", python, *offline)
    shutil.rmtree(sources)
    return Build(version, environment)


def _run(*words: str, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
