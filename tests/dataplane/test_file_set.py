"""Bundles are addressed by content."""

from __future__ import annotations

import pickle

import pytest

from gatehouse.compiler.ir.gateway import SecretBytes
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport
from gatehouse.dataplane.file_set import File, FileSet, base64_sha256


def test_digest_is_base64_of_sha256_like_nginx_agent() -> None:
    assert base64_sha256(b"") == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


def test_version_depends_on_paths_and_contents_only() -> None:
    one, two = File.make("a", "1"), File.make("b", "2")
    assert FileSet([one, two]).version == FileSet([two, one]).version
    assert FileSet([one]).version != FileSet([File.make("b", "1")]).version
    assert FileSet([one]).version != FileSet([File.make("a", "2")]).version


def test_key_material_is_neither_shown_nor_serialized() -> None:
    key = SecretBytes(b"top secret")
    assert "top" not in repr(key) + str(key)
    assert key == SecretBytes(b"top secret")
    assert "top" not in repr(File.make("k", key.reveal(), secret=True))
    with pytest.raises(TypeError):
        pickle.dumps(key)


@pytest.mark.parametrize(
    ("instances", "programmed", "error"),
    [
        ((), False, ""),
        ((InstanceReport("p", desired="v2", confirmed="v1"),), False, ""),
        ((InstanceReport("p", desired="v2", confirmed="v2"),), True, ""),
        (
            (
                InstanceReport("p", desired="v2", confirmed="v2"),
                InstanceReport("q", desired="v2", confirmed="v1", error="no"),
            ),
            False,
            "q: no",
        ),
        ((InstanceReport("p", desired="v1", confirmed="v0", error="old"),), False, ""),
    ],
)
def test_programmed_requires_confirmation_by_every_instance(
    instances: tuple[InstanceReport, ...], programmed: bool, error: str
) -> None:
    report = DataPlaneReport("ns/gw", desired="v2", instances=instances)
    assert (report.programmed, report.error) == (programmed, error)
