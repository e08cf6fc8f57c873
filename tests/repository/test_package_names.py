"""The packages of the API server and its types name no program that embeds them."""

from __future__ import annotations

from pathlib import Path

from fakes.source_trees import ROOT

PRODUCT = "gatehouse"
PACKAGES = ROOT / "packages"
ALLOWED = {"README.md", "CHANGELOG.md", "NOTICE", "pyproject.toml"}
"""Files that say where a package comes from, and names of distributions."""


def files() -> list[Path]:
    """Return what the packages consist of, without tests and generated code."""
    return [
        path
        for package in PACKAGES.iterdir()
        for path in package.rglob("*")
        if path.is_file() and not {"tests", "wire", "__pycache__", "dist"} & {*path.parts}
    ]


def naming_product() -> set[Path]:
    return {path for path in files() if PRODUCT in path.read_text(encoding="utf-8").lower()}


def test_sources_of_packages_do_not_name_the_product() -> None:
    sources = [str(path.relative_to(PACKAGES)) for path in naming_product()]
    assert [path for path in sources if Path(path).name not in ALLOWED or "/src/" in path] == []


def test_every_exception_is_needed() -> None:
    assert {path.name for path in naming_product()} == ALLOWED
