"""Extras of the distribution: each has exactly the packages that its commands import."""

from __future__ import annotations

import ast
import itertools
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fakes import source_trees

ROOT = Path(__file__).parents[2]
PROJECTS = {
    project["name"]: project
    for path in (ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml"))
    for project in [tomllib.loads(path.read_text())["project"]]
}
OWN = {
    "gatehouse": "gatehouse",
    "kube_api_server": "gatehouse-kube-api-server",
    "kube_base": "gatehouse-kube-base",
}
"""Packages of this repository to their distributions."""
PACKAGES = {
    "gatehouse[agent-nginx]": ("cli.agent", "cli.agent_config", "agent.nginx", "sidecars"),
    "gatehouse[agent-envoy]": ("cli.agent", "cli.agent_config", "agent.envoy", "sidecars"),
    "gatehouse[apiserver]": ("apiserver_extension",),
    "gatehouse[controller]": (
        *("cli.controller", "cli.ratelimit", "cli.certs", "cli.status", "cli.explain"),
    ),
    "gatehouse[node-proxy]": ("cli.node_proxy", "nodeproxy"),
    "gatehouse[node-proxy-envoy]": ("cli.node_proxy", "nodeproxy"),
    "gatehouse[standalone]": ("cli",),
    "gatehouse-kube-api-server": ("",),
    "gatehouse-kube-base": ("types", "runtime"),
    "gatehouse-kube-base[http,logs,patterns]": ("",),
}
"""Distributions with extras to their packages and modules that run where these are installed."""
OTHERS = {
    "gatehouse[agent-nginx]": ("gatehouse.agent.envoy", "gatehouse.cli.envoy_config"),
    "gatehouse[agent-envoy]": ("gatehouse.agent.nginx", "gatehouse.sidecars.picker"),
    # Who uses the fixture has pytest.
    "gatehouse-kube-api-server": ("kube_api_server.testing.pytest_plugin",),
    "gatehouse-kube-base": (
        *("kube_base.runtime.limited_http", "kube_base.runtime.logs"),
        "kube_base.runtime.quiet_re2",
    ),
}
"""Modules, by distribution, that need another extra or are imported for another option only."""
TRANSITIVE = {"yarl": "aiohttp", "multidict": "aiohttp"}
"""Packages that another one has in its interface."""


def _requirements(distribution: str) -> set[str]:
    """Return a distribution of this repository and, with those of others here, all it requires."""
    root = Requirement(distribution)
    project = PROJECTS[root.name]
    extras = [project["optional-dependencies"][extra] for extra in root.extras]
    result = {root.name}
    for text in itertools.chain(project["dependencies"], *extras):
        requirement = Requirement(text)
        if requirement.name in PROJECTS:
            result |= _requirements(text)
        else:
            result.add(canonicalize_name(requirement.name))
    return result


@cache
def _path(module: str) -> Path | None:
    paths = [package.parent.joinpath(*module.split(".")) for package in source_trees.PACKAGES]
    candidates = (
        file for path in paths for file in (path / "__init__.py", path.with_suffix(".py"))
    )
    return next((candidate for candidate in candidates if candidate.exists()), None)


def _modules(name: str) -> Iterator[str]:
    """Yield the module `name`, and if it is a package, every module in it."""
    for path in source_trees.modules():
        module = source_trees.module_name(path)
        if f"{module}.".startswith(f"{name}."):
            yield module


def _with_packages(module: str) -> Iterator[str]:
    """Yield a module and the packages around it, which Python imports before it."""
    while module:
        yield module
        module = module.rpartition(".")[0]


@cache
def _imports(path: Path) -> frozenset[str]:
    """Return the modules that a file imports anywhere, but for types alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _imported_distributions(distribution: str) -> dict[frozenset[str], str]:
    """Return what the code of a distribution imports, each with one importer.

    Several distributions may share a package, such as `google`: one of the set has the module.
    """
    root = next(top for top, name in OWN.items() if name == Requirement(distribution).name)
    packages = (f"{root}.{package}".strip(".") for package in PACKAGES[distribution])
    pending = [name for package in packages for name in _modules(package)]
    visited: set[str] = set()
    result: dict[frozenset[str], str] = {}
    owners = packages_distributions()
    while pending:
        module = pending.pop()
        path = _path(module)
        if module in visited or path is None or module.startswith(OTHERS.get(distribution, ("-",))):
            continue
        visited.add(module)
        for name in _imports(path):
            top = name.partition(".")[0]
            if top in OWN:
                pending += _with_packages(name)
                result[frozenset({OWN[top]})] = module
            elif top not in sys.stdlib_module_names:
                candidates = (TRANSITIVE.get(owner, owner) for owner in owners.get(top, [top]))
                result[frozenset(map(canonicalize_name, candidates))] = module
    return result


@pytest.mark.parametrize("distribution", PACKAGES)
def test_distribution_has_every_package_that_it_imports(distribution: str) -> None:
    permitted = _requirements(distribution)
    missing = {
        (*sorted(owners), module)
        for owners, module in _imported_distributions(distribution).items()
        if not owners & permitted
    }
    assert not missing


EXACT = (
    *(
        f"gatehouse[{extra}]"
        for extra in ("agent-nginx", "agent-envoy", "controller", "node-proxy")
    ),
    *(
        "gatehouse-kube-api-server",
        "gatehouse-kube-base",
        "gatehouse-kube-base[http,logs,patterns]",
    ),
)


@pytest.mark.parametrize("distribution", EXACT)
def test_distribution_has_no_package_that_it_does_not_import(distribution: str) -> None:
    unused = _requirements(distribution).difference(*_imported_distributions(distribution))
    assert not unused


@pytest.mark.parametrize("project", PROJECTS.values(), ids=PROJECTS)
def test_distributions_of_this_repository_have_one_version(project: dict[str, Any]) -> None:
    """No index has them: another version could be that of a stranger."""
    version = PROJECTS["gatehouse"]["version"]
    texts = [
        *project["dependencies"],
        *itertools.chain(*project.get("optional-dependencies", {}).values()),
    ]
    others = [
        other for other in map(Requirement, texts) if other.name in {*PROJECTS} - {project["name"]}
    ]
    assert project["version"] == version
    assert all(str(other.specifier) == f"=={version}" for other in others)


@pytest.mark.parametrize(
    "extra", ["agent", "agent-nginx", "agent-envoy", "controller", "node-proxy"]
)
def test_image_has_no_api_server(extra: str) -> None:
    permitted = _requirements(f"gatehouse[{extra}]")
    assert not permitted & {"gatehouse-kube-api-server", "cel-expr-python"}


@pytest.mark.parametrize("file", ["scripts/install_lock.sh", "images/install.sh"])
def test_installation_of_a_lock_resolves_nothing(file: str) -> None:
    """A pip that resolves extras may find a newer version than the locked one, and fail."""
    lines = [line for line in (ROOT / file).read_text().splitlines() if "--require-hashes" in line]
    installations = [line for line in lines if "install" in line]
    assert installations
    assert all("--no-deps" in line for line in installations)


def test_locks_of_extras_have_the_versions_of_the_whole() -> None:
    def versions(name: str) -> set[str]:
        lines = (ROOT / "requirements" / f"{name}.lock").read_text().splitlines()
        return {line.split()[0] for line in lines if line[:1].isalpha()}

    extras = ("agent-nginx", "agent-envoy", "controller", "node-proxy", "node-proxy-envoy")
    for extra in (*extras, "run"):
        assert versions(extra)
        assert versions(extra) <= versions("dev"), extra
