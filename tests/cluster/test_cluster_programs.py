"""Programs of the cluster: found among those of other projects, or built once from their modules.

Go and the programs are fakes here, so that these tests need neither root nor a registry.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from cluster import binaries, layout, nodes, running
from cluster.binaries import MissingProgram, NotPermitted
from fakes import peers

GO = """#!/bin/sh
echo "$@" >> {log}
[ "$1" = build ] || exit 0
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""


OTHERS = ("coredns", "kube-router", "echo-basic")
"""Programs that are built on every machine."""


class Machine:
    """A machine with fake programs only."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory, self._monkeypatch = directory, monkeypatch
        self.home = directory / "home"
        self.path, self._calls = directory / "path", directory / "calls"
        plugins = directory / "plugins"
        system = [name for names in binaries.SYSTEM.values() for name in names]
        for parent, names in ((self.path, system), (plugins, binaries.PLUGINS)):
            parent.mkdir()
            for name in names:
                self._write(parent / name, "#!/bin/sh\n")
        self._write(self.path / "go", GO.format(log=self._calls))
        monkeypatch.setattr(layout, "HOME", self.home)
        monkeypatch.setattr(layout, "BINARIES", self.home / "bin")
        monkeypatch.setattr(binaries, "PLUGIN_DIRECTORY", plugins)
        monkeypatch.setenv("PATH", str(self.path))
        monkeypatch.setenv("GATEHOUSE_PEERS", str(directory))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def add_peers(self) -> None:
        """Have the programs of Kubernetes that other tests use."""
        directory = self._directory / "peers"
        directory.mkdir()
        for name in binaries.PEERS:
            self._write(directory / f"{name}-{peers.KUBERNETES}", "of peers")
        self._monkeypatch.setattr(peers, "available", lambda name: (directory / name).exists())
        self._monkeypatch.setattr(peers, "binary", lambda name, _: directory / name)

    def builds(self) -> list[str]:
        """Return the names of the programs that were built, and forget them."""
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.write_text("")
        builds = [call.split(" -o ")[1].split()[0] for call in calls if call.startswith("build")]
        return [Path(build).name.partition("-v")[0] for build in builds]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def programs(machine: Machine) -> dict[str, str]:
    """Return the content of each program of the cluster by its name."""
    names = (*(name for group in binaries.PEERS.values() for name in group), "coredns")
    return {name: (machine.home / "bin" / name).read_text().strip() for name in names}


def test_kubernetes_is_built_once_for_its_sources(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    binaries.prepare()
    assert machine.builds() == ["kubernetes", *OTHERS]
    assert set(programs(machine).values()) == {"built"}
    assert (machine.home / "bin" / "kubectl").resolve() == next(machine.home.glob("kubernetes-*"))
    binaries.prepare()
    assert "kubernetes" not in machine.builds()
    changed = tmp_path / "module"
    shutil.copytree(binaries.KUBERNETES_MODULE, changed)
    (changed / "main.go").write_text("changed")
    monkeypatch.setattr(binaries, "KUBERNETES_MODULE", changed)
    binaries.prepare()
    assert "kubernetes" in machine.builds()
    (only,) = machine.home.glob("kubernetes-*")
    assert only.name.startswith(f"kubernetes-{peers.KUBERNETES}-")


@pytest.mark.parametrize(("version", "file"), [("v1.34.3", "go.mod"), ("v1.37.2", "v1.37.2.mod")])
def test_each_version_of_kubernetes_has_its_requirements(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: str, file: str
) -> None:
    monkeypatch.setattr(peers, "KUBERNETES", version)
    binaries.prepare()
    assert binaries.module_file().name == file
    (only,) = machine.home.glob("kubernetes-*")
    assert only.name.startswith(f"kubernetes-{version}-")


def test_unknown_version_of_kubernetes_is_an_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "KUBERNETES", "v1.20.0")
    with pytest.raises(MissingProgram, match=r"must be one of v1\.34\.3, v1\.37\.2"):
        binaries.prepare()


def test_kubernetes_of_other_tests_is_used_without_a_build(machine: Machine) -> None:
    machine.add_peers()
    binaries.prepare()
    assert machine.builds() == [*OTHERS]
    assert {name: text for name, text in programs(machine).items() if name != "coredns"} == {
        name: "of peers" for group in binaries.PEERS.values() for name in group
    }


@pytest.mark.parametrize("name", ["containerd", "debootstrap", "go"])
def test_missing_program_is_named_with_its_package(machine: Machine, name: str) -> None:
    (machine.path / name).unlink()
    with pytest.raises(MissingProgram) as error:
        binaries.prepare()
    assert name.capitalize() in str(error.value) or f"no {name}: apt-get install" in str(
        error.value
    )


def test_packages_of_programs_that_are_there_are_not_asked_for(machine: Machine) -> None:
    assert binaries.missing_programs() == {}
    for path in (machine.path / "ctr", bridge := binaries.PLUGIN_DIRECTORY / "bridge"):
        path.unlink()
    missing = {"containerd": ["ctr"], binaries.PLUGIN_PACKAGE: [str(bridge)]}
    assert binaries.missing_programs() == missing


def test_missing_network_plugin_is_named(machine: Machine) -> None:
    (binaries.PLUGIN_DIRECTORY / "bridge").unlink()
    with pytest.raises(
        MissingProgram, match=r"plugins/bridge: apt-get install .*networking-plugins"
    ):
        binaries.prepare()


def test_kube_apiserver_of_tests_is_built_unless_it_is_given(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "CACHE", tmp_path / "cache")
    for _ in range(2):
        built = binaries.provide_kube_apiserver()
        assert built.is_relative_to(tmp_path / "cache")
        assert built.read_text().strip() == "built"
    assert machine.builds() == ["kubernetes"]
    machine.add_peers()
    assert binaries.provide_kube_apiserver().read_text() == "of peers"
    assert machine.builds() == []


@pytest.mark.parametrize(
    ("unshare", "groups", "reason"),
    [
        ("exit 0", True, ""),
        ("echo 'unshare: Operation not permitted' >&2; exit 1", True, running.NAMESPACES),
        ("exit 0", False, running.CONTROL_GROUPS),
    ],
)
def test_machine_that_may_not_run_containers_has_no_cluster(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, unshare: str, groups: bool, reason: str
) -> None:
    (machine.path / "unshare").write_text(f"#!/bin/sh\n{unshare}\n")
    monkeypatch.setattr(nodes, "CGROUPS", machine.path if groups else machine.path / "none")
    with pytest.raises(NotPermitted, match=reason) if reason else contextlib.nullcontext():
        running.require_permissions()
