"""Limits on the size, the name and the clocks of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import source_trees

MODULES = tuple(source_trees.modules())

MAX_MODULE_LINES, MAX_FUNCTION_LINES = 400, 50


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_module_and_function_lengths_are_limited() -> None:
    longer = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > MAX_MODULE_LINES:
            longer.append(str(path))
        longer += [
            f"{path}:{function.lineno} {function.name}"
            for function in functions(ast.parse(text))
            if (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION_LINES
        ]
    assert not longer


def test_docstrings_say_what_modules_are_for() -> None:
    silent = [
        path
        for path in MODULES
        if path.name != "__main__.py"
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "manager", "misc"])
def test_module_has_no_generic_name(name: str) -> None:
    assert not [path for path in MODULES if path.stem == name]


PACKAGES = {
    *("agent", "apis", "apiserver_extension", "cli", "compiler", "console"),
    *("controller", "dataplane", "incremental", "inspection", "kube", "nodeproxy", "ratelimit"),
    *("runtime", "sidecars", "standalone", "transports"),
}
"""Packages at the top level; docs/concepts/architecture.md has one row for each. `wire` is
generated."""


def layout(source: Path) -> tuple[set[str], set[str]]:
    """Return the packages at the top level, and the modules beside them."""
    packages = {path.parent.name for path in source.glob("*/__init__.py")}
    return packages - {"wire"}, {path.name for path in source.glob("*.py")}


def test_top_level_has_the_documented_packages_and_no_loose_modules() -> None:
    assert layout(source_trees.GATEHOUSE) == (PACKAGES, {"__init__.py", "__main__.py"})
    assert layout(source_trees.KUBE_BASE) == ({"runtime", "types"}, {"__init__.py"})


def test_loose_module_and_new_package_are_found(tmp_path: Path) -> None:
    (tmp_path / "extra").mkdir()
    for name in ("extra/__init__.py", "extra/inner.py", "helpers.py"):
        (tmp_path / name).touch()
    assert layout(tmp_path) == ({"extra"}, {"helpers.py"})


WALL_CLOCK = {
    # Stamps that others read, and never compare with their own clock.
    "kube/leader_election.py",
    "kube/events.py",
    "controller/programmed_condition.py",
    "controller/status_writer.py",
    "controller/load_balancers/metrics.py",
    "controller/load_balancers/status_reporter.py",
    # Nodes write when containers were started.
    "controller/instance_events.py",
    # A metric tells since when a configuration is confirmed.
    "agent/configuration_state.py",
    # Certificates end by the wall clock.
    "transports/agents/certificate_auth.py",
}


MONOTONIC = (
    "agent",
    "controller",
    "kube",
    "kube_base",
    "runtime",
    "sidecars/base",
    "sidecars/tls_connector",
    "transports",
)
"""Packages that measure time by the monotonic clock. Other sidecars check expiry dates."""


def test_wall_clock_exceptions_name_existing_modules() -> None:
    assert {*map(source_trees.short_name, MODULES)} >= WALL_CLOCK


@pytest.mark.parametrize("package", MONOTONIC)
def test_deadlines_use_monotonic_clock(package: str) -> None:
    modules = {source_trees.short_name(path): path for path in MODULES}
    names = [name for name in modules if name.startswith(f"{package}/")]
    assert names, f"package {package} has no modules"
    for name in names:
        if name in WALL_CLOCK:
            continue
        path = modules[name]
        text = path.read_text(encoding="utf-8")
        for clock in ("time.time(", "time.time_ns(", "datetime.now(", "datetime.utcnow("):
            assert clock not in text, f"{name} reads the wall clock: {clock}…)"
