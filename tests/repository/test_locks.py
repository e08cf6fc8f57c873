"""Lock files: complete, so that an installation resolves nothing and works on any later day."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
OWN = {
    project["name"]: project
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml"))
    for project in [tomllib.loads(path.read_text())["project"]]
}
"""Distributions of this repository, which no lock has."""
ROOTS = {
    "dev": ([*EXTRAS["standalone"]], "dev"),
    "run": ([*EXTRAS["standalone"]], "build"),
    "build": ([], "build"),
    **{
        name: ([*EXTRAS[name]], "")
        for name in ("agent-envoy", "agent-nginx", "controller", "node-proxy", "node-proxy-envoy")
    },
}
"""Requirements of an extra and the group of dependencies that each lock is made of."""
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")


def pins(lock: str) -> dict[str, str]:
    """Return the versions in a lock by the name of the package."""
    lines = (LOCKS / f"{lock}.lock").read_text().splitlines()
    entries = (line.split()[0].split("==") for line in lines if line[:1].isalnum())
    return {canonicalize_name(name): version for name, version in entries}


def group(name: str) -> Iterator[str]:
    """Yield the requirements of a group of dependencies, with those of included groups."""
    for entry in PROJECT["dependency-groups"].get(name, ()):
        if isinstance(entry, str):
            yield entry
        else:
            yield from group(entry["include-group"])


def roots(lock: str) -> list[Requirement]:
    texts, name = ROOTS[lock]
    project = [] if lock == "build" else PROJECT["project"]["dependencies"]
    return [Requirement(text) for text in (*project, *texts, *group(name))]


def needed(requirement: Requirement, environment: dict[str, str]) -> list[Requirement]:
    """Return what a requirement needs in an environment, by the metadata of the package."""
    name = canonicalize_name(requirement.name)
    if name in OWN:
        extras = OWN[name].get("optional-dependencies", {})
        texts = [text for extra in requirement.extras for text in extras[extra]]
        # Those of Gatehouse itself are roots.
        always = [] if name == PROJECT["project"]["name"] else OWN[name]["dependencies"]
        return [Requirement(text) for text in (*always, *texts)]
    try:
        texts = requires(name) or []
    except PackageNotFoundError:
        return []  # another platform's package
    extras = ("", *requirement.extras)
    children = map(Requirement, texts)
    return [
        child
        for child in children
        if child.marker is None
        or any(child.marker.evaluate({**environment, "extra": extra}) for extra in extras)
    ]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", ROOTS)
def test_lock_has_everything_that_its_packages_need(lock: str, python: str, machine: str) -> None:
    environment = {
        **{key: str(value) for key, value in default_environment().items()},
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
    }
    versions = pins(lock)
    visited: set[tuple[str, frozenset[str]]] = set()
    problems = []
    pending = [(requirement, "pyproject.toml") for requirement in roots(lock)]
    while pending:
        requirement, parent = pending.pop()
        name = canonicalize_name(requirement.name)
        if name not in OWN:
            version = versions.get(name)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                problems.append(f"{parent} needs {requirement}, and the lock has {version}")
        key = (name, frozenset(requirement.extras))
        if key not in visited:
            visited.add(key)
            pending += [(child, name) for child in needed(requirement, environment)]
    assert not problems


@pytest.mark.parametrize("lock", ROOTS)
def test_lock_has_nothing_but_pinned_versions_with_hashes(lock: str) -> None:
    text = (LOCKS / f"{lock}.lock").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line[:1].isalnum():
            assert "==" in line.split()[0], line
            assert "--hash=sha256:" in line, line


def test_every_lock_is_checked() -> None:
    assert {path.stem for path in LOCKS.glob("*.lock")} == ROOTS.keys()
