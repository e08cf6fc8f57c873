"""Tests of NGINX Gateway Fabric for the rules of its CRDs, run at the embedded API server.

They are written in Go and are in its source. `make peers-cel` runs them: building them takes
minutes, and the modules that they need must be downloadable.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import kubectls, peers
from fakes.kubectls import Kubectl
from fakes.peer_differences import NGF_ACCEPTED_OBJECTS, NGF_SCHEMA_RULES
from fakes.process import ApiServer

pytestmark = [
    pytest.mark.long,
    pytest.mark.process,
    pytest.mark.peers,
    pytest.mark.timeout(1800),
]

PROGRAM = "ngf-v2.6.7"
HOME = peers.ROOT / ".cache" / "ngf-cel"
_NO_ERROR = "Expected an error to have occurred"
_ERROR = "Unexpected error"
_OTHER_TEXT = ("to contain substring", "Expected error")


@pytest.fixture(scope="session")
def tests_binary() -> Path:
    """The compiled tests, built once."""
    source = peers.source_files(PROGRAM, ".go", "go.mod", "go.sum", "/embed", "internal/")
    binary = HOME / PROGRAM
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on this machine")
    for name, content in source.items():
        path = HOME / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    subprocess.run(
        [go, "test", "-c", "-o", str(binary), "./cel"], cwd=HOME / "source" / "tests", check=True
    )
    return binary


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    result = ApiServer(tmp_path / "s")
    result.start()
    yield result
    result.stop()


def run(binary: Path, server: ApiServer) -> tuple[set[str], dict[str, str]]:
    """Run all tests. Return the passed ones, and the output of the failed ones.

    Tests with subtests are left out, since they fail with any of these.
    """
    environ = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    done = subprocess.run(
        [str(binary), "-test.v"], env=environ, capture_output=True, text=True, check=False
    )
    results = {match[2]: match[1] for match in re.finditer(r"--- (PASS|FAIL): (\S+)", done.stdout)}
    assert results, done.stdout + done.stderr
    output: dict[str, str] = {}
    current = ""
    for line in done.stdout.splitlines():
        if match := re.match(r"=== \w+\s+(\S+)", line):
            current = match[1]
        else:
            output[current] = f"{output.get(current, '')}{line}\n"
    leaves = {
        name for name in results if not any(other.startswith(f"{name}/") for other in results)
    }
    passed = {name for name in leaves if results[name] == "PASS"}
    return passed, {name: output.get(name, "") for name in leaves - passed}


def test_crds_of_ngf_have_the_rules_that_its_tests_expect(
    tests_binary: Path, server: ApiServer, tmp_path: Path
) -> None:
    crds = tmp_path / "crds.yaml"
    crds.write_bytes(peers.source_file(PROGRAM, "deploy/crds.yaml"))
    kubectl = Kubectl(kubectls.newest(), server.kubeconfig, tmp_path, "default")
    kubectl("apply", "--server-side", "-f", str(crds))
    passed, failed = run(tests_binary, server)
    assert not failed, failed
    assert len(passed) > 200


def test_own_crds_differ_from_those_of_ngf_as_listed(tests_binary: Path, server: ApiServer) -> None:
    # So the report names the program for this test, too.
    peers.source_file(PROGRAM, "deploy/crds.yaml")
    passed, failed = run(tests_binary, server)
    accepted = {name.partition("/")[0] for name, text in failed.items() if _NO_ERROR in text}
    assert accepted == {*NGF_SCHEMA_RULES.values}
    rejected = {name.partition("/")[0] for name, text in failed.items() if _ERROR in text}
    assert rejected == {*NGF_ACCEPTED_OBJECTS.values}
    # All others have another message.
    others = [text for text in failed.values() if _NO_ERROR not in text and _ERROR not in text]
    assert all(any(part in text for part in _OTHER_TEXT) for text in others), others
    assert len(passed) > 50
