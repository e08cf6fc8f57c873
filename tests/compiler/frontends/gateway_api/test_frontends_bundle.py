"""Compatibility of the cluster's Gateway API CRDs with the supported version."""

from __future__ import annotations

from importlib import resources

import msgspec
import pytest

from gatehouse.compiler.frontends.gateway_api import crd_version
from gatehouse.controller.informers import crd_versions


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1.6.0", "same"),
        ("v1.6.1-rc1", "same"),
        ("1.6.2", "same"),
        ("v1.5.1", "near"),
        ("v1.16.0", "near"),
        ("v0.8.1", "foreign"),
        ("v2.0.0", "foreign"),
        ("v16.0.0", "foreign"),
        ("main", "near"),
        ("", "near"),
    ],
)
def test_versions_are_compared_by_major_and_minor(version: str, expected: str) -> None:
    assert crd_version.compatibility(version) == expected


def test_bundled_crds_have_the_supported_version() -> None:
    directory = resources.files("gatehouse.apiserver").joinpath("bundled")
    versions = crd_versions(
        msgspec.json.decode(file.read_bytes())
        for file in directory.iterdir()
        if file.name.endswith(".json")
    )
    assert len(versions.versions) >= 10
    assert {crd_version.compatibility(version) for _, version in versions.versions} == {"same"}
