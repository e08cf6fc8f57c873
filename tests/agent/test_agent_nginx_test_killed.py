"""A test of a configuration that ends without a result of NGINX itself is no rejection of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gatehouse.agent.nginx import staging
from gatehouse.agent.nginx.apply_errors import ApplyError, RejectedError, UnfinishedTestError
from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.manifests import Manifest
from gatehouse.agent.nginx.paths import nginx_paths
from gatehouse.agent.nginx.revision_store import RevisionStore

pytestmark = pytest.mark.process

KILLED = "kill -9 $$"
NO_MEMORY = "echo 'nginx: [emerg] mmap(1048576) failed (12: Cannot allocate memory)' >&2; exit 1"
BAD = "echo 'nginx: [emerg] unknown directive \"x\" in /x/gatehouse/http.conf:3' >&2; exit 1"
QUOTED = (
    """echo 'nginx: [emerg] "a failed (12: b)" is bad in /x/gatehouse/http.conf:3' >&2; exit 1"""
)


class World:
    """A stager with an NGINX that fails some times, then has another result."""

    def __init__(self, directory: Path, failure: str, times: int, result: str = "exit 0") -> None:
        self._runs = directory / "runs"
        binary = directory / "nginx"
        binary.write_text(
            f"#!/bin/sh\necho run >> {self._runs}\n"
            f'[ "$(wc -l < {self._runs})" -gt {times} ] || {{ {failure}; }}\n{result}\n'
        )
        binary.chmod(0o700)
        paths = nginx_paths(directory / "root", directory / "run")
        paths.prepare()
        revisions = RevisionStore(paths.root)
        revisions.prepare()
        self._stager = staging.Stager(NginxBinary(binary, "1.31.3", ""), paths, revisions, "1", 10)

    def test(self, version: str = "v1") -> int:
        """Test a revision of a version. Return how often NGINX ran."""
        self._stager.test(self._stager.stage(Manifest(version, ()), {}, 0))
        return self.runs

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines())


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_RETRY_SECONDS", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("failure", [KILLED, NO_MEMORY])
def test_test_is_repeated_after_a_failure_that_may_pass(tmp_path: Path, failure: str) -> None:
    assert World(tmp_path, failure, 2).test() == 3


def test_test_that_is_always_killed_is_no_rejection(tmp_path: Path) -> None:
    world = World(tmp_path, KILLED, 9)
    with pytest.raises(ApplyError, match="ended by signal 9") as caught:
        world.test()
    assert not isinstance(caught.value, RejectedError)
    assert world.runs == 4


def test_version_whose_tests_are_all_killed_is_rejected(tmp_path: Path) -> None:
    """Its content may be the cause. A search tells, and other changes do not wait."""
    world = World(tmp_path, KILLED, 16)
    for version in ("v1", "v2"):
        with pytest.raises(UnfinishedTestError):
            world.test(version)
    with pytest.raises(RejectedError, match="ended by signal 9"):
        world.test("v2")
    with pytest.raises(UnfinishedTestError):
        world.test("v1")
    assert world.test("v1") == 17


def test_test_that_does_not_end_is_no_rejection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "TEST_SECONDS", 0.05)
    with pytest.raises(ApplyError, match="did not finish") as caught:
        World(tmp_path, "exec sleep 60", 9).test()
    assert not isinstance(caught.value, RejectedError)


@pytest.mark.parametrize("failure", [BAD, QUOTED])
def test_rejection_is_reported_at_once(tmp_path: Path, failure: str) -> None:
    world = World(tmp_path, failure, 9)
    with pytest.raises(RejectedError, match=r"gatehouse/http\.conf:3$"):
        world.test()
    assert world.runs == 1


def test_rejection_is_the_emergency_and_no_warning(tmp_path: Path) -> None:
    warning = "echo 'nginx: [warn] duplicate in /x/gatehouse/http.conf:9' >&2"
    with pytest.raises(RejectedError) as caught:
        World(tmp_path, f"{BAD.replace('exit 1', warning)}; exit 1", 9).test()
    assert "duplicate" not in str(caught.value)
