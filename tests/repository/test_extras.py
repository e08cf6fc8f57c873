"""Extras of the distribution: each has exactly the packages that its commands import."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = {
    "agent-nginx": ("cli.agent", "cli.agent_config", "agent.nginx", "sidecars"),
    "agent-envoy": ("cli.agent", "cli.agent_config", "agent.envoy", "sidecars"),
    "apiserver": ("apiserver",),
    "controller": ("cli.controller", "cli.ratelimit", "cli.certs", "cli.status", "cli.explain"),
    "node-proxy": ("cli.node_proxy", "nodeproxy"),
    "node-proxy-envoy": ("cli.node_proxy", "nodeproxy"),
    "standalone": ("cli",),
}
"""Extras to the packages and modules of gatehouse that run where the extra is installed."""
OTHERS = {
    "agent-nginx": ("gatehouse.agent.envoy", "gatehouse.cli.envoy_config"),
    "agent-envoy": ("gatehouse.agent.nginx", "gatehouse.sidecars.picker"),
    # Who uses the fixture has pytest.
    "apiserver": ("kube_api_server.testing.pytest_plugin",),
}
"""Packages, by extra, that a command of the extra imports for another option only."""
TRANSITIVE = {"yarl": "aiohttp", "multidict": "aiohttp"}
"""Packages that another one has in its interface."""


def _requirements(extra: str) -> set[str]:
    """Return the distributions of an extra, those of every command included."""
    texts = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]
    result: set[str] = set()
    for requirement in map(Requirement, texts):
        if requirement.name == PROJECT["name"]:
            for other in requirement.extras:
                result |= _requirements(other)
        else:
            result.add(canonicalize_name(requirement.name))
    return result


@cache
def _path(module: str) -> Path | None:
    path = SOURCE.joinpath(*module.split("."))
    candidates = (path / "__init__.py", path.with_suffix(".py"))
    return next((candidate for candidate in candidates if candidate.exists()), None)


def _modules(name: str) -> Iterator[str]:
    """Yield the module `name`, and if it is a package, every module in it."""
    path = SOURCE.joinpath(*name.split("."))
    for file in path.rglob("*.py") if path.is_dir() else (path.with_suffix(".py"),):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


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


def _imported_distributions(extra: str) -> dict[frozenset[str], str]:
    """Return what the code of an extra imports, each with one importer.

    Several distributions may share a package, such as `google`: one of the set has the module.
    """
    pending = [name for package in PACKAGES[extra] for name in _modules(f"gatehouse.{package}")]
    visited: set[str] = set()
    result: dict[frozenset[str], str] = {}
    owners = packages_distributions()
    while pending:
        module = pending.pop()
        path = _path(module)
        if module in visited or path is None or module.startswith(OTHERS.get(extra, ("-",))):
            continue
        visited.add(module)
        for name in _imports(path):
            top = name.partition(".")[0]
            if top == "gatehouse":
                pending += _with_packages(name)
            elif top not in sys.stdlib_module_names:
                candidates = (TRANSITIVE.get(owner, owner) for owner in owners.get(top, [top]))
                result[frozenset(map(canonicalize_name, candidates))] = module
    return result


@pytest.mark.parametrize("extra", PACKAGES)
def test_extra_has_every_package_that_its_commands_import(extra: str) -> None:
    permitted = _requirements(extra)
    missing = {
        (*sorted(owners), module)
        for owners, module in _imported_distributions(extra).items()
        if not owners & permitted
    }
    assert not missing


@pytest.mark.parametrize("extra", ["agent-nginx", "agent-envoy", "controller", "node-proxy"])
def test_extra_has_no_package_that_its_commands_do_not_import(extra: str) -> None:
    unused = _requirements(extra).difference(*_imported_distributions(extra))
    assert not unused


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
