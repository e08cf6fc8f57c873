"""Programs of other projects for the tests: compressed binaries, and archives of their source.

``GATEHOUSE_PEERS`` names the directory with ``bin/<name>.xz`` and ``src/<archive>.tar.xz``. The
default is ``shared/peers`` or ``peers`` beside the checkout. Tests that need a program or its
source skip where it is missing. They have the marker ``peers``, and :func:`binary` and
:func:`source_files` fail in tests without it. :mod:`fakes.peer_report` records the results.
"""

from __future__ import annotations

import functools
import lzma
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
KUBERNETES = os.environ.get("GATEHOUSE_KUBERNETES", "v1.34.3")
"""Version of Kubernetes in the tests. `make` sets the variable for another one."""

CACHE = ROOT / ".cache" / "peers"


class PeerProgram(msgspec.Struct, frozen=True):
    """A program of another project."""

    title: str
    version: str
    source: str = ""
    """Name of the archive in ``src``; empty if no test uses the source."""


PROGRAMS = {
    "agent-v3.11.3-no-collector": PeerProgram("NGINX Agent", "3.11.3 without collector"),
    "agent-v2.46.7": PeerProgram("NGINX Agent", "2.46.7"),
    "ngf-v2.6.7": PeerProgram("NGINX Gateway Fabric", "2.6.7", "nginx-gateway-fabric-v2.6.7"),
    "nlk-1.2.7": PeerProgram("nginx-loadbalancer-kubernetes", "1.2.7"),
    "nlk-0.3": PeerProgram("nginx-loadbalancer-kubernetes", "0.3"),
    "kubegateway-ae98743": PeerProgram("KubeGateway", "ae98743"),
    f"kube-apiserver-{KUBERNETES}": PeerProgram("kube-apiserver", KUBERNETES[1:]),
    f"kubernetes-rest-{KUBERNETES}": PeerProgram("Kubernetes", KUBERNETES[1:]),
}
"""Programs by file name, in the order of the page of compatibility."""


class RunningTest(msgspec.Struct):
    """A test and the programs that it uses."""

    name: str
    marked: bool
    """True if the test has the marker ``peers``, or ``cluster`` for a cluster of its own."""
    programs: set[str] = msgspec.field(default_factory=set)


_running: list[RunningTest] = []
"""The running test, if any."""


def begin(test: RunningTest) -> None:
    """Set the running test."""
    _running[:] = [test]


def end() -> None:
    """Unset the running test."""
    _running.clear()


def directory() -> Path | None:
    """Return the directory of the programs, or None if there is none."""
    named = os.environ.get("GATEHOUSE_PEERS")
    beside = (ROOT.parent / "shared" / "peers", ROOT.parent / "peers")
    candidates = (Path(named),) if named else beside
    return next((candidate for candidate in candidates if (candidate / "bin").is_dir()), None)


def available(name: str) -> bool:
    """Return whether the directory has a program."""
    return _packed(name) is not None


def _packed(name: str) -> Path | None:
    result = directory()
    packed = result / "bin" / f"{name}.xz" if result else None
    return packed if packed and packed.exists() else None


def binary(name: str, program: str) -> Path:
    """Return the path of an executable, decompressed once. Skips the test if there is none.

    The file is called ``program``: some executables contain several programs and run the one that
    they are called by. A program that was built here (`make kube-apiserver`) is used as it is.
    Raises AssertionError if the running test lacks the marker ``peers``.
    """
    _record_use(name)
    packed, unpacked = _packed(name), CACHE / name / program
    if packed is None:
        if unpacked.exists():
            return unpacked
        pytest.skip(f"no {name}: set GATEHOUSE_PEERS to a directory with bin/{name}.xz")
    if not unpacked.exists() or unpacked.stat().st_mtime < packed.stat().st_mtime:
        _unpack(packed, unpacked)
    return unpacked


def source_files(name: str, *parts: str) -> dict[str, bytes]:
    """Return files of a program's source by path: those whose path contains one of the parts.

    Skips the test if the archive is missing. Raises AssertionError if the running test lacks the
    marker ``peers``.
    """
    _record_use(name)
    shared, archive = directory(), f"{PROGRAMS[name].source}.tar.xz"
    path = shared / "src" / archive if shared else None
    if path is None or not path.exists():
        pytest.skip(f"no {archive}: set GATEHOUSE_PEERS to a directory with src/{archive}")
    return _read_archive(path, parts)


def source_file(name: str, path: str) -> bytes:
    """Return a file of a program's source by its path, on the terms of :func:`source_files`."""
    return source_files(name, path)[path]


@functools.cache
def _read_archive(path: Path, parts: tuple[str, ...]) -> dict[str, bytes]:
    result: dict[str, bytes] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if any(part in name for part in parts) and (content := archive.extractfile(member)):
                result[name] = content.read()
    return result


def _record_use(name: str) -> None:
    """Record the program for the running test, which must have the marker."""
    assert name in PROGRAMS, f"{name}: add it to peers.PROGRAMS"
    for test in _running:
        assert test.marked, f"{test.name} uses {name}: mark it with pytest.mark.peers"
        test.programs.add(name)


def _unpack(packed: Path, unpacked: Path) -> None:
    """Decompress a file. Another test process may do the same at the same time."""
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=unpacked.parent, delete=False) as staged:
        with lzma.open(packed) as source:
            shutil.copyfileobj(source, staged, 1 << 20)
        staged.close()
        Path(staged.name).chmod(0o755)
        Path(staged.name).rename(unpacked)
